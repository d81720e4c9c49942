"""What `make demo` runs: train on the docstrings of the running Python and answer three queries."""

from __future__ import annotations

import time
from pathlib import Path

import ramify

QUERIES = [
    "Solve a linear system of equations with a symmetric matrix.",
    "Split a string into words at white space.",
    "Compute the mean of an array along an axis.",
]


def main() -> None:
    data = ramify.datasets.load("pydoc")
    train, test = data.split("train"), data.split("test")
    print(f"{data!r}\n")

    models = {
        "Popular, the baseline every model must beat": ramify.Popular(),
        "XRLinear, a label tree with linear classifiers": ramify.XRLinear(),
    }
    for title, model in models.items():
        start = time.perf_counter()
        model.fit_calibrated(train.texts, train.labels())  # trains twice, for the probabilities
        seconds = time.perf_counter() - start
        print(f"{title}; trained in {seconds:.1f} s:")
        print(ramify.evaluate(model.predict_topk(test.texts, k=100), test.labels(), train.labels()), end="\n\n")

    names = {label: label.split(":")[-1].replace("_", " ").replace(".", " ") for row in train.labels() for label in row}
    start = time.perf_counter()
    hybrid = ramify.Hybrid(max_rows=2000).fit(train.texts, train.labels(), label_catalogue=names)
    seconds = time.perf_counter() - start
    print(f"Hybrid, which also sees the names of the labels and the nearest texts; trained in {seconds:.1f} s:")
    print(ramify.evaluate(hybrid.predict_topk(test.texts, k=100), test.labels(), train.labels()), end="\n\n")

    path = Path("demo/xr-linear")
    model.save(path)
    model = ramify.load(path)
    print(f"XRLinear, saved to {path} and loaded again, chooses labels for three queries, with their probabilities:")
    for query, labels in zip(QUERIES, model.predict_sets(QUERIES).labels(), strict=True):
        print(f"  {query}")
        print("    " + ", ".join(f"{label} {probability:.2f}" for label, probability in labels))
    print(f"\nWhy the best label of the first one?\n{model.explain(QUERIES[0])}")

    ranking = model.predict_topk(test.texts, k=100, probabilities=True)
    subject = ramify.report.Subject(path.name, ranking, model.label_counts_, model)
    report = ramify.report.make_report([subject], test.labels(), documents=test.texts, data_name="pydoc:test")
    report.save(path.with_name(f"{path.name}.report.html"))
    print(f"\nHow good it is, in plots: {path}.report.html")
    print("Next: `make serve` opens the model at http://127.0.0.1:8000, for a browser and for programs.")


if __name__ == "__main__":
    main()
