"""HTML of a report: one document without scripts and without other files. Everything shown is escaped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from html import escape
from importlib import resources

from ramify.base.html import highlighted, theme
from ramify.report import charts
from ramify.report.about import Table
from ramify.report.contents import ModelReport, Report
from ramify.report.labels import RANKS
from ramify.report.mistakes import Highlight, Mistake
from ramify.version import __version__

SERIES = charts.SERIES
MAX_TRUE = 8
"""True labels of a row that are shown."""


@cache
def style_sheet() -> str:
    """Style sheet of the report."""
    return theme() + resources.files("ramify.report").joinpath("style.css").read_text(encoding="utf-8")


def render_report(report: Report) -> str:
    """Return the report as one HTML document."""
    sections = [section for section in _sections(report) if section[2]]
    links = "".join(f'<li><a href="#{key}">{escape(title)}</a></li>' for key, title, _ in sections)
    body = "".join(
        f'<section aria-labelledby="{key}"><h2 id="{key}">{escape(title)}</h2>{content}</section>'
        for key, title, content in sections
    )
    names = [model.name for model in report.models]
    title = " and ".join(names)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)} on {escape(report.data_name)}: evaluation report</title>\n"
        f"<style>{style_sheet()}</style>\n</head>\n<body>\n{_header(report)}\n"
        f'<nav aria-label="Sections"><ul>{links}</ul></nav>\n<main>{body}</main>\n'
        f"<footer>Written by Ramify {escape(__version__)}. {_notes(report)}</footer>\n</body>\n</html>\n"
    )


def _header(report: Report) -> str:
    rows = f"{report.n_rows:,} samples of {escape(report.data_name)}"
    if len(report.models) == 1:
        return f"<header><h1>{escape(report.models[0].name)}</h1><p>Evaluation on {rows}</p></header>"
    a, b = (f'<span class="series {s}">{_name(m)}</span>' for s, m in zip(SERIES, report.models, strict=True))
    return f"<header><h1>Two models side by side</h1><p>A: {a}</p><p>B: {b}</p><p>Evaluation on {rows}</p></header>"


def _sections(report: Report) -> list[tuple[str, str, str]]:
    """Key, title and HTML of each section; one without content is left out."""
    models = report.models
    return [
        ("metrics", "Metrics", _metrics(models)),
        ("difference", "Difference", _difference(report)),
        ("curves", "Precision and recall by number of labels", _curves(models)),
        ("frequency", "Frequent and rare labels", _deciles(models)),
        ("probabilities", "Are the probabilities right?", _reliability(models)),
        ("rules", "Label sets by decision rule", _rules(models)),
        ("hard", "Hardest labels", _each(models, _hard, is_wide=True)),
        ("confused", "Most confused pairs", _each(models, _confused)),
        ("errors", "Rows that differ most" if report.comparison else "Sample errors", _mistakes(models)),
        ("index", "Index", _each(models, _index)),
        ("training", "Training", _each(models, _training)),
        ("times", "Times", _times(models)),
        ("model", "Models" if len(models) > 1 else "Model", _each(models, _facts)),
    ]


# ---- parts ----


def _name(model: ModelReport) -> str:
    return escape(model.name)


def _title(text: str) -> str:
    return text[:1].upper() + text[1:]


def _lead(text: str) -> str:
    return f'<p class="lead">{escape(text)}</p>'


def _figure(svg: str, caption: str, below: str = "") -> str:
    return f"<figure><figcaption>{escape(caption)}</figcaption>{svg}{below}</figure>"


def _table(rows: Table, caption: str = "", words: Sequence[int] = (), *, is_close: bool = False) -> str:
    """HTML of a table, header first; the columns `words` hold text, the others numbers; `is_close` takes less room."""
    head, *rest = rows

    def kind(i: int) -> str:
        return ' class="word"' if i in words else ""

    cells = "".join(
        f'<th scope="col"{kind(i)}>{escape(cell)}</th>' if cell else "<td></td>" for i, cell in enumerate(head)
    )
    lines = [
        "<tr>"
        + "".join(
            f'<th scope="row"{kind(0)}>{escape(cell)}</th>' if i == 0 else f"<td{kind(i)}>{escape(cell)}</td>"
            for i, cell in enumerate(row)
        )
        + "</tr>"
        for row in rest
    ]
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    kind_of_table = ' class="close"' if is_close else ""
    content = f"<thead><tr>{cells}</tr></thead><tbody>{''.join(lines)}</tbody>"
    name = escape(caption or ", ".join(filter(None, head)), quote=True)  # wide tables scroll, also by the keyboard
    table = f"<table{kind_of_table}>{title}{content}</table>"
    return f'<div class="scroll" role="group" tabindex="0" aria-label="{name}">{table}</div>'


def _each(models: Sequence[ModelReport], render: Callable[[ModelReport], str], *, is_wide: bool = False) -> str:
    """What `render` makes of each model, in columns unless it is wide; with their names, if there are two."""
    parts = [render(model) for model in models]
    if not any(parts):
        return ""
    if len(models) == 1:
        return parts[0]
    empty = '<p class="lead">nothing to show</p>'
    cells = [
        f'<div><h3 class="series {s}">{_name(m)}</h3>{part or empty}</div>'
        for s, m, part in zip(SERIES, models, parts, strict=True)
    ]
    return "".join(cells) if is_wide else f'<div class="columns">{"".join(cells)}</div>'


# ---- sections ----


def _metrics(models: Sequence[ModelReport]) -> str:
    tiles = []
    for name in charts.shown_metrics(models):
        values = []
        for s, model in zip(SERIES, models, strict=False):
            value = model.evaluation[name]
            low, high = model.evaluation.intervals.get(name, (value, value))
            size, color = (" small", f" series {s}") if len(models) > 1 else ("", "")
            values.append(f'<span class="value{size}{color}">{value:.1f}</span>')
            if low < high:
                values.append(f'<span class="range">{low:.1f} to {high:.1f}</span>')
        tiles.append(f'<li class="tile"><span class="name">{escape(name)}</span>{"".join(values)}</li>')
    lead = _lead("In percent, with bootstrap confidence intervals: where other samples would put the value.")
    chart = _figure(charts.metric_chart(models), "Metrics and their confidence intervals")
    tables = []
    for model in models:
        shown = [k for k in (1, 3, 5, 10, 100) if k in model.evaluation.metrics.cutoffs]
        at = [model.evaluation.metrics.cutoffs.index(k) for k in shown]
        rows = [[row[0], *(row[1 + i] for i in at)] for row in model.evaluation.table()]
        tables.append(_table(rows, model.name if len(models) > 1 else "All metrics"))
    notes = "".join(_lead(f"{m.name}: {'; '.join(m.evaluation.notes())}.") for m in models)
    columns = f'<div class="columns"><div>{chart}</div><div>{"".join(tables)}</div></div>'
    return f'{lead}<ul class="tiles">{"".join(tiles)}</ul><div class="block">{columns}</div>{notes}'


def _difference(report: Report) -> str:
    if report.comparison is None:
        return ""
    tables = report.comparison.tables()
    lead = _lead("A minus B on the same rows. An interval that does not contain 0 is a difference that other samples "
                 "would show, too.")  # fmt: skip
    first, *others = (_table(rows, _title(title), is_close=True) for title, rows in tables.items())
    chart = _figure(charts.difference_chart(report.comparison), "Difference in percentage points")
    return f'{lead}<div class="columns wide-table"><div>{chart}{"".join(others)}</div><div>{first}</div></div>'


def _curves(models: Sequence[ModelReport]) -> str:
    lead = _lead("How much of what is right a user has seen after k labels, and how much of what was seen is right."
                 )  # fmt: skip
    recall = _figure(charts.recall_chart(models), "Recall: true labels among the first k", _legend(models))
    precision = _figure(charts.precision_chart(models), "Precision: labels among the first k that are true")
    return f'{lead}<div class="columns">{recall}{precision}</div>'


def _legend(models: Sequence[ModelReport], shown: Sequence[ModelReport] | None = None) -> str:
    """Names of the models in their colors; `shown`: those that the plot has."""
    if len(models) == 1:
        return ""
    pairs = [(s, m) for s, m in zip(SERIES, models, strict=True) if shown is None or m in shown]
    items = "".join(f'<li class="series {s}">{_name(m)}</li>' for s, m in pairs)
    return f'<ul class="legend">{items}</ul>'


def _deciles(models: Sequence[ModelReport]) -> str:
    if not all(model.deciles for model in models):
        return ""
    lead = _lead("The labels in ten groups of equal size, by the number of their training samples. A bar shows how "
                 "many of the true labels of a group are found, and at which rank.")  # fmt: skip
    swatches = "".join(
        f'<li><span class="swatch step-{i + 1}"></span>among the {rank} best</li>' if rank > 1 else
        f'<li><span class="swatch step-{i + 1}"></span>first</li>' for i, rank in enumerate(RANKS)
    )  # fmt: skip
    chart = _figure(
        charts.decile_chart(models), "True labels found", f'<ul class="legend">{swatches}</ul>{_legend(models)}'
    )
    head = ["decile", "samples", "true labels"]
    at = range(len(RANKS)) if len(models) == 1 else (1, 3)  # fewer columns for two models
    prefixes = [""] if len(models) == 1 else [f"{s.upper()} " for s in SERIES]
    rows: Table = [[*head, *(f"{prefix}@{RANKS[i]}" for prefix in prefixes for i in at)]]
    for d, decile in enumerate(models[0].deciles):
        low, high = decile.n_train
        found = [f"{100 * model.deciles[d].found[i]:.1f}" for model in models for i in at]
        rows.append([f"{d + 1}", f"{low:,}" if low == high else f"{low:,} to {high:,}", f"{decile.n_true:,}", *found])
    return f'{lead}<div class="columns"><div>{chart}</div><div>{_table(rows, "Found, in percent")}</div></div>'


def _reliability(models: Sequence[ModelReport]) -> str:
    shown = [model for model in models if model.evaluation.reliability is not None]
    if not shown:
        return ""
    lead = _lead("Of the labels with a probability of 0.7, seven in ten should be true: circles on the line. Above it "
                 "the model is too careful, below it too sure. The area is the number of labels.")  # fmt: skip
    chart = _figure(charts.reliability_chart(models), "Reliability of the five best labels", _legend(models, shown))
    tables = []
    for model in shown:
        assert model.evaluation.reliability is not None
        found = list(model.evaluation.reliability.tables().items())[:2]
        prefix = f"{model.name}: " if len(models) > 1 else ""
        tables += [_table(rows, f"{prefix}{title}" if prefix else _title(title)) for title, rows in found]
    return f'{lead}<div class="columns"><div>{chart}</div><div>{"".join(tables)}</div></div>'


def _rules(models: Sequence[ModelReport]) -> str:
    lead = _lead("A decision rule chooses how many of the ranked labels a sample gets. The line is a threshold on the "
                 "probability, from 0.95 on the left to 0.05; numbers are the rules of the table.")  # fmt: skip
    chart = _figure(charts.rule_chart(models), "Precision and recall of the label sets", _legend(models))
    tables = []
    for model in models:
        rows = [["", "rule", "precision", "recall", "F1", "F1 by sample", "labels", "empty"]]
        for i, r in enumerate(model.rules):
            numbers = [f"{v:.1f}" for v in (r.precision, r.recall, r.f1, r.f1_by_sample)]
            rows.append([f"{i + 1}", r.name, *numbers, f"{r.n_labels:.1f}", f"{100 * r.empty:.0f} %"])
        tables.append(_table(rows, model.name if len(models) > 1 else "", words=(1,), is_close=True))
    return f'{lead}<div class="columns wide-table"><div>{chart}</div><div>{"".join(tables)}</div></div>'


def _hard(model: ModelReport) -> str:
    if not model.hard:
        return ""
    rows = [["label", "training", "test", "found @5", "median rank", "first instead"]]
    for label in model.hard:
        rank = "not ranked" if label.median_rank is None else f"{label.median_rank:g}"
        n_train = "" if label.n_train is None else f"{label.n_train:,}"
        found = f"{100 * label.recall:.0f} %"
        rows.append([label.name, n_train, f"{label.n_test:,}", found, rank, label.instead or ""])
    lead = _lead("Labels of several test rows that are rarely among the five best; training and test count samples.")
    return lead + _table(rows, words=(0, 5))


def _confused(model: ModelReport) -> str:
    if not model.confused:
        return ""
    rows = [["true, but missed", "predicted instead", "rows", "of"]]
    rows += [[pair.missed, pair.predicted, f"{pair.n_rows:,}", f"{pair.n_true:,}"] for pair in model.confused]
    lead = _lead("A row with t true labels should have them as its first t. These pairs have changed places.")
    return lead + _table(rows, words=(0, 1))


def _mistakes(models: Sequence[ModelReport]) -> str:
    if not models[0].mistakes:
        return ""
    if len(models) == 1:
        lead = _lead("Rows whose best label is wrong: first those with the highest scores, then some drawn at random. "
                     "Green words speak for a label, red ones against it.")  # fmt: skip
        return lead + "".join(_mistake([mistake], models) for mistake in models[0].mistakes)
    lead = _lead("First rows in which A is ahead, then rows in which B is. Green words speak for a label, red ones "
                 "against it.")  # fmt: skip
    pairs = zip(*(model.mistakes for model in models), strict=True)
    return lead + "".join(_mistake(pair, models) for pair in pairs)


def _mistake(views: Sequence[Mistake], models: Sequence[ModelReport]) -> str:
    first = views[0]
    title = f"row {first.row + 1:,}" if first.id is None else f"{first.id}"
    text = f"<blockquote dir=auto>{escape(first.text)}</blockquote>" if first.text else ""
    columns = []
    for s, view, model in zip(SERIES, views, models, strict=False):
        head = f'<h4 class="series {s}">{_name(model)}</h4>' if len(models) > 1 else "<h4>Predicted</h4>"
        items = "".join(
            f'<li><bdi class="name{" right" if is_true else ""}">{escape(label)}</bdi>'
            f'<span class="number">{score:.3f}</span></li>'
            for label, score, is_true in view.predicted
        )
        columns.append(f'<div>{head}<ul class="labels">{items}</ul></div>')
    for s, view in zip(SERIES, views, strict=False):
        head = "<h4>True</h4>" if len(views) == 1 else f"<h4>True, with the ranks of {s.upper()}</h4>"
        items = "".join(
            f'<li><bdi class="name">{escape(label)}</bdi>'
            f'<span class="number">{"not ranked" if rank is None else f"rank {rank:,}"}</span></li>'
            for label, rank in view.true[:MAX_TRUE]
        )
        if len(view.true) > MAX_TRUE:
            items += f'<li class="number">and {len(view.true) - MAX_TRUE} more</li>'
        columns.append(f'<div>{head}<ul class="labels">{items}</ul></div>')
    why = "".join(_why(h) for view in views for h in view.highlights)
    return (
        f'<article class="mistake"><h3>{escape(title)}</h3>{text if not why else ""}'
        f'<div class="columns">{"".join(columns)}</div>{why}</article>'
    )


def _why(highlight: Highlight) -> str:
    kind = "true" if highlight.is_true else "wrong"
    words = ", ".join(
        f'<span class="{"up" if value > 0 else "down"}"><bdi>{escape(word)}</bdi> {_signed(value)}</span>'
        for word, value in highlight.words
    )
    return (
        f'<div class="why"><p>For <strong><bdi>{escape(highlight.label)}</bdi></strong> ({kind}, '
        f"{highlight.score:.3f}):</p><blockquote dir=auto>{highlighted(highlight.pieces)}</blockquote>"
        f'<p class="words">{words}</p></div>'
    )


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")


def _index(model: ModelReport) -> str:
    return "".join(_table(rows, _title(title)) for title, rows in model.index.items())


def _training(model: ModelReport) -> str:
    figures = [_figure(charts.curve_chart(c), _title(c.title)) for c in model.curves]
    return f'<div class="columns">{"".join(figures)}</div>' if figures else ""


def _times(models: Sequence[ModelReport]) -> str:
    names = list(dict.fromkeys(name for model in models for name in model.times))
    if not names:
        return ""
    rows = [["", *(model.name for model in models)]]
    rows += [[name, *(f"{m.times[name]:,.3g}" if name in m.times else "" for m in models)] for name in names]
    return _lead("Measured while this report was made, on this machine.") + _table(rows)


def _facts(model: ModelReport) -> str:
    items = "".join(
        f"<dt>{escape(name)}</dt><dd{' class=code' if name == 'parameters' else ''}>{escape(value)}</dd>"
        for name, value in model.facts
    )
    return f'<dl class="facts">{items}</dl>' if items else ""


def _notes(report: Report) -> str:
    return escape(f"{len(report.models)} model{'s' if len(report.models) > 1 else ''}, {report.n_rows:,} samples.")
