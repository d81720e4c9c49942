"""Progress in logs: a line every few seconds, with unit and time left."""

from __future__ import annotations

import io
import itertools
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from neural import topics
from scipy import sparse

import ramify
from ramify.base import progress as module
from ramify.base.progress import duration, message, progress, seconds_left, steps
from ramify.index.tree import LabelTree
from ramify.models.level_times import level_times


@pytest.fixture
def clock(monkeypatch):
    """A clock that advances by four seconds each time it is read."""
    ticks = itertools.count(0.0, 4.0)
    monkeypatch.setattr(module.time, "monotonic", lambda: next(ticks))


def test_log_lines(clock, capsys):
    with progress("training", 100, 1, "labels") as advance:
        for _ in range(10):
            advance(10)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 5  # every second call is 8 seconds after the last line
    assert lines[0] == "training: 20 of 100 labels, 20 %, 0:08 elapsed, 0:32 left"
    with progress("reading", None, 1, "records") as advance:
        for _ in range(3):
            advance(1000, "part 2")
    assert capsys.readouterr().err == "reading (part 2): 2,000 records, 0:08 elapsed\n"


def test_many_short_stages(clock, capsys):
    """No stage lasts as long as the interval; the time left is that of all of them."""
    with progress("training xr-linear", None) as _, progress("tree", 4, 1, "trees") as advance:
        for _ in range(4):
            with progress("classifiers", 10, 1, "nodes") as train:
                train(5)
            advance(1)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "training xr-linear, tree 1 of 4, classifiers: 5 of 10 nodes, 50 %, 0:12 elapsed, 0:04 left in this stage",
        "training xr-linear, tree 2 of 4, classifiers: 5 of 10 nodes, 50 %, 0:24 elapsed, 0:28 left",
        "training xr-linear, tree 3 of 4, classifiers: 5 of 10 nodes, 50 %, 0:36 elapsed, 0:16 left",
        "training xr-linear, tree 4 of 4, classifiers: 5 of 10 nodes, 50 %, 0:48 elapsed, 0:04 left",
    ]


def test_every_model_of_several_parts_writes_lines(monkeypatch, capsys):
    """As in a log of a long training: each stage has its line, under the training that it belongs to."""
    monkeypatch.setattr(module._Log, "every", 0.0)  # a line for each step
    monkeypatch.setattr(module._Log, "_watch", lambda self, ended: None)  # and none between them
    texts, labels = topics(200)
    parts = [ramify.XRLinear(n_trees=2, tree=ramify.TreeConfig(max_leaf_size=2)), ramify.Popular()]
    ramify.Ensemble(parts, combine="rank").fit(texts, labels)
    lines = capsys.readouterr().err
    assert "training ensemble, model 1 of 2, training xr-linear, tree 2 of 2, classifiers: " in lines
    assert "training ensemble, model: 1 of 2 models, 50 %" in lines
    ramify.Hybrid([ramify.Popular(), ramify.KNN()], n_trees=2, n_folds=2).fit(texts, labels)
    assert "training hybrid, round: 2 of 4 rounds" in capsys.readouterr().err
    once = ramify.TrainingConfig(epochs=1)
    ramify.Elias(stage1=once, stage2=once).fit(texts, labels)
    assert "training elias, stage 1" in capsys.readouterr().err


def test_lines_while_a_stage_does_not_advance(monkeypatch, capsys):
    """Native code may run for minutes without a step."""
    monkeypatch.setattr(module._Log, "every", 0.01)
    with progress("clustering", None):
        while not (text := capsys.readouterr().err):
            threading.Event().wait(0.01)
    assert text.startswith("clustering: 0:00 elapsed\n")
    for thread in threading.enumerate():  # the one that wrote it ends with the work
        if thread.name == "ramify-progress":
            thread.join(30)
            assert not thread.is_alive()


def test_a_stage_ends_with_its_error(clock, capsys):
    """The next work is no stage of one that has failed."""
    with pytest.raises(ZeroDivisionError), progress("training", None), progress("features", None):
        _ = 1 / 0
    with progress("reading", None, 1, "records") as advance:
        for _ in range(3):
            advance(1)
    assert capsys.readouterr().err == "reading: 2 records, 0:08 elapsed\n"


def test_silence(clock, capsys):
    with progress("training", 100, 0) as advance:
        for _ in range(10):
            advance(10)
    message("nothing", 0)
    assert capsys.readouterr().err == ""
    message("something")
    assert capsys.readouterr().err == "something\n"


def test_short_work_writes_no_line(capsys):
    texts, labels = topics(100)
    ramify.XRLinear().fit(texts, labels)
    assert capsys.readouterr().err == ""


def test_a_long_last_stage_does_not_say_that_nothing_is_left(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    with progress("tree", 2, 1, "trees") as tree:
        now[0] = 10.0
        tree(1)
        with progress("classifiers", 10, 1, "nodes") as advance:
            for now[0] in (16.0, 26.0):
                advance(1)
    lines = [line for line in capsys.readouterr().err.splitlines() if "classifiers" in line]
    assert lines[0].endswith("0:16 elapsed, 0:04 left")
    assert lines[1].endswith("0:26 elapsed, 1:04 left in this stage")


def test_time_left():
    assert seconds_left(25, 100, 10.0) == 30.0
    assert seconds_left(0, 100, 10.0) is None
    assert seconds_left(10, None, 10.0) is None
    assert [duration(s) for s in (5, 750, 3723)] == ["0:05", "12:30", "1:02:03"]


def test_bars_on_a_terminal(monkeypatch):
    """A bar for each stage; the time left of the whole counts down while a stage of it runs."""
    now, written = [0.0], io.StringIO()
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(written, "isatty", lambda: True)
    monkeypatch.setattr(module.sys, "stderr", written)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with progress("tree", 4, 1, "trees") as advance:
        now[0] = 10.0
        advance(1)
        with progress("classifiers", 10, 1, "nodes") as train:
            for now[0] in (14.0, 18.0):
                train(3)
                module._shown.get()._progress.refresh()
    text = written.getvalue()
    assert "1 of 4 trees" in text
    assert text.index("0:26 left") < text.index("0:22 left")  # 30 seconds when the first tree was trained
    assert "6 of 10 nodes" in text
    assert "0:05 left" in text  # of the classifiers


def test_bar_in_a_notebook(clock, monkeypatch, capsys):
    """A bar is shown once and updated; its last state stays in the notebook."""
    shown = []

    class Handle:
        def update(self, bar, raw):
            shown[-1].append(bar)

    def display(bar, *, raw, display_id):
        assert raw
        assert display_id
        shown.append([bar])
        return Handle()

    kernel = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=1))
    monkeypatch.setitem(module.sys.modules, "IPython", kernel)
    monkeypatch.setitem(module.sys.modules, "IPython.display", SimpleNamespace(display=display))
    assert module.in_notebook()
    with progress("training", 10, 1, "labels") as advance:
        advance(4)
        advance(4, "loss <0.5")
    (states,) = shown
    assert [state["text/plain"] for state in states] == [
        "training: 4 of 10 labels, 40 %, 0:04 elapsed, 0:06 left",
        "training (loss <0.5): 8 of 10 labels, 80 %, 0:08 elapsed, 0:02 left",
        "training (loss <0.5): 8 labels, 0:12 elapsed",
    ]
    assert '<progress value="4" max="10"></progress>' in states[0]["text/html"]
    assert "loss &lt;0.5" in states[1]["text/html"]
    monkeypatch.setattr(kernel, "get_ipython", lambda: None)  # IPython is imported, but this is no kernel
    assert not module.in_notebook()
    assert capsys.readouterr().err == ""


def test_short_work_shows_no_bar_in_a_notebook(monkeypatch, capsys):
    monkeypatch.setattr(module, "in_notebook", lambda: True)
    monkeypatch.setitem(module.sys.modules, "IPython.display", None)  # importing it would raise
    with progress("training", 10, 1, "labels") as advance:
        advance(10)
    assert capsys.readouterr() == ("", "")


def test_steps_are_weighted_by_the_samples_of_a_node():
    """Nodes near the root take longer than labels: the time left follows the work, not the number of nodes."""
    seen = []
    report = steps(lambda step, note=None: seen.append(step), 0.5)
    report(4)
    report(4)
    report(10)
    assert seen == [2.0, 3.0]
    tree = LabelTree.from_chain([sparse.csr_matrix(np.repeat(np.eye(2), 4, axis=0))])
    Y = sparse.csr_matrix(np.eye(8)[np.arange(80) % 8])
    weights = level_times(tree, tree.project(Y))
    assert weights[0] > 2 * weights[1]  # 80 samples of the root, 40 of each cluster, and fewer positives of a label
    assert sum(w * n for w, n in zip(weights, tree.widths, strict=True)) == pytest.approx(sum(tree.widths))
    mined = level_times(tree, tree.project(Y), n_mined=1.0)
    assert mined[1] / mined[0] > weights[1] / weights[0]  # more negatives of the labels
    assert level_times(tree, tree.project(Y), 50.0) == level_times(tree, tree.project(Y), 2.0)  # no more than clusters
