"""Nearest neighbours against looking at everything."""

from __future__ import annotations

import numpy as np
import pytest

from ramify import DataError, ModelFormatError
from ramify.index.ann import AnnConfig, AnnIndex
from ramify.io.store import Store, StoreWriter

METHODS = ["flat", "ivf", "hnsw"]


def clustered(n, width=24, seed=0):
    random = np.random.default_rng(seed)
    middles = random.standard_normal((30, width))
    return (middles[random.integers(0, 30, n)] + 0.5 * random.standard_normal((n, width))).astype(np.float32)


def exact(vectors, queries, k, metric):
    if metric == "cosine":
        vectors, queries = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (vectors, queries))
    products = queries.astype(np.float64) @ vectors.T.astype(np.float64)
    order = np.argsort(-products, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(products, order, 1)


@pytest.mark.parametrize("metric", ["cosine", "product"])
@pytest.mark.parametrize("method", METHODS)
def test_finds_what_looking_at_everything_finds(method, metric):
    vectors, queries = clustered(3000), clustered(200, seed=1)
    index = AnnIndex.build(vectors, AnnConfig(method=method, metric=metric), k=20, queries=queries)
    assert index.method == method
    ids, scores = index.search(queries, 20)
    expected, products = exact(vectors, queries, 20, metric)
    found = np.mean([len(set(a) & set(b)) / 20 for a, b in zip(ids.tolist(), expected.tolist(), strict=True)])
    assert found > 0.99 if method == "flat" else found > 0.85
    assert abs(index.recall - found) < 0.06
    assert np.all(np.diff(scores, axis=1) <= 0)
    assert scores[:, 0] == pytest.approx(products[:, 0], rel=1e-4) or method != "flat"


@pytest.mark.parametrize("method", METHODS)
def test_a_row_alone_and_any_number_of_threads_give_the_same_bits(method):
    vectors, queries = clustered(1500), clustered(70, seed=2)
    index = AnnIndex.build(vectors, AnnConfig(method=method), k=10)
    again = AnnIndex.build(vectors, AnnConfig(method=method), k=10, threads=3)
    ids, scores = index.search(queries, 10)
    for other in (index.search(queries, 10, 3), again.search(queries, 10, 2)):
        assert np.array_equal(other[0], ids)
        assert np.array_equal(other[1], scores)
    for i in (0, 33, 69):
        one = index.search(queries[i : i + 1], 10)
        assert np.array_equal(one[0][0], ids[i])
        assert np.array_equal(one[1][0], scores[i])


@pytest.mark.parametrize("method", METHODS)
def test_saved_and_mapped(method, tmp_path):
    vectors, names = clustered(900), np.arange(900, dtype=np.int32)[::-1] * 2
    index = AnnIndex.build(vectors, AnnConfig(method=method), k=5, names=names)
    with StoreWriter(tmp_path / "m") as writer:
        writer.manifest("test", {}, {"index": index.save_to(writer, "index_")})
    store = Store(tmp_path / "m")
    opened = AnnIndex.load_from(store, store.state["index"], "index_", 24, 1800)
    assert (opened.effort, opened.recall, opened.method) == (index.effort, index.recall, method)
    for a, b in zip(opened.search(vectors[:50], 5), index.search(vectors[:50], 5), strict=True):
        assert np.array_equal(a, b)
    for width, n_names, info in ((23, 1800, store.state["index"]), (24, 100, store.state["index"]), (24, 1800, {})):
        with pytest.raises(ModelFormatError):
            AnnIndex.load_from(store, info, "index_", width, n_names)


def test_a_damaged_file_is_refused(tmp_path):
    index = AnnIndex.build(clustered(300), AnnConfig(method="hnsw"), k=5)
    with StoreWriter(tmp_path / "m") as writer:
        state = {"index": index.save_to(writer, "index_")}
        writer.manifest("test", {}, state)
    file = tmp_path / "m" / "index_faiss.npy"
    content = bytearray(file.read_bytes())
    content[128:140] = bytes(12)
    file.write_bytes(content)
    store = Store(tmp_path / "m")
    with pytest.raises(ModelFormatError, match="cannot be read"):
        AnnIndex.load_from(store, state["index"], "index_", 24, 300)


def test_indices_that_we_do_not_make_are_refused():
    import faiss

    other, names = faiss.IndexFlatL2(4), np.arange(3, dtype=np.int32)
    other.add(np.eye(4, dtype=np.float32)[:3])
    info = {"method": "flat", "metric": "cosine", "effort": 1, "recall": 1.0}
    for index in (other, faiss.IndexFlatIP(4), faiss.IndexPQ(4, 2, 4)):
        with pytest.raises(ModelFormatError):
            AnnIndex.from_arrays({"faiss": faiss.serialize_index(index), "names": names[: index.ntotal]}, info)
    good = faiss.IndexFlatIP(4)
    good.add(np.eye(4, dtype=np.float32)[:3])
    arrays = {"faiss": faiss.serialize_index(good), "names": names}
    for wrong in (
        {"effort": -5},
        {"effort": True},
        {"effort": 2**70},
        {"metric": "l2"},
        {"recall": "x"},
        {"method": "hnsw"},
        {"method": []},
    ):
        with pytest.raises(ModelFormatError):
            AnnIndex.from_arrays(arrays, {**info, **wrong})
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(3)
    AnnIndex.from_arrays(arrays, info).search(np.eye(4, dtype=np.float32), 2)
    assert faiss.omp_get_max_threads() == 3  # as the caller left it
    faiss.omp_set_num_threads(before)


def test_lists_that_do_not_fit_are_refused():
    arrays, info = AnnIndex.build(clustered(300), AnnConfig(method="ivf"), k=5).to_arrays()
    begin = arrays["begin"].copy()
    begin[3] = 10**6
    wrong = {name: arrays[name][1:] for name in ("middles", "steps", "names")}
    wrong |= {"begin": begin, "codes": arrays["codes"][:, 1:], "vectors": arrays["vectors"].astype(np.float64)}
    for name, array in wrong.items():
        with pytest.raises(ModelFormatError):
            AnnIndex.from_arrays({**arrays, name: array}, info)


def test_low_recall_is_an_error_that_says_what_to_do():
    vectors = np.random.default_rng(0).standard_normal((4000, 48)).astype(np.float32)
    with pytest.raises(DataError, match="leave effort out"):
        AnnIndex.build(vectors, AnnConfig(method="ivf", effort=1), k=50)
    with pytest.raises(DataError, match=r"recall=0\.9"):
        AnnIndex.build(vectors, AnnConfig(method="hnsw", effort=1, links=2, build_width=2), k=50)
    assert AnnIndex.build(vectors, AnnConfig(method="ivf"), k=50).recall >= 0.9


def test_the_size_decides():
    assert AnnIndex.build(clustered(500), AnnConfig(), k=5).method == "flat"
    assert AnnIndex.build(clustered(2000, 8), AnnConfig(), k=5).method == "ivf"


@pytest.mark.parametrize("method", METHODS)
def test_nasty_vectors(method):
    config = AnnConfig(method=method, recall=0.0)
    for vectors in (np.zeros((40, 4)), np.ones((40, 4)), np.eye(4)[:1], np.full((3, 4), 1e-20), np.full((3, 4), 1e-30)):
        vectors = vectors.astype(np.float32)
        ids, scores = AnnIndex.build(vectors, config, k=3).search(vectors, 50)
        n = len(vectors)
        assert ids.shape == scores.shape == (n, 50)
        assert np.all(ids[:, n:] == -1)
        assert np.all(np.isneginf(scores[ids < 0]))
        assert np.all(np.isfinite(scores[ids >= 0]))
    assert AnnIndex.build(vectors, config, k=3).search(vectors[:0], 2)[0].shape == (0, 2)
    for bad in (np.full((3, 4), np.nan, np.float32), np.empty((0, 4), np.float32)):
        with pytest.raises(DataError):
            AnnIndex.build(bad, config, k=3)
