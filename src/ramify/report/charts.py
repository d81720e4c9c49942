"""The plots of a report, from its data."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ramify.metrics.bootstrap import Comparison
from ramify.report.about import Curve
from ramify.report.contents import ModelReport
from ramify.report.labels import RANKS
from ramify.report.svg import MARGIN, Plot

SERIES = ("a", "b")
"""Classes of the first and the second model."""
SHOWN = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@5", "R@10", "R@100")
ROW_HEIGHT = 30.0


def shown_metrics(models: Sequence[ModelReport]) -> list[str]:
    """Metrics of the overview, as far as they were computed."""
    return [name for name in SHOWN if all(name in model.evaluation.to_dict() for model in models)]


def metric_chart(models: Sequence[ModelReport]) -> str:
    """Metrics with their confidence intervals, one line each."""
    names = shown_metrics(models)
    height = ROW_HEIGHT * len(names) + MARGIN["top"] + MARGIN["bottom"]
    plot = Plot.of("metrics with confidence intervals", (0, 100), (0, max(1, len(names))), size=(540, height), left=76)
    for tick in plot.x.ticks():
        plot.line(plot.x(tick), plot.y.end, plot.x(tick), plot.y.start, "grid")
        plot.text(plot.x(tick), plot.y.start + 18, f"{tick:g}", "tick", "middle")
    plot.text((plot.x.start + plot.x.end) / 2, height - 6, "percent", "axis-name", "middle")
    for i, name in enumerate(names):
        middle = plot.y.end + ROW_HEIGHT * (i + 0.5)
        plot.text(plot.x.start - 10, middle + 4, name, "row-name", "end")
        for s, model in enumerate(models):
            at = middle + (s - (len(models) - 1) / 2) * 11
            value = model.evaluation[name]
            low, high = model.evaluation.intervals.get(name, (value, value))
            plot.line(plot.x(low), at, plot.x(high), at, f"whisker {SERIES[s]}")
            hint = f"{model.name}: {name} {value:.2f}, {low:.2f} to {high:.2f}"
            plot.dot(plot.x(value), at, SERIES[s], 4.5, hint)
    return plot.svg()


def recall_chart(models: Sequence[ModelReport]) -> str:
    """Recall by the number of labels, with the band of its confidence interval."""
    plot = _by_number_of_labels(models, "recall", "R")
    for s, model in enumerate(models):
        result = model.evaluation
        values = [(k, result[f"R@{k}"]) for k in result.metrics.cutoffs]
        bounds = [(float(k), *result.intervals.get(f"R@{k}", (v, v))) for k, v in values]
        plot.band(bounds, SERIES[s])
        _curve(plot, model, s, "R")
    return plot.svg()


def precision_chart(models: Sequence[ModelReport]) -> str:
    """Precision by the number of labels."""
    plot = _by_number_of_labels(models, "precision", "P")
    for s, model in enumerate(models):
        _curve(plot, model, s, "P")
    return plot.svg()


def _by_number_of_labels(models: Sequence[ModelReport], name: str, metric: str) -> Plot:
    """Return an empty plot of a metric at k, by k."""
    largest = max(max(model.evaluation.metrics.cutoffs) for model in models)
    plot = Plot.of(f"{name} by number of labels", (1, max(2, largest)), (0, 100), is_log=True)
    plot.axes("labels looked at (k)", f"{metric}@k", percent=True)
    return plot


def _curve(plot: Plot, model: ModelReport, s: int, metric: str) -> None:
    """Draw a metric at k of the model with index s."""
    values = [(float(k), model.evaluation[f"{metric}@{k}"]) for k in model.evaluation.metrics.cutoffs]
    plot.curve(values, SERIES[s])
    for x, y in values:
        plot.dot(plot.x(x), plot.y(y), SERIES[s], 3, f"{model.name}: {metric}@{x:g} {y:.2f}")


def decile_chart(models: Sequence[ModelReport]) -> str:
    """True labels of each decile that are found, by rank; one stacked bar for each model."""
    plot = Plot.of("true labels found, by label frequency", (0, 10), (0, 100), size=(540, 320))
    plot.axes("label frequency decile: 1 has the most frequent labels", "true labels found", percent=True,
              x_ticks=False)  # fmt: skip
    for d in range(10):
        plot.text(plot.x(d + 0.5), plot.y.start + 18, f"{d + 1}", "tick", "middle")
    slot = (plot.x.end - plot.x.start) / 10
    width = slot * (0.62 if len(models) == 1 else 0.36)
    for s, model in enumerate(models):
        for d, decile in enumerate(model.deciles):
            start = plot.x(d + 0.5) + (s - len(models) / 2) * (width + 2) + 1
            below = 0.0
            for step, (rank, found) in enumerate(zip(RANKS, decile.found, strict=True)):
                hint = f"{model.name}, decile {d + 1}: {100 * found:.1f} % among the {rank} best"
                top, bottom = plot.y(100 * found), plot.y(100 * below)
                plot.bar(start, top, width, bottom - top, f"{SERIES[s]} step-{step + 1}", hint)
                below = found
    return plot.svg()


def reliability_chart(models: Sequence[ModelReport]) -> str:
    """Fraction of true labels by predicted probability; the area of a circle is the number of labels."""
    plot = Plot.of("reliability diagram", (0, 1), (0, 1), size=(440, 400))
    plot.axes("predicted probability", "fraction of true labels")
    plot.line(plot.x(0), plot.y(0), plot.x(1), plot.y(1), "ideal")
    for s, model in enumerate(models):
        if model.evaluation.reliability is None:
            continue
        bins = [entry for entry in model.evaluation.reliability.bins if entry[2]]
        largest = max((entry[2] for entry in bins), default=1)
        plot.curve([(mean, true) for _, _, _, mean, true in bins], f"{SERIES[s]} thin")
        for low, high, n, mean, true in bins:
            hint = f"{model.name}, {low:.1f} to {high:.1f}: {n:,} labels, mean {mean:.3f}, true {true:.3f}"
            plot.dot(plot.x(mean), plot.y(true), f"{SERIES[s]} clear", 3 + 11 * math.sqrt(n / largest), hint)
    return plot.svg()


def rule_chart(models: Sequence[ModelReport]) -> str:
    """Precision and recall of label sets: a curve along the thresholds, a numbered circle for each rule."""
    plot = Plot.of("precision and recall by decision rule", (0, 100), (0, 100), size=(540, 380))
    plot.axes("recall (%)", "precision (%)")
    for f1 in (20, 40, 60, 80):  # lines of equal F1
        recalls = [r for r in range(f1 // 2 + 1, 101) if f1 * r / (2 * r - f1) <= 100]
        plot.curve([(float(r), f1 * r / (2 * r - f1)) for r in recalls], "contour")
        plot.text(plot.x.end - 2, plot.y(f1 * 100 / (200 - f1)) - 4, f"F1 {f1}", "contour-name", "end")
    for s, model in enumerate(models):
        plot.curve([(recall, precision) for _, precision, recall in model.thresholds], SERIES[s])
        for i, rule in enumerate(model.rules):
            x, y = plot.x(rule.recall), plot.y(rule.precision)
            hint = f"{model.name}, {rule.name}: precision {rule.precision:.1f}, recall {rule.recall:.1f}"
            plot.dot(x, y, f"{SERIES[s]} rule", 8.5, hint)
            plot.text(x, y + 3.8, f"{i + 1}", f"digit {SERIES[s]}", "middle")
    return plot.svg()


def difference_chart(comparison: Comparison) -> str:
    """Differences A - B with their confidence intervals; an interval on one side of 0 is a clear difference."""
    names = list(comparison.metrics)
    bounds = [abs(v) for name in names for v in comparison.metrics[name][2:]]
    largest = max([0.5, *bounds]) * 1.1
    height = 26.0 * len(names) + MARGIN["top"] + MARGIN["bottom"]
    plot = Plot.of("difference of the models with confidence intervals", (-largest, largest), (0, 1),
                   size=(540, height), left=76)  # fmt: skip
    for tick in plot.x.ticks():
        plot.line(plot.x(tick), plot.y.end, plot.x(tick), plot.y.start, "grid" if tick else "zero")
        plot.text(plot.x(tick), plot.y.start + 18, f"{tick:+g}" if tick else "0", "tick", "middle")
    plot.text(plot.x.start, height - 6, "B is better", "axis-name b", "start")
    plot.text(plot.x.end, height - 6, "A is better", "axis-name a", "end")
    for i, name in enumerate(names):
        _, _, difference, low, high = comparison.metrics[name]
        at = plot.y.end + 26.0 * (i + 0.5)
        color = "a" if low > 0 else "b" if high < 0 else "neutral"
        plot.text(plot.x.start - 10, at + 4, name, "row-name", "end")
        plot.line(plot.x(low), at, plot.x(high), at, f"whisker {color}")
        plot.dot(plot.x(difference), at, color, 4.5, f"{name}: {difference:+.2f}, {low:+.2f} to {high:+.2f}")
    return plot.svg()


def curve_chart(curve: Curve) -> str:
    """Draw a training curve; up to two lines have colors of their own."""
    xs = [x for line in curve.lines.values() for x, _ in line]
    ys = [y for line in curve.lines.values() for _, y in line]
    low, high = min(ys), max(ys)
    margin = (high - low) * 0.08 or abs(high) * 0.1 or 1.0
    low = max(0.0, low - margin) if low >= 0 else low - margin
    plot = Plot.of(curve.title, (min(xs), max(xs)), (low, high + margin), size=(420, 260))
    plot.axes(curve.x, curve.y)
    for i, (name, line) in enumerate(curve.lines.items()):
        plot.curve(line, SERIES[i % 2])
        for x, y in line:
            plot.dot(plot.x(x), plot.y(y), SERIES[i % 2], 2.5, f"{name}: {y:.4g} at {x:g}")
    return plot.svg()
