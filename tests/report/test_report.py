"""Evaluation reports: what they contain, and the HTML that is made of it."""

from __future__ import annotations

import json
from html.parser import HTMLParser

import numpy as np
import pytest
from scipy import sparse

import ramify
from ramify.cli.main import main
from ramify.report.contents import Subject, make_report, with_model
from ramify.report.labels import NOT_RANKED, RANKS, confused_pairs, hard_labels, recall_by_decile, true_label_ranks
from ramify.report.mistakes import rows_that_differ, rows_with_errors
from ramify.report.rules import rule_results, rules_of
from ramify.report.svg import Plot, Scale

HOSTILE = "</style><script>alert(1)</script>"
SPECIAL = [HOSTILE, "שלום 🦊"]
VOID = {"meta", "br", "link", "img", "input"}


@pytest.fixture(scope="module")
def problem():
    """A ranking (60, 12) of 30 labels with padding, and true labels of which some are unknown."""
    random = np.random.default_rng(1)
    ids = np.stack([random.permutation(30)[:12] for _ in range(60)]).astype(np.int32)
    ids[::7, 8:] = -1
    scores = np.sort(random.random((60, 12)).astype(np.float32))[:, ::-1].copy()
    scores[ids < 0] = -np.inf
    truth = sparse.csr_matrix((random.random((60, 33)) < 0.08).astype(np.float32))
    return ramify.Ranking(ids, scores, 30, are_probabilities=True), truth


# ---- what a report contains ----


def test_ranks_of_true_labels(problem):
    ranking, truth = problem
    expected = []
    for row in range(len(ranking)):
        order = ranking.ids[row].tolist()
        for label in truth.indices[truth.indptr[row] : truth.indptr[row + 1]]:
            expected.append(order.index(label) if label in order else NOT_RANKED)
    assert true_label_ranks(ranking, truth).tolist() == expected


def test_recall_by_decile_adds_up(problem):
    ranking, truth = problem
    counts = np.random.default_rng(0).integers(1, 50, 30)
    ranks = true_label_ranks(ranking, truth)
    deciles = recall_by_decile(ranks, truth, counts)
    assert sum(d.n_true for d in deciles) == truth.nnz
    for i, rank in enumerate(RANKS):
        found = sum(d.found[i] * d.n_true for d in deciles)
        assert found == pytest.approx(int((ranks < rank).sum()))
    assert deciles[0].n_train[0] >= deciles[-1].n_train[1]
    assert deciles[-1].n_true >= int((truth.indices >= 30).sum())  # unknown labels are the rarest


def test_hard_labels_are_those_with_the_lowest_recall(problem):
    ranking, truth = problem
    ranks = true_label_ranks(ranking, truth)
    found = hard_labels(ranking, truth, ranks, None, str, n=5)
    recalls = {}
    for label in range(30):
        mine = ranks[truth.indices == label]
        if len(mine) >= 3:
            recalls[str(label)] = (mine < 5).mean()
    for label in found:
        assert label.recall == pytest.approx(recalls[label.name])
        assert label.n_test == int((truth.indices == int(label.name)).sum())
    assert [label.recall for label in found] == sorted(label.recall for label in found)


def test_confused_pairs_are_counted_by_row(problem):
    ranking, truth = problem
    ranks = true_label_ranks(ranking, truth)
    counts = {}
    for row in range(len(ranking)):
        true = truth.indices[truth.indptr[row] : truth.indptr[row + 1]].tolist()
        best = [i for i in ranking.ids[row, : len(true)].tolist() if i >= 0]
        for missed in (t for t in true if t not in best and t < 30):
            for wrong in (b for b in best if b not in true):
                counts[missed, wrong] = counts.get((missed, wrong), 0) + 1
    found = confused_pairs(ranking, truth, ranks, str, n=10)
    assert [pair.n_rows for pair in found] == sorted(counts.values(), reverse=True)[:10]
    for pair in found:
        assert counts[int(pair.missed), int(pair.predicted)] == pair.n_rows


def test_rules_are_measured_as_scikit_learn_does(problem):
    from sklearn.metrics import precision_recall_fscore_support

    ranking, truth = problem
    results, curve = rule_results(ranking, truth, rules_of(None, has_probabilities=True))
    assert "top-k=3" in {result.name for result in results}
    dense = truth.toarray() > 0
    for result, (_, rule) in zip(results, rules_of(None, has_probabilities=True), strict=True):
        chosen = rule.choose(ranking.ids, ranking.scores)
        predicted = np.zeros(dense.shape, bool)
        for row, column in zip(*np.nonzero(chosen), strict=True):
            predicted[row, ranking.ids[row, column]] = True
        expected = precision_recall_fscore_support(dense, predicted, average="micro", zero_division=0)[:3]
        assert (result.precision, result.recall, result.f1) == pytest.approx([100 * v for v in expected])
        assert result.n_labels == pytest.approx(predicted.sum(axis=1).mean())
    assert [recall for _, _, recall in curve] == sorted((recall for _, _, recall in curve), reverse=True)


def test_nothing_is_fitted_to_the_test_set():
    fitted = ramify.Threshold(0.3)
    names = [name for name, _ in rules_of(fitted, has_probabilities=True)]
    assert names[0] == "threshold (fitted)"
    assert all(not name.startswith("threshold") for name, _ in rules_of(fitted, has_probabilities=False))


def test_rows_with_errors_have_a_wrong_best_label(problem):
    ranking, truth = problem
    rows = rows_with_errors(ranking, truth, 8)
    assert len(set(rows.tolist())) == 8
    for row in rows:
        assert truth[row, ranking.ids[row, 0]] == 0
        assert truth[row].nnz > 0
    ahead, behind = rows_that_differ(ranking, ranking, truth, truth, 8)
    assert len(ahead) == len(behind) == 0  # a model does not differ from itself


# ---- the plots ----


@pytest.mark.parametrize(
    ("scale", "ticks"),
    [
        (Scale(0, 100, 0, 1), [0, 20, 40, 60, 80, 100]),
        (Scale(1, 100, 0, 1, is_log=True), [1, 2, 5, 10, 20, 50, 100]),
        (Scale(-3, 3, 0, 1), [-2, 0, 2]),
        (Scale(0.2, 0.5, 0, 1), [0.2, 0.3, 0.4, 0.5]),
        (Scale(2, 2, 0, 1), [2]),
    ],
)
def test_ticks_are_round(scale, ticks):
    assert scale.ticks() == pytest.approx(ticks)


def test_positions_stay_inside():
    scale = Scale(0, 10, 50, 150)
    assert [scale(v) for v in (-5, 0, 5, 10, 99)] == [50, 50, 100, 150, 150]
    assert Scale(1, 100, 0, 10, is_log=True)(10) == pytest.approx(5)
    assert Scale(3, 3, 0, 10)(3) == 0


def test_texts_of_a_plot_are_escaped():
    plot = Plot.of(HOSTILE, (0, 1), (0, 1))
    plot.text(0, 0, HOSTILE, "tick")
    plot.dot(0, 0, "a", hint=HOSTILE)
    plot.bar(0, 0, 1, 1, "a", HOSTILE)
    assert "<script" not in plot.svg()


# ---- the file ----


class Checker(HTMLParser):
    """Checks that tags are balanced, and that nothing is loaded or run."""

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.links, self.text = [], [], [], []

    def handle_starttag(self, tag, attrs):
        assert tag not in ("script", "link", "img", "iframe", "object"), tag
        for name, value in attrs:
            assert not name.startswith("on"), name
            assert name not in ("style", "src"), name
            if name == "id":
                self.ids.append(value)
            if name == "href":
                self.links.append(value)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        assert tag in ("path", *VOID)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def check_html(text):
    checker = Checker()
    checker.feed(text)
    assert not checker.open
    assert len(set(checker.ids)) == len(checker.ids)
    assert {link[1:] for link in checker.links} <= set(checker.ids)
    return "".join(checker.text)


@pytest.fixture(scope="module")
def files(tmp_path_factory, pydoc):
    """Two models of the built-in data, one of them calibrated, with hostile labels in the data."""
    folder = tmp_path_factory.mktemp("report")
    train, test = pydoc.split("train").subset(np.arange(900)), pydoc.split("test").subset(np.arange(250))
    for name, data in (("train", train), ("test", test)):
        lines = [
            json.dumps(
                {"id": f"{name}-{i}", "text": text, "labels": [*labels, *([HOSTILE, "שלום 🦊"] if i % 3 else [])]}
            )
            for i, (text, labels) in enumerate(zip(data.texts, data.labels(), strict=True))
        ]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    options = ["--quiet", "--set", "threads=1", "--out"]
    train_file = str(folder / "train.jsonl")
    assert (
        main(
            [
                "train",
                "xr-linear",
                train_file,
                *options,
                str(folder / "model"),
                "--calibrate",
                str(folder / "test.jsonl"),
            ]
        )
        == 0
    )
    assert main(["train", "popular", train_file, *options, str(folder / "popular")]) == 0
    return folder


def run(files, *arguments, status=0):
    return main([str(files / a) if (files / a).exists() or a.endswith(".html") else a for a in arguments]) == status


def test_report_of_a_model(files):
    assert run(files, "evaluate", "model", "test.jsonl", "--report", "one.html")
    text = (files / "one.html").read_text()
    shown = check_html(text)
    for title in ("Metrics", "Frequent and rare labels", "Are the probabilities right?", "Label sets by decision rule",
                  "Hardest labels", "Most confused pairs", "Sample errors", "Index", "Times", "Model"):  # fmt: skip
        assert title in shown
    assert HOSTILE in shown  # as text
    assert "שלום 🦊" in shown
    assert '<mark class="for-' in text
    assert "prefers-color-scheme" in text
    assert "@media print" in text
    model, data = ramify.load(files / "model"), ramify.read(files / "test.jsonl")
    result = ramify.evaluate(
        model.predict_topk(data.texts, 100, probabilities=True), data.labels(), model.label_counts_, confidence=0.95
    )
    assert f">{result['P@1']:.1f}<" in text
    low, high = result.intervals["P@1"]
    assert f"{low:.1f} to {high:.1f}" in text


def test_report_of_two_models(files):
    assert run(files, "evaluate", "model", "test.jsonl", "--report", "two.html", "--against", str(files / "popular"))
    shown = check_html((files / "two.html").read_text())
    assert "Two models side by side" in shown
    assert "Rows that differ most" in shown
    assert "A - B" in shown


def test_report_from_saved_predictions_has_the_same_metrics(files):
    predictions = str(files / "predictions.jsonl")
    assert run(files, "predict", "model", "test.jsonl", "--k", "100", "--probabilities", "--out", predictions)
    arguments = ["report", predictions, "test.jsonl", "--probabilities", "--out", "saved.html"]
    assert run(files, *arguments, "--model", str(files / "model"))
    assert run(files, "evaluate", "model", "test.jsonl", "--report", "one.html")
    saved, direct = ((files / name).read_text() for name in ("saved.html", "one.html"))
    check_html(saved)
    tiles = '<ul class="tiles">'
    assert saved.split(tiles)[1].split("</ul>")[0] == direct.split(tiles)[1].split("</ul>")[0]
    assert "Sample errors" in saved
    assert run(files, *arguments, "--train", str(files / "train.jsonl"))
    without_model = check_html((files / "saved.html").read_text())
    assert "Frequent and rare labels" in without_model
    assert "label tree" not in without_model


def test_report_of_predictions_of_another_model_is_refused(files):
    ranking = ramify.Ranking(np.array([[0]]), np.array([[0.5]]), 1, ["unheard of"])
    with pytest.raises(ramify.DataError, match="unheard of"):
        with_model(ranking, ramify.load(files / "model"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--against", "popular"], "add --report"),
        (["--report", "missing/one.html"], "does not exist"),
        (["--report", "one.html", "--by", "lang"], "--by has no effect"),
        (["--report", "one.html", "--annif"], "--annif has no effect"),
    ],
)
def test_options_that_would_be_ignored(files, capsys, arguments, message):
    assert main(["evaluate", str(files / "model"), str(files / "test.jsonl"), *arguments]) == 1
    assert message in capsys.readouterr().err


def test_report_without_errors_texts_and_training_labels():
    ids = np.array([[0, 1], [1, 0]], np.int32)
    ranking = ramify.Ranking(ids, np.array([[0.9, 0.1], [0.8, 0.2]], np.float32), 2, ["a", "b"])
    report = make_report([Subject("small", ranking)], [["a"], ["b"]])
    assert report.models[0].mistakes == []
    assert report.models[0].deciles == []
    shown = check_html(report.to_html())
    assert "Sample errors" not in shown
    with pytest.raises(ValueError, match="one or two models"):
        make_report([], [["a"]])


def test_training_curves_of_a_neural_model():
    random = np.random.default_rng(0)
    words = [f"w{i}" for i in range(20)]
    texts = [" ".join(random.choice(words, 6)) for _ in range(120)]
    labels = [[text.split()[0]] for text in texts]
    training = ramify.TrainingConfig(epochs=3, batch_size=32)
    model = ramify.Elias(encoder=ramify.BagEncoder(dim=8), n_clusters=4, stage1=training, stage2=training, verbose=0)
    model.fit(texts, labels)
    subject = Subject("elias", model.predict_topk(texts, 10), model.label_counts_, model)
    report = make_report([subject], labels, documents=texts)
    titles = [curve.title for curve in report.models[0].curves]
    assert "training loss" in titles
    history = model.members_[0].history
    assert report.models[0].curves[0].lines["loss"] == [(i + 1.0, loss) for i, (loss, _) in enumerate(history)]
    shown = check_html(report.to_html())
    assert "Clusters per label" in shown
