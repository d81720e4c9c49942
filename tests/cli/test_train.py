"""``ramify train``: checks before the work, presets, dry runs, label features, settings."""

from __future__ import annotations

import json
import re
import shutil
from collections import namedtuple

import numpy as np
import pytest
from scipy import sparse
from shell import LABELS, TEXTS, output, write_rows

import ramify
from ramify.cli.dry_run import _n_epochs
from ramify.cli.main import main
from ramify.cli.options import configured_model
from ramify.io.labels import LabelVocabulary


def test_output_is_checked_before_training(train, tmp_path, capsys, monkeypatch):
    (tmp_path / "taken").write_text("a file")
    error = output(capsys, "train", "popular", tmp_path / "missing.jsonl", "--out", tmp_path / "taken", code=1)
    assert "is a file" in error  # though the data file is missing, too
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(100, 99, 1))
    error = output(capsys, "train", "popular", train, "--out", tmp_path / "m", code=1)
    assert "0 MB are free, but the model may need" in error
    assert "--out DIR is required" in output(capsys, "train", "popular", train, code=1)


def test_labels_in_another_field(train, model, tmp_path, capsys):
    """Data without a label are an error where labels are needed, and not a table of zeros."""
    rows = [{"text": text, "subjects": labels} for text, labels in zip(TEXTS, LABELS, strict=True)]
    data, out = write_rows(tmp_path / "d.jsonl", rows), ["--out", tmp_path / "n"]
    for command in (
        ["train", "xr-linear", data, *out],
        ["train", "xr-linear", train, *out, "--dev", data],
        ["train", "xr-linear", train, *out, "--calibrate", data],
        ["tune", "xr-linear", data],
        ["evaluate", model, data],
        ["inspect", model, "--data", data],
        ["calibrate", model, data],
        ["compare", model, model, data],
        ["card", model, "--data", data],
    ):
        error = output(capsys, *command, code=1)
        assert "no row of d.jsonl has a label: labels are read from the field 'labels'; --label-field names" in error
    assert not (tmp_path / "n").exists()
    output(capsys, "train", "xr-linear", data, *out, "--label-field", "subjects", "--dev", data)
    assert "labels" in output(capsys, "data", "stats", data)  # where none are needed


def test_presets(train, tmp_path, capsys):
    output(capsys, "train", "xr-linear", train, "--out", tmp_path / "m", "--preset", "pecos", "--set", "beam_size=3")
    expected = ramify.XRLinear.pecos(beam_size=3)
    assert ramify.load(tmp_path / "m").to_dict() == expected.to_dict()
    error = output(capsys, "train", "xr-linear", train, "--out", tmp_path / "m", "--preset", "best", code=1)
    assert "available: pecos, parabel, bonsai, dismec" in error


def test_dry_run(train, tmp_path, capsys):
    found = output(capsys, "train", "xr-linear", train, "--out", tmp_path / "m", "--dry-run")
    for word in ("samples", "200", "time, estimated", "memory, estimated", "model size, estimated"):
        assert word in found
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("kind", ["elias", "xr-transformer", "neural-one-vs-all", "lightdxml"])
def test_dry_run_of_a_neural_model(kind, train, tmp_path, capsys):
    small = "--set", "encoder.dim=8", "--set", f"checkpoint_dir={json.dumps(str(tmp_path / 'c'))}"
    found = output(capsys, "train", kind, train, "--dry-run", *small)
    for word in ("time, estimated", "memory, estimated", "model size, estimated", "from 200 samples"):
        assert word in found
    assert ("less if training stops early" in found) is (kind != "xr-transformer")  # whose levels take one epoch
    assert not (tmp_path / "c").exists()


def test_dry_run_of_an_ensemble(train, capsys):
    found = output(capsys, "train", "ensemble", train, "--dry-run", "--set", 'models=["popular", "xr-linear"]')
    assert "time, estimated" in found


def test_epochs_that_a_dry_run_expects():
    """As many as the training loop takes, which are more on small data."""
    Y = sparse.csr_matrix(np.ones((1000, 1), np.float32))
    data = ramify.Dataset(Y, LabelVocabulary(["x"]), texts=["a"] * 1000)
    config = ramify.TrainingConfig
    for settings, expected in (
        (config(), 50),  # 200 steps, 4 in an epoch of 900 samples
        (config(epochs=3), 3),
        (config(batch_size=2), 8),
        (config(max_samples=1800), 2),
    ):
        assert _n_epochs(ramify.Elias(), settings, data) == pytest.approx(expected, rel=0.01)
    assert _n_epochs(ramify.LightDXML(), config(batch_size=2), data) == 6


def test_memory_limit(train, tmp_path, capsys):
    error = output(capsys, "train", "xr-linear", train, "--out", tmp_path / "m", "--memory-limit", "100M", code=1)
    assert re.search(r"takes about \d+ MB of memory, but --memory-limit allows 100 MB; raise it, or train on", error)
    assert not (tmp_path / "m").exists()
    output(capsys, "train", "xr-linear", train, "--out", tmp_path / "m", "--memory-limit", "1.5G")
    assert ramify.load(tmp_path / "m").n_labels
    for bad in ("much", "0", "-3G", "8X", ""):
        with pytest.raises(SystemExit):
            main(["train", "xr-linear", str(train), "--out", str(tmp_path / "n"), f"--memory-limit={bad}"])
        assert "is not an amount of memory, such as 8G or 500M" in capsys.readouterr().err


def test_seeds(train, tmp_path, capsys):
    found = output(capsys, "train", "xr-linear", train, "--out", tmp_path / "m", "--dev", train, "--seeds", 2)
    header, first, *_ = [line.split() for line in found.splitlines()[1:]]
    assert header == ["mean", "deviation", "minimum", "maximum"]
    assert first[0] == "P@1"
    assert float(first[3]) <= float(first[1]) <= float(first[4])
    assert "--dev" in output(capsys, "train", "popular", train, "--out", tmp_path / "m", "--seeds", 2, code=1)


def test_label_features_and_trees_are_keyed_by_label(train, tmp_path, capsys):
    labels = sorted({label for row in LABELS for label in row})
    (tmp_path / "names.tsv").write_text("".join(f"{x}\ttopic{int(x[5:]) % 12}\n" for x in labels[::-1]))
    small = ["--set", "tree.max_leaf_size=5", "--quiet"]
    output(capsys, "train", "xr-linear", train, "--out", tmp_path / "m", *small, "--label-features",
           tmp_path / "names.tsv")  # fmt: skip
    model = ramify.XRLinear(tree=ramify.TreeConfig(max_leaf_size=5))
    expected = model.fit(TEXTS, LABELS, label_features={x: f"topic{int(x[5:]) % 12}" for x in labels})
    assert ramify.load(tmp_path / "m").export_tree() == expected.export_tree()

    paths = {x: ["a" if int(x[5:]) % 2 else "b"] for x in labels}
    write_rows(tmp_path / "tree.jsonl", [{"label": x, "path": p} for x, p in paths.items()])
    (tmp_path / "tree.tsv").write_text("".join(f"{x}\t{'/'.join(p)}\n" for x, p in paths.items()))
    expected = ramify.XRLinear().fit(TEXTS, LABELS, tree=paths).export_tree()
    for name in ("tree.jsonl", "tree.tsv"):
        output(capsys, "train", "xr-linear", train, "--out", tmp_path / "m", "--quiet", "--tree", tmp_path / name)
        assert ramify.load(tmp_path / "m").export_tree() == expected
    arguments = ["train", "popular", train, "--out", tmp_path / "p", "--tree", tmp_path / "tree.tsv"]
    assert "popular takes no --tree" in output(capsys, *arguments, code=1)
    (tmp_path / "tree.tsv").write_text("no tab\n")
    arguments = ["train", "xr-linear", train, "--out", tmp_path / "p", "--tree", tmp_path / "tree.tsv"]
    assert "tree.tsv:1: no tab" in output(capsys, *arguments, code=1)


def test_label_features_of_few_labels(train, tmp_path, capsys):
    """How many labels have none is said; a file of other labels is refused before the training."""
    names, arguments = tmp_path / "names.tsv", ["train", "xr-linear", train, "--out", tmp_path / "m"]
    arguments += ["--set", "tree.max_leaf_size=5", "--label-features", names]
    names.write_text("label3\tred fox\nlabel4\t\nlabel5\tgrey fox\nunknown\tx\n")
    assert main([str(a) for a in arguments]) == 0
    assert "names.tsv has no text for 28 of 30 labels, such as 'label0'" in capsys.readouterr().err
    for text, reason in (("3\tred fox\n", "it has labels such as '3', the data 'label0'"), ("", "it is empty")):
        names.write_text(text)
        error = output(capsys, *arguments, code=1)
        assert "has a text for none of the 30 labels" in error
        assert reason in error


def test_numbers_as_labels_have_label_features(tmp_path, capsys):
    numbers = [[int(label[5:]) for label in row] for row in LABELS]
    rows = [{"text": text, "labels": row} for text, row in zip(TEXTS, numbers, strict=True)]
    data = write_rows(tmp_path / "numbers.jsonl", rows)
    (tmp_path / "names.tsv").write_text("".join(f"{i}\ttopic{i % 12}\n" for i in range(30)))
    (tmp_path / "tree.tsv").write_text("".join(f"{i}\t{'a' if i % 2 else 'b'}\n" for i in range(30)))
    small = ["--set", "tree.max_leaf_size=5", "--quiet"]
    arguments = ["train", "xr-linear", data, "--out", tmp_path / "m", *small]
    assert main([str(a) for a in [*arguments, "--label-features", tmp_path / "names.tsv"]]) == 0
    assert capsys.readouterr().err == ""  # each label has one
    model = ramify.XRLinear(tree=ramify.TreeConfig(max_leaf_size=5))
    expected = model.fit(TEXTS, numbers, label_features={i: f"topic{i % 12}" for i in range(30)})
    assert ramify.load(tmp_path / "m").export_tree() == expected.export_tree()
    output(capsys, *arguments, "--tree", tmp_path / "tree.tsv")
    expected = ramify.XRLinear().fit(TEXTS, numbers, tree={i: ["a" if i % 2 else "b"] for i in range(30)})
    assert ramify.load(tmp_path / "m").export_tree() == expected.export_tree()


def test_label_columns_without_samples(tmp_path, capsys):
    """The shell keeps the columns of a matrix, as `fit` does."""
    Y = sparse.csr_matrix(np.array([[1, 0, 0], [0, 0, 1]], np.float32))
    names = ramify.LabelVocabulary(["a", "b", "c"])
    ramify.write(ramify.Dataset(Y, names, X=sparse.csr_matrix(np.eye(2, dtype=np.float32))), tmp_path / "d.npz")
    output(capsys, "train", "xr-linear", tmp_path / "d.npz", "--out", tmp_path / "m", "--quiet")
    assert list(ramify.load(tmp_path / "m").labels_) == ["a", "b", "c"]


def test_a_matrix_without_labels(tmp_path, capsys):
    """Features are enough to predict; what needs labels says where they are looked for."""
    X, Y = sparse.csr_matrix(np.eye(3, dtype=np.float32)), sparse.csr_matrix(np.eye(3, dtype=np.float32))
    for name, matrix in (("X.trn", X), ("Y.trn", Y), ("X.new", X)):
        sparse.save_npz(tmp_path / f"{name}.npz", matrix)
    output(capsys, "train", "one-vs-all", tmp_path / "X.trn.npz", "--out", tmp_path / "m", "--quiet")
    output(capsys, "predict", tmp_path / "m", tmp_path / "X.new.npz", "--k", "1", "--out", tmp_path / "P.npz")
    assert sparse.load_npz(tmp_path / "P.npz").argmax(axis=1).ravel().tolist() == [[0, 1, 2]]
    for command in (["train", "one-vs-all", "--dry-run"], ["evaluate", tmp_path / "m"]):
        assert main([*map(str, command), str(tmp_path / "X.new.npz")]) == 1
        assert "no row of X.new.npz has a label: features in an X….npz" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("setting", "is_told"),
    [("features.min_df=2", False), ("features.analyzer=char_wb", True), ('features={analyzer="char_wb"}', False)],
)
def test_settings_of_the_default_features(setting, is_told, train, capsys):
    assert main(["train", "xr-linear", str(train), "--dry-run", "--set", setting]) == 0
    assert ("in place of words beside stems" in capsys.readouterr().err) is is_told


def test_settings_in_any_order(tmp_path):
    settings = ["encoder.frozen=true", f"encoder={tmp_path}"]
    for order in (settings, settings[::-1]):
        encoder = configured_model(ramify.XRTransformer, None, order).encoder
        assert (encoder.model, encoder.frozen) == (str(tmp_path), True)


def test_texts_of_labels_in_training_and_in_its_estimate(tmp_path, capsys):
    rows = [{"text": "red fox runs", "labels": ["a"]}, {"text": "brown hen sleeps", "labels": ["b"]}] * 20
    rows += [{"text": "a grey beast in the sea", "labels": ["c"]}, {"text": "whale and fox", "labels": ["a"]}]
    (tmp_path / "train.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    (tmp_path / "names.tsv").write_text("a\tfox\nb\then\nc\twhale\n")
    files = ["train", "xr-linear", tmp_path / "train.jsonl", "--set", "label_text_weight=5"]
    assert "time, estimated" in output(capsys, *files, "--labels", tmp_path / "names.tsv", "--dry-run")
    assert "it needs a label_catalogue" in output(capsys, *files, "--out", tmp_path / "m", code=1)
    output(capsys, *files, "--labels", tmp_path / "names.tsv", "--out", tmp_path / "m")
    assert ramify.load(tmp_path / "m").predict_topk(["whale"], 1).labels()[0][0][0] == "c"
