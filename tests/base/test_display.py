"""Rankings as frames; models, rankings and evaluations in notebooks."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from test_contract import LABELS, TEXTS

import ramify
from ramify.base.html import html_table


@pytest.fixture
def ranking():
    ids = np.array([[2, 0], [1, -1]], np.int32)
    scores = np.array([[0.75, 0.5], [0.25, -np.inf]], np.float32)
    return ramify.Ranking(ids, scores, 3, ["a", "b", "<c>"])


def expected():
    return {"row": [0, 0, 1], "rank": [1, 2, 1], "label": ["<c>", "a", "b"], "score": [0.75, 0.5, 0.25]}


def test_rankings_as_frames(ranking):
    assert ranking.to_columns() == expected()
    assert ramify.Ranking(ranking.ids, ranking.scores, 3).to_columns()["label"] == [2, 0, 1]
    pytest.importorskip("pandas")
    assert ranking.to_pandas().to_dict("list") == expected()
    pytest.importorskip("pyarrow")
    assert ranking.to_arrow().to_pydict() == expected()
    pytest.importorskip("polars")
    assert ranking.to_polars().to_dict(as_series=False) == expected()


@pytest.mark.parametrize(
    ("package", "convert", "command"),
    [
        ("pandas", ramify.Ranking.to_pandas, "pip install pandas"),
        ("polars", ramify.Ranking.to_polars, "pip install polars"),
        ("pyarrow", ramify.Ranking.to_arrow, "pip install 'ramify[parquet]'"),
    ],
)
def test_missing_packages_are_named(ranking, monkeypatch, package, convert, command):
    monkeypatch.setitem(sys.modules, package, None)  # importing it raises ModuleNotFoundError
    with pytest.raises(ImportError, match=re.escape(f"needs {package}: {command}")):
        convert(ranking)


def test_notebooks(ranking):
    model = ramify.XRLinear(beam_size=7)
    shown = [ranking._repr_html_(), model._repr_html_(), ranking[:0]._repr_html_()]
    model.fit(TEXTS, LABELS)
    shown += [model._repr_html_(), ramify.evaluate(model.predict_topk(TEXTS), LABELS)._repr_html_()]
    for html in shown:
        ET.fromstring(f"<div>{html}</div>")  # well-formed: everything is escaped
    assert "&lt;c&gt; (0.75)" in shown[0]
    assert "beam_size *" in shown[1]
    assert "not fitted" in shown[1]
    assert "5 labels, fitted on 36 samples" in shown[3]
    assert "nDCG" in shown[4]
    named = model.set_catalogue({label: f"<{label}>" for label in model.labels_}).predict_topk(TEXTS[:1], k=2)
    label = named.labels()[0][0][0]
    ET.fromstring(f"<div>{named._repr_html_()}</div>")
    assert f"&lt;{label}&gt; (" in named._repr_html_()  # its name
    assert named.to_columns()["name"][0] == f"<{label}>"
    assert named.to_columns()["label"][0] == label
    assert repr(ranking) == "<Ranking: 2 rows, top 2 of 3 labels>"
    assert "<td></td>" in html_table([["a", "b"], ["c"]])
