"""Fixtures of the tests of distributed training."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def small_tasks(monkeypatch):
    """Let tasks be as small as the data of tests, so that there are several of them."""
    monkeypatch.setattr("ramify.distributed.training.LABELS_PER_TASK", 1)
    monkeypatch.setattr("ramify.distributed.training.WORK_PER_TASK", 1)
    monkeypatch.setattr("ramify.distributed.training.FEATURES_PER_TASK", 30)
