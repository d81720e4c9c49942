"""Labels of the nearest training samples.

A sample x gets the labels of its n nearest training samples, each with the weight

    vote(l) = Σ_i w_i s_i^p [l ∈ y_i] / Σ_i w_i s_i^p

where s_i is the cosine similarity of neighbor i, w_i its sample weight and p the parameter `power`. Sparse samples are
compared exactly, through an inverted index (`index.postings`); dense ones by `index.ann`. Nothing is learned from the
labels, so that a new sample, or a new label, counts at once (`add`). Labels of no neighbor follow by frequency.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from ramify import native
from ramify.base.config import param
from ramify.base.errors import DataError, ModelFormatError, check_integer
from ramify.base.mixed import Mixed
from ramify.base.sparse import ascends, keep_entries
from ramify.base.threads import resolve_threads
from ramify.base.types import AnyArray, ByteArray, Csr, FloatArray, IntArray
from ramify.features.concat import Concat
from ramify.features.defaults import neighbor_features
from ramify.features.tfidf import Tfidf
from ramify.index.ann import AnnConfig, AnnIndex
from ramify.index.postings import Postings
from ramify.io.inputs import Inputs
from ramify.io.labels import LabelVocabulary, align_labels
from ramify.io.store import Store, StoreWriter
from ramify.metrics.propensity import LabelCounts
from ramify.models.base import check_state
from ramify.models.features import FeatureModel
from ramify.models.kept_texts import SHOWN_NEIGHBORS, KeptTexts
from ramify.models.memory import EMPTY_COLUMN, ENTRY, Memory, TransformerSizes, label_bytes, measure_sizes
from ramify.models.training_data import TrainingData
from ramify.nn.encoders import Transformer
from ramify.nn.encoders.tokens import texts_of
from ramify.nn.encoders.transformer import TransformerEncoder
from ramify.rank.evidence import Evidence
from ramify.rank.explanation import Neighbor
from ramify.rank.filters import LabelFilter
from ramify.rank.frequency import LEAST, FrequencyOrder

INDEXING = 36
"""Bytes of an entry while rows are scaled to unit norm, in double precision, beside those of X."""
MIN_DROPPED = 100
"""Features in no more samples than this are always kept: in small data no word is common."""


@dataclass(kw_only=True, eq=False, repr=False)
class KNN(FeatureModel):
    """Ranks the labels of the nearest training samples.

    >>> model = KNN().fit(["red fox", "grey hen"], [["fox"], ["hen"]])
    >>> model.add(["grey fox"], [["wolf"]]).predict_topk(["a grey fox"], k=1).labels()[0][0][0]
    'wolf'
    """

    kind: ClassVar[str] = "knn"
    scores_are_probabilities: ClassVar[bool] = True
    evidence_columns: ClassVar[tuple[str, ...]] = ("score", "count", "similarity")
    evidence_of_rows: ClassVar[tuple[str, ...]] = ("nearest", "mean")

    features: Tfidf | Concat = param(
        factory=neighbor_features, doc="feature extraction from texts; not used for matrices"
    )
    encoder: TransformerEncoder | None = param(
        None, "frozen encoder of texts: they are compared by their embeddings; None: by `features`"
    )
    n_neighbors: int = param(50, "training samples that vote for their labels; raising it finds more labels", low=1)
    power: float = param(2.0, "power of the similarity in a vote; raising it lets the nearest samples decide", low=0)
    max_df: float = param(
        0.05,
        "features in more than this fraction of the samples are left out, such as words that say little; not of dense "
        f"features, and not below {MIN_DROPPED} samples",
        low=0,
        high=1,
    )
    index: AnnConfig = param(factory=AnnConfig, doc="nearest neighbor search of dense features and of embeddings")
    keep_texts: bool = param(
        False, "keep the training texts in the model, so that `explain` shows the nearest ones; no effect on matrices"
    )

    def check_params(self) -> None:
        """Check also that the encoder is frozen: nothing here trains it."""
        super().check_params()
        if self.encoder is not None and not self.encoder.frozen:
            raise ValueError("KNN does not train its encoder: set encoder.frozen to true")

    def _training_memory(self, data: TrainingData) -> Memory:
        if self.encoder is not None:
            encoder, labels = TransformerSizes.of(self.encoder.model), label_bytes(data.Y)
            vectors = 2 * 4 * encoder.dim * len(data.inputs)  # and their lists or graph
            return Memory(labels + encoder.frozen_bytes() + vectors, labels + encoder.weights + vectors)
        sizes = measure_sizes(data.inputs, data.Y, self.features)
        n_indexed = sizes.entries_of_rare(self.max_df, MIN_DROPPED)
        if data.inputs.kind == "dense":
            indexing = kept = 2 * 4.0 * sizes.n_entries  # unit vectors, and their lists or graph
        else:
            indexing, kept = INDEXING * n_indexed + EMPTY_COLUMN * sizes.n_empty, ENTRY * n_indexed
        peak = max(sizes.making_features, sizes.features + indexing)
        return Memory(sizes.labels + int(peak), sizes.labels + sizes.vocabulary + int(kept))

    # ---- training ----

    def _fit(self, data: TrainingData) -> None:
        X = self._fit_features(data.inputs)
        self.kept_: ByteArray | None = None
        if data.inputs.kind == "dense" or self.transformer_ is not None:
            self.indexes_: list[Any] = [self._dense_index(X.dense, 0)]
        else:
            df = np.bincount(X.sparse.indices, minlength=X.sparse.shape[1])
            self.kept_ = (df <= max(MIN_DROPPED, self.max_df * len(X))).view(np.uint8)
            self.indexes_ = [Postings.build(_without(X.sparse, self.kept_))]
        self._set_labels(data.Y, data.sample_weight)
        self.frequency_ = FrequencyOrder.of(np.bincount(data.Y.indices, minlength=data.Y.shape[1]))
        self.texts_ = self._texts_of(data.inputs, data.Y)

    def _fit_features(self, inputs: Inputs) -> Mixed:
        self.transformer_: Transformer | None = None
        if self.encoder is None:
            return super()._fit_features(inputs)
        texts, self.transformer_ = texts_of(inputs), Transformer.open(self.encoder)
        embeddings = self.transformer_.cached_embeddings(texts, resolve_threads(self.threads), self.verbose)
        return Mixed.of(np.asarray(embeddings))

    def _transform_features(self, inputs: Inputs) -> Mixed:
        if self.transformer_ is None:
            return super()._transform_features(inputs)
        tokens = self.transformer_.tokenizer(texts_of(inputs))
        return Mixed.of(self.transformer_.encode_tokens(tokens, resolve_threads(self.threads, len(inputs))))

    def _dense_index(self, vectors: FloatArray, first: int) -> AnnIndex:
        threads = resolve_threads(self.threads)
        ids = np.arange(first, first + len(vectors), dtype=np.int32)
        k = min(self.n_neighbors, len(vectors))
        return AnnIndex.build(vectors, self.index, k=k, ids=ids, seed=self.seed, threads=threads)

    def _set_labels(self, Y: Csr, weights: AnyArray | None) -> None:
        self.label_indptr_, self.sample_labels_ = Y.indptr.astype(np.int64), Y.indices.astype(np.int32)
        self.weights_ = None if weights is None else np.asarray(weights, np.float32)

    def _texts_of(self, inputs: Inputs, Y: Csr) -> KeptTexts | None:
        return KeptTexts.of(inputs.data, Y) if self.keep_texts and inputs.kind in ("text", "fields") else None

    def add(self, X: Any, y: Any) -> Self:
        """Add samples; they, and labels that are new, count from the next prediction on.

        Words of the samples that training did not have are ignored. New labels get the next ids; with them,
        probabilities and a decision rule that were fitted before are dropped.
        """
        inputs = self._check_predict_inputs(X)
        if not isinstance(y, list | tuple) and not hasattr(y, "shape"):
            y = list(y)
        Y, n_known = align_labels(y, self.labels_)
        if Y.shape[0] != len(inputs):
            raise DataError(f"X has {len(inputs)} rows, but y has {Y.shape[0]}")
        if not len(inputs):
            return self
        features, first = self._transform_features(inputs), len(self.label_indptr_) - 1
        if self.kept_ is None:
            self.indexes_ = [*self.indexes_, self._dense_index(features.dense, first)]
        else:
            self.indexes_ = _merged([*self.indexes_, Postings.build(_without(features.sparse, self.kept_))])
        if Y.shape[1] > n_known:
            self.labels_ = _extended(self.labels_, y, Y.shape[1])
            self._set_decisions(None, None)
        added = KeptTexts.of(inputs.data, Y) if self.texts_ is not None else None
        self.texts_ = None if added is None or self.texts_ is None else self.texts_.joined(added)
        counts = np.bincount(Y.indices, minlength=Y.shape[1])
        counts[:n_known] += self.label_counts_.counts
        self.label_counts_ = LabelCounts(self.label_counts_.n_samples + len(inputs), counts)
        self.label_indptr_ = np.concatenate([self.label_indptr_, self.label_indptr_[-1] + Y.indptr[1:]])
        self.sample_labels_ = np.concatenate([self.sample_labels_, Y.indices.astype(np.int32)])
        if self.weights_ is not None:
            self.weights_ = np.concatenate([self.weights_, np.ones(len(inputs), np.float32)])
        self.frequency_ = FrequencyOrder.of(counts)
        return self

    # ---- prediction ----

    def nearest(self, X: Any, k: int | None = None) -> tuple[IntArray, FloatArray]:
        """Rows and cosine similarities (n, k) of the nearest training samples, padded with -1 and -inf.

        Without k these are the samples that vote: `n_neighbors`, or all if there are fewer. A k beyond the number of
        training samples is lowered to it.
        """
        inputs = self._check_predict_inputs(X)
        if k is None:
            return self._neighbors(inputs)
        return self._nearest(inputs, min(check_integer(k, "k"), len(self.label_indptr_) - 1))

    def _neighbors(self, inputs: Inputs) -> tuple[IntArray, FloatArray]:
        """Return the samples that vote."""
        return self._nearest(inputs, min(self.n_neighbors, len(self.label_indptr_) - 1))

    def _nearest(self, inputs: Inputs, k: int) -> tuple[IntArray, FloatArray]:
        threads = resolve_threads(self.threads, len(inputs))
        features = self._transform_features(inputs)
        queries = features.dense if self.kept_ is None else _without(features.sparse, self.kept_)
        found: list[tuple[IntArray, FloatArray]] = [index.search(queries, k, threads) for index in self.indexes_]
        if len(found) == 1:
            return found[0]
        first = 0
        for (ids, _), index in zip(found, self.indexes_, strict=True):
            if isinstance(index, Postings):  # its samples are numbered from 0
                np.add(ids, np.int32(first), out=ids, where=ids >= 0)
                first += len(index)
        ids = np.concatenate([ids for ids, _ in found], axis=1)
        scores = np.concatenate([scores for _, scores in found], axis=1)
        order = np.lexsort((ids, -scores), axis=1)[:, :k]
        return np.take_along_axis(ids, order, 1), np.take_along_axis(scores, order, 1)

    def _votes(
        self, samples: tuple[IntArray, FloatArray], k: int, label_filter: LabelFilter | None = None
    ) -> tuple[IntArray, FloatArray, FloatArray, FloatArray]:
        allowed = None if label_filter is None else label_filter.allowed.view(np.uint8)
        return native.ann.vote_neighbor_labels(
            samples, (self.label_indptr_, self.sample_labels_), self.weights_, self.n_labels, self.power, 2 * LEAST,
            self.frequency_.penalties, allowed, k, resolve_threads(self.threads, len(samples[0])),
        )  # fmt: skip

    def _predict_topk(self, inputs: Inputs, k: int) -> tuple[IntArray, FloatArray]:
        ids, scores, _, _ = self._votes(self._neighbors(inputs), k)
        self.frequency_.fill(ids, scores)
        return ids, scores

    def _predict_allowed(self, inputs: Inputs, k: int, label_filter: LabelFilter) -> tuple[IntArray, FloatArray]:
        ids, scores, _, _ = self._votes(self._neighbors(inputs), k, label_filter)
        self.frequency_.fill(ids, scores, label_filter)
        return ids, scores

    def _evidence(self, inputs: Inputs, k: int) -> Evidence:
        samples = self._neighbors(inputs)
        ids, votes, counts, nearest = self._votes(samples, min(k, self.n_labels))
        similarities = np.where(samples[0] >= 0, samples[1], np.float32(0))
        of_rows = {"nearest": similarities[:, 0], "mean": similarities.mean(axis=1)}
        return Evidence.of_ranking(ids, {"score": votes, "count": counts, "similarity": nearest}, of_rows)

    # ---- explanations ----

    def _explain_parts(self, inputs: Inputs, label_id: int) -> dict[str, float]:
        samples = self._neighbors(inputs)
        only = LabelFilter(np.arange(self.n_labels) == label_id)
        _, _, counts, nearest = self._votes(samples, 1, only)
        return {
            "nearest samples": float((samples[0] >= 0).sum()),
            "nearest samples with the label": float(counts[0, 0]),
            "largest similarity of one of them": float(nearest[0, 0]),
        }

    def _explain_neighbors(self, inputs: Inputs, label_id: int) -> list[Neighbor]:
        if self.texts_ is None:
            return []
        ids, similarities = self._nearest(inputs, SHOWN_NEIGHBORS)
        found = [(int(i), float(s)) for i, s in zip(ids[0], similarities[0], strict=True) if i >= 0]
        return [self.texts_.neighbor(i, similarity, label_id, self.labels_) for i, similarity in found]

    # ---- files ----

    def _save(self, writer: StoreWriter) -> dict[str, Any]:
        writer.array("label_indptr", self.label_indptr_)
        writer.array("sample_labels", self.sample_labels_)
        if self.weights_ is not None:
            writer.array("weights", self.weights_)
        if self.kept_ is not None:
            writer.array("kept", self.kept_)
        if self.texts_ is not None:
            self.texts_.save_to(writer, "texts_")
        indexes: Sequence[Any] = self.indexes_ if self.kept_ is None else [_joined(self.indexes_)]
        return {
            "features": self._save_features(writer),
            "transformer": None if self.transformer_ is None else self.transformer_.save_to(writer, "transformer_"),
            "indexes": [index.save_to(writer, f"index{i}_") for i, index in enumerate(indexes)],
            "is_weighted": self.weights_ is not None,
            "has_texts": self.texts_ is not None,
        }

    def _load_features(self, store: Store, state: dict[str, Any]) -> int | None:
        self.transformer_ = None
        if self.encoder is None:
            return super()._load_features(store, state)
        if self.input_kind_ not in ("text", "fields"):
            raise ModelFormatError(f"{store.path}: the model has an encoder, but was not trained on texts")
        self.transformer_ = Transformer.load_from(store, state.get("transformer"), "transformer_", self.encoder)
        return self.transformer_.dim

    def _load(self, store: Store, state: Any) -> None:
        state = check_state(store, state)
        n = self.label_counts_.n_samples
        n_features = self._load_features(store, state)
        self.frequency_ = FrequencyOrder.of(self.label_counts_.counts)
        self.sample_labels_ = store.array("sample_labels", np.int32, ndim=1, bounds=(0, max(1, self.n_labels)))
        self.label_indptr_ = store.array("label_indptr", np.int64, shape=(n + 1,))
        if not ascends(self.label_indptr_, len(self.sample_labels_)):
            raise ModelFormatError(f"{store.path}: the labels of the samples overlap")
        self.weights_ = store.array("weights", np.float32, shape=(n,)) if state.get("is_weighted") is True else None
        if self.weights_ is not None and not (np.isfinite(self.weights_).all() and self.weights_.min(initial=0) >= 0):
            raise ModelFormatError(f"{store.path}: the weights of the samples are not finite or negative")
        infos = state.get("indexes")
        if not isinstance(infos, list) or not infos or n_features is None:
            raise ModelFormatError(f"the manifest of {store.path} does not describe the neighbor index")
        if self.input_kind_ == "dense" or self.transformer_ is not None:
            self.kept_ = None
            self.indexes_ = [
                AnnIndex.load_from(store, info, f"index{i}_", n_features, max(1, n)) for i, info in enumerate(infos)
            ]
        else:
            self.kept_ = store.array("kept", np.uint8, shape=(n_features,), bounds=(0, 2))
            self.indexes_ = [Postings.load_from(store, infos[0], "index0_", n_features)]
        if sum(len(index) for index in self.indexes_) != n:
            raise ModelFormatError(f"{store.path}: the neighbor index does not have all of the {n} samples")
        self.texts_ = None
        if state.get("has_texts") is True:
            self.texts_ = KeptTexts.load_from(store, "texts_", n, self.n_labels)


def _without(X: Csr, kept: ByteArray) -> Csr:
    """Rows X (n × d) without the entries of columns that are not kept (d,)."""
    return keep_entries(X, kept[X.indices] != 0)


def _merged(indexes: list[Postings]) -> list[Postings]:
    """Join the last ones while they are not much smaller than the one before: few indexes, each joined few times."""
    while len(indexes) > 1 and 2 * len(indexes[-1]) >= len(indexes[-2]):
        indexes = [*indexes[:-2], indexes[-2].joined(indexes[-1])]
    return indexes


def _joined(indexes: list[Postings]) -> Postings:
    whole = indexes[0]
    for index in indexes[1:]:
        whole = whole.joined(index)
    return whole


def _extended(labels: LabelVocabulary, y: Any, n: int) -> LabelVocabulary:
    """Vocabulary with the labels of y that are new behind, in the order of their first occurrence."""
    known = list(labels)
    new = dict.fromkeys(label for row in y for label in row if label not in labels.ids)
    assert len(known) + len(new) == n
    return LabelVocabulary([*known, *new])
