"""The contract of all models: input checks, label vocabulary, prediction, saving and loading are implemented here."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from ramify.base.config import Config, param
from ramify.base.errors import DataError, ModelFormatError, check_integer, not_fitted
from ramify.base.progress import progress
from ramify.base.ranking import Ranking, strictly_descending
from ramify.base.sparse import csr_from_parts
from ramify.base.threads import MAX_THREADS
from ramify.base.types import AnyArray, Csr, FloatArray, IntArray
from ramify.io.catalogue import LabelCatalogue
from ramify.io.inputs import Inputs, check_inputs
from ramify.io.labels import LabelVocabulary, align_labels, encode_labels
from ramify.io.store import Store, StoreWriter, read_store
from ramify.metrics.propensity import LabelCounts
from ramify.models.decide import (
    available_if_calibrated,
    check_calibrated,
    choose_labels,
    cross_fit_decisions,
    fit_decisions,
)
from ramify.models.estimator import Estimator, label_array
from ramify.models.explain import explain
from ramify.models.filtering import RowFilters, rank_labels, rank_more_labels
from ramify.models.memory import OVERHEAD, Memory, label_bytes
from ramify.models.training_data import TrainingData
from ramify.rank.decision_rule import DecisionRule
from ramify.rank.decisions import load_rule
from ramify.rank.evidence import Evidence
from ramify.rank.explanation import Explanation, Level, Neighbor
from ramify.rank.filters import LabelFilter, Predicate, make_filter
from ramify.rank.probabilities import Calibration


@dataclass(kw_only=True, eq=False, repr=False)
class Model(Estimator, Config):
    """Base of all models.

    A subclass is a keyword-only dataclass of its parameters, sets `kind`, and implements the four abstract methods.
    Learned attributes end in an underscore.
    """

    kind: ClassVar[str] = ""
    """Key of the model in the registry, on the command line and in saved files."""
    score_scale: ClassVar[str] = ""
    """Models with the same scale have comparable scores; "": those of the same kind."""
    scores_are_probabilities: ClassVar[bool] = False
    """Whether raw scores estimate probabilities, so that `threshold` needs no warning."""
    uses_relevance: ClassVar[bool] = False
    """Whether `fit` takes graded relevance, `fit(X, y, relevance=...)`."""
    evidence_columns: ClassVar[tuple[str, ...]] = ("score",)
    evidence_of_rows: ClassVar[tuple[str, ...]] = ()
    """Names of what `_evidence` says about candidates, and about samples."""

    seed: int = param(0, "random seed; the same seed and data give the same model", low=0)
    threads: int | None = param(None, "number of threads; None: RAMIFY_THREADS or all cores", low=1, high=MAX_THREADS)
    verbose: int = param(1, "0: silent; 1: progress: bars on a terminal or in a notebook, lines in a log", low=0)
    threshold: float = param(0.5, "score from which `predict` assigns a label; raising it assigns fewer labels")

    # ---- public API ----

    def fit(self, X: Any, y: Any, *, sample_weight: Any = None, label_catalogue: Any = None) -> Self:
        """Train the model.

        Parameters
        ----------
        X : list or column of texts, list of dicts of text fields, CSR (n × d), ndarray (n, d), or a data frame of
            texts or numbers
        y : list or column of lists of hashable labels, an indicator (n × L), or a data frame with a column of 0 and 1
            for each label
        sample_weight : weight of each sample in the loss (n,); None: 1; samples of weight 0 are left out
        label_catalogue : names of the labels: a `LabelCatalogue`, a mapping from label to name or to a dict of fields,
            or the path of a file (`LabelCatalogue.read`)
        """
        data, _ = self._check_training_data(X, y, label_catalogue).weighted(sample_weight)
        with progress(f"training {self.kind}", None, self.verbose):
            self._fit(data)
        return self._finish_fit(data)

    def estimate_memory(self, X: Any, y: Any, *, label_catalogue: Any = None) -> int:
        """Estimate the bytes that `fit(X, y, label_catalogue=...)` takes above its input (`models.memory`)."""
        data = self.clone()._check_training_data(X, y, label_catalogue)
        return OVERHEAD + self._training_memory(data).peak

    def fit_calibrated(
        self,
        X: Any,
        y: Any,
        *,
        fraction: float = 0.1,
        rule: DecisionRule | str = "maximize-f1",
        max_rows: int = 10_000,
        sample_weight: Any = None,
        label_catalogue: Any = None,
    ) -> Self:
        """Train the model on all rows, and calibrate it as `calibrate` does, without further data.

        A copy of the model is trained without a random `fraction` of the rows, at most `max_rows`, and calibrated on
        these: training takes about twice as long, and no row is lost to it. All weights above 0 calibrate alike.
        """
        data, _ = self._check_training_data(X, y, label_catalogue).weighted(sample_weight)
        decisions = cross_fit_decisions(self, data, fraction, max_rows, rule)
        self.fit(X, y, sample_weight=sample_weight, label_catalogue=label_catalogue)
        self._set_decisions(*decisions)
        return self

    def calibrate(self, X: Any, y: Any, *, rule: DecisionRule | str = "maximize-f1") -> Self:
        """Fit probabilities and a decision rule on held-out rows, which the model was not trained on.

        Rows of the training data would make the probabilities too high. True labels that the model does not know
        count as missed. A rule with a guarantee is fitted to one half of the rows, the probabilities to the other.

        Parameters
        ----------
        X, y : as in `fit`
        rule : decides which labels `predict` returns; see `ramify.rank.decisions`
        """
        inputs = self._check_predict_inputs(X)
        truth, _ = align_labels(y, self.labels_)
        if truth.shape[0] != len(inputs):
            raise DataError(f"X has {len(inputs)} rows, y has {truth.shape[0]}")
        if not len(inputs):
            raise DataError("X has no rows; there is nothing to calibrate on")
        self._set_decisions(*fit_decisions(self, inputs, truth, rule))
        return self

    def _set_decisions(self, calibration: Calibration | None, rule: DecisionRule | None) -> None:
        self.calibration_ = calibration
        self.rule_ = rule

    @property
    def is_calibrated(self) -> bool:
        """Whether the model gives probabilities; `calibration_.n_rows` is the number of rows they were fitted to."""
        return getattr(self, "calibration_", None) is not None

    def predict_topk(
        self, X: Any, k: int = 10, *, probabilities: bool = False, allow: Any = None, deny: Any = None
    ) -> Ranking:
        """Return the k best labels of each row; fewer if there are fewer labels.

        Parameters
        ----------
        k : number of labels; the scores of a row descend strictly
        probabilities : return those of `predict_proba` in place of raw scores
        allow, deny : labels, or names of the catalogue, that a row may and must not get: one collection for all rows,
            a `LabelFilter`, or a list with a collection, a `LabelFilter` or None for each row
        """
        k = check_integer(k, "k")
        inputs = self._check_predict_inputs(X)
        calibration = check_calibrated(self) if probabilities else None
        filters = RowFilters.of(self, allow, deny, len(inputs))
        ids, _, scores = rank_labels(self, inputs, min(k, self.n_labels), filters, calibration)
        return self._ranking(ids, scores, is_calibrated=probabilities)

    @available_if_calibrated
    def predict_proba(self, X: Any, k: int = 100) -> Csr:
        """Return the calibrated probabilities of the k best labels of each row (n × L); further ones are not stored."""
        return self.predict_topk(X, k, probabilities=True).to_csr()

    def predict(self, X: Any, *, rule: DecisionRule | str | None = None, allow: Any = None, deny: Any = None) -> Csr:
        """Return the labels that the decision rule chooses, as an indicator (n × L).

        Parameters
        ----------
        rule : such as ``MaximizeF1()`` or "top-k=3", as fitted if `calibrate` fitted this one; None: the one fitted by
            `calibrate`. A model without one assigns labels whose raw score reaches `threshold`, and warns.
        allow, deny : labels that the rule may choose from, as in `predict_topk`
        """
        chosen = choose_labels(self, self._check_predict_inputs(X), rule, allow, deny)
        return csr_from_parts(np.ones(chosen.nnz, np.int8), chosen.indices, chosen.indptr, chosen.shape)

    def predict_sets(
        self, X: Any, *, rule: DecisionRule | str | None = None, allow: Any = None, deny: Any = None
    ) -> Ranking:
        """Return the labels of `predict`, best first; with their probabilities, if calibrated."""
        ranking = Ranking.from_sets(choose_labels(self, self._check_predict_inputs(X), rule, allow, deny))
        return self._ranking(ranking.ids, ranking.scores, is_calibrated=self.is_calibrated)

    def _ranking(self, ids: IntArray, scores: FloatArray, *, is_calibrated: bool) -> Ranking:
        return Ranking.trusted(ids, scores, self.n_labels, self.labels_, is_calibrated, self.catalogue_)

    def explain(self, x: Any, label: Any = None, *, without: str | Sequence[str] = ()) -> Explanation:
        """Explain the score of a label for one sample; None: of its best label.

        Linear models give the exact contribution of each term at each level of the tree; others the difference that
        leaving out each word makes. See `Explanation`.

        Parameters
        ----------
        x : one text, dict of text fields, or row of features
        label : a label, or a name of the catalogue
        without : words to leave out: the explanation also has the score of the text without them
        """
        self._check_fitted()
        return explain(self, x, label, without)

    def label_filter(
        self,
        *,
        allow: Any = None,
        deny: Any = None,
        allow_prefix: str | tuple[str, ...] | None = None,
        where: Predicate | None = None,
    ) -> LabelFilter:
        """Prepare a filter for `predict_topk(X, allow=...)`, to be used many times.

        Parameters
        ----------
        allow, deny : labels, or names of the catalogue
        allow_prefix : what the allowed labels start with, such as the first part of their URIs
        where : function of a label and its catalogue entry (or None), true for allowed labels
        """
        self._check_fitted()
        return make_filter(
            self.labels_, self.catalogue_, allow=allow, deny=deny, allow_prefix=allow_prefix, where=where
        )

    def set_catalogue(self, catalogue: Any) -> Self:
        """Give names to the labels, as `label_catalogue` of `fit` does; None removes them."""
        self._check_fitted()
        self.catalogue_ = LabelCatalogue.for_labels(catalogue, self.labels_)
        return self

    @property
    def n_labels(self) -> int:
        """Number of labels L."""
        self._check_fitted()
        return len(self.labels_)

    @property
    def classes_(self) -> AnyArray:
        """Labels (L,) in the order of their ids, as scikit-learn names them."""
        self._check_fitted()
        return label_array(self.labels_)

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
        return read_store(path, cls.from_store, verify=verify)

    # ---- files ----

    def write_state(self, writer: StoreWriter) -> dict[str, Any]:
        """Write all arrays; return what the manifest holds beside kind and parameters."""
        writer.array("label_counts", self.label_counts_.counts.astype(np.int64))
        return {
            "labels": self.labels_.save(writer),
            "input_kind": self.input_kind_,
            "n_features_in": self.n_features_in_,
            "n_samples": self.label_counts_.n_samples,
            "calibration": self.calibration_.save_to(writer, "calibration_") if self.calibration_ else None,
            "rule": self.rule_.save_to(writer, "rule_") if self.rule_ else None,
            "catalogue": None if self.catalogue_ is None else self.catalogue_.save_to(writer, "catalogue_"),
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
        calibration, rule, catalogue = (state.get(part) for part in ("calibration", "rule", "catalogue"))
        model._set_decisions(
            None if calibration is None else Calibration.load_from(store, calibration, "calibration_"),
            None if rule is None else load_rule(store, rule, "rule_", len(model.labels_)),
        )
        model.catalogue_ = None if catalogue is None else LabelCatalogue.load_from(store, catalogue, "catalogue_")
        model._load(store, state.get("model"))
        return model

    # ---- checks ----

    def _check_training_data(self, X: Any, y: Any, label_catalogue: Any = None) -> TrainingData:
        self.check_params()
        inputs = check_inputs(X)
        Y, labels = encode_labels(y, len(inputs))
        catalogue = LabelCatalogue.for_labels(label_catalogue, labels)
        if len(inputs) == 0:
            raise DataError("X has no rows; there is nothing to train on")
        if Y.nnz == 0:
            raise DataError("no row has a label; there is nothing to train on")
        # A fit that fails halfway must not leave a partly trained model that looks fitted.
        self.__dict__.pop("labels_", None)
        return TrainingData(inputs, Y, labels, catalogue)

    def _finish_fit(self, data: TrainingData) -> Self:
        self.input_kind_ = data.inputs.kind
        self.n_features_in_ = data.inputs.n_features
        self.labels_ = data.labels
        self._set_decisions(None, None)
        self.catalogue_ = data.catalogue
        self.label_counts_ = LabelCounts(data.Y.shape[0], np.bincount(data.Y.indices, minlength=data.Y.shape[1]))
        return self

    def _check_fitted(self) -> None:
        if not hasattr(self, "labels_"):
            raise not_fitted(self)

    def _ranked(self, inputs: Inputs, k: int) -> tuple[IntArray, FloatArray]:
        """Ids and scores (n, k) as `_predict_topk`, but strictly descending."""
        ids, scores = self._predict_topk(inputs, k)
        return ids, strictly_descending(ids, scores)

    def _predict_allowed(self, inputs: Inputs, k: int, label_filter: LabelFilter) -> tuple[IntArray, FloatArray]:
        """Ids and scores (n, k) of the best allowed labels; models with an index search only what is allowed."""
        return rank_more_labels(self, inputs, k, label_filter)

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
            raise DataError(
                f"X has {inputs.n_features} features, but {type(self).__name__} is expecting {self.n_features_in_} "
                "features as input, as in training"
            )
        return inputs

    # ---- what a model may implement ----

    def _training_memory(self, data: TrainingData) -> Memory:
        """Estimated memory of a training; here that of the labels alone."""
        labels = label_bytes(data.Y)
        return Memory(labels, labels)

    def _evidence(self, inputs: Inputs, k: int) -> Evidence:
        """Return what the model knows about the k labels that it finds for each row; the first column is the score."""
        ids, scores = self._predict_topk(inputs, min(k, self.n_labels))
        return Evidence.of_ranking(ids, {"score": scores})

    def _explain_levels(self, inputs: Inputs, label_id: int) -> list[Level] | None:
        """Exact contributions to the score of a label; None: the model is not linear."""
        return None

    def _explain_parts(self, inputs: Inputs, label_id: int) -> dict[str, float]:
        """What the score of a label is made of, by name."""
        return {}

    def _explain_neighbors(self, inputs: Inputs, label_id: int) -> list[Neighbor]:
        """Return the nearest training texts, if the model keeps them."""
        return []

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


_KINDS = {"text": "texts", "fields": "dicts of text fields", "sparse": "sparse features", "dense": "dense features"}


def check_state(store: Store, state: Any) -> dict[str, Any]:
    """Check that a model's part of the manifest is an object."""
    if not isinstance(state, dict):
        raise ModelFormatError(f"the manifest of {store.path} does not describe the model")
    return state


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63
