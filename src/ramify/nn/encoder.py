"""Encoders: from features to vectors φ (n, D), trained together with what stands on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ramify import native
from ramify.base.config import Config, param
from ramify.base.errors import DataError, ModelFormatError
from ramify.base.mixed import Mixed
from ramify.base.sparse import as_csr, normalize_rows, padded_rows
from ramify.base.types import AnyArray, Csr, FloatArray, LongArray
from ramify.io.files import BadLines, read_lines
from ramify.io.store import Store, StoreWriter
from ramify.nn.points import Points
from ramify.nn.tables import Adam, DenseParameter, Parts, RowTable


@dataclass(kw_only=True, eq=False, repr=False)
class BagEncoder(Config):
    """Word vectors, weighted by TF-IDF and added up, then a residual layer. Small, fast, and learned from the corpus.

    Over dense features there are no words to learn: the residual layer alone adapts them.
    """

    width: int = param(300, "numbers in a vector; dense features keep their own width", low=2)
    start: Literal["corpus", "random"] = param(
        "corpus", "'corpus': word vectors start from what words occur with; 'random': from random numbers"
    )
    power_steps: int = param(3, "rounds of the decomposition that word vectors start from", low=0)
    vectors: str | None = param(
        None,
        "file of word vectors to start from, one word a line (the text format of word2vec or fastText, also .gz), "
        "at most half as wide as `width`; words that it lacks start as `start` says",
    )


class Bag(Parts):
    """A `BagEncoder` with its arrays: φ = h + relu(R h + r), h = relu(Σ x_t e_t) or dense features as they are."""

    bound: float | None = None
    """Largest spectral norm of R while it is trained."""

    def __init__(self, words: FloatArray | None, residual: FloatArray, offset: FloatArray) -> None:
        self.words = None if words is None else RowTable(words, None)
        self.residual = DenseParameter(residual)
        self.offset = DenseParameter(offset)

    @classmethod
    def start(
        cls, X: Mixed, Y: Csr, config: BagEncoder | None, *, seed: int, threads: int, terms: list[str] | None = None
    ) -> Bag:
        """Return an encoder to train on features X with labels Y: word vectors by what words occur with.

        Without a configuration, or without words, it is the residual layer alone, over the dense features. `terms` are
        the words of the sparse features, where there are any.
        """
        random = np.random.default_rng(seed)
        if config is None or X.sparse.shape[1] == 0:
            width, words = X.dense.shape[1], None
        else:
            width = config.width
            if config.start == "random":
                words = _with_length(random.uniform(-1, 1, (X.sparse.shape[1], width)), X.sparse, threads)
            else:
                words = word_vectors(X.sparse, Y, width, power_steps=config.power_steps, random=random, threads=threads)
            if config.vectors is not None:
                if terms is None:
                    raise DataError("word vectors from a file need texts: the columns of a matrix have no words")
                words = _with_given(words, read_vectors(config.vectors, terms, width // 2))
        bound = 0.1 / np.sqrt(max(1, width))
        residual = random.uniform(-bound, bound, (width, width)).astype(np.float32)
        return cls(words, residual, np.zeros(width, np.float32))

    @property
    def width(self) -> int:
        """Numbers D in a vector."""
        return len(self.offset.values)

    def rate(self, common: float) -> float:
        """Learning rate, given that of word vectors; a layer over vectors that mean something already learns slower."""
        return common if self.words is not None else common / 5

    def encode(self, points: Points, threads: int) -> FloatArray:
        """Vectors (n, D); each row is computed by itself."""
        X = points.features
        residual, offset = self.residual.values, self.offset.values
        if self.words is None:
            return native.neural.embed_dense(X.dense, residual, offset, threads)
        return native.neural.embed_bags(X.sparse, self.words.weights, residual, offset, threads)

    # ---- training ----

    def begin(self, seed: int) -> None:
        """Get ready for a training of its own: forget moments."""
        for part in self.parts().values():
            part.forget()

    def forward(self, points: Points, threads: int) -> tuple[FloatArray, Any]:
        """Vectors (n, D) of a batch, and what `backward` needs."""
        X, words = points.features, self.words
        h = X.dense if words is None else np.maximum(native.matrix.spmm_dense(X.sparse, words.weights, threads), 0.0)
        z = h @ self.residual.values.T + self.offset.values
        return h + np.maximum(z, 0.0), (X, h, z)

    def backward(self, tape: Any, d_vectors: FloatArray, adam: Adam, threads: int) -> None:
        """Learn from the gradients (n, D) of a batch's vectors."""
        X, h, z = tape
        d_z = d_vectors * (z > 0)
        if self.words is not None:
            d_h = np.ascontiguousarray((d_vectors + d_z @ self.residual.values) * (h > 0), np.float32)
            lists, values = padded_rows(X.sparse)
            self.words.step(native.neural.group_pairs(lists, X.sparse.shape[1]), values, d_h, adam, threads)
        self.residual.step(d_z.T @ h, adam)
        if self.bound is not None:
            norm = spectral_norm(self.residual.values)
            self.residual.values *= np.float32(min(1.0, self.bound / max(norm, 1e-30)))
        self.offset.step(d_z.sum(axis=0), adam)

    def parts(self) -> dict[str, RowTable | DenseParameter]:
        """Everything that is trained, by name."""
        parts: dict[str, RowTable | DenseParameter] = {"residual": self.residual, "offset": self.offset}
        return parts if self.words is None else {"words": self.words, **parts}

    # ---- files ----

    def save_to(self, writer: StoreWriter, prefix: str) -> dict[str, Any]:
        """Write the arrays into a model's directory."""
        if self.words is not None:
            writer.array(f"{prefix}words", self.words.weights)
        writer.array(f"{prefix}residual", self.residual.values)
        writer.array(f"{prefix}offset", self.offset.values)
        return {"words": self.words is not None}

    @classmethod
    def load_from(cls, store: Store, info: Any, prefix: str, shape: tuple[int, int]) -> Bag:
        """Open what `save_to` wrote, for points with so many sparse and dense features."""
        if not isinstance(info, dict) or not isinstance(info.get("words"), bool):
            raise ModelFormatError(f"the manifest of {store.path} does not describe the encoder")
        offset = store.array(f"{prefix}offset", np.float32, ndim=1)
        d = len(offset)
        words = store.array(f"{prefix}words", np.float32, shape=(shape[0], d)) if info["words"] else None
        if words is None and d != shape[1]:
            raise ModelFormatError(f"{store.path}: the encoder does not fit the features")
        encoder = cls.__new__(cls)
        encoder.words = None if words is None else RowTable(words, None)
        encoder.residual = DenseParameter(store.array(f"{prefix}residual", np.float32, shape=(d, d)))
        encoder.offset = DenseParameter(offset)
        return encoder


def word_vectors(
    X: Csr, Y: Csr, width: int, *, power_steps: int, random: np.random.Generator, threads: int
) -> FloatArray:
    """Word vectors (V, width) from a corpus X (n × V) with labels Y (n × L): what words occur with.

    Half of the directions tell texts apart by their words, half by their labels. Each is there twice, with both signs:
    after the relu that follows nothing of it is lost.
    """
    n_words, half = X.shape[1], (width + 1) // 2
    words, labels = (X, X.T.tocsr()), (normalize_rows(Y), normalize_rows(Y).T.tocsr())
    ways = [(words[0], words[1]), (labels[1] @ X, words[1] @ labels[0])]
    parts = []
    for (there, back), rank in zip(ways, (half // 2, half - half // 2), strict=True):
        there, back = as_csr(there, "X"), as_csr(back, "X")
        parts.append(_directions(there, back, rank, power_steps, random, threads))
    directions = np.hstack(parts)
    vectors = np.hstack([directions, -directions])[:, :width]
    vectors = np.pad(vectors, ((0, 0), (0, width - vectors.shape[1])))
    assert vectors.shape == (n_words, width)
    return _with_length(vectors, X, threads)


def _with_length(vectors: AnyArray, X: Csr, threads: int) -> FloatArray:
    """Word vectors (V, width) by which texts X (n × V) have vectors of the length that training starts from."""
    vectors = np.ascontiguousarray(vectors, np.float32)
    size = np.sqrt(
        np.mean(np.square(native.matrix.spmm_dense(X[: min(len(X.indptr) - 1, 4096)], vectors, threads)).sum(axis=1))
    )
    return vectors * np.float32(START_LENGTH / size) if size > 0 else vectors


def read_vectors(path: str, terms: list[str], widest: int) -> tuple[LongArray, FloatArray]:
    """Read the vectors of some words: which of the terms the file has, and their vectors (m, at most `widest`)."""
    number = {term: i for i, term in enumerate(terms)}
    bad = BadLines(path, skip=False)
    found: dict[int, FloatArray] = {}
    width = 0
    for line, text in read_lines(path, "utf-8", bad):
        word, *numbers = text.split()
        if line == 1 and len(numbers) == 1:  # a header: how many words, how wide
            continue
        width = width or len(numbers)
        if len(numbers) != width or width > widest:
            wanted = f"{min(width, widest)}, the same in every line and at most half of the encoder's width"
            bad.report(line, f"a vector of {len(numbers)} numbers; needed are {wanted}")
        if word in number:
            try:
                found[number[word]] = np.array(numbers, np.float32)
            except ValueError as error:
                bad.report(line, str(error))
    if not found:
        raise DataError(f"{path} has none of the {len(terms)} words of the texts")
    return np.array(list(found), np.int64), np.array(list(found.values()), np.float32)


def _with_given(words: FloatArray, given: tuple[LongArray, FloatArray]) -> FloatArray:
    """Replace vectors (V, width) by given ones, with both signs and as long as those were."""
    rows, vectors = given
    both = np.zeros((len(rows), words.shape[1]), np.float32)
    both[:, : vectors.shape[1]] = vectors
    both[:, words.shape[1] - vectors.shape[1] :] -= vectors
    before, now = (np.sqrt(np.mean(np.square(part).sum(axis=1))) for part in (words[rows], both))
    result = words.copy()
    result[rows] = both * np.float32(before / max(float(now), 1e-30))
    return result


def _directions(
    there: Csr, back: Csr, rank: int, power_steps: int, random: np.random.Generator, threads: int
) -> FloatArray:
    """Strongest directions (V, rank) of a matrix (m × V), given with its transpose, by Halko et al. (2011)."""
    n_words = there.shape[1]
    basis = random.standard_normal((n_words, min(n_words, rank + 16))).astype(np.float32)
    strength = np.ones(basis.shape[1], np.float32)
    for _ in range(power_steps + 1):
        basis, _ = _orthonormal(native.matrix.spmm_dense(there, np.ascontiguousarray(basis), threads))
        basis, strength = _orthonormal(native.matrix.spmm_dense(back, np.ascontiguousarray(basis), threads))
    # Between the plain projection, where a few directions drown the rest, and a full whitening, which lifts the noise.
    scale = np.sqrt(np.maximum(strength[:rank], 1e-3 * max(1e-30, float(strength[0]))))
    return np.asarray(basis[:, :rank] / scale, np.float32)


def _orthonormal(columns: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Orthonormal columns (n, r) that span the same space, strongest first, and their strengths.

    By way of the small r × r matrix of products: a decomposition of the tall one takes minutes.
    """
    products = (columns.T @ columns).astype(np.float64)
    squares, turn = np.linalg.eigh(products)
    squares, turn = squares[::-1], turn[:, ::-1]
    strength = np.sqrt(np.maximum(squares, 0.0))
    scale = np.where(strength > 1e-4 * max(1e-30, float(strength[0])), 1.0 / np.maximum(strength, 1e-30), 0.0)
    return columns @ (turn * scale).astype(np.float32), strength.astype(np.float32)


def spectral_norm(matrix: FloatArray, rounds: int = 8) -> float:
    """Largest factor by which a matrix stretches a vector, found by multiplying a fixed vector again and again."""
    vector = np.ones(matrix.shape[1], np.float32) + np.arange(matrix.shape[1], dtype=np.float32) / matrix.shape[1]
    for _ in range(rounds):
        vector = matrix.T @ (matrix @ vector)
        length = float(np.linalg.norm(vector))
        if length == 0:
            return 0.0
        vector /= np.float32(length)
    return float(np.linalg.norm(matrix @ vector))


START_LENGTH = 4.0
"""Length of a text's vector before training, in the mean."""
