"""Prediction and evaluation of many files equal those of one process; the command line."""

from __future__ import annotations

import json

import numpy as np
import pytest
from distributed.corpus import samples, write_files

import ramify
from ramify.cli.main import main


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Directory with a model, the rows it has not seen, and the pattern of their files."""
    directory, rows = tmp_path_factory.mktemp("saved"), samples(150, 40, seed=1)
    for i, row in enumerate(rows):
        row["id"] = f"row {i}"
    model = ramify.XRLinear(verbose=0)
    model.fit([row["text"] for row in rows[:100]], [row["labels"] for row in rows[:100]]).save(directory / "model")
    return directory, rows, write_files(directory / "test", rows, (20, 70))


@pytest.mark.parametrize("engine", ["process", "pool"])
def test_rankings_and_metrics_are_those_of_one_process(saved, tmp_path, engine):
    directory, rows, pattern = saved
    found = ramify.predict_files(
        directory / "model", pattern, k=7, engine=engine, work_dir=tmp_path, rows_per_block=40, verbose=0
    )
    expected = ramify.load(directory / "model").predict_topk([row["text"] for row in rows], 7)
    assert len(found) == len(rows)
    np.testing.assert_array_equal(found.ranking().ids, expected.ids)
    np.testing.assert_array_equal(found.ranking().scores, expected.scores)
    assert [key for _, _, keys in found.rankings() for key in keys] == [row["id"] for row in rows]
    assert found.labels() == [row["labels"] for row in rows]
    counts = ramify.load(directory / "model").label_counts_
    whole = ramify.evaluate(expected, [row["labels"] for row in rows], counts)
    assert found.evaluate().to_dict() == whole.to_dict()


def test_another_model_at_the_same_path_is_another_task(saved, tmp_path):
    _, rows, pattern = saved
    options = {"engine": "process", "work_dir": tmp_path / "work", "verbose": 0}
    texts, labels = [row["text"] for row in rows], [row["labels"] for row in rows]
    ramify.Popular(verbose=0).fit(texts, labels).save(tmp_path / "model")
    first = ramify.predict_files(tmp_path / "model", pattern, **options).ranking()
    ramify.Popular(verbose=0).fit(texts[:5], labels[:5]).save(tmp_path / "model")
    second = ramify.predict_files(tmp_path / "model", pattern, **options).ranking()
    assert first.n_labels != second.n_labels


def test_the_command_line_trains_predicts_and_evaluates(saved, tmp_path, capsys):
    directory, rows, pattern = saved
    engine = ["--engine", "process", "--work-dir", str(tmp_path / "work")]
    train = write_files(tmp_path / "train", rows[:100], (30,))
    assert main(["train", "xr-linear", train, "--out", str(tmp_path / "model"), *engine]) == 0
    assert "tasks" in capsys.readouterr().err
    model = ramify.load(tmp_path / "model")
    assert (
        model.set_params(verbose=0).predict_topk(["topic3"], 5).labels()
        == ramify.load(directory / "model").predict_topk(["topic3"], 5).labels()
    )
    assert main(["predict", str(tmp_path / "model"), pattern, "--k", "3", "--out", f"{tmp_path}/out/", *engine]) == 0
    written = [path.read_text().splitlines() for path in sorted((tmp_path / "out").iterdir())]
    assert [path.name for path in sorted((tmp_path / "out").iterdir())] == [f"part-{i}.jsonl" for i in range(3)]
    assert list(map(len, written)) == [20, 70, 60]
    assert (
        main(["predict", str(tmp_path / "model"), pattern, "--k", "3", "--out", f"{tmp_path}/all.jsonl", *engine]) == 0
    )
    lines = (tmp_path / "all.jsonl").read_text().splitlines()
    assert lines == [line for part in written for line in part]
    assert [json.loads(line)["id"] for line in lines] == [row["id"] for row in rows]
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "model"), pattern, "--json", *engine]) == 0
    values = json.loads(capsys.readouterr().out)
    (tmp_path / "whole.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["evaluate", str(tmp_path / "model"), str(tmp_path / "whole.jsonl"), "--json"]) == 0
    assert values == json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["train", "xr-linear", "FILE", "--out", "OUT", "--engine", "pool"], "--work-dir"),
        (["train", "popular", "FILE", "--out", "OUT", "--engine", "pool", "--work-dir", "WORK"], "xr-linear"),
        (["train", "xr-linear", "FILE", "--out", "OUT", "--engine", "pool", "--work-dir", "WORK",
          "--calibrate", "auto"], "--calibrate"),
        (["predict", "MODEL", "FILE", "--engine", "pool", "--work-dir", "WORK"], "--out"),
        (["evaluate", "MODEL", "FILE", "--engine", "pool", "--work-dir", "WORK", "--annif"], "--annif"),
    ],
)  # fmt: skip
def test_wrong_options_say_what_to_do(saved, tmp_path, capsys, command, words):
    directory, _, pattern = saved
    names = {"FILE": pattern, "OUT": f"{tmp_path}/out", "WORK": f"{tmp_path}/work", "MODEL": str(directory / "model")}
    assert main([names.get(word, word) for word in command]) != 0
    assert words in capsys.readouterr().err
