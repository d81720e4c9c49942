"""Initial word embeddings: from co-occurrence in the corpus, random, or pretrained."""

from __future__ import annotations

import numpy as np

from ramify import native
from ramify.base.errors import DataError
from ramify.base.sparse import as_csr, normalize_rows
from ramify.base.threads import blas_threads
from ramify.base.types import AnyArray, Csr, FloatArray, LongArray
from ramify.io.files import BadLines, read_lines

EMBEDDING_NORM = 4.0
"""Mean norm of a text embedding before training."""


def corpus_embeddings(
    X: Csr, Y: Csr, dim: int, *, power_iterations: int, random: np.random.Generator, threads: int
) -> FloatArray:
    """Word embeddings (V, dim) from a corpus X (n × V) with labels Y (n × L).

    Half of the directions separate texts by their words, half by their labels. Each direction occurs with both signs,
    so the ReLU after the bag sum loses nothing.
    """
    n_words, half = X.shape[1], (dim + 1) // 2
    Y_unit = normalize_rows(Y)
    X_T = X.T.tocsr()
    factors = [(X, X_T), (Y_unit.T.tocsr() @ X, X_T @ Y_unit)]  # each matrix (m × V) with its transpose
    parts = []
    for (matrix, transpose), rank in zip(factors, (half // 2, half - half // 2), strict=True):
        A, A_T = as_csr(matrix, "X"), as_csr(transpose, "X")
        with blas_threads(1):  # its products alternate with native ones
            parts.append(_principal_directions(A, A_T, rank, power_iterations, random, threads))
    # Each step in place: at this size, a copy in double precision is the peak of the whole training.
    embeddings, at = np.zeros((n_words, dim), np.float32), 0
    for sign in (1, -1):
        for part in parts:
            width = min(part.shape[1], dim - at)
            np.multiply(part[:, :width], sign, out=embeddings[:, at : at + width], casting="same_kind")
            at += width
    return scale_embeddings(embeddings, X, threads)


def random_embeddings(X: Csr, dim: int, random: np.random.Generator, threads: int) -> FloatArray:
    """Word embeddings (V, dim) drawn uniformly."""
    return scale_embeddings(random.uniform(-1, 1, (X.shape[1], dim)), X, threads)


def scale_embeddings(embeddings: AnyArray, X: Csr, threads: int) -> FloatArray:
    """Scale word embeddings (V, dim) so that the texts of X (n × V) have the norm `EMBEDDING_NORM` on average."""
    embeddings = np.ascontiguousarray(embeddings, np.float32)
    texts = native.matrix.spmm_dense(X[: min(len(X.indptr) - 1, 4096)], embeddings, threads)
    norm = np.sqrt(np.mean(np.square(texts).sum(axis=1)))
    return embeddings * np.float32(EMBEDDING_NORM / norm) if norm > 0 else embeddings


def read_pretrained(path: str, terms: list[str], max_dim: int) -> tuple[LongArray, FloatArray]:
    """Read pretrained word embeddings in the text format of word2vec and fastText.

    Returns
    -------
    rows : (m,) ids of the terms that the file contains
    embeddings : (m, d) with d at most `max_dim`
    """
    term_ids = {term: i for i, term in enumerate(terms)}
    bad = BadLines(path, skip=False)
    found: dict[int, FloatArray] = {}
    dim = 0
    for line, text in read_lines(path, "utf-8", bad):
        word, *values = text.split()
        if line == 1 and len(values) == 1:  # the header: number of words and dimension
            continue
        dim = dim or len(values)
        if len(values) != dim or dim > max_dim:
            expected = f"{min(dim, max_dim)}, the same in every line and at most half of the encoder's dim"
            bad.report(line, f"an embedding of dimension {len(values)}; expected {expected}")
        if word in term_ids:
            try:
                found[term_ids[word]] = np.array(values, np.float32)
            except ValueError as error:
                bad.report(line, str(error))
    if not found:
        raise DataError(f"{path} has none of the {len(terms)} terms of the texts")
    return np.array(list(found), np.int64), np.array(list(found.values()), np.float32)


def replace_rows(words: FloatArray, rows: LongArray, pretrained: FloatArray) -> FloatArray:
    """Replace word embeddings (V, dim) by pretrained ones (m, d), with both signs and at the same mean norm."""
    both = np.zeros((len(rows), words.shape[1]), np.float32)
    both[:, : pretrained.shape[1]] = pretrained
    both[:, words.shape[1] - pretrained.shape[1] :] -= pretrained
    before, now = (np.sqrt(np.mean(np.square(part).sum(axis=1))) for part in (words[rows], both))
    result = words.copy()
    result[rows] = both * np.float32(before / max(float(now), 1e-30))
    return result


def _principal_directions(
    A: Csr, A_T: Csr, rank: int, power_iterations: int, random: np.random.Generator, threads: int
) -> FloatArray:
    """Leading right singular vectors (V, rank) of A (m × V) by randomized SVD (Halko et al., 2011), partly whitened."""
    n_words = A.shape[1]
    basis = random.standard_normal((n_words, min(n_words, rank + 16))).astype(np.float32)
    values = np.ones(basis.shape[1], np.float32)
    for _ in range(power_iterations + 1):
        basis, _ = _orthonormalize(native.matrix.spmm_dense(A, np.ascontiguousarray(basis), threads))
        basis, values = _orthonormalize(native.matrix.spmm_dense(A_T, np.ascontiguousarray(basis), threads))
    # The square root lies between the plain projection, which a few directions dominate, and full whitening, which
    # amplifies noise.
    scale = np.sqrt(np.maximum(values[:rank], 1e-3 * max(1e-30, float(values[0]))))
    return np.asarray(basis[:, :rank] / scale, np.float32)


def _orthonormalize(columns: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Orthonormal basis (n, r) of the column space, by descending singular value, and the singular values.

    Computed from the r × r Gram matrix: a QR decomposition of the tall matrix takes minutes.
    """
    gram = (columns.T @ columns).astype(np.float64)
    squares, rotation = np.linalg.eigh(gram)
    squares, rotation = squares[::-1], rotation[:, ::-1]
    values = np.sqrt(np.maximum(squares, 0.0))
    scale = np.where(values > 1e-4 * max(1e-30, float(values[0])), 1.0 / np.maximum(values, 1e-30), 0.0)
    return columns @ (rotation * scale).astype(np.float32), values.astype(np.float32)
