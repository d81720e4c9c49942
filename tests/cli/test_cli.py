"""The command line: output, standard error, exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import ramify
from ramify.cli.main import main

ROWS = [
    {"text": "red fox runs", "labels": ["fox", "red"], "id": "a"},
    {"text": "brown hen", "labels": ["hen"], "id": "b"},
    {"text": "red hen", "labels": ["hen", "red"], "id": "c"},
]


@pytest.fixture
def train_file(tmp_path):
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


@pytest.fixture
def model(tmp_path, train_file):
    assert main(["train", "popular", str(train_file), "--out", str(tmp_path / "m"), "--quiet"]) == 0
    return tmp_path / "m"


def run(*arguments, **options):
    command = [sys.executable, "-m", "ramify", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, **options)


def test_train_evaluate_predict_inspect(tmp_path, train_file, capsys):
    out = tmp_path / "m"
    code = main(
        ["train", "popular", str(train_file), "--out", str(out), "--dev", str(train_file), "--set", "threshold=0.1"]
    )
    output = capsys.readouterr()
    assert code == 0
    assert "3 samples with 3 labels" in output.err
    assert output.out.splitlines()[0].split() == ["@1", "@3"]
    assert ramify.load(out).threshold == 0.1

    assert main(["evaluate", str(out), str(train_file), "--json", "--ks", "1,2", "--deciles"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["P@1"] == pytest.approx(100 * 2 / 3)
    assert len(values["deciles"]["P@1"]) == 10

    assert main(["evaluate", str(out), str(train_file), "--deciles", "--unseen", "drop", "--propensity", "amazon"]) == 0
    assert "PSP" in capsys.readouterr().out

    assert main(["predict", str(out), str(train_file), "--k", "2"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["id"] for line in lines] == ["a", "b", "c"]
    assert lines[0]["labels"][0]["label"] == "hen"
    assert len(lines[0]["labels"]) == 2

    assert main(["inspect", str(out), "--verify"]) == 0
    shown = capsys.readouterr().out
    assert "popular" in shown
    assert "threshold" in shown
    assert main(["inspect", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["params"]["threshold"] == 0.1


def test_predict_streams(model):
    """The first result is written before the second line is read."""
    command = [sys.executable, "-m", "ramify", "predict", str(model), "--k", "1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        for i in range(3):
            process.stdin.write(json.dumps({"text": "red", "id": i}) + "\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["id"] == i
        process.stdin.close()
        assert process.wait(30) == 0


def test_predict_from_standard_input(model, tmp_path):
    done = run("predict", model, "-", "--k", 1, "--text", input="plain text\nanother")
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 2)
    many = "".join(json.dumps({"text": f"text {i}"}) + "\n" for i in range(5000))
    done = run("predict", model, "--k", 1, input=many)
    assert len(done.stdout.splitlines()) == 5000
    done = run("predict", model, input='{"text": "a"}\nbroken\n{"text": "b"}\n')
    assert done.returncode == 1
    assert "<stdin>:2: not valid JSON" in done.stderr
    done = run("predict", model, "--skip-bad", input='{"text": "a"}\nbroken\n{"text": "b"}\n')
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 2)
    assert "1 bad line skipped" in done.stderr
    latin = b'{"text": "gr\xf6\xdfer"}\n{"text": "b"}\n'
    command = [sys.executable, "-m", "ramify", "predict", str(model)]
    done = subprocess.run(command, input=latin, capture_output=True)
    assert done.returncode == 1
    assert b"<stdin>:1: not utf-8: byte 0xf6" in done.stderr
    assert subprocess.run([*command, "--skip-bad"], input=latin, capture_output=True).stdout.count(b"\n") == 1
    assert (
        subprocess.run([*command, "--encoding", "latin-1"], input=latin, capture_output=True).stdout.count(b"\n") == 2
    )
    (tmp_path / "odd.dat").write_text("text\nred fox\n")
    assert run("predict", model, tmp_path / "odd.dat", "--format", "csv").returncode == 0
    done = run("predict", model, "--out", tmp_path / "o.jsonl", input='{"text": "a"}\n')
    assert done.stdout == ""
    assert json.loads((tmp_path / "o.jsonl").read_text())["labels"]


def test_feature_input(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("2 3 2\n0 1:1\n1 2:1 0:0.5\n")
    assert main(["train", "popular", str(tmp_path / "a.txt"), "--out", str(tmp_path / "m")]) == 0
    assert main(["predict", str(tmp_path / "m"), str(tmp_path / "a.txt"), "--k", "1"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert main(["evaluate", str(tmp_path / "m"), str(tmp_path / "a.txt")]) == 0
    done = run("predict", tmp_path / "m", "--text", input="a text")
    assert done.returncode == 1
    assert "trained on sparse features, but X holds texts" in done.stderr


def test_config_file(tmp_path, train_file, capsys):
    config = tmp_path / "c.toml"
    config.write_text("threshold = 0.25\nseed = 9\n")
    arguments = ["train", "popular", str(train_file), "--out", str(tmp_path / "m"), "--config", str(config)]
    assert main([*arguments, "--set", "seed=11", "--threads", "2"]) == 0
    model = ramify.load(tmp_path / "m")
    assert (model.threshold, model.seed, model.threads) == (0.25, 11, 2)
    config.write_text("treshold = 1\n")
    assert main(arguments) == 1
    assert "Did you mean 'threshold'" in capsys.readouterr().err
    config.write_text("= broken")
    assert main(arguments) == 1
    assert "not valid TOML" in capsys.readouterr().err


def test_help_lists_each_parameter(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["train", "popular", "--help"])
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    for info in ramify.Popular.describe():
        assert info.path in shown
        assert info.doc in shown


def test_data_commands(tmp_path, train_file, capsys):
    assert main(["data", "stats", str(train_file), str(train_file)]) == 0
    shown = capsys.readouterr().out
    assert "samples that also occur in train" in shown
    assert "features of linear models" in shown
    assert main(["data", "stats", str(train_file), "--json"]) == 0
    stats = json.loads(capsys.readouterr().out)[str(train_file)]
    assert stats["samples"] == 3
    assert sum(stats["languages"].values()) == pytest.approx(1)
    assert main(["data", "convert", str(train_file), str(tmp_path / "b.jsonl.xz")]) == 0
    assert ramify.read(tmp_path / "b.jsonl.xz").labels() == ramify.read(train_file).labels()
    train_file.write_text(train_file.read_text() + "broken\n")
    assert main(["data", "stats", str(train_file)]) == 1
    assert f"{train_file}:4: " in capsys.readouterr().err
    assert main(["data", "stats", str(train_file), "--skip-bad"]) == 0
    assert "1 bad line skipped" in capsys.readouterr().err


def test_built_in_data(tmp_path, capsys):
    assert main(["train", "popular", "pydoc:train", "--out", str(tmp_path / "m"), "--dev", "pydoc:test"]) == 0
    assert "nDCG" in capsys.readouterr().out
    assert main(["data", "stats", "pydoc:nope"]) == 1


@pytest.mark.parametrize(("arguments", "code", "message"), [
    ([], 2, "COMMAND"),
    (["fly"], 2, "invalid choice"),
    (["train", "nope", "x", "--out", "y"], 2, "invalid choice"),
    (["train", "popular", "missing.jsonl", "--out", "y"], 1, "no such file"),
    (["train", "popular", "pydoc:train", "--out", "y", "--set", "seed"], 1, "name=value"),
    (["train", "popular", "pydoc:train", "--out", "y", "--set", "seed=x"], 1, "Popular.seed must be int"),
    (["predict", "missing"], 1, "not a model directory"),
    (["evaluate", "missing", "x"], 1, "not a model directory"),
    (["inspect", "."], 1, "not a model directory"),
])  # fmt: skip
def test_exit_codes(arguments, code, message, tmp_path):
    done = run(*arguments, cwd=tmp_path, stdin=subprocess.DEVNULL)
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_closed_pipe(model):
    command = f"""yes '{{"text": "x"}}' | head -20000 | {sys.executable} -m ramify predict {model} | head -1"""
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.stdout.count("\n") == 1
    assert "Traceback" not in done.stderr


def test_interrupt(model):
    process = subprocess.Popen(
        [sys.executable, "-m", "ramify", "predict", str(model)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdin.write(b'{"text": "x"}\n')
    process.stdin.flush()
    process.stdout.readline()
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 130
    assert b"Traceback" not in errors


def test_tables_and_progress_bars_on_a_terminal(model, train_file):
    """On a terminal there are table borders and a progress bar; in a pipe the output is plain."""
    pty = pytest.importorskip("pty")
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "ramify", "evaluate", str(model), str(train_file)],
        stdout=follower,
        stderr=follower,
        env={**os.environ, "COLUMNS": "100", "TERM": "xterm"},
    )
    os.close(follower)
    seen = b""
    while True:
        try:
            chunk = os.read(leader, 65536)
        except OSError:
            break
        if not chunk:
            break
        seen += chunk
    os.close(leader)
    assert process.wait(30) == 0
    assert "─".encode() in seen or "━".encode() in seen
    assert b"predicting" in seen
    plain = run("evaluate", model, train_file)
    assert "━" not in plain.stdout
    assert plain.stderr == ""


def test_input_sources(model, train_file, tmp_path):
    """FILE after the options, a pipe, standard input, plain text in a file, built-in data."""
    assert len(run("predict", model, "--k", 1, train_file).stdout.splitlines()) == 3
    assert run("predict", model, "--k", 1, train_file, "more").returncode == 2
    (tmp_path / "plain.txt").write_text("red fox\nhen\n")
    assert len(run("predict", model, tmp_path / "plain.txt", "--text").stdout.splitlines()) == 2
    assert run("predict", model, "pydoc:test", "--k", 1).stdout.count("\n") > 500
    assert "samples" in run("data", "stats", "-", input=train_file.read_text()).stdout
    command = f"{sys.executable} -m ramify data stats <(cat {train_file})"
    assert "samples" in subprocess.run(["bash", "-c", command], capture_output=True, text=True).stdout
    command = f"{sys.executable} -m ramify predict {model} <(cat {train_file})"
    assert subprocess.run(["bash", "-c", command], capture_output=True, text=True).stdout.count("\n") == 3


def test_line_without_text_is_bad(model):
    lines = '{"text": "a"}\n{"title": "t"}\n{"text": "c"}\n'
    done = run("predict", model, input=lines)
    assert done.returncode == 1
    assert "<stdin>:2: no field 'text'" in done.stderr
    done = run("predict", model, "--skip-bad", input=lines)
    assert (done.returncode, done.stdout.count("\n")) == (0, 2)


def test_output_files_are_complete_or_missing(model, tmp_path):
    out = tmp_path / "new" / "o.jsonl.gz"
    assert run("predict", model, "--out", out, input='{"text": "a"}\nbroken\n').returncode == 1
    assert list((tmp_path / "new").iterdir()) == []
    assert run("predict", model, "--out", out, input='{"text": "a"}\n').returncode == 0
    assert ramify.io.files.open_binary(out).read().count(b"\n") == 1


def test_filter_has_the_label_ids_of_the_file(tmp_path, capsys):
    """Label 2 has no training sample, so the label ids of the model differ from those of the file."""
    (tmp_path / "trn.txt").write_text("2 3 4\n0,1 0:1.0 2:0.5\n3 1:2\n")
    (tmp_path / "tst.txt").write_text("1 3 4\n3 1:2\n")
    assert main(["train", "popular", str(tmp_path / "trn.txt"), "--out", str(tmp_path / "m"), "--quiet"]) == 0
    found = {}
    for line in ("", "0 2", "0 3"):
        (tmp_path / "f.txt").write_text(line + "\n")
        arguments = ["evaluate", str(tmp_path / "m"), str(tmp_path / "tst.txt"), "--filter", str(tmp_path / "f.txt")]
        assert main([*arguments, "--json"]) == 0
        found[line] = json.loads(capsys.readouterr().out)["R@3"]
    assert found == {"": 100.0, "0 2": 100.0, "0 3": 0.0}
    for wrong in ("0 x", "0 9", "7 0", "0"):
        (tmp_path / "f.txt").write_text(wrong + "\n")
        assert main(arguments) == 1
        assert "f.txt:1: " in capsys.readouterr().err


def test_f1_does_not_depend_on_the_cutoffs(tmp_path, train_file, capsys):
    assert main(["train", "popular", str(train_file), "--out", str(tmp_path / "m"), "--set", "threshold=0.1"]) == 0
    values = []
    for ks in ("1", "1,3"):
        capsys.readouterr()
        assert main(["evaluate", str(tmp_path / "m"), str(train_file), "--json", "--ks", ks]) == 0
        values.append(json.loads(capsys.readouterr().out)["micro-F1"])
    assert values[0] == values[1]
    with pytest.raises(SystemExit) as stop:
        main(["evaluate", "m", "f", "--ks", "a"])
    assert stop.value.code == 2


def test_inspect_reports_and_plots_an_index(tmp_path, train_file, model, capsys):
    pytest.importorskip("matplotlib")
    out = tmp_path / "elias"
    settings = ["--set", "stage1.min_steps=20", "--set", "stage2.min_steps=20", "--set", "encoder.dim=8"]
    assert main(["train", "elias", str(train_file), "--out", str(out), "--quiet", *settings]) == 0
    capsys.readouterr()
    assert main(["inspect", str(out), "--data", str(train_file), "--plots", str(tmp_path / "plots")]) == 0
    shown = capsys.readouterr().out
    assert "pruning" in shown
    assert "shortlist" in shown
    assert len(list((tmp_path / "plots").glob("*.png"))) == 6
    assert main(["inspect", str(model), "--plots", str(tmp_path / "none")]) == 1
    assert "no plots are available for popular" in capsys.readouterr().err


WEIGHTED = [
    {"text": "red fox", "labels": ["zebra", "ant"], "weights": [3.0, 0.5]},
    {"text": "red hen", "labels": ["ant"]},
    {"text": "grey whale", "labels": ["zebra", "hen"], "weights": [1.0, 8.0]},
]


def test_train_uses_the_weights_of_the_data(tmp_path, capsys):
    path = tmp_path / "weighted.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in WEIGHTED))
    assert main(["train", "xr-linear", str(path), "--out", str(tmp_path / "m"), "--quiet"]) == 0
    assert capsys.readouterr().err == ""
    data = ramify.read(path)
    found = ramify.load(tmp_path / "m").predict_topk(data.texts, 3)
    for relevance, same in ((data.encoded_relevance(), True), (None, False)):
        expected = ramify.XRLinear(verbose=0).fit(data.texts, data.labels(), relevance=relevance)
        assert np.array_equal(expected.predict_topk(data.texts, 3).scores, found.scores) == same


def test_train_matches_weights_to_labels_by_name(tmp_path):
    """With --label-names the order of the labels in the file differs from that of the ids in the model."""
    ids = {"zebra": 0, "unused": 1, "hen": 2, "ant": 3}
    (tmp_path / "names.txt").write_text("".join(f"{name}\n" for name in ids))
    (tmp_path / "names.jsonl").write_text("".join(json.dumps(row) + "\n" for row in WEIGHTED))
    (tmp_path / "ids.jsonl").write_text(
        "".join(json.dumps({**row, "labels": [ids[x] for x in row["labels"]]}) + "\n" for row in WEIGHTED)
    )
    names = ["--label-names", str(tmp_path / "names.txt")]
    texts = [row["text"] for row in WEIGHTED]
    predictions = []
    for file, options in (("names.jsonl", []), ("ids.jsonl", names)):
        out = str(tmp_path / f"model-{file}")
        assert main(["train", "xr-linear", str(tmp_path / file), "--out", out, "--quiet", *options]) == 0
        predictions.append(ramify.load(out).predict_topk(texts, 3).labels())
    assert predictions[0] == predictions[1]


@pytest.mark.parametrize("suffix", ["jsonl", "tsv", "csv", "parquet"])
def test_weights_of_samples(suffix, tmp_path, capsys):
    """Files of every kind have them, every model uses them."""
    path, given = tmp_path / "given.jsonl", [0.5, None, 3]
    rows = [
        {"text": row["text"], "labels": row["labels"], "sample_weight": w}
        for row, w in zip(WEIGHTED, given, strict=True)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["data", "convert", str(path), str(tmp_path / f"all.{suffix}")]) == 0
    data = ramify.read(tmp_path / f"all.{suffix}")
    assert data.sample_weight.tolist() == [0.5, 1, 3]
    assert data.subset([2, 0]).sample_weight.tolist() == [3, 0.5]
    for kind, cls in (("xr-linear", ramify.XRLinear), ("knn", ramify.KNN)):
        assert main(["train", kind, str(tmp_path / f"all.{suffix}"), "--out", str(tmp_path / "m"), "--quiet"]) == 0
        found = ramify.load(tmp_path / "m").predict_topk(data.texts, 3)
        expected = cls(verbose=0).fit(data.texts, data.labels(), sample_weight=[0.5, 1, 3])
        assert np.array_equal(expected.predict_topk(data.texts, 3).scores, found.scores)
        unweighted = cls(verbose=0).fit(data.texts, data.labels())
        assert not np.array_equal(unweighted.predict_topk(data.texts, 3).scores, found.scores)


@pytest.mark.parametrize(
    ("weight", "message"), [(-1, "from 0"), ("heavy", "from 0"), (True, "from 0"), ([1], "from 0")]
)
def test_bad_weights_of_samples(weight, message, tmp_path, capsys):
    path = tmp_path / "bad.jsonl"
    path.write_text(json.dumps({"text": "a", "labels": ["b"], "sample_weight": weight}) + "\n")
    assert main(["train", "popular", str(path), "--out", str(tmp_path / "m")]) == 1
    assert f"is not a finite number {message}" in capsys.readouterr().err


def test_weights_of_labels_reach_models_that_take_those_of_samples(tmp_path, capsys):
    path = tmp_path / "weighted.jsonl"
    path.write_text("".join(json.dumps({**row, "sample_weight": 2}) + "\n" for row in WEIGHTED))
    assert main(["train", "knn", str(path), "--out", str(tmp_path / "m"), "--quiet"]) == 0
    assert "the weight of a sample of weighted.jsonl is the mean of its weights" in capsys.readouterr().err
    data = ramify.read(path)
    assert data.mean_relevance().tolist() == [1.75, 1, 4.5]
    expected = ramify.KNN(verbose=0).fit(data.texts, data.labels(), sample_weight=[3.5, 2, 9])
    found = ramify.load(tmp_path / "m").predict_topk(data.texts, 3)
    assert np.array_equal(expected.predict_topk(data.texts, 3).scores, found.scores)


@pytest.mark.parametrize(("error", "shown"), [
    ("raise ImportError(\"neural models require torch: pip install 'ramify[deep]'\")",
     "ramify: error: neural models require torch: pip install 'ramify[deep]'\n"),
    ("import no_such_module", "ramify: error: No module named 'no_such_module'\n"),
    ("from json import no_such_name", "ramify: error: cannot import name 'no_such_name' from 'json'"),
    ("raise ImportError('libfoo.so: cannot open shared object file', name='foo._core')",
     "ramify: error: libfoo.so: cannot open shared object file (while importing foo._core)\n"),
    ("\n  try:\n    import no_such_module\n  except ImportError as e:\n    raise ImportError('plots') from e",
     "ramify: error: plots (No module named 'no_such_module')\n"),
])  # fmt: skip
def test_missing_extras_and_failed_imports(tmp_path, train_file, monkeypatch, capsys, error, shown):
    namespace = {}
    exec(f"def fit(self, X, y, **options): {error}", namespace)
    monkeypatch.setattr(ramify.Popular, "fit", namespace["fit"])
    assert main(["train", "popular", str(train_file), "--out", str(tmp_path / "m")]) == 1
    assert capsys.readouterr().err.startswith(shown)


def test_training_without_the_extra_deep(tmp_path, train_file, monkeypatch, capsys):
    for name in ("torch", "transformers"):
        monkeypatch.setitem(sys.modules, name, None)  # importing it raises ModuleNotFoundError
    arguments = ["train", "elias", str(train_file), "--out", str(tmp_path / "m"), "--set", "encoder.model=some-model"]
    assert main(arguments) == 1
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert "pip install 'ramify[deep]'" in shown
    assert not (tmp_path / "m").exists()
