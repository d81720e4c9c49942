"""The commands of probabilities, label sets, filters, names, explanations and comparisons."""

from __future__ import annotations

import json

import numpy as np
import pytest

import ramify
from ramify.cli.main import main
from ramify.models import level_checkpoints


@pytest.fixture(scope="module")
def files(tmp_path_factory, pydoc):
    """A model of the built-in data, calibrated, with data files that have a language."""
    folder = tmp_path_factory.mktemp("cli")
    train, test = pydoc.split("train").subset(np.arange(1500)), pydoc.split("test").subset(np.arange(400))
    for name, data in (("train", train), ("test", test)):
        lines = [
            json.dumps({"text": text, "labels": labels, "lang": "en" if i % 3 else "de"})
            for i, (text, labels) in enumerate(zip(data.texts, data.labels(), strict=True))
        ]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    labels = sorted({label for row in train.labels() for label in row})
    (folder / "names.tsv").write_text("".join(f"<{label}>\tname of {label}\n" for label in labels[:-1]))
    arguments = [str(folder / "train.jsonl"), "--quiet", "--out"]
    assert main(["train", "xr-linear", *arguments, str(folder / "raw")]) == 0
    calibration = ["--calibrate", str(folder / "test.jsonl"), "--labels", str(folder / "names.tsv")]
    assert main(["train", "xr-linear", *arguments, str(folder / "model"), *calibration]) == 0
    return folder


@pytest.fixture
def run(files, capsys):
    def run(command, *arguments, status=0):
        assert main([command, *(str(files / a) if (files / a).exists() else a for a in arguments)]) == status
        return capsys.readouterr()

    return run


def rows_of(output):
    return [json.loads(line)["labels"] for line in output.out.splitlines()]


def test_training_with_probabilities_and_names(files, run):
    model = ramify.load(files / "model")
    assert model.calibration_.n_rows == 400
    assert isinstance(model.rule_, ramify.MaximizeF1)
    shown = run("inspect", "model").out
    assert "from 400 rows" in shown
    assert "maximize-f1" in shown
    assert json.loads(run("inspect", "model", "--json").out)["calibrated_on"] == 400
    assert "none: raw scores" in run("inspect", "raw").out


def test_label_sets(files, run):
    model, data = ramify.load(files / "model"), ramify.read(files / "test.jsonl")
    found = rows_of(run("predict", "model", "test.jsonl", "--rule", "maximize-f1"))
    expected = model.predict_sets(data.texts, rule="maximize-f1").labels()
    assert [[e["label"] for e in row] for row in found] == [[label for label, _ in row] for row in expected]
    assert {len(row) for row in rows_of(run("predict", "model", "test.jsonl", "--rule", "top-k=3"))} == {3}
    assert (
        run("predict", "model", "test.jsonl", "--rule", "default").out
        == run("predict", "model", "test.jsonl", "--rule", "maximize-f1").out
    )  # the fitted one
    assert expected == model.predict_sets(data.texts).labels()
    found = rows_of(run("predict", "model", "test.jsonl", "--threshold", "0.4"))
    assert all(entry["score"] >= 0.4 for row in found for entry in row)
    found = rows_of(run("predict", "model", "test.jsonl", "--k", "2", "--probabilities"))
    assert all(0 < entry["score"] < 1 and entry["name"].endswith(entry["label"]) for row in found for entry in row)
    error = run("predict", "raw", "test.jsonl", "--probabilities", status=1).err
    assert "call calibrate" in error
    assert "unknown decision rule" in run("predict", "model", "test.jsonl", "--rule", "best", status=1).err


def test_filters(files, run):
    model = ramify.load(files / "model")
    some = [str(label) for label in model.labels_][:3]
    allow = [x for label in some for x in ("--allow", label)]
    found = rows_of(run("predict", "model", "test.jsonl", "--k", "2", *allow))
    assert all(len(row) == 2 and {entry["label"] for entry in row} <= set(some) for row in found)
    found = rows_of(run("predict", "model", "test.jsonl", "--k", "3", "--allow-prefix", "module:", "--deny", some[0]))
    assert all(entry["label"].startswith("module:") for row in found for entry in row)
    found = rows_of(run("predict", "model", "test.jsonl", "--k", "1", "--allow", f"name of {some[1]}"))
    assert {row[0]["label"] for row in found} == {some[1]}
    assert "knows no label" in run("predict", "model", "test.jsonl", "--allow", "nonsense", status=1).err
    found = rows_of(run("predict", "model", "test.jsonl", "--rule", "top-k=2", *allow))
    assert all(len(row) == 2 and {entry["label"] for entry in row} <= set(some) for row in found)
    found = rows_of(run("predict", "model", "test.jsonl", "--threshold", "0.3", "--allow-prefix", "module:"))
    assert all(e["label"].startswith("module:") and e["score"] >= 0.3 for row in found for e in row)
    assert (
        0 < sum(map(len, found)) < sum(map(len, rows_of(run("predict", "model", "test.jsonl", "--threshold", "0.3"))))
    )


def test_calibrate(files, run, tmp_path):
    said = run("calibrate", "raw", "test.jsonl", "--rule", "target-recall=0.3", "--out", str(tmp_path / "new")).err
    assert "calibrated on 200 rows" in said
    assert ramify.load(tmp_path / "new").rule_.threshold is not None
    new = str(tmp_path / "new")
    shown = run("evaluate", new, "test.jsonl", "--rule", "target-recall").out
    assert shown == run("evaluate", new, "test.jsonl", "--rule", "target-recall=0.3").out
    assert "has not been fitted" in run("evaluate", new, "test.jsonl", "--rule", "target-recall=0.4", status=1).err
    assert not ramify.load(files / "raw").is_calibrated
    assert (
        "cannot be guaranteed" in run("calibrate", "raw", "test.jsonl", "--rule", "target-recall=0.999", status=1).err
    )
    assert (
        "chosen by PerLabelThreshold(min_samples=5); saved"
        in run("calibrate", "raw", "test.jsonl", "--rule", "per-label-threshold", "--out", str(tmp_path / "new")).err
    )
    arguments = ["xr-linear", "train.jsonl", "--out", str(tmp_path / "auto"), "--calibrate", "auto"]
    assert "calibrated on 150 rows; saved to" in run("train", *arguments).err
    assert repr(ramify.load(tmp_path / "auto").calibration_) == "<Calibration: platt, 150 rows>"
    assert ramify.load(tmp_path / "auto").calibration_.n_rows == 150


def test_evaluate(files, run, tmp_path):
    shown = run("evaluate", "model", "test.jsonl", "--ci", "--by", "lang", "--protocol", "seen").out
    for text in ("ECE", "Brier", "confidence interval", "by lang", "protocol seen"):
        assert text in shown
    values = json.loads(run("evaluate", "model", "test.jsonl", "--json", "--ci", "0.9").out)
    assert values["intervals"]["P@1"][0] < values["P@1"] < values["intervals"]["P@1"][1]
    assert "ECE@1" in values
    table = tmp_path / "labels.tsv"
    found = json.loads(run("evaluate", "model", "test.jsonl", "--annif", "--json", "--results-file", str(table)).out)
    model, data = ramify.load(files / "model"), ramify.read(files / "test.jsonl")
    expected = ramify.metrics.annif_metrics(model.predict_topk(data.texts, 10), data.labels())
    assert found == expected
    lines = table.read_text().splitlines()
    assert lines[0].startswith("URI\tLabel\tSupport")
    assert len(lines) == 1 + model.n_labels + len({x for row in data.labels() for x in row} - set(model.labels_))
    run("predict", "model", "test.jsonl", "--k", "10", "--out", str(tmp_path / "saved.tsv"))
    first = (tmp_path / "saved.tsv").read_text().splitlines()[1].split("\t")
    assert first[4] == f"name of {first[2]}"  # every table shows names, where the model has them
    saved = run("evaluate", str(tmp_path / "saved.tsv"), "test.jsonl", "--annif", "--train", "train.jsonl", "--json")
    assert json.loads(saved.out) == pytest.approx(expected)
    sets = json.loads(run("evaluate", "model", "test.jsonl", "--rule", "maximize-f1", "--limit", "50", "--json").out)
    fixed = json.loads(run("evaluate", "model", "test.jsonl", "--rule", "top-k=10", "--json").out)
    assert sets["F1 score (doc avg)"] > fixed["F1 score (doc avg)"]
    two = json.loads(run("evaluate", "model", "test.jsonl", "--rule", "top-k=2", "--json").out)
    assert two == ramify.metrics.annif_metrics(
        model.predict_sets(data.texts, rule="top-k=2"), data.labels(), limit=None
    )


def test_compare(files, run, tmp_path):
    train = ramify.read(files / "train.jsonl")
    ramify.Popular().fit(train.texts, train.labels()).save(tmp_path / "popular")
    shown = run("compare", "model", str(tmp_path / "popular"), "test.jsonl").out
    assert "A - B" in shown
    assert "A only" in shown
    values = json.loads(run("compare", "model", str(tmp_path / "popular"), "test.jsonl", "--json").out)
    assert values["metrics"]["P@1"]["low"] > 0
    assert len(values["deciles"]) == 10


def test_labels(files, run, tmp_path):
    shown = run("labels", "model", "--n", "2").out
    assert "name of" in shown
    assert len(shown.splitlines()) == 3
    assert "names" not in run("labels", "raw", "--find", "abc").out
    said = run("labels", "raw", "--set", "names.tsv", "--out", str(tmp_path / "named")).err
    n = ramify.load(files / "raw").n_labels
    assert f"{n - 1:,} of {n:,} labels have a name" in said
    rows = [
        json.loads(line)
        for line in run("labels", str(tmp_path / "named"), "--find", "module:abc", "--json").out.splitlines()
    ]
    assert rows[0]["name"] == f"name of {rows[0]['label']}"
    (tmp_path / "other.tsv").write_text("http://example.org/1\tone\n")
    error = run("labels", "model", "--set", str(tmp_path / "other.tsv"), status=1).err
    assert "a name for none of the" in error
    assert "not 'http://example.org/1'" in error
    assert ramify.load(files / "model").catalogue_.get_entry("http://example.org/1") is None  # as it was


def test_explain(files, run, tmp_path):
    shown = run("explain", "model", "Return the sum of an array", "--without", "array").out
    assert "margin" in shown
    assert "without array" in shown
    label = str(ramify.load(files / "model").labels_[3])
    values = json.loads(run("explain", "model", "Return the sum", "--label", label, "--json").out)
    assert values["label"] == label
    page = tmp_path / "page.html"
    run("explain", "model", "Return the sum of an array", "--html", str(page))
    assert "<span" in page.read_text()


def test_a_word_that_is_its_own_stem_is_one_term(run):
    levels = json.loads(run("explain", "model", "Return the sum of an array", "--json").out)["levels"]
    for level in levels:
        terms = [term for term, _ in level["contributions"]]
        assert "array" in terms
        assert len(terms) == len(set(terms))
        total = level["bias"] + sum(value for _, value in level["contributions"])
        assert total == pytest.approx(level["margin"], abs=1e-3)


def test_messages_of_options_that_contradict_each_other(files, run):
    for command, said in (
        (["explain", "model", "a text", "--label", "no such label"], "error: the model knows no label"),
        (["predict", "model", "test.jsonl", "--rule", "top-k=2", "--threshold", "0.2"], "leave out one of them"),
        (["predict", "raw", "test.jsonl", "--names", "en"], "has no label names"),
        (["predict", "model", "test.jsonl", "--allow-prefix", "modul:"], "no label starts with 'modul:'"),
        (["compare", "model", "raw", "test.jsonl", "--k", "0"], "k must be a positive integer"),
        (["evaluate", "model", "test.jsonl", "--annif", "--deciles"], "--deciles has no effect"),
        (["evaluate", "model", "test.jsonl", "--results-file", "x.tsv"], "add --annif"),
        (["evaluate", "model", "test.jsonl", "--annif", "--limit", "0"], "--limit must be at least 1"),
        (["evaluate", "model", "pydoc:test", "--by", "lang"], "built-in data do not have"),
        (["evaluate", "model", "raw", "test.jsonl", "--ci"], "--json only"),
        (["evaluate", "model", "raw", "test.jsonl", "--rule", "top-k"], "evaluate one model"),
        (["evaluate", "model", "test.jsonl", "--by", "lang", "--filter", "test.jsonl"], "cannot be combined"),
    ):
        assert said in run(*command, status=1).err, command


def test_a_missing_catalogue_is_reported_before_training(files, run, tmp_path):
    out = tmp_path / "model"
    said = run("train", "xr-linear", "no-such-file.jsonl", "--out", str(out), "--labels", "no.tsv", status=1).err
    assert "no.tsv: no such file" in said  # not the data file, which is read later


@pytest.mark.parametrize("suffix", ["jsonl", "tsv", "csv", "npz", "parquet"])
def test_label_sets_in_files(files, run, tmp_path, suffix):
    """Sets of all sizes, the empty one among them, are evaluated as the model itself would be."""
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
    out = str(tmp_path / f"sets.{suffix}")
    run("predict", "model", "test.jsonl", "--rule", "threshold=0.7", "--names", "en", "--out", out)
    model, data = ramify.load(files / "model"), ramify.read(files / "test.jsonl")
    sets = model.predict_sets(data.texts, rule="threshold=0.7")
    assert {0, 1, 2} <= {len(row) for row in sets.labels()}
    values = json.loads(run("evaluate", out, "test.jsonl", "--json", "--protocol", "all", "--ci").out)
    assert values["P@1"] == pytest.approx(ramify.evaluate(sets, data.labels())["P@1"])
    assert "P@1" in values["intervals"]
    if suffix in ("tsv", "csv"):
        assert any(
            line.endswith("name of module:ast") for line in (tmp_path / f"sets.{suffix}").read_text().split("\n")
        )


def test_groups_are_measured_as_the_whole(run, tmp_path):
    data = tmp_path / "data.jsonl"
    rows = [{"text": "syntax tree of a module", "labels": ["module:ast"], "lang": "en"} for _ in range(3)]
    rows += [{"text": "nothing", "labels": ["unheard of"], "lang": "xx"}]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    shown = run("evaluate", "model", str(data), "--by", "lang", "--deciles").out
    assert "by label frequency decile, 1 is" in shown
    values = json.loads(run("evaluate", "model", str(data), "--by", "lang", "--json", "--ks", "1,2").out)
    assert values["by"]["xx"] is None  # the model knows none of its labels
    assert set(values["by"]["en"]) == set(values) - {"by"}
    rows[3]["lang"] = "en"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    values = json.loads(run("evaluate", "model", str(data), "--by", "lang", "--json").out)
    assert values.pop("by") == {"en": values}
    values = json.loads(run("evaluate", "model", str(data), "--by", "lang", "--annif", "--json").out)
    assert values.pop("by") == {"en": values}  # the metrics of Annif, too
    shown = run("evaluate", "model", "test.jsonl", "--by", "lang", "--rule", "top-k=2").out
    assert "by lang" in shown


def test_groups_by_a_field_that_is_not_there(run):
    error = run("evaluate", "model", "test.jsonl", "--by", "language", status=1).err
    assert "no line of" in error
    assert "has a field 'language'; there are text, labels, lang" in error


def test_the_card_of_a_calibrated_model(run, tmp_path):
    card = run("card", "model", "--data", "test.jsonl").out
    for text in (
        "from 400 rows",
        "`maximize-f1`",
        "name of module:builtins (",
        "at probability >= 0.5",
        "ECE@1",
        "predict_sets(",
    ):
        assert text in card
    assert "none: raw scores" in run("card", "raw").out
    neighbors = str(tmp_path / "knn")
    run("train", "knn", "train.jsonl", "--out", neighbors)
    for command in ("inspect", "card"):
        assert "the scores estimate them" in run(command, neighbors).out


def test_an_estimate_and_further_seeds_leave_checkpoints_alone(files, run, tmp_path, monkeypatch):
    """Checkpoints of an interrupted training survive a dry run, and the same command resumes from them."""
    save = level_checkpoints.save_checkpoint
    checkpoints = tmp_path / "c"

    def interrupt(path, *rest):
        save(path, *rest)
        if path.parent == stop_in:
            raise KeyboardInterrupt

    command = ["train", "xr-linear", "train.jsonl", "--quiet", "--out", str(tmp_path / "m")]
    command += ["--checkpoints", str(checkpoints)]
    for options, stop_in in (
        (["--calibrate", "auto"], checkpoints),  # after the copy that calibrates has been trained
        (["--seeds", "2", "--dev", "test.jsonl"], checkpoints / "seed-1"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(level_checkpoints, "save_checkpoint", interrupt)
            run(*command, *options, status=130)
        kept = sorted(path.name for path in stop_in.iterdir() if path.name.startswith("tree"))
        assert kept
        run(*command, *options, "--dry-run")
        assert sorted(path.name for path in stop_in.iterdir() if path.name.startswith("tree")) == kept
        run(*command, *options)
        assert not [path for path in stop_in.iterdir() if path.name.startswith("tree")]


@pytest.mark.parametrize("calibrate", [[], ["--calibrate", "auto"]])
def test_names_are_evidence(calibrate, tmp_path, capsys):
    """Models that read names get those of --labels, and can find labels that no sample has."""
    rows = [{"text": text, "labels": [label]} for text, label in (("red fox", "l1"), ("an old hen", "l2")) * 12]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "names.tsv").write_text("l1\tfox\nl2\then\nl3\tblue whale\n")
    files = [str(tmp_path / "train.jsonl"), "--labels", str(tmp_path / "names.tsv"), "--out", str(tmp_path / "m")]
    assert main(["train", "label-matcher", *files, "--set", "labels=catalogue", "--quiet", *calibrate]) == 0
    model = ramify.load(tmp_path / "m")
    assert model.predict_topk(["Blue whales."], 1).labels()[0][0][0] == "l3"
    assert model.is_calibrated == bool(calibrate)
    hybrid = ["--set", "n_trees=3", "--set", 'members=["knn", "label-matcher"]']
    assert main(["train", "hybrid", *files, "--quiet", *hybrid, *calibrate]) == 0
    capsys.readouterr()
    assert main(["inspect", str(tmp_path / "m")]) == 0
    assert "What each member brought" in capsys.readouterr().out
