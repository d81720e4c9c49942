"""The contract of all models: input checks, label vocabulary, prediction, saving and loading are implemented here."""

from __future__ import annotations

import os
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from ramify.base.config import Config, param
from ramify.base.errors import DataError, ModelFormatError, NotFittedError
from ramify.base.ranking import Ranking
from ramify.base.sparse import csr_from_parts
from ramify.base.threads import MAX_THREADS
from ramify.base.types import AnyArray, Csr, FloatArray, IntArray
from ramify.io.inputs import Inputs, check_inputs, take_rows
from ramify.io.labels import LabelVocabulary, encode_labels
from ramify.io.store import Store, StoreWriter
from ramify.metrics.propensity import LabelCounts
from ramify.rank.widening import kept_labels

PREDICT_WIDTH = 100
"""`predict` ranks this many labels first, and more for the rows all of whose labels are above the threshold."""


class TrainingData(NamedTuple):
    """Checked input of `fit`: n inputs, their label indicator Y (n × L), and the labels of its columns."""

    inputs: Inputs
    Y: Csr
    labels: LabelVocabulary


@dataclass(kw_only=True, eq=False, repr=False)
class Model(Config):
    """Base of all models.

    A subclass is a keyword-only dataclass of its parameters, sets `kind`, and implements the four abstract methods.
    Learned attributes end in an underscore.
    """

    kind: ClassVar[str] = ""
    """Key of the model in the registry, on the command line and in saved files."""
    uses_relevance: ClassVar[bool] = False
    """Whether `fit` takes graded relevance, `fit(X, y, relevance=...)`."""

    seed: int = param(0, "random seed; the same seed and data give the same model", low=0)
    threads: int | None = param(None, "number of threads; None: RAMIFY_THREADS or all cores", low=1, high=MAX_THREADS)
    verbose: int = param(1, "0: silent; 1: progress bars on a terminal", low=0)
    threshold: float = param(0.5, "score from which `predict` assigns a label; raising it assigns fewer labels")

    # ---- public API ----

    def fit(self, X: Any, y: Any) -> Self:
        """Train the model.

        Parameters
        ----------
        X : list of str, list of dicts of text fields, CSR (n × d) or ndarray (n, d)
        y : list of lists of hashable labels, or an indicator (n × L)
        """
        data = self._check_training_data(X, y)
        self._fit(data)
        return self._finish_fit(data)

    def predict_topk(self, X: Any, k: int = 10) -> Ranking:
        """Return the k best labels of each row; fewer if there are fewer labels."""
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
            raise ValueError(f"k must be a positive integer; got {k!r}")
        inputs = self._check_predict_inputs(X)
        ids, scores = self._predict_topk(inputs, min(int(k), self.n_labels))
        return Ranking(ids, scores, self.n_labels, self.labels_)

    def predict(self, X: Any) -> Csr:
        """Return the labels whose score reaches the threshold, as an indicator (n × L)."""
        inputs = self._check_predict_inputs(X)
        kept = kept_labels(
            lambda rows, k: self._predict_topk(take_rows(inputs, rows), k),
            lambda _, scores: np.asarray(scores >= self.threshold),
            len(inputs),
            self.n_labels,
            PREDICT_WIDTH,
        )
        return csr_from_parts(np.ones(kept.nnz, np.int8), kept.indices, kept.indptr, kept.shape)

    @property
    def n_labels(self) -> int:
        """Number of labels L."""
        self._check_fitted()
        return len(self.labels_)

    @property
    def classes_(self) -> AnyArray:
        """Labels (L,) in the order of their ids, as scikit-learn names them."""
        self._check_fitted()
        labels = list(self.labels_)
        is_int = all(type(label) is int and -(2**63) <= label < 2**63 for label in labels)
        # Strings stay objects: a fixed-width array would pad each to the longest, and strip trailing NULs.
        classes = np.empty(len(labels), np.int64 if is_int else object)
        for i, label in enumerate(labels):  # one by one: NumPy would take tuples for rows
            classes[i] = label
        return classes

    def report(self, X: Any = None, y: Any = None) -> dict[str, list[list[str]]]:
        """Return tables of what was learned, by title, the first row of each its header; empty for most models.

        With data X and its labels y, some models add tables of their search on it.
        """
        self._check_fitted()
        return {}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a directory; an existing model there is replaced atomically, or kept if anything fails."""
        self._check_fitted()
        with StoreWriter(path) as writer:
            writer.manifest(self.kind, self.to_dict(), self.write_state(writer))

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, verify: bool = False) -> Self:
        """Open a saved model of this class."""
        return cls.from_store(Store(path, verify=verify))

    # ---- files ----

    def write_state(self, writer: StoreWriter) -> dict[str, Any]:
        """Write all arrays; return what the manifest holds beside kind and parameters."""
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
            raise ModelFormatError(f"{store.path} has invalid parameters for this version: {error}") from error
        state = store.state
        model.labels_ = LabelVocabulary.load(store, state.get("labels"))
        kind, width, n_samples = state.get("input_kind"), state.get("n_features_in"), state.get("n_samples")
        if (
            kind not in ("text", "fields", "sparse", "dense")
            or not (width is None if kind in ("text", "fields") else _is_count(width))
            or not _is_count(n_samples)
        ):
            raise ModelFormatError(f"the manifest of {store.path} does not describe the model's input")
        model.input_kind_, model.n_features_in_ = kind, width
        counts = store.array("label_counts", np.int64, shape=(len(model.labels_),), bounds=(0, 1 << 62))
        model.label_counts_ = LabelCounts(int(n_samples or 0), counts)
        model._load(store, state.get("model"))
        return model

    # ---- checks ----

    def _check_training_data(self, X: Any, y: Any) -> TrainingData:
        self.check_params()
        inputs = check_inputs(X)
        Y, labels = encode_labels(y, len(inputs))
        if len(inputs) == 0:
            raise DataError("X has no rows; there is nothing to train on")
        if Y.nnz == 0:
            raise DataError("no row has a label; there is nothing to train on")
        # A fit that fails halfway must not leave a partly trained model that looks fitted.
        self.__dict__.pop("labels_", None)
        return TrainingData(inputs, Y, labels)

    def _finish_fit(self, data: TrainingData) -> Self:
        self.input_kind_ = data.inputs.kind
        self.n_features_in_ = data.inputs.n_features
        self.labels_ = data.labels
        self.label_counts_ = LabelCounts(data.Y.shape[0], np.bincount(data.Y.indices, minlength=data.Y.shape[1]))
        return self

    def _check_fitted(self) -> None:
        if not hasattr(self, "labels_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted; call fit first")

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "labels_")

    def _check_predict_inputs(self, X: Any) -> Inputs:
        self._check_fitted()
        inputs = check_inputs(X)
        if len(inputs) == 0 and inputs.kind == "text":
            return Inputs(self.input_kind_, [], None) if self.input_kind_ == "fields" else inputs
        numeric = ("sparse", "dense")
        if inputs.kind != self.input_kind_ and not (inputs.kind in numeric and self.input_kind_ in numeric):
            raise DataError(f"this model was trained on {_KINDS[self.input_kind_]}, but X holds {_KINDS[inputs.kind]}")
        if inputs.n_features != self.n_features_in_:
            raise DataError(f"X has {inputs.n_features} features; this model was trained on {self.n_features_in_}")
        return inputs

    # ---- what a model implements ----

    @abstractmethod
    def _fit(self, data: TrainingData) -> None:
        """Train on checked data with at least one label."""

    @abstractmethod
    def _predict_topk(self, inputs: Inputs, k: int) -> tuple[IntArray, FloatArray]:
        """Ids and scores (n, k), 1 <= k <= L, best first, padded with -1 and -inf."""

    @abstractmethod
    def _save(self, writer: StoreWriter) -> dict[str, Any]:
        """Write arrays; return everything else as plain values."""

    @abstractmethod
    def _load(self, store: Store, state: Any) -> None:
        """Open what `_save` wrote; raise `ModelFormatError` for anything that native code must not follow."""


_KINDS = {
    "text": "texts",
    "fields": "dicts of text fields",
    "sparse": "sparse features",
    "dense": "dense features",
}


def check_state(store: Store, state: Any) -> dict[str, Any]:
    """Check that a model's part of the manifest is an object."""
    if not isinstance(state, dict):
        raise ModelFormatError(f"the manifest of {store.path} does not describe the model")
    return state


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63
