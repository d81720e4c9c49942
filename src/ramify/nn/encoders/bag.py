"""Bag-of-embeddings encoder: word embeddings weighted by TF-IDF, summed, then a residual layer.

    φ(x) = h + relu(R h + r),    h = relu(Σ_t x_t e_t)

x is the TF-IDF vector (V,), e_t the embedding of term t, R (D, D) and r (D,) the residual layer. Over dense features
there are no words to learn: h is the feature vector itself, and only the residual layer is trained.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from ramify import native
from ramify.base.config import Config, param
from ramify.base.errors import DataError, ModelFormatError
from ramify.base.mixed import Mixed
from ramify.base.sparse import padded_rows
from ramify.base.types import Csr, FloatArray
from ramify.io.store import Store, StoreWriter
from ramify.nn.encoders.samples import Samples
from ramify.nn.encoders.word_embeddings import corpus_embeddings, random_embeddings, read_pretrained, replace_rows
from ramify.nn.optim import Adam, DenseParameter, RowTable, Trainable


@dataclass(kw_only=True, eq=False, repr=False)
class BagEncoder(Config):
    """Bag-of-embeddings encoder, learned from the corpus; small and fast on a CPU.

    Dense features have no words to learn: only the residual layer adapts them.
    """

    dim: int = param(
        300,
        "embedding dimension D; more captures finer distinctions and costs memory and time in proportion; dense "
        "features keep their own dimension",
        low=2,
        high=65_536,
    )
    init: Literal["corpus", "random"] = param(
        "corpus", "initialization of word embeddings: 'corpus': randomized SVD of the corpus; 'random': uniform"
    )
    power_iterations: int = param(
        3, "power iterations of the randomized SVD; more give a closer approximation", low=0, high=1000
    )
    pretrained: str | None = param(
        None,
        "file of pretrained word embeddings in the text format of word2vec or fastText (also .gz), of at most half of "
        "`dim`; words that it lacks are initialized by `init`",
    )


class _Tape(NamedTuple):
    """What the backward pass needs: features, and the hidden states h and R h + r (n, D)."""

    X: Mixed
    h: FloatArray
    z: FloatArray


class Bag(Trainable):
    """Word embeddings (V, D) and a residual layer; without words, the layer alone (`is_residual_layer`).

    `max_spectral_norm` bounds the spectral norm of R during training.
    """

    def __init__(
        self,
        words: FloatArray | None,
        residual: FloatArray,
        bias: FloatArray,
        max_spectral_norm: float | None = None,
    ) -> None:
        self.words = None if words is None else RowTable(words, None)
        self.residual = DenseParameter(residual)
        self.bias = DenseParameter(bias)
        self.max_spectral_norm = max_spectral_norm

    @classmethod
    def initialize(
        cls,
        X: Mixed,
        Y: Csr,
        config: BagEncoder | None,
        *,
        seed: int,
        threads: int,
        terms: list[str] | None = None,
        max_spectral_norm: float | None = None,
    ) -> Bag:
        """Return an encoder to train on features X with labels Y (n × L).

        Without a configuration, or without sparse features, it is the residual layer alone. `terms` are the terms of
        the sparse features, if there are any.
        """
        random = np.random.default_rng(seed)
        if config is None or X.sparse.shape[1] == 0:
            dim, words = X.dense.shape[1], None
        else:
            dim = config.dim
            if config.init == "random":
                words = random_embeddings(X.sparse, dim, random, threads)
            else:
                iterations = config.power_iterations
                words = corpus_embeddings(X.sparse, Y, dim, power_iterations=iterations, random=random, threads=threads)
            if config.pretrained is not None:
                if terms is None:
                    raise DataError("pretrained word embeddings need texts: the columns of a matrix are no words")
                words = replace_rows(words, *read_pretrained(config.pretrained, terms, dim // 2))
        bound = 0.1 / np.sqrt(max(1, dim))  # a tenth of torch.nn.Linear's: the layer starts close to the identity
        residual = random.uniform(-bound, bound, (dim, dim)).astype(np.float32)
        return cls(words, residual, np.zeros(dim, np.float32), max_spectral_norm)

    @property
    def dim(self) -> int:
        """Embedding dimension D."""
        return len(self.bias.values)

    @property
    def is_residual_layer(self) -> bool:
        """Whether there are no words: the layer adapts frozen embeddings or dense features."""
        return self.words is None

    is_data_parallel: ClassVar[bool] = False
    """Every rank computes whole batches."""

    @property
    def default_epochs(self) -> int:
        """Training epochs that suit the encoder: the residual layer alone overfits sooner."""
        return 5 if self.is_residual_layer else 8

    def learning_rate(self, default: float) -> float:
        """Learning rate, given that of word embeddings: a residual layer learns at a fifth of it."""
        return default / 5 if self.is_residual_layer else default

    def encode(self, samples: Samples, threads: int) -> FloatArray:
        """Embeddings (n, D); each row is computed independently of the others."""
        X = samples.features
        residual, bias = self.residual.values, self.bias.values
        if self.words is None:
            return native.neural.embed_dense(X.dense, residual, bias, threads)
        return native.neural.embed_bags(X.sparse, self.words.weights, residual, bias, threads)

    # ---- training ----

    def begin_training(self, seed: int) -> None:
        """Start a new training: reset the optimizer."""
        self.reset_optimizer()

    def forward(self, samples: Samples, threads: int) -> tuple[FloatArray, _Tape]:
        """Embeddings (n, D) of a batch, and the tape for `backward`."""
        X, words = samples.features, self.words
        h = X.dense if words is None else np.maximum(native.matrix.spmm_dense(X.sparse, words.weights, threads), 0.0)
        z = h @ self.residual.values.T + self.bias.values
        return h + np.maximum(z, 0.0), _Tape(X, h, z)

    def backward(self, tape: _Tape, d_phi: FloatArray, adam: Adam, threads: int) -> None:
        """Update the parameters, given the gradients (n, D) of a batch's embeddings.

        dz = dφ ⊙ [z > 0];  dR = dzᵀ h;  dr = Σ dz;  dh = (dφ + dz R) ⊙ [h > 0];  de_t = Σ x_t dh
        """
        X, h, z = tape
        d_z = d_phi * (z > 0)
        if self.words is not None:
            d_h = np.ascontiguousarray((d_phi + d_z @ self.residual.values) * (h > 0), np.float32)
            terms, values = padded_rows(X.sparse)
            self.words.step(native.neural.group_pairs(terms, X.sparse.shape[1]), values, d_h, adam, threads)
        self.residual.step(d_z.T @ h, adam)
        if self.max_spectral_norm is not None:
            norm = spectral_norm(self.residual.values)
            self.residual.values *= np.float32(min(1.0, self.max_spectral_norm / max(norm, 1e-30)))
        self.bias.step(d_z.sum(axis=0), adam)

    def parameters(self) -> dict[str, RowTable | DenseParameter]:
        """Everything that is trained, by name."""
        parameters: dict[str, RowTable | DenseParameter] = {"residual": self.residual, "bias": self.bias}
        return parameters if self.words is None else {"words": self.words, **parameters}

    # ---- files ----

    def save_to(self, writer: StoreWriter, prefix: str) -> dict[str, Any]:
        """Write the parameters into a model directory."""
        if self.words is not None:
            writer.array(f"{prefix}words", self.words.weights)
        writer.array(f"{prefix}residual", self.residual.values)
        writer.array(f"{prefix}bias", self.bias.values)
        return {"words": self.words is not None}

    @classmethod
    def load_from(cls, store: Store, info: Any, prefix: str, shape: tuple[int, int]) -> Bag:
        """Open what `save_to` wrote; `shape` is the number of sparse and of dense features."""
        if not isinstance(info, dict) or not isinstance(info.get("words"), bool):
            raise ModelFormatError(f"the manifest of {store.path} does not describe the encoder")
        bias = store.array(f"{prefix}bias", np.float32, ndim=1)
        dim = len(bias)
        words = store.array(f"{prefix}words", np.float32, shape=(shape[0], dim)) if info["words"] else None
        if words is None and dim != shape[1]:
            raise ModelFormatError(f"{store.path}: the encoder does not match the features")
        return cls(words, store.array(f"{prefix}residual", np.float32, shape=(dim, dim)), bias)


def spectral_norm(matrix: FloatArray, iterations: int = 8) -> float:
    """Estimate the spectral norm by power iteration from a fixed start vector."""
    vector = np.ones(matrix.shape[1], np.float32) + np.arange(matrix.shape[1], dtype=np.float32) / matrix.shape[1]
    for _ in range(iterations):
        vector = matrix.T @ (matrix @ vector)
        norm = float(np.linalg.norm(vector))
        if norm == 0:
            return 0.0
        vector /= np.float32(norm)
    return float(np.linalg.norm(matrix @ vector))
