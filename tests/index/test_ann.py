"""Nearest neighbor indexes against exhaustive search, on disk, and on damaged data."""

from __future__ import annotations

import builtins

import numpy as np
import pytest

from ramify import DataError, ModelFormatError
from ramify.index.ann import AnnConfig, AnnIndex
from ramify.index.ann.faiss_index import import_faiss
from ramify.io.store import Store, StoreWriter

METHODS = ["flat", "ivf", "hnsw"]


def clustered_vectors(n, dim=24, seed=0):
    random = np.random.default_rng(seed)
    centers = random.standard_normal((30, dim))
    return (centers[random.integers(0, 30, n)] + 0.5 * random.standard_normal((n, dim))).astype(np.float32)


def exhaustive_search(vectors, queries, k):
    """Reference implementation: ids and cosine similarities (m, k)."""
    vectors, queries = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (vectors, queries))
    cosines = queries.astype(np.float64) @ vectors.T.astype(np.float64)
    order = np.argsort(-cosines, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(cosines, order, 1)


@pytest.mark.parametrize("method", METHODS)
def test_recall_against_exhaustive_search(method):
    vectors, queries = clustered_vectors(3000), clustered_vectors(200, seed=1)
    index = AnnIndex.build(vectors, AnnConfig(method=method), k=20, queries=queries)
    assert index.method == method
    ids, scores = index.search(queries, 20)
    expected, cosines = exhaustive_search(vectors, queries, 20)
    recall = np.mean([len(set(a) & set(b)) / 20 for a, b in zip(ids.tolist(), expected.tolist(), strict=True)])
    assert recall > 0.99 if method == "flat" else recall > 0.85
    assert abs(index.recall - recall) < 0.06
    assert np.all(np.diff(scores, axis=1) <= 0)
    assert scores[:, 0] == pytest.approx(cosines[:, 0], rel=1e-4) or method != "flat"


@pytest.mark.parametrize("method", METHODS)
def test_same_bits_for_single_queries_and_any_number_of_threads(method):
    vectors, queries = clustered_vectors(1500), clustered_vectors(70, seed=2)
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
def test_save_and_load(method, tmp_path):
    vectors, ids = clustered_vectors(900), np.arange(900, dtype=np.int32)[::-1] * 2
    index = AnnIndex.build(vectors, AnnConfig(method=method), k=5, ids=ids)
    with StoreWriter(tmp_path / "m") as writer:
        writer.manifest("test", {}, {"index": index.save_to(writer, "index_")})
    store = Store(tmp_path / "m")
    loaded = AnnIndex.load_from(store, store.state["index"], "index_", 24, 1800)
    assert (loaded.search_width, loaded.recall, loaded.method) == (index.search_width, index.recall, method)
    assert (index.search_width == 0) == (method == "flat")
    for a, b in zip(loaded.search(vectors[:50], 5), index.search(vectors[:50], 5), strict=True):
        assert np.array_equal(a, b)
    for dim, n_ids, info in ((23, 1800, store.state["index"]), (24, 100, store.state["index"]), (24, 1800, {})):
        with pytest.raises(ModelFormatError):
            AnnIndex.load_from(store, info, "index_", dim, n_ids)


def test_damaged_graphs_are_refused():
    """faiss follows the links of a graph without a check: each of these would read outside its memory."""
    arrays, info = AnnIndex.build(clustered_vectors(300), AnnConfig(method="hnsw", M=4), k=5).to_arrays()
    assert set(arrays) == {"vectors", "levels", "neighbors", "header", "ids"}
    M, _ = arrays["header"]
    low = int(np.flatnonzero(arrays["levels"] == 1)[0])  # a vector without level 1
    high = int(np.flatnonzero(arrays["levels"] > 1)[0])
    upper = int((arrays["levels"][:high].astype(int) + 1).sum() * M + 2 * M)  # first link of `high` on level 1

    def changed(name, index, value):
        array = arrays[name].copy()
        array[index] = value
        return {**arrays, name: array}

    damaged = [
        changed("neighbors", 0, 300),
        changed("neighbors", 0, -2),
        changed("neighbors", upper, low),  # a link on level 1 to a vector that has none
        changed("levels", 3, 0),
        changed("levels", 3, 2**31 - 1),
        changed("header", 0, 2**62),
        changed("header", 0, M + 1),
        changed("header", 1, 300),
        changed("header", 1, -1),
        changed("header", 1, low),
        changed("vectors", (7, 1), np.nan),
        {**arrays, "vectors": arrays["vectors"][:-1]},
        {**arrays, "neighbors": arrays["neighbors"][:-1]},
        {**arrays, "header": arrays["header"][:1]},
        {name: array for name, array in arrays.items() if name != "neighbors"},
    ]
    assert AnnIndex.from_arrays(arrays, info).search(arrays["vectors"][:3], 2)[0].shape == (3, 2)
    for attempt in damaged:
        with pytest.raises(ModelFormatError):
            AnnIndex.from_arrays(attempt, info)


@pytest.mark.parametrize("method", METHODS)
def test_arrays_of_another_type_are_refused(method):
    """Those of a checkpoint have the type that its file says."""
    arrays, info = AnnIndex.build(clustered_vectors(300), AnnConfig(method=method), k=5).to_arrays()
    for name in set(arrays) - {"ids"}:
        for dtype in ("i1", "u4", "i8", "f4", "f8", ">i4", ">f4", "?"):
            if arrays[name].dtype != np.dtype(dtype):
                with pytest.raises(ModelFormatError, match=f"{name} of the nearest neighbor index has type"):
                    AnnIndex.from_arrays({**arrays, name: arrays[name].astype(dtype)}, info)


def test_faiss_reads_no_files(tmp_path, monkeypatch):
    import faiss

    for method in METHODS:
        index = AnnIndex.build(clustered_vectors(300), AnnConfig(method=method), k=5)
        with StoreWriter(tmp_path / method) as writer:
            writer.manifest("test", {}, {"index": index.save_to(writer, "index_")})
    for name in ("read_index", "deserialize_index", "read_VectorTransform"):
        monkeypatch.setattr(faiss, name, lambda *_: pytest.fail("faiss parses a file of the model"))
    for method in METHODS:
        store = Store(tmp_path / method)
        assert len(AnnIndex.load_from(store, store.state["index"], "index_", 24, 300)) == 300


def test_invalid_descriptions_are_refused():
    import faiss

    arrays = {"vectors": np.eye(4, dtype=np.float32)[:3], "ids": np.arange(3, dtype=np.int32)}
    info = {"method": "flat", "search_width": 1, "recall": 1.0}
    for invalid in (
        {"search_width": -5},
        {"search_width": True},
        {"search_width": 2**70},
        {"recall": "x"},
        {"method": "hnsw"},
        {"method": []},
    ):
        with pytest.raises(ModelFormatError):
            AnnIndex.from_arrays(arrays, {**info, **invalid})
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(3)
    AnnIndex.from_arrays(arrays, info).search(np.eye(4, dtype=np.float32), 2)
    assert faiss.omp_get_max_threads() == 3  # a search restores the caller's setting
    faiss.omp_set_num_threads(before)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("k", [0, -1, 2**31, 2**32, 2**62, 2**63 - 1, 2**63, True])
def test_impossible_k_is_refused(method, k):
    index = AnnIndex.build(clustered_vectors(300), AnnConfig(method=method), k=5)
    with pytest.raises(ValueError, match="k must be between 1 and 65,536"):
        index.search(clustered_vectors(3), k)


def test_inconsistent_ivf_arrays_are_refused():
    arrays, info = AnnIndex.build(clustered_vectors(300), AnnConfig(method="ivf"), k=5).to_arrays()
    assert set(arrays) == {"centroid_codes", "centroid_scales", "indptr", "vectors", "codes", "scales", "ids"}
    indptr = arrays["indptr"].copy()
    indptr[3] = 10**6
    wrong = {name: arrays[name][1:] for name in ("centroid_codes", "scales", "ids")}
    wrong |= {"indptr": indptr, "codes": arrays["codes"][:, 1:], "vectors": arrays["vectors"].astype(np.float64)}
    for name, array in wrong.items():
        with pytest.raises(ModelFormatError):
            AnnIndex.from_arrays({**arrays, name: array}, info)


def test_low_recall_is_an_error_with_advice():
    vectors = np.random.default_rng(0).standard_normal((4000, 48)).astype(np.float32)
    with pytest.raises(DataError, match=r"nprobe=1.*None to have it tuned"):
        AnnIndex.build(vectors, AnnConfig(method="ivf", nprobe=1), k=50)
    with pytest.raises(DataError, match=r"ef_search=1.*recall=0\.9"):
        AnnIndex.build(vectors, AnnConfig(method="hnsw", ef_search=1, M=2, ef_construction=2), k=50)
    assert AnnIndex.build(vectors, AnnConfig(method="ivf"), k=50).recall >= 0.9


def test_auto_chooses_the_method_by_size():
    assert AnnIndex.build(clustered_vectors(500), AnnConfig(), k=5).method == "flat"
    assert AnnIndex.build(clustered_vectors(2000, 8), AnnConfig(), k=5).method == "ivf"


@pytest.mark.parametrize("method", METHODS)
def test_degenerate_vectors(method):
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
    for invalid in (np.full((3, 4), np.nan, np.float32), np.empty((0, 4), np.float32)):
        with pytest.raises(DataError):
            AnnIndex.build(invalid, config, k=3)


def test_missing_faiss_names_the_extra(monkeypatch):
    real_import = builtins.__import__

    def without_faiss(name, *args, **kwargs):
        if name == "faiss":
            raise ImportError(name)
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_faiss)
    with pytest.raises(ImportError, match=r"needs faiss: pip install 'ramify\[ann\]'"):
        import_faiss()


@pytest.mark.parametrize("n_allowed", [1, 7, 400, 2500])
@pytest.mark.parametrize("rescore", [True, False])
@pytest.mark.parametrize("method", METHODS)
def test_restricted_indexes(method, rescore, n_allowed, monkeypatch):
    """An index of some of the vectors finds what an exhaustive search among these finds."""
    monkeypatch.setattr("ramify.index.ann.ivf.MAX_SINGLE_LIST", 1000)
    vectors, queries = clustered_vectors(3000), clustered_vectors(50, seed=1)
    ids = np.random.default_rng(2).permutation(5000)[:3000].astype(np.int32)  # any ids, with gaps
    index = AnnIndex.build(vectors, AnnConfig(method=method, rescore=rescore), k=10, ids=ids, queries=queries)
    allowed = np.zeros(5000, bool)
    chosen = np.random.default_rng(3).permutation(3000)[:n_allowed]
    allowed[ids[chosen]] = True
    restricted = index.restricted(allowed)
    k = min(10, n_allowed)
    expected, cosines = exhaustive_search(vectors[chosen], queries, k)
    for threads in (1, 3):
        found, similarities = restricted.search(queries, 12, threads)
        assert np.all(allowed[found[found >= 0]])
        assert np.all((found >= 0).sum(axis=1) == min(12, n_allowed))
        recall = np.mean(
            [
                len(set(a) & set(b)) / k
                for a, b in zip(found[:, :k].tolist(), ids[chosen][expected].tolist(), strict=True)
            ]
        )
        assert recall > (0.85 if method == "ivf" else 0.99)
        if n_allowed == 7:  # all of them
            assert np.allclose(similarities[:, :k], cosines, atol=0.02)
    assert index.restricted(np.zeros(5000, bool)) is None
    before = index.search(queries, 10)
    assert np.array_equal(index.search(queries, 10)[0], before[0])  # the index itself is as it was
