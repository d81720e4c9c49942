"""``ramify predict`` and files of predictions: formats, bad lines, names of labels."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest
from shell import LABELS, TEXTS, output, run, write_rows

from ramify.cli.main import main


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
    output(capsys, "predict", model, train, "-k", 5, "--out", path)
    head = path.read_bytes()[:4]
    expected = {".npz": b"PK", ".parquet": b"PAR1", ".tsv": b"id\tr", ".csv": b"id,r", ".jsonl": b'{"la'}
    assert head.startswith(expected.get(suffix, b"\x1f\x8b"))
    arguments = ["--ks", "1,5", "--json"]
    saved = json.loads(output(capsys, "evaluate", path, train, "--train", train, *arguments))
    direct = json.loads(output(capsys, "evaluate", model, train, *arguments))
    for metric in ("P@1", "P@5", "nDCG@5", "PSP@5"):
        assert saved[metric] == pytest.approx(direct[metric], abs=1e-6)


def test_unknown_output_formats_are_refused_first(model, tmp_path, capsys):
    assert "predictions are not written as .xlsx" in output(capsys, "predict", model, "-", "--out", "a.xlsx", code=1)


def test_saved_predictions_do_not_tell_which_labels_were_seen(model, train, tmp_path, capsys):
    output(capsys, "predict", model, train, "--k", "1", "--out", tmp_path / "p.jsonl")
    arguments = ["evaluate", tmp_path / "p.jsonl", train, "--ks", "1"]
    assert "unknown to the model" not in output(capsys, *arguments)
    assert "add --train" in output(capsys, *arguments, "--protocol", "seen", code=1)
    output(capsys, *arguments, "--protocol", "seen", "--train", train)


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
    repeated = [{**row, "id": "same"} for row in rows]
    output(capsys, "predict", model, write_rows(tmp_path / "s.jsonl", repeated), "--out", tmp_path / "p.jsonl")
    in_order = json.loads(output(capsys, "evaluate", tmp_path / "p.jsonl", tmp_path / "s.jsonl", "--json"))
    assert in_order == values[0]  # the same ids in the same order: row by row
    found = output(capsys, "evaluate", tmp_path / "p.jsonl", data, code=1)
    assert "the id 'same' occurs twice" in found
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


def test_standard_output_is_text(model, monkeypatch):
    """Predictions of a pipe are JSON Lines, whatever the file formats."""
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    assert main(["predict", str(model), "pydoc:test", "--k", "1"]) == 0
    assert json.loads(out.getvalue().splitlines()[0])["labels"]
