"""What `make demo` runs: learn the docstrings of this very Python and answer three descriptions."""

from __future__ import annotations

import time
from pathlib import Path

import ramify

QUESTIONS = [
    "Solve a linear system of equations with a symmetric matrix.",
    "Split a string into words at white space.",
    "Compute the mean of an array along an axis.",
]


def main() -> None:
    data = ramify.datasets.load("pydoc")
    train, test = data.split("train"), data.split("test")
    print(f"{data!r}\n")

    models = {
        "Popular, the floor that every model must beat": ramify.Popular(),
        "XRLinear, a tree of linear classifiers": ramify.XRLinear(),
    }
    for title, model in models.items():
        start = time.perf_counter()
        model.fit(train.texts, train.labels())
        seconds = time.perf_counter() - start
        print(f"{title}; trained in {seconds:.1f} s:")
        print(ramify.evaluate(model.predict_topk(test.texts, k=100), test.labels(), train.labels()), end="\n\n")

    place = Path("demo/xr-linear")
    model.save(place)
    model = ramify.load(place)
    print(f"XRLinear, saved to {place} and opened again, answers three descriptions:")
    for question, labels in zip(QUESTIONS, model.predict_topk(QUESTIONS, k=5).labels(), strict=True):
        print(f"  {question}")
        print("    " + ", ".join(f"{name} {score:.2f}" for name, score in labels))


if __name__ == "__main__":
    main()
