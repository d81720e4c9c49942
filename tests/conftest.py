from __future__ import annotations

import pytest

import ramify


@pytest.fixture(scope="session")
def pydoc() -> ramify.Dataset:
    return ramify.datasets.load("pydoc")
