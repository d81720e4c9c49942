"""Initial word embeddings: from the corpus, random, and from a file."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
from scipy import sparse

from ramify import DataError
from ramify.nn.encoders.word_embeddings import (
    EMBEDDING_NORM,
    corpus_embeddings,
    random_embeddings,
    read_pretrained,
    replace_rows,
    scale_embeddings,
)

pytestmark = pytest.mark.native


def corpus(n=200, n_words=60, n_labels=5, seed=0):
    random = np.random.default_rng(seed)
    X = sparse.random(n, n_words, density=0.2, random_state=seed, format="csr", dtype=np.float32)
    Y = sparse.csr_matrix((random.random((n, n_labels)) < 0.2).astype(np.float32))
    return X, Y


def embeddings_of(X, Y, dim, power_iterations=3, threads=1):
    random = np.random.default_rng(0)
    return corpus_embeddings(X, Y, dim, power_iterations=power_iterations, random=random, threads=threads)


def mean_norm(X, words):
    return np.sqrt(np.mean(np.square(np.linalg.norm(X @ words, axis=1))))


def test_corpus_embeddings_have_both_signs_and_a_fixed_mean_norm():
    X, Y = corpus()
    words = embeddings_of(X, Y, 20, threads=2)
    assert words.shape == (60, 20)
    assert words[:, :10] == pytest.approx(-words[:, 10:])
    assert mean_norm(X, words) == pytest.approx(EMBEDDING_NORM, rel=1e-3)
    assert np.array_equal(words, embeddings_of(X, Y, 20))


@pytest.mark.parametrize("dim", [2, 3, 7])
def test_corpus_embeddings_of_any_dimension(dim):
    X, Y = corpus()
    words = embeddings_of(X, Y, dim)
    assert words.shape == (60, dim)
    assert np.isfinite(words).all()


def test_more_dimensions_than_the_corpus_has_directions():
    X, Y = corpus()
    words = embeddings_of(X[:3], Y[:3], 50, power_iterations=1)
    assert words.shape == (60, 50)
    assert np.isfinite(words).all()


def test_random_embeddings():
    X, _ = corpus()
    words = random_embeddings(X, 7, np.random.default_rng(0), 1)
    assert words.shape == (60, 7)
    assert words.dtype == np.float32
    assert mean_norm(X, words) == pytest.approx(EMBEDDING_NORM, rel=1e-3)
    assert np.array_equal(words, random_embeddings(X, 7, np.random.default_rng(0), 2))
    assert not scale_embeddings(np.zeros((60, 7)), X, 1).any()


@pytest.mark.parametrize("suffix", [".vec", ".vec.gz"])
def test_pretrained_embeddings_from_a_file(tmp_path, suffix):
    terms = ["red", "fox", "hen", "whale"]
    path = tmp_path / f"words{suffix}"

    def write(text):
        path.write_bytes(gzip.compress(text.encode()) if suffix.endswith("gz") else text.encode())

    write("3 2\nfox 1.0 -2.0\nwhale 0.5 0\nzebra 1 1\n")
    rows, embeddings = read_pretrained(str(path), terms, 3)
    assert dict(zip(rows.tolist(), embeddings.tolist(), strict=True)) == {1: [1, -2], 3: [0.5, 0]}
    with pytest.raises(DataError, match="at most half"):
        read_pretrained(str(path), terms, 1)
    write("fox 1 2\nhen 1 x\n")
    with pytest.raises(DataError, match=f"{suffix}:2: could not"):
        read_pretrained(str(path), terms, 3)
    write("fox 1 2\nhen 1\n")
    with pytest.raises(DataError, match=f"{suffix}:2: an embedding of dimension 1; expected 2"):
        read_pretrained(str(path), terms, 3)
    write("zebra 1 2\n")
    with pytest.raises(DataError, match="none of"):
        read_pretrained(str(path), terms, 3)


def test_replaced_rows_have_both_signs_and_the_mean_norm_of_the_others():
    words = np.random.default_rng(0).standard_normal((5, 6)).astype(np.float32)
    rows = np.array([1, 4])
    given = np.array([[1, 2], [3, 4]], np.float32)
    result = replace_rows(words, rows, given)
    assert np.array_equal(result[[0, 2, 3]], words[[0, 2, 3]])
    assert result[rows, 4:] == pytest.approx(-result[rows, :2])
    assert not result[rows, 2:4].any()
    assert result[4, 0] == pytest.approx(3 * result[1, 0])
    assert np.linalg.norm(result[rows]) == pytest.approx(np.linalg.norm(words[rows]), rel=1e-5)
