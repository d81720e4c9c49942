"""Labels by their texts: weights between the words of a sample and the words of a label (ZestXML: Gupta et al. 2021).

A label is described by the terms of its names, synonyms and description and, if it has training samples, by a feature
of its own. Its score for a sample x is

    score(x, l) = c_l xᵀ W z_l + β xᵀ z_l + bias

where W has a weight for each pair of terms that go together in training, such as "solar" and "photovoltaics", and β is
the weight of all terms that the text and the label have in common. Labels with the same words share weights: a label
without a training sample has those of its words, which count less (c_l < 1), since others were trained with them. Stems
and parts of words are terms, too, so that inflected and compound words match. Labels that nothing
speaks for follow by frequency.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from scipy import sparse
from scipy.special import expit

from ramify import native
from ramify.base.config import param
from ramify.base.errors import ModelFormatError
from ramify.base.sparse import as_csr, ascends, csr_from_parts, entry_rows, keep_entries, pattern
from ramify.base.threads import resolve_threads
from ramify.base.types import Csr, FloatArray, IntArray
from ramify.features.concat import Concat
from ramify.features.defaults import label_text_features
from ramify.features.tfidf import Tfidf
from ramify.features.words import column_words
from ramify.index.postings import Postings
from ramify.io.inputs import Inputs
from ramify.io.store import Store, StoreWriter
from ramify.models.base import check_state
from ramify.models.features import FeatureModel
from ramify.models.label_texts import as_documents, label_texts
from ramify.models.memory import ASSOCIATION, ENTRY, LINK, PAIR, QUERY, Memory, measure_sizes
from ramify.models.training_data import TrainingData
from ramify.rank.bilinear import BLOCK, ROWS, Bilinear, BilinearConfig, fit_bilinear
from ramify.rank.evidence import Evidence
from ramify.rank.explanation import Level
from ramify.rank.filters import LabelFilter
from ramify.rank.frequency import FrequencyOrder

MIN_DROPPED = 100
"""Terms in no more samples than this may always have weights: in small data no word is common."""
OWN = "(the label itself)"
"""What the feature of a label of its own is called in explanations."""
SHOWN_PAIRS = 10
"""Pairs of terms in an explanation."""
LEAD_WORDS = 12
"""First words of a text, mostly a title, whose likeness to a label is evidence of its own."""
MAX_WEIGHT = 1e6
"""Magnitude that no weight and no feature of a label reaches."""


@dataclass(kw_only=True, eq=False, repr=False)
class ZestXML(FeatureModel):
    """Ranks labels by learned weights between the words of samples and of the labels' texts.

    The texts are those of `label_catalogue=` of `fit`. Without them, and with matrices, labels have only the feature of
    their own.

    >>> texts, names = ["solar cells", "a tax on wine"] * 9, {1: "photovoltaics", 2: "tax law", 3: "wine"}
    >>> model = ZestXML(labels="catalogue").fit(texts, [[1], [2]] * 9, label_catalogue=names)
    >>> model.predict_topk(["cells", "old wines"], k=1).labels(names=True)[1][0][0]
    'wine'
    """

    kind: ClassVar[str] = "zest-xml"
    evidence_columns: ClassVar[tuple[str, ...]] = ("score", "common", "nearness", "covered", "terms", "lead")

    features: Tfidf | Concat = param(
        factory=label_text_features, doc="feature extraction from samples and label texts; not used for matrices"
    )
    labels: Literal["seen", "catalogue"] = param(
        "seen", "'catalogue': labels of the catalogue without a training sample can be predicted too; 'seen': not"
    )
    identity: float = param(
        1.0, "value of the feature that each label has of its own; raising it favors labels with many samples", low=0
    )
    transfer: float = param(
        0.3,
        "factor on the learned weights of the words of labels without a training sample; lowering it leaves more to "
        "words that text and label have in common",
        low=0,
        high=1,
    )
    max_df: float = param(
        0.2,
        "terms in more than this fraction of the samples get no weights, such as words that say little; not of dense "
        f"features, and not below {MIN_DROPPED} samples",
        low=0,
        high=1,
    )
    bilinear: BilinearConfig = param(factory=BilinearConfig, doc="weights between terms and their training")

    def _training_memory(self, data: TrainingData) -> Memory:
        """Stages: features; associations of terms, in blocks; links, pairs and searches, in blocks."""
        inputs, config = data.inputs, self.bilinear
        sizes, n = measure_sizes(inputs, data.Y, self.features), len(inputs)
        n_linked = sizes.entries_of_rare(1 if inputs.kind == "dense" else self.max_df, MIN_DROPPED)
        n_label_terms = 1.0  # of a label: its own, and those of its text
        if inputs.kind in ("text", "fields"):
            n_label_terms += (
                sum(len(text.split()) for text in label_texts(data.labels, data.catalogue)) / sizes.n_labels
            )
        # A term has no more links than there are terms of labels of its samples.
        per_sample = n_label_terms * data.Y.nnz / n
        of_terms = np.minimum(config.n_links, per_sample * sizes.column_counts).mean() * sizes.n_features
        of_labels = n_label_terms * np.minimum(config.n_links, sizes.label_entries).sum()
        n_links = float(of_terms + of_labels) if config.n_links else 0.0
        # The own terms of labels are columns beside each other; those of their texts are spread over many blocks.
        block = min(1.0, BLOCK / sizes.n_labels) * sizes.label_entries.sum() * n_linked / max(1, sizes.n_entries)
        n_queries = min(ROWS, n) * min(config.n_links * n_linked / n, n_label_terms * sizes.n_labels)
        pairs = PAIR * min(config.max_rows, n) * (config.n_shortlist + data.Y.nnz / n)
        linking = 3 * ENTRY * n_linked + LINK * n_links + ASSOCIATION * block if config.n_links else 0.0
        searching = ENTRY * (sizes.n_entries + n_linked) + LINK * n_links + QUERY * n_queries + pairs
        peak = max(sizes.making_features, sizes.features + int(max(linking, searching)))
        kept = sizes.vocabulary + int(ENTRY * (n_links + sizes.n_features + 8 * n_label_terms * sizes.n_labels))
        return Memory(sizes.labels + peak, sizes.labels + kept)

    # ---- training ----

    def _check_training_data(self, X: Any, y: Any, label_catalogue: Any = None) -> TrainingData:
        data = super()._check_training_data(X, y, label_catalogue)
        return data.with_catalogue_labels() if self.labels == "catalogue" else data

    def _fit(self, data: TrainingData) -> None:
        threads, n_labels = resolve_threads(self.threads), data.Y.shape[1]
        X, terms = self._features_of_both(data)
        counts = np.bincount(data.Y.indices, minlength=n_labels)
        self.frequency_ = FrequencyOrder.of(counts)
        seen = counts > 0
        own = sparse.diags(np.where(seen, self.identity, 0.0).astype(np.float32), format="csr")
        Z = as_csr(sparse.hstack([terms, own], format="csr"), "Z")
        Z.eliminate_zeros()
        factors = sparse.diags(np.where(seen, 1.0, self.transfer).astype(np.float32), format="csr")
        self.label_terms_ = as_csr(sparse.hstack([factors @ Z, terms], format="csr"), "Z")
        self.label_terms_.eliminate_zeros()
        linked = np.ones(X.shape[1], bool)
        if data.inputs.kind != "dense":
            linked = np.bincount(X.indices, minlength=X.shape[1]) <= max(MIN_DROPPED, self.max_df * X.shape[0])
        costs = np.ones(X.shape[0]) if data.sample_weight is None else data.sample_weight / data.sample_weight.mean()
        self.model_ = fit_bilinear(
            X, data.Y, Z, self.bilinear, linked=linked, candidates=seen,
            costs=costs.astype(np.float32), are_texts=data.inputs.kind in ("text", "fields"), seed=self.seed,
            threads=threads,
        )  # fmt: skip
        self._open()

    def _features_of_both(self, data: TrainingData) -> tuple[Csr, Csr]:
        """Features X (n × d) of samples, and of the texts of labels (L × d); none of matrices, which have no words."""
        n_labels = data.Y.shape[1]
        if data.inputs.kind not in ("text", "fields"):
            X = _as_sparse(data.inputs.data)
            return X, sparse.csr_matrix((n_labels, X.shape[1]), dtype=np.float32)
        texts = as_documents(label_texts(data.labels, data.catalogue), data.inputs, self.features)
        documents = list(data.inputs.data)
        self.features_ = self.features.suited_to(documents)
        both = self.features_.fit_transform(documents + texts)
        return as_csr(both[: len(documents)]), as_csr(both[len(documents) :])

    def _open(self) -> None:
        """Make what searches use of the features of the labels."""
        Z, d = self.label_terms_, self.model_.W.shape[0]
        self.index_ = Postings.of(Z)
        first = Z.shape[1] - d
        texts = keep_entries(Z, Z.indices >= first)
        self.text_terms_ = csr_from_parts(texts.data, texts.indices - np.int32(first), texts.indptr, (Z.shape[0], d))
        self.text_squares_ = csr_from_parts(texts.data**2, self.text_terms_.indices, texts.indptr, (Z.shape[0], d))
        self.learned_terms_ = keep_entries(Z, Z.indices < d)
        self.text_index_ = Postings.of(self.text_terms_)

    # ---- prediction ----

    def _rows(self, inputs: Inputs) -> Csr:
        """Features (n × d) of samples."""
        return _as_sparse(inputs.data) if inputs.kind in ("sparse", "dense") else self.features_.transform(inputs.data)

    def _search(self, inputs: Inputs, k: int, index: Postings, ids_of: IntArray | None) -> tuple[IntArray, FloatArray]:
        """Ids and scores (n, k) of the best labels of an index; `ids_of` its rows are the labels."""
        threads = resolve_threads(self.threads, len(inputs))
        queries = self.model_.queries(self._rows(inputs), threads)
        ids, products = index.products(queries, k, threads)
        if ids_of is not None and len(ids_of):  # none: nothing is found
            ids = np.where(ids >= 0, ids_of[ids], -1).astype(np.int32)
        found = ids >= 0
        scores = np.full(ids.shape, -np.inf, np.float32)
        scores[found] = self.frequency_.adjusted(self._probabilities(products[found]), ids[found])
        return ids, scores

    def _probabilities(self, products: FloatArray) -> FloatArray:
        return expit(2 * (products + np.float32(self.model_.bias))).astype(np.float32)  # type: ignore[no-any-return]

    def _predict_topk(self, inputs: Inputs, k: int) -> tuple[IntArray, FloatArray]:
        ids, scores = self._search(inputs, k, self.index_, None)
        self.frequency_.fill(ids, scores)
        return ids, scores

    def _predict_allowed(self, inputs: Inputs, k: int, label_filter: LabelFilter) -> tuple[IntArray, FloatArray]:
        index = label_filter.prepared(self.index_, lambda: Postings.of(self.label_terms_[label_filter.ids]))
        ids, scores = self._search(inputs, k, index, label_filter.ids)
        self.frequency_.fill(ids, scores, label_filter)
        return ids, scores

    def _evidence(self, inputs: Inputs, k: int) -> Evidence:
        """Labels with the best scores and, half as many of each, those that the text and its first words are like.

        Without links the best scores are those of the labels that the text is like.
        """
        threads, n, X = resolve_threads(self.threads, len(inputs)), len(inputs), self._rows(inputs)
        lead = self._lead(inputs)
        queries, Z, texts = self.model_.queries(X, threads), self.label_terms_, self.text_terms_
        width = min(max(1, k // 2), self.n_labels)
        common, in_common = self.text_index_.products(X, width, threads)
        parts = [common, self.text_index_.products(lead, width, threads)[0]]
        if self.model_.W.nnz > self.model_.W.shape[0]:
            parts.append(self.index_.products(queries, min(k, self.n_labels), threads)[0])
        ids = np.sort(np.concatenate(parts, axis=1), axis=1)
        ids[:, 1:][ids[:, 1:] == ids[:, :-1]] = -1
        found = ids >= 0
        rows, labels = np.repeat(np.arange(n), found.sum(axis=1)), ids[found]
        products = native.matrix.selected_products
        in_texts = products(X, texts, ids, threads)
        largest = np.maximum(in_common[:, :1], np.float32(1e-6)).astype(np.float32)
        columns: dict[str, FloatArray] = {
            "score": products(queries, Z, ids, threads)[found],
            "common": in_texts[found],
            "nearness": (in_texts / largest)[found].astype(np.float32),
            "covered": products(pattern(X), self.text_squares_, ids, threads)[found],
            "terms": products(queries, self.learned_terms_, ids, threads)[found],
            "lead": products(lead, texts, ids, threads)[found],
        }
        order = np.lexsort((labels, -columns["score"], rows))
        return Evidence(rows[order], labels[order], {name: values[order] for name, values in columns.items()}, {})

    def _lead(self, inputs: Inputs) -> Csr:
        """Features (n × d) of the first words of texts; nothing of matrices, which have none."""
        if inputs.kind not in ("text", "fields"):
            return sparse.csr_matrix((len(inputs), self.model_.W.shape[0]), dtype=np.float32)
        documents = [first_words(document) for document in inputs.data]
        return self.features_.transform(documents)

    # ---- explanations ----

    def _contributions(self, inputs: Inputs, label_id: int) -> tuple[list[str], list[str], Csr]:
        """Words of a sample (w,), terms of a label (t,), and what each pair of them adds to the score (w × t)."""
        x, z = self._rows(inputs), self.label_terms_[label_id]
        W = self.model_.W[x.indices][:, z.indices].multiply(x.data[:, None]).multiply(z.data[None, :])
        d, first = self.model_.W.shape[0], self.label_terms_.shape[1] - self.model_.W.shape[0]
        if inputs.kind in ("text", "fields"):
            words, fractions = column_words(self.features_, inputs.data[0], x.indices)
            is_own = (z.indices >= d) & (z.indices < first)
            named = self.features_.terms(np.where(is_own, 0, np.where(z.indices < d, z.indices, z.indices - first)))
            terms = [OWN if own else term for own, term in zip(is_own, named, strict=True)]
        else:
            words, terms = [f"feature {j}" for j in x.indices], [OWN for _ in z.indices]
            fractions = sparse.eye(len(words), format="csr")
        return words, terms, as_csr(sparse.csr_matrix(fractions.T @ W), "W")

    def _explain_levels(self, inputs: Inputs, label_id: int) -> list[Level] | None:
        words, _, pairs = self._contributions(inputs, label_id)
        sums = np.asarray(pairs.sum(axis=1)).ravel().tolist()
        contributions = [(word, value) for word, value in zip(words, sums, strict=True) if value != 0]
        margin = self.model_.bias + sum(sums)
        return [
            Level(
                "label", margin, self.model_.bias, sorted(contributions, key=lambda pair: -abs(pair[1])),
                float(np.log(max(1e-12, expit(2 * margin)))),
            )
        ]  # fmt: skip

    def _explain_parts(self, inputs: Inputs, label_id: int) -> dict[str, float]:
        """Return the pairs of words of the sample and terms of the label that matter most."""
        words, terms, pairs = self._contributions(inputs, label_id)
        found: dict[str, float] = {}
        for row, column, value in zip(entry_rows(pairs).tolist(), pairs.indices, pairs.data.tolist(), strict=True):
            key = f"{words[row]} × {terms[column]}"
            found[key] = found.get(key, 0.0) + value
        return dict(sorted(found.items(), key=lambda pair: -abs(pair[1]))[:SHOWN_PAIRS])

    # ---- files ----

    def _save(self, writer: StoreWriter) -> dict[str, Any]:
        for name, matrix in (("label_terms", self.label_terms_), ("weights", self.model_.W)):
            writer.array(f"{name}_indptr", matrix.indptr.astype(np.int64))
            writer.array(f"{name}_indices", matrix.indices.astype(np.int32))
            writer.array(f"{name}_data", matrix.data.astype(np.float32))
        return {"features": self._save_features(writer), "direct": self.model_.direct, "bias": self.model_.bias}

    def _load(self, store: Store, state: Any) -> None:
        state = check_state(store, state)
        d = self._load_features(store, state)
        direct, bias = state.get("direct"), state.get("bias")
        if d is None or not all(isinstance(value, float) and np.isfinite(value) for value in (direct, bias)):
            raise ModelFormatError(f"the manifest of {store.path} does not describe the weights between terms")
        width = 2 * d + self.n_labels
        self.label_terms_ = _load_csr(store, "label_terms", (self.n_labels, width))
        self.model_ = Bilinear(_load_csr(store, "weights", (d, width)), direct, bias)
        self.frequency_ = FrequencyOrder.of(self.label_counts_.counts)
        self._open()


def first_words(document: Any) -> Any:
    """Return the first words of a text, or of each of its fields."""
    if isinstance(document, str):
        return " ".join(document.split(None, LEAD_WORDS)[:LEAD_WORDS])
    return {name: first_words(text) for name, text in document.items()}


def _as_sparse(data: Any) -> Csr:
    return data if sparse.issparse(data) else as_csr(sparse.csr_matrix(data))


def _load_csr(store: Store, name: str, shape: tuple[int, int]) -> Csr:
    """Open a matrix that native code may follow."""
    indptr = store.array(f"{name}_indptr", np.int64, shape=(shape[0] + 1,))
    indices = store.array(f"{name}_indices", np.int32, ndim=1, bounds=(0, max(1, shape[1])))
    data = store.array(f"{name}_data", np.float32, shape=indices.shape)
    if not ascends(indptr, len(indices)) or len(indices) >= 2**31:
        raise ModelFormatError(f"{store.path}: the rows of {name} overlap")
    matrix = csr_from_parts(data, indices, indptr.astype(np.int32), shape)
    if not native.matrix.is_canonical(matrix, MAX_WEIGHT):
        raise ModelFormatError(f"{store.path}: {name} is not a matrix of finite values with sorted columns")
    return matrix
