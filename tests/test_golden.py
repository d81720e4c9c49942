"""Model directories of earlier versions of the format, which are opened for ever after; see tests/golden/make.py."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from golden.make import MODELS, QUERIES
from stores import change_array

import ramify
from ramify.io.store import FORMAT_VERSION, OLDEST_FORMAT_VERSION

GOLDEN = Path(__file__).parent / "golden"
DIRECTORIES = sorted(path for path in GOLDEN.glob("v*/*") if path.is_dir())
NEEDS_FAISS = ("lightdxml", "astec")


def test_every_kind_and_every_version_is_there():
    versions = {int(path.parent.name[1:]) for path in DIRECTORIES}
    assert versions == set(range(OLDEST_FORMAT_VERSION, FORMAT_VERSION + 1))
    assert {path.name for path in DIRECTORIES if path.parent.name == f"v{FORMAT_VERSION}"} == set(MODELS)


@pytest.mark.parametrize("path", DIRECTORIES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_golden_models_answer_as_when_they_were_written(path):
    if path.name.startswith(NEEDS_FAISS):
        pytest.importorskip("faiss")
    model = ramify.load(path, verify=True)
    expected = json.loads(path.with_suffix(".json").read_text())
    ranking = model.predict_topk(QUERIES, k=3)
    scores = np.array([[-np.inf if s is None else s for s in row] for row in expected["scores"]])
    assert ranking.scores == pytest.approx(scores, abs=1e-4)
    distinct = np.abs(np.diff(scores, axis=1)).min(axis=1) > 1e-3  # rounding may order equal labels in another way
    for row in np.flatnonzero(distinct):
        assert [label for label, _ in ranking.labels()[row]] == expected["labels"][row]


def overflowing(boundaries: np.ndarray) -> np.ndarray:
    """Boundaries that go out of range although none of their differences, as 64-bit integers, is negative."""
    changed = boundaries.copy()
    changed[1:3] = np.iinfo(np.int64).max, -5
    with np.errstate(over="ignore"):
        assert np.all(np.diff(changed) >= 0)
    return changed


@pytest.mark.parametrize("kind", sorted(MODELS))
def test_boundaries_whose_differences_overflow_are_refused(kind, tmp_path):
    if kind.startswith(NEEDS_FAISS):
        pytest.importorskip("faiss")
    source = GOLDEN / f"v{FORMAT_VERSION}" / kind
    arrays = {file.stem: np.load(file) for file in source.glob("*.npy")}
    ascending = [name for name, array in arrays.items() if array.ndim == 1 and np.all(np.diff(array) >= 0)]
    names = [name for name in ascending if arrays[name].dtype == np.int64 and len(arrays[name]) > 3]
    for name in names:
        shutil.copytree(source, tmp_path / name)
        change_array(tmp_path / name, name, overflowing)
        with pytest.raises(ramify.ModelFormatError):
            ramify.load(tmp_path / name)
    assert names or kind in ("popular", "one-vs-all", "neural-one-vs-all", "x-transformer"), list(arrays)
