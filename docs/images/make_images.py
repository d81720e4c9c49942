"""Screenshots of the documentation, in the browser of the tests: ``make screenshots``."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent.parent / "tests"))

import numpy as np
from browser import chromium, find_browser, running

import ramify
from ramify.report.contents import Subject, make_report
from ramify.serve import Settings, create_app

TEXT = (
    "Fit the model to data matrix X and targets y with stochastic gradient descent. Returns the fitted estimator. "
    "The optimization stops when the loss has not improved for several iterations; the learning rate is constant."
)


def main() -> None:
    """Train a model on the built-in data, write its report, and take both pictures."""
    path = find_browser()
    if path is None:
        sys.exit("the screenshots need Chromium: apt install chromium")
    data = ramify.datasets.load("pydoc")
    train, test = data.split("train"), data.split("test")
    held = np.arange(len(train)) % 10 == 0
    fit, calibration = train.subset(np.flatnonzero(~held)), train.subset(np.flatnonzero(held))
    model = ramify.XRLinear(verbose=0).fit(fit.texts, fit.labels())
    model.calibrate(calibration.texts, calibration.labels())
    ranking = model.predict_topk(test.texts, 100, probabilities=True)
    report = make_report(
        [Subject("pydoc", ranking, model.label_counts_, model)],
        test.labels(),
        documents=test.texts,
        data_name="pydoc:test",
    )
    with tempfile.TemporaryDirectory() as folder, chromium(path) as browser:
        model.save(f"{folder}/pydoc")
        report.save(f"{folder}/report.html")
        with running(create_app(f"{folder}/pydoc", Settings(threads=1, reload_every=0))) as address:
            page = browser.new_page(viewport={"width": 1200, "height": 860})
            page.goto(address)
            page.fill("#text", TEXT)
            page.wait_for_selector("#labels li")
            page.type("#text", " ", delay=200)  # the first request has found nothing in memory
            page.wait_for_timeout(500)
            page.click("#labels li:nth-child(1) .name")
            page.wait_for_selector("#why .words")
            page.click("#labels li:nth-child(1) .accept")
            page.evaluate("document.activeElement.blur()")
            page.mouse.move(0, 0)
            page.wait_for_timeout(300)
            page.screenshot(path=HERE / "page.png")
        page = browser.new_page(viewport={"width": 1200, "height": 1180})
        page.goto(f"file://{folder}/report.html")
        page.screenshot(path=HERE / "report.png")


if __name__ == "__main__":
    main()
