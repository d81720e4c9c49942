"""Label index: nearest labels, frequent labels, files."""

from __future__ import annotations

import numpy as np
import pytest

from ramify import ModelFormatError
from ramify.index.ann import AnnConfig
from ramify.io.store import Store, StoreWriter
from ramify.nn.label_index import LabelIndex

pytestmark = pytest.mark.native


def problem(n_labels=200, dim=8):
    random = np.random.default_rng(3)
    embeddings = random.standard_normal((n_labels, dim)).astype(np.float32)
    ids, counts = np.arange(n_labels, dtype=np.int32) * 3, random.permutation(n_labels)
    return embeddings, ids, counts, random.standard_normal((40, dim)).astype(np.float32)


def build(k=60, config=None, **options):
    embeddings, ids, counts, queries = problem(**options)
    return LabelIndex.build(
        embeddings, ids, counts, config or AnnConfig(), k=k, queries=queries, seed=0, threads=1
    ), queries


def test_frequent_labels_are_candidates_of_every_query():
    embeddings, ids_of, counts, queries = problem()
    index, _ = build()
    assert len(index) == 200
    assert index.frequent.tolist() == ids_of[np.argsort(-counts)[:15]].tolist()
    few = index.search(queries, 20, 1)[0]
    assert few[0, :5].tolist() == index.frequent[:5].tolist()
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (queries, embeddings)]
    cosines = unit[0] @ unit[1].T
    for threads in (1, 3):
        ids, similarities = index.search(queries, 60, threads)
        assert similarities == pytest.approx(np.take_along_axis(cosines, ids // 3, 1), abs=1e-5)
    frequent = set(index.frequent.tolist())
    for i in range(40):
        assert len(set(ids[i].tolist())) == 60
        assert frequent <= set(ids[i].tolist())
        others = [j for j in np.argsort(-cosines[i]) * 3 if j not in frequent][:45]
        assert set(ids[i].tolist()) == set(others) | frequent
    again = LabelIndex.from_arrays(*index.to_arrays(), queries.shape[1], 10**6).search(queries, 60, 1)
    assert np.array_equal(again[0], ids)
    assert np.array_equal(again[1], similarities)


def test_a_search_of_few_labels_returns_no_frequent_ones():
    index, queries = build(k=3)
    assert len(index.frequent) == 0
    embeddings, *_ = problem()
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (queries, embeddings)]
    expected = np.argsort(-(unit[0] @ unit[1].T), axis=1)[:, :3] * 3
    assert np.array_equal(np.sort(index.search(queries, 3, 1)[0], axis=1), np.sort(expected, axis=1))


def test_more_candidates_than_labels_are_padded():
    index, queries = build(k=30, n_labels=20)
    ids, similarities = index.search(queries, 30, 1)
    assert ids.shape == (40, 30)
    assert np.all(np.sort(ids, axis=1)[:, 10:] == np.arange(20) * 3)
    assert np.all((ids < 0) == np.isneginf(similarities))


@pytest.mark.parametrize("config", [AnnConfig(), AnnConfig(method="ivf"), AnnConfig(method="hnsw")])
def test_saves_and_loads(tmp_path, config):
    index, queries = build(config=config)
    with StoreWriter(tmp_path / "model") as writer:
        info = index.save_to(writer, "labels_")
        writer.manifest("test", {}, {})
    store = Store(tmp_path / "model")
    again = LabelIndex.load_from(store, info, "labels_", 8, 600)
    for mine, other in zip(index.search(queries, 60, 1), again.search(queries, 60, 1), strict=True):
        assert np.array_equal(mine, other)
    with pytest.raises(ModelFormatError, match="dimension 8"):
        LabelIndex.load_from(store, info, "labels_", 9, 600)
    with pytest.raises(ModelFormatError, match="outside 0 to"):
        LabelIndex.load_from(store, info, "labels_", 8, 500)


def test_a_repeated_label_is_refused(tmp_path):
    index, _ = build()
    index.frequent = index.frequent.copy()
    index.frequent[0] = index.index.ids[0]
    with StoreWriter(tmp_path / "model") as writer:
        info = index.save_to(writer, "")
        writer.manifest("test", {}, {})
    with pytest.raises(ModelFormatError, match="contains a label twice"):
        LabelIndex.load_from(Store(tmp_path / "model"), info, "", 8, 600)
