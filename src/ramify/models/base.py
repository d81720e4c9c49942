"""The contract that every model keeps: checking, names, saving and loading are written here, once."""

from __future__ import annotations

import os
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from ramify.base.config import Config, param
from ramify.base.errors import DataError, ModelFormatError, NotFittedError
from ramify.base.ranking import Ranking
from ramify.base.sparse import csr_from_parts
from ramify.base.threads import MAX_THREADS
from ramify.base.types import Csr, FloatArray, IntArray
from ramify.io.inputs import Inputs, check_inputs
from ramify.io.labels import LabelVocabulary, encode_labels
from ramify.io.store import Store, StoreWriter
from ramify.metrics.propensity import LabelCounts

PREDICT_WIDTH = 100
"""`predict` looks at this many best labels first, and at more while all of a row's are over the threshold."""


@dataclass(kw_only=True, eq=False, repr=False)
class Model(Config):
    """Base of all models.

    A subclass is a keyword-only dataclass of its parameters, sets `kind`, and fills in the four methods at the end of
    this class. What it learns goes into attributes that end in an underscore.
    """

    kind: ClassVar[str] = ""

    seed: int = param(0, "seed of everything random; the same seed and data give the same model", low=0)
    threads: int | None = param(None, "threads to use; None: RAMIFY_THREADS or all cores", low=1, high=MAX_THREADS)
    verbose: int = param(1, "0: silent; 1: progress bars on a terminal", low=0)
    threshold: float = param(0.5, "score from which `predict` says yes to a label")

    # ---- the public face ----

    def fit(self, X: Any, y: Any, **given: Any) -> Self:
        """Learn from points and their labels.

        Parameters
        ----------
        X : list of str, list of dicts of text fields, CSR (n × d) or ndarray (n, d)
        y : list of lists of hashable label names, or an indicator (n × L)
        given : what a model takes beside them; its own `fit` says what that is
        """
        self.check_params()
        inputs = check_inputs(X)
        labels, vocabulary = encode_labels(y, len(inputs))
        if len(inputs) == 0:
            raise DataError("X has no rows; there is nothing to learn from")
        if labels.nnz == 0:
            raise DataError("no row has a label; there is nothing to learn from")
        # A fit that fails half way leaves no half-trained model that looks trained.
        self.__dict__.pop("labels_", None)
        self._fit(inputs, labels, vocabulary, **given)
        self.input_kind_ = inputs.kind
        self.n_features_in_ = inputs.n_features
        self.labels_ = vocabulary
        self.label_counts_ = LabelCounts(labels.shape[0], np.bincount(labels.indices, minlength=labels.shape[1]))
        return self

    def predict_topk(self, X: Any, k: int = 10) -> Ranking:
        """Return the k best labels of each row; fewer where there are fewer labels."""
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
            raise ValueError(f"k must be a whole number from 1 up; got {k!r}")
        inputs = self._check_predict_inputs(X)
        ids, scores = self._predict_topk(inputs, min(int(k), self.n_labels))
        return Ranking(ids, scores, self.n_labels, self.labels_)

    def predict(self, X: Any) -> Csr:
        """Labels whose score reaches the threshold, as an n × L matrix of 0 and 1."""
        inputs = self._check_predict_inputs(X)
        k = min(PREDICT_WIDTH, self.n_labels)
        while True:
            ids, best = self._predict_topk(inputs, k)
            if k == self.n_labels or not np.any(best[:, -1] >= self.threshold):
                break
            k = min(4 * k, self.n_labels)
        ranking = Ranking(ids, best, self.n_labels, self.labels_)
        scores = ranking.to_csr()
        scores.data = (scores.data >= self.threshold).astype(np.float32)
        scores.eliminate_zeros()
        return csr_from_parts(scores.data.astype(np.int8), scores.indices, scores.indptr, scores.shape)

    @property
    def n_labels(self) -> int:
        """Number of labels L."""
        self._check_fitted()
        return len(self.labels_)

    def report(self, X: Any = None, y: Any = None) -> dict[str, list[list[str]]]:
        """Tables that show what was learned, by title, the first row of each its header; empty for most models.

        With data X and their labels y there may be tables of what the model makes of them.
        """
        self._check_fitted()
        return {}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a directory; an old model there is replaced in one step, or stays if anything fails."""
        self._check_fitted()
        with StoreWriter(path) as writer:
            writer.manifest(self.kind, self.to_dict(), self.write_state(writer))

    def write_state(self, writer: StoreWriter) -> dict[str, Any]:
        """Write all arrays; return what the manifest says beside kind and parameters."""
        writer.array("label_counts", self.label_counts_.counts.astype(np.int64))
        return {
            "labels": self.labels_.save(writer),
            "input_kind": self.input_kind_,
            "n_features_in": self.n_features_in_,
            "n_samples": self.label_counts_.n_samples,
            "model": self._save(writer),
        }

    @classmethod
    def from_store(cls, store: Store) -> Self:
        """Open a model from its directory; `ramify.load` finds the class."""
        if store.kind != cls.kind:
            raise ModelFormatError(f"{store.path} holds a {store.kind!r} model, not a {cls.kind!r} one")
        try:
            model = cls.from_dict(store.params)
        except (ValueError, TypeError) as error:
            raise ModelFormatError(f"{store.path} has parameters that this Ramify does not take: {error}") from error
        state = store.state
        model.labels_ = LabelVocabulary.load(store, state.get("labels"))
        kind, width, n_samples = state.get("input_kind"), state.get("n_features_in"), state.get("n_samples")
        if (
            kind not in ("text", "fields", "sparse", "dense")
            or not (width is None or _is_count(width))
            or not _is_count(n_samples)
        ):
            raise ModelFormatError(f"the manifest of {store.path} does not say what the model takes")
        model.input_kind_, model.n_features_in_ = kind, width
        counts = store.array("label_counts", np.int64, shape=(len(model.labels_),), bounds=(0, 1 << 62))
        model.label_counts_ = LabelCounts(int(n_samples or 0), counts)
        model._load(store, state.get("model"))
        return model

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, verify: bool = False) -> Self:
        """Open a saved model of this class."""
        return cls.from_store(Store(path, verify=verify))

    # ---- checks ----

    def _check_fitted(self) -> None:
        if not hasattr(self, "labels_"):
            raise NotFittedError(f"this {type(self).__name__} is not trained; call fit first")

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "labels_")

    def _check_predict_inputs(self, X: Any) -> Inputs:
        self._check_fitted()
        inputs = check_inputs(X)
        if len(inputs) == 0 and inputs.kind == "text":
            return Inputs(self.input_kind_, [], None) if self.input_kind_ == "fields" else inputs
        numeric = ("sparse", "dense")
        if inputs.kind != self.input_kind_ and not (inputs.kind in numeric and self.input_kind_ in numeric):
            raise DataError(
                f"this model was trained on {_KIND_NAMES[self.input_kind_]} and now gets {_KIND_NAMES[inputs.kind]}"
            )
        if inputs.n_features != self.n_features_in_:
            raise DataError(f"X has {inputs.n_features} features; this model was trained on {self.n_features_in_}")
        return inputs

    # ---- what a model fills in ----

    @abstractmethod
    def _fit(self, inputs: Inputs, labels: Csr, names: LabelVocabulary, **given: Any) -> None:
        """Learn from checked inputs (n rows) and an indicator (n × L) with at least one entry."""

    @abstractmethod
    def _predict_topk(self, inputs: Inputs, k: int) -> tuple[IntArray, FloatArray]:
        """Ids and scores (n, k), 1 <= k <= L, best first, -1 and -inf where there is none."""

    @abstractmethod
    def _save(self, writer: StoreWriter) -> dict[str, Any]:
        """Write arrays; return the rest as plain values."""

    @abstractmethod
    def _load(self, store: Store, state: Any) -> None:
        """Open what `_save` wrote; raises `ModelFormatError` for whatever native code must not follow."""


def refuse_given(model: Model, given: dict[str, Any]) -> None:
    """Refuse what a model does not take beside X and y."""
    if given:
        raise TypeError(f"{type(model).__name__}.fit does not take {', '.join(given)}")


_KIND_NAMES = {
    "text": "texts",
    "fields": "dicts of text fields",
    "sparse": "sparse features",
    "dense": "dense features",
}


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
