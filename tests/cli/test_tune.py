"""``ramify tune``: successive halving within a budget of time."""

from __future__ import annotations

import argparse
import contextlib
import json
from pathlib import Path

import numpy as np
import pytest
from shell import output

import ramify
from ramify.cli import halving, tune
from ramify.cli.main import main
from ramify.cli.options import configured_model
from ramify.cli.time_limit import TimeIsOver, time_limit
from ramify.models import model_class


class Clock:
    """Time that passes only in trainings, and never ends them."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(halving.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(halving, "time_limit", lambda seconds: contextlib.nullcontext())


class Trainings:
    """A function that is known in place of trainings: the best x is 3."""

    def __init__(self, clock, seconds_of):
        self.clock, self.seconds_of, self.sizes = clock, seconds_of, []

    def __call__(self, settings, size):
        self.sizes.append(size)
        self.clock.now += self.seconds_of(size)
        return -abs(settings.get("x", 0.0) - 3.0)


def search(trainings, log, budget, n_samples):
    proposals = iter([{}, *({"x": float(x)} for x in range(1, 9))])
    return halving.Search(trainings, log, budget, lambda trial: None).run(proposals, lambda *_: None, n_samples, 9)


def test_successive_halving(tmp_path, monkeypatch):
    """The best settings of a function that is known survive; an interrupted search continues where it was."""
    trainings = Trainings(Clock(monkeypatch), lambda size: 0.001)
    result = search(trainings, halving.TrialLog.open(tmp_path / "log", "a"), 600.0, 9_000)
    assert result.best[0].settings == {"x": 3.0}
    assert result.best[0].n_samples == 9_000
    assert {} in [trial.settings for trial in result.best]  # the defaults are always compared
    assert trainings.sizes.count(1000) == len(result.first) == 9
    assert trainings.sizes.count(3000) == 4
    trainings.sizes.clear()
    with (tmp_path / "log").open("a") as file:
        file.write('{"settings": {"x": 1.0}')  # an interrupted write
    before = (tmp_path / "log").read_text().splitlines()[:-1]
    assert search(trainings, halving.TrialLog.open(tmp_path / "log", "a"), 600.0, 9_000) == result
    assert trainings.sizes == []
    assert (tmp_path / "log").read_text().splitlines() == before
    with pytest.raises(ramify.DataError, match="another search"):
        halving.TrialLog.open(tmp_path / "log", "b")
    assert halving.rungs(500) == [500]
    assert halving.rungs(90_000) == [3333, 10_000, 30_000, 90_000]


@pytest.mark.parametrize("budget", [30.0, 100.0, 1000.0, 20_000.0])
@pytest.mark.parametrize("power", [0.7, 1.0, 1.3])
def test_the_budget_is_kept(tmp_path, monkeypatch, budget, power):
    """Whatever the data would take: fewer samples are trained on, and still there is a comparison."""
    clock = Clock(monkeypatch)
    trainings = Trainings(clock, lambda size: (size / 250) ** power)  # all samples take minutes or hours
    log = halving.TrialLog.open(tmp_path / "log", "a")
    result = search(trainings, log, budget, 500_000)
    assert clock.now <= budget
    assert len(result.best) > 1
    assert len(result.first) > 2
    assert max(trainings.sizes) == result.best[0].n_samples
    trainings.sizes.clear()
    clock.now = 0.0
    again = search(trainings, halving.TrialLog.open(tmp_path / "log", "a"), budget, 500_000)
    assert again.best[0].n_samples >= result.best[0].n_samples  # the same sizes, and perhaps a training more


def test_a_training_that_takes_too_long_is_abandoned(tmp_path):
    def train(settings, size):
        if settings:
            while True:
                pass
        return 1.0

    log = halving.TrialLog.open(tmp_path / "log", "a")
    assert [trial.settings for trial in search(train, log, 0.2, 500).best] == [{}]
    (tmp_path / "log").unlink()
    log = halving.TrialLog.open(tmp_path / "log", "a")
    assert search(lambda settings, size: train({"x": 1}, size), log, 0.2, 500) is None
    assert log.trials == []


def test_native_code_ends_in_time():
    texts = [f"word{i % 997} word{i % 991} word{i % 983}" for i in range(40_000)]
    labels = [[i % 5000] for i in range(40_000)]

    def work():
        with time_limit(0.3):
            while True:
                ramify.OneVsAll(verbose=0).fit(texts, labels)

    with pytest.raises(TimeIsOver):
        work()
    with time_limit(1000.0):  # the timer of the block before is gone
        assert ramify.OneVsAll(verbose=0).fit(texts[:50], labels[:50]).n_labels == 50


def test_tune_without_time_for_a_training(train, tmp_path, capsys):
    arguments = ["tune", "one-vs-all", train, "--budget", "0.001s", "--out", tmp_path / "t.toml"]
    error = output(capsys, *arguments, code=1)
    assert "over before a first training ended" in error
    assert "t.toml was not written; raise --budget" in error
    assert not (tmp_path / "t.toml").exists()


def test_tune_on_fewer_samples_than_there_are(train, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(halving, "PILOT", 20)
    monkeypatch.setattr(halving, "rungs", lambda n, min_samples=60: [60] if n > 60 else [n])
    assert main([str(a) for a in ("tune", "one-vs-all", train, "--out", tmp_path / "t.toml", "--max-settings", 2)]) == 0
    captured = capsys.readouterr()
    assert "settings were compared on 60; raise --budget" in captured.err
    assert "on 60 samples" in captured.out
    assert "mean nDCG@5 by value" in captured.out


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


def test_names_of_labels_are_tuned_where_there_are_some(tmp_path, capsys):
    lines = [
        json.dumps({"text": text, "labels": [label]}) for text, label in [("red fox", "a"), ("grey hen", "b")] * 40
    ]
    (tmp_path / "train.jsonl").write_text("\n".join(lines))
    (tmp_path / "names.tsv").write_text("a\tfox\nb\then\n")
    arguments = ["tune", "xr-linear", tmp_path / "train.jsonl", "--out", tmp_path / "t.toml", "--max-settings", 9]
    arguments += ["--set", "linear.C=1", "--set", "linear.tail_weight=1", "--set", "linear.threshold=0.1"]
    arguments += ["--set", "tree.max_leaf_size=50", "--set", "matcher_kept=4"]
    assert main([str(a) for a in [*arguments, "--labels", tmp_path / "names.tsv"]]) == 0
    captured = capsys.readouterr()
    assert "label_text_weight" in captured.out  # though there are only four settings
    assert f"--labels {tmp_path / 'names.tsv'}" in captured.err
    assert "--set fixes all that tune compares for xr-linear: linear.C" in output(capsys, *arguments, code=1)


def test_spaces_name_parameters():
    for key, space in [*tune.SPACES.items(), *tune.NAMED_SPACES.items()]:
        random = np.random.default_rng(0)
        for path, choice in space.items():
            value = choice.sample(random)
            params = model_class(key)().set_params(**{path: value}).get_params()
            assert params[path.replace(".", "__")] == value, path


def test_durations():
    assert [tune.parse_duration(t) for t in ("90", "90s", "1.5m", "2h")] == [90, 90, 90, 7200]
    with pytest.raises(argparse.ArgumentTypeError):
        tune.parse_duration("soon")
