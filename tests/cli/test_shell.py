"""The shell as people expect it: options that do what they say, output formats, new commands."""

from __future__ import annotations

import argparse
import io
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
from neural import topics
from scipy import sparse

import ramify
from ramify.cli import halving, tune
from ramify.cli.completion import SHELLS
from ramify.cli.dry_run import _n_epochs
from ramify.cli.help import EXAMPLES
from ramify.cli.main import main
from ramify.cli.options import configured_model
from ramify.cli.output import format_table
from ramify.cli.parser import make_parser
from ramify.io.labels import LabelVocabulary
from ramify.models import REGISTRY, model_class

TEXTS, LABELS = topics(200, 30)


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def train(tmp_path):
    return write_rows(tmp_path / "train.jsonl", [{"text": t, "labels": y} for t, y in zip(TEXTS, LABELS, strict=True)])


@pytest.fixture
def model(tmp_path, train):
    assert main(["train", "xr-linear", str(train), "--out", str(tmp_path / "m"), "--quiet"]) == 0
    return tmp_path / "m"


def run(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "ramify", *map(str, arguments)], capture_output=True, text=True, **options
    )


def output(capsys, *arguments, code=0):
    found = main([str(a) for a in arguments])
    captured = capsys.readouterr()
    assert found == code, captured.err
    return captured.out if code == 0 else captured.err


# ---- predict ----


def test_label_names(tmp_path, capsys):
    data = write_rows(tmp_path / "ids.jsonl", [{"text": "red fox", "labels": [1]}, {"text": "hen", "labels": [0]}])
    (tmp_path / "names.txt").write_text("the hen\nthe fox\n")
    output(capsys, "train", "xr-linear", data, "--out", tmp_path / "m", "--quiet")
    found = output(capsys, "predict", tmp_path / "m", data, "--k", 1, "--label-names", tmp_path / "names.txt")
    assert [json.loads(line)["labels"][0]["label"] for line in found.splitlines()] == ["the fox", "the hen"]
    (tmp_path / "names.txt").write_text("only one\n")
    error = output(capsys, "predict", tmp_path / "m", data, "--label-names", tmp_path / "names.txt", code=1)
    assert "are not ids of the 1 names" in error


@pytest.mark.parametrize("suffix", [".jsonl", ".tsv", ".csv", ".parquet", ".npz", ".jsonl.gz"])
def test_predictions_are_written_by_suffix_and_evaluated(model, train, suffix, tmp_path, capsys):
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / f"out{suffix}"
    output(capsys, "predict", model, train, "--k", 5, "--out", path)
    head = path.read_bytes()[:4]
    expected = {".npz": b"PK", ".parquet": b"PAR1", ".tsv": b"id\tr", ".csv": b"id,r", ".jsonl": b'{"la'}
    assert head.startswith(expected.get(suffix, b"\x1f\x8b"))
    arguments = ["--ks", "1,5", "--json"]
    saved = json.loads(output(capsys, "evaluate", path, train, "--train", train, *arguments))
    direct = json.loads(output(capsys, "evaluate", model, train, *arguments))
    for metric in ("P@1", "P@5", "nDCG@5", "PSP@5"):
        assert saved[metric] == pytest.approx(direct[metric], abs=1.0 if suffix == ".npz" else 1e-6)  # ties


def test_unknown_output_formats_are_refused_first(model, tmp_path, capsys):
    assert "predictions are not written as .xlsx" in output(capsys, "predict", model, "-", "--out", "a.xlsx", code=1)


def test_saved_predictions_are_matched_by_id(model, tmp_path, capsys):
    rows = [{"id": i, "text": t, "labels": y} for i, (t, y) in enumerate(zip(TEXTS[:9], LABELS[:9], strict=True))]
    data, reverse = write_rows(tmp_path / "d.jsonl", rows), write_rows(tmp_path / "r.jsonl", rows[::-1])
    output(capsys, "predict", model, reverse, "--out", tmp_path / "p.jsonl")
    assert json.loads((tmp_path / "p.jsonl").read_text().splitlines()[0])["id"] == 8  # and not "8"
    values = [json.loads(output(capsys, "evaluate", tmp_path / "p.jsonl", d, "--json")) for d in (data, reverse)]
    assert values[0] == values[1]
    few = write_rows(tmp_path / "f.jsonl", rows[:3])
    output(capsys, "predict", model, few, "--out", tmp_path / "p.jsonl")
    assert "no prediction for the id 3" in output(capsys, "evaluate", tmp_path / "p.jsonl", data, code=1)
    (tmp_path / "x.jsonl").write_text('{"text": 3}\n')
    assert "not a prediction" in output(capsys, "evaluate", tmp_path / "x.jsonl", data, code=1)


def test_format_of_standard_input(model):
    done = run("predict", model, "--format", "tsv", "--k", "1", input=f"text\tid\n{TEXTS[0]}\ta\n")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["id"] == "a"
    done = run("predict", model, "--format", "annif", "--k", "1", input=f"{TEXTS[0]}\t<http://x>\n")
    assert len(json.loads(done.stdout)["labels"]) == 1


@pytest.mark.parametrize("source", ["stdin", "file"])
def test_answers_before_a_bad_line_are_kept(model, source, tmp_path):
    lines = '{"text": "a"}\n{"text": "b"}\n{broken\n{"text": "c"}\n'
    path = tmp_path / "in.jsonl"
    path.write_text(lines)
    done = run("predict", model, "--k", "1", *([path] if source == "file" else []), input=lines)
    assert done.returncode == 1
    assert len(done.stdout.splitlines()) == 2
    assert ":3: not valid JSON" in done.stderr
    done = run("predict", model, "--k", "1", "--skip-bad", *([path] if source == "file" else []), input=lines)
    assert [json.loads(line)["line"] for line in done.stdout.splitlines()] == [1, 2, 4]


def test_xmc_rows_after_bad_lines_have_their_line(tmp_path, capsys):
    (tmp_path / "train.txt").write_text("3 5 2\n0 1:1\n1 2:1\n0,1 1:1 2:1\n")
    (tmp_path / "in.txt").write_text("4 5 2\n0 1:1\n0 1:broken\n1 2:1\n0 4:1\n")
    output(capsys, "train", "xr-linear", tmp_path / "train.txt", "--out", tmp_path / "m")
    for name in ("out.jsonl", "out.tsv"):
        output(
            capsys, "predict", tmp_path / "m", tmp_path / "in.txt", "--skip-bad", "--k", "1", "--out", tmp_path / name
        )
    assert [json.loads(row)["line"] for row in (tmp_path / "out.jsonl").read_text().splitlines()] == [2, 4, 5]
    assert [row.split("\t")[0] for row in (tmp_path / "out.tsv").read_text().splitlines()[1:]] == ["2", "4", "5"]


def test_undecodable_lines_keep_the_answers_before_them(model):
    command = [sys.executable, "-m", "ramify", "predict", str(model), "--k", "1", "--text"]
    done = subprocess.run(command, input=b"one\ntwo\n\xff\xfe\n", capture_output=True)
    assert done.returncode == 1
    assert len(done.stdout.splitlines()) == 2


# ---- train ----


def test_output_is_checked_before_training(train, tmp_path, capsys, monkeypatch):
    (tmp_path / "taken").write_text("a file")
    error = output(capsys, "train", "popular", tmp_path / "missing.jsonl", "--out", tmp_path / "taken", code=1)
    assert "is a file" in error  # though the data file is missing, too
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(100, 99, 1))
    error = output(capsys, "train", "popular", train, "--out", tmp_path / "m", code=1)
    assert "0 MB are free, but the model may need" in error
    assert "--out DIR is required" in output(capsys, "train", "popular", train, code=1)


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


def test_label_columns_without_samples(tmp_path, capsys):
    """The shell keeps the columns of a matrix, as `fit` does."""
    Y = sparse.csr_matrix(np.array([[1, 0, 0], [0, 0, 1]], np.float32))
    names = ramify.LabelVocabulary(["a", "b", "c"])
    ramify.write(ramify.Dataset(Y, names, X=sparse.csr_matrix(np.eye(2, dtype=np.float32))), tmp_path / "d.npz")
    output(capsys, "train", "xr-linear", tmp_path / "d.npz", "--out", tmp_path / "m", "--quiet")
    assert list(ramify.load(tmp_path / "m").labels_) == ["a", "b", "c"]


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


# ---- evaluate, inspect, combine ----


def test_several_models_in_one_table(model, train, tmp_path, capsys):
    output(capsys, "train", "popular", train, "--out", tmp_path / "p", "--quiet")
    rows = output(capsys, "evaluate", model, tmp_path / "p", train, "--table", "csv").splitlines()
    assert rows[0].startswith(",P@1,")
    assert [row.split(",")[0] for row in rows[1:]] == [str(model), str(tmp_path / "p")]
    values = json.loads(output(capsys, "evaluate", model, tmp_path / "p", train, "--json"))
    assert values[str(model)]["P@1"] > values[str(tmp_path / "p")]["P@1"]
    assert "| --- | ---: |" in output(capsys, "evaluate", model, train, "--table", "markdown", "--ks", "1")
    assert r"\begin{tabular}{lr}" in output(capsys, "evaluate", model, train, "--table", "latex", "--ks", "1")


def test_tables():
    rows = [["", "P@1"], ["a_b|c", "1 %"]]
    assert format_table(rows, "csv") == ",P@1\na_b|c,1 %"
    assert format_table(rows, "markdown").splitlines()[2] == "| a_b&#124;c | 1 % |"
    assert r"a\_b|c & 1 \% \\" in format_table(rows, "latex")


def test_propensity_constants(model, train, capsys):
    by_name = output(capsys, "evaluate", model, train, "--propensity", "amazon", "--json")
    assert output(capsys, "evaluate", model, train, "--propensity", "0.6,2.6", "--json") == by_name
    with pytest.raises(SystemExit):
        main(["evaluate", str(model), str(train), "--propensity", "sometimes"])
    assert "neither of default, amazon, wikipedia nor two numbers" in capsys.readouterr().err


def test_inspect(model, train, tmp_path, capsys):
    plain = output(capsys, "inspect", model)
    assert "tree0_" not in plain
    assert "tree0_" in output(capsys, "inspect", model, "--arrays")
    with_data = output(capsys, "inspect", model, "--data", train)
    assert "nDCG" in with_data
    assert with_data.index("nDCG") < with_data.index("\nparameter ")  # what matters first
    captured = main(["inspect", str(model), "--plots", str(tmp_path / "plots")]), capsys.readouterr()
    assert captured[0] == 1
    assert captured[1].out == ""  # nothing was printed before the error
    assert "no plots are available for xr-linear" in captured[1].err


def test_combine(model, train, tmp_path, capsys):
    output(capsys, "train", "one-vs-all", train, "--out", tmp_path / "o", "--quiet")
    models = [ramify.load(model), ramify.load(tmp_path / "o")]
    kinds_differ = ("combine", model, tmp_path / "o", "--out", tmp_path / "both", "--weights", "1,2")
    assert main([str(part) for part in kinds_differ]) == 1
    assert "--data FILE" in capsys.readouterr().err
    output(capsys, *kinds_differ, "--combine", "rank")
    both, expected = ramify.load(tmp_path / "both"), ramify.Ensemble.of(models, weights=(1.0, 2.0), combine="rank")
    assert both.predict_topk(TEXTS, 3).ids.tolist() == expected.predict_topk(TEXTS, 3).ids.tolist()
    output(capsys, *kinds_differ, "--data", train)
    both, expected = ramify.load(tmp_path / "both"), ramify.Ensemble.of(models, TEXTS, LABELS, weights=(1.0, 2.0))
    assert both.predict_topk(TEXTS, 3).ids.tolist() == expected.predict_topk(TEXTS, 3).ids.tolist()


@pytest.mark.parametrize(
    ("package", "arguments"),
    [
        ("matplotlib", ["inspect", "{elias}", "--plots", "plots"]),
        ("faiss", ["train", "lightdxml", "{train}", "--out", "l"]),
        ("torch", ["train", "xr-transformer", "{train}", "--out", "x", "--set", "encoder=nowhere"]),
        ("pyarrow", ["predict", "{model}", "{train}", "--out", "p.parquet"]),
        ("pyarrow", ["data", "convert", "{train}", "p.parquet"]),
        ("optuna", ["tune", "one-vs-all", "{train}", "--sampler", "optuna", "--out", "t.toml"]),
    ],
)
def test_missing_extras_are_named(package, arguments, model, train, tmp_path):
    if "{elias}" in arguments:
        training = ramify.TrainingConfig(epochs=1)
        ramify.Elias(stage1=training, stage2=training).fit(TEXTS, LABELS).save(tmp_path / "e")
    paths = {"train": train, "model": model, "elias": tmp_path / "e"}
    code = (
        f"import sys; sys.modules[{package!r}] = None; from ramify.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code, *(a.format(**paths) for a in arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "pip install 'ramify[" in done.stderr


# ---- help ----


def commands(parser, prefix=()):
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, sub in action.choices.items():
                yield (*prefix, name), sub
                yield from commands(sub, (*prefix, name))


def test_every_command_shows_examples():
    parser = make_parser()
    found = dict(commands(parser))
    assert "examples:" in parser.format_help()
    for path, sub in found.items():
        assert "examples:\n  " in sub.format_help(), path
    assert {path[-1] for path in found} | {"ramify"} == set(EXAMPLES)


@pytest.mark.parametrize("line", sorted({line for lines in EXAMPLES.values() for line in lines}))
def test_examples_are_valid(line):
    command = shlex.split(line.split("ramify ", 1)[1].split(" > ")[0].split(" >> ")[0].split(" | ")[0])
    if "--help" not in command:
        assert make_parser().parse_args(command).command == command[0]


def test_unknown_options_show_the_usage_of_their_command(capsys):
    with pytest.raises(SystemExit):
        main(["train", "popular", "x", "--out", "y", "--confg", "z"])
    error = capsys.readouterr().err
    assert "usage: ramify train" in error
    assert "did you mean --config?" in error


def test_help_lists_the_parameters_of_the_transformer(capsys):
    with pytest.raises(SystemExit):
        main(["train", "xr-transformer", "--help"])
    shown = capsys.readouterr().out
    assert "encoder.max_length = 128" in shown
    assert "encoder.dim" in shown


@pytest.mark.parametrize("shell", SHELLS)
def test_completion(shell, capsys):
    script = output(capsys, "completion", shell)
    for word in ("train", "xr-linear", "dry-run", "convert"):
        assert word in script
    if shell == "bash" and shutil.which("bash"):
        ask = 'COMP_WORDS=(ramify train --dr); COMP_CWORD=2; _ramify; echo "${COMPREPLY[@]}"'
        done = subprocess.run(["bash", "-c", f"{script}\n{ask}"], capture_output=True, text=True)
        assert done.stdout.strip() == "--dry-run", done.stderr


# ---- new, card, tune ----


@pytest.mark.parametrize("key", sorted(REGISTRY))
def test_new(key, tmp_path, capsys):
    text = output(capsys, "new", key)
    assert tomllib.loads(text) == {}  # the defaults are comments
    uncommented = "\n".join(
        line[2:] for line in text.splitlines() if line.startswith("# ") and " = " in line and not line.endswith(")")
    )
    (tmp_path / "all.toml").write_text(uncommented)
    again = configured_model(model_class(key), str(tmp_path / "all.toml"), [])
    assert again.to_dict() == model_class(key)().to_dict()


def test_new_of_a_preset(tmp_path, capsys):
    output(capsys, "new", "xr-linear", "--preset", "pecos", "--out", tmp_path / "p.toml")
    model = configured_model(ramify.XRLinear, str(tmp_path / "p.toml"), [])
    assert model.to_dict() == ramify.XRLinear.pecos().to_dict()
    assert "exists" in output(capsys, "new", "popular", "--out", tmp_path / "p.toml", code=1)


def test_card(model, train, tmp_path, capsys):
    text = output(capsys, "card", model, "--data", train)
    for word in ("# m\n", "`XRLinear`", "| labels | 30 |", "nDCG", "ramify.load('m')"):
        assert word in text
    output(capsys, "card", model, "--out", tmp_path / "card.md")
    assert (tmp_path / "card.md").read_text().startswith("# m\n")


def test_successive_halving(tmp_path):
    """The best settings of a function that is known survive; an interrupted search continues where it was."""
    trained = []

    def score(settings, size):
        trained.append((settings.get("x", 0.0), size))
        return -abs(settings.get("x", 0.0) - 3.0)

    def search(log):
        proposals = iter([{}, *({"x": float(x)} for x in range(1, 9))])
        return halving.successive_halving(
            score, proposals, lambda *_: None, [10, 30, 90], log, 600.0, 9, lambda trial: None
        )

    result = search(halving.TrialLog.open(tmp_path / "log", "a"))
    assert result[0].settings == {"x": 3.0}
    assert result[0].n_samples == 90
    assert {} in [trial.settings for trial in result]  # the defaults are always compared
    assert [size for _, size in trained].count(10) == 9
    assert [size for _, size in trained].count(30) == 4
    trained.clear()
    with (tmp_path / "log").open("a") as file:
        file.write('{"settings": {"x"')  # an interrupted write
    assert search(halving.TrialLog.open(tmp_path / "log", "a"))[0] == result[0]
    assert trained == []
    with pytest.raises(ramify.DataError, match="another search"):
        halving.TrialLog.open(tmp_path / "log", "b")
    assert halving.rungs(500) == [500]
    assert halving.rungs(90_000) == [3333, 10_000, 30_000, 90_000]


def test_tune_with_a_budget_for_one_training(train, tmp_path, capsys):
    arguments = ["tune", "one-vs-all", str(train), "--budget", "0.001s", "--out", str(tmp_path / "t.toml")]
    code = main(arguments)
    captured = capsys.readouterr()
    assert code == 0, captured.err
    assert "nothing was compared; raise --budget" in captured.err
    assert "mean nDCG@5 by value" not in captured.out


@pytest.mark.parametrize("sampler", ["random", "optuna"])
def test_tune(sampler, train, tmp_path, capsys):
    if sampler == "optuna":
        pytest.importorskip("optuna")
    out = tmp_path / "tuned.toml"
    arguments = ["tune", "one-vs-all", train, "--out", out, "--max-settings", 4, "--sampler", sampler]
    found = output(capsys, *arguments)
    assert "with the defaults" in found
    assert "mean nDCG@5 by value" in found
    assert "linear." in found
    configured_model(ramify.OneVsAll, str(out), [])
    n_trials = len(Path(f"{out}.trials.jsonl").read_text().splitlines())
    assert n_trials == 5
    assert output(capsys, *arguments) == found  # resumed: nothing was left to train
    assert len(Path(f"{out}.trials.jsonl").read_text().splitlines()) == n_trials


def test_spaces_name_parameters():
    for key, space in tune.SPACES.items():
        random = np.random.default_rng(0)
        for path, choice in space.items():
            value = choice.sample(random)
            params = model_class(key)().set_params(**{path: value}).get_params()
            assert params[path.replace(".", "__")] == value, path


def test_durations():
    assert [tune.parse_duration(t) for t in ("90", "90s", "1.5m", "2h")] == [90, 90, 90, 7200]
    with pytest.raises(argparse.ArgumentTypeError):
        tune.parse_duration("soon")


def test_standard_output_is_text(model, monkeypatch):
    """Predictions of a pipe are JSON Lines, whatever the file formats."""
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    assert main(["predict", str(model), "pydoc:test", "--k", "1"]) == 0
    assert json.loads(out.getvalue().splitlines()[0])["labels"]
