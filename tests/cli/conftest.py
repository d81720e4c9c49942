"""Fixtures of the command line: a data file, and a model of it."""

from __future__ import annotations

import pytest
from shell import LABELS, TEXTS, write_rows

from ramify.cli.main import main


@pytest.fixture
def train(tmp_path):
    return write_rows(tmp_path / "train.jsonl", [{"text": t, "labels": y} for t, y in zip(TEXTS, LABELS, strict=True)])


@pytest.fixture
def model(tmp_path, train):
    assert main(["train", "xr-linear", str(train), "--out", str(tmp_path / "m"), "--quiet"]) == 0
    return tmp_path / "m"
