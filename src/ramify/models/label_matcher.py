"""Labels whose name, or a synonym, occurs in the text.

Names come from the label catalogue that `fit` is given. They are compared as sequences of stems, without what stands in
brackets. Most names in a text are no labels of it: boosted trees estimate the probability from what training says about
the name (how often the label was right where its name occurred, without the sample itself) and from where and how often
it occurs (as Maui of Medelyan 2009 and MLLM of Annif do). For a label without a training sample the estimate is that of
other names. Labels whose names do not occur follow by frequency.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from ramify.base.config import param
from ramify.base.errors import ModelFormatError
from ramify.base.sparse import ascends, indptr_from_counts, is_stored
from ramify.base.threads import resolve_threads
from ramify.base.types import AnyArray, FloatArray, IntArray, LongArray
from ramify.features.names import NameIndex, without_qualifiers
from ramify.features.stemmers import Stemmer
from ramify.io.catalogue import LabelCatalogue
from ramify.io.inputs import Inputs, take_rows
from ramify.io.labels import LabelVocabulary
from ramify.io.store import Store, StoreWriter
from ramify.models.base import Model, check_state
from ramify.models.memory import MATCH, MATCHING, NAME, SAMPLE, Memory, boosting_bytes, label_bytes
from ramify.models.training_data import TrainingData
from ramify.rank.boosted import BoostedTrees, fit_boosted
from ramify.rank.evidence import Evidence
from ramify.rank.filters import LabelFilter
from ramify.rank.frequency import FrequencyOrder

SMOOTHING = 4.0
"""Occurrences that the mean precision of all names counts as."""
MAX_ROWS = 20_000
"""Training rows that the trees learn from."""
COLUMNS = (
    "precision", "matches", "frequency", "recall", "position", "relative", "count", "words", "ambiguity", "qualified",
    "synonym", "length",
)  # fmt: skip
"""Features of a match, in the order of the columns of the trees."""


class Matches(NamedTuple):
    """Labels whose names occur in n texts: sample, label and entry of each, and where and how often.

    `sharing` are the labels with the same name, `n_words` (n,) the words of the texts.
    """

    rows: LongArray
    ids: IntArray
    entries: LongArray
    positions: IntArray
    counts: IntArray
    sharing: LongArray
    n_words: IntArray

    def take(self, chosen: AnyArray) -> Matches:
        """Return some of the matches."""
        return self._replace(
            rows=self.rows[chosen], ids=self.ids[chosen], entries=self.entries[chosen],
            positions=self.positions[chosen], counts=self.counts[chosen], sharing=self.sharing[chosen],
        )  # fmt: skip


@dataclass(kw_only=True, eq=False, repr=False)
class LabelMatcher(Model):
    """Ranks the labels that a text names; needs texts, and names given as `label_catalogue=` of `fit`.

    >>> texts, names = ["solar cells", "a tax on cells"] * 9, {1: "solar cell", 2: "tax", 3: "whale"}
    >>> model = LabelMatcher(labels="catalogue").fit(texts, [[1], [2]] * 9, label_catalogue=names)
    >>> model.predict_topk(["the tax on whales"], k=3).labels(names=True)[0][1][0]
    'whale'
    """

    kind: ClassVar[str] = "label-matcher"
    scores_are_probabilities: ClassVar[bool] = True
    evidence_columns: ClassVar[tuple[str, ...]] = ("score", *COLUMNS)
    evidence_of_rows: ClassVar[tuple[str, ...]] = ("words",)

    stemmer: Stemmer | None = param(
        "auto",
        "Snowball stemmer of names and texts; 'auto': German or English, as most texts are; others need PyStemmer; "
        "None: words as they are",
    )
    labels: Literal["seen", "catalogue"] = param(
        "seen", "'catalogue': labels of the catalogue without a training sample can be predicted too; 'seen': not"
    )
    n_trees: int = param(50, "boosted trees that estimate how certain a match is", low=1)

    # ---- training ----

    def matches_per_row(self, data: TrainingData) -> float:
        """Names that occur in a text, on average, counted in a sample of the texts before the training."""
        names, labels, flags = _names_of(data.labels, data.catalogue)
        if data.inputs.kind not in ("text", "fields") or not names:
            return 0.0
        rows = np.sort(np.random.default_rng(0).permutation(len(data.inputs))[:SAMPLE])
        some, matcher = take_rows(data.inputs, rows), self.clone()
        n_matches = len(matcher._match(some).rows) if matcher._set_names(some, names, labels, flags) else 0
        return n_matches / max(1, len(rows))

    def _training_memory(self, data: TrainingData) -> Memory:
        n, own, per_row = len(data.inputs), label_bytes(data.Y), self.matches_per_row(data)
        n_names = len(_names_of(data.labels, data.catalogue)[0]) if data.inputs.kind in ("text", "fields") else 0
        kept = own + NAME * n_names
        trees = MATCH * n * per_row + boosting_bytes(min(n, MAX_ROWS) * per_row, len(COLUMNS))
        return Memory(kept + int(max(MATCHING * n * per_row, trees)), kept)

    def _check_training_data(self, X: Any, y: Any, label_catalogue: Any = None) -> TrainingData:
        data = super()._check_training_data(X, y, label_catalogue)
        return data.with_catalogue_labels() if self.labels == "catalogue" else data

    def _fit(self, data: TrainingData) -> None:
        n, n_labels = data.Y.shape
        weights = np.ones(n) if data.sample_weight is None else data.sample_weight
        entry_weights = np.repeat(weights, np.diff(data.Y.indptr))
        self.priors_ = np.bincount(data.Y.indices, entry_weights, minlength=n_labels) / weights.sum()
        self.names_: NameIndex | None = None
        self.trees_: BoostedTrees | None = None
        self.frequency_ = FrequencyOrder.of(self.priors_)
        names, labels, flags = _names_of(data.labels, data.catalogue)
        if data.inputs.kind not in ("text", "fields") or not names:
            return
        if not self._set_names(data.inputs, names, labels, flags):
            return
        found = self._match(data.inputs)
        is_right = is_stored(data.Y, found.rows, found.ids)
        self.n_matches_ = np.bincount(found.ids, minlength=n_labels).astype(np.int32)
        self.n_right_ = np.bincount(found.ids[is_right], minlength=n_labels).astype(np.int32)
        self.n_samples_ = np.bincount(data.Y.indices, minlength=n_labels).astype(np.int32)
        self.mean_precision_ = float(is_right.mean()) if len(is_right) else 0.0
        rows = np.sort(np.random.default_rng(self.seed).permutation(n)[:MAX_ROWS])
        used = np.isin(found.rows, rows)
        if not used.any():
            return
        chosen = found.take(used)
        self.trees_ = fit_boosted(
            self._features(chosen, is_right[used]), is_right[used], n_trees=self.n_trees, n_leaves=15,
            sample_weight=None if data.sample_weight is None else weights[chosen.rows], seed=self.seed,
            threads=resolve_threads(self.threads),
        )  # fmt: skip

    def _set_names(self, inputs: Inputs, names: list[str], labels: IntArray, flags: AnyArray) -> bool:
        """Index the names (m,) of labels (m,), as `_names_of` returns them; False if no name has a word."""
        self.fields_ = None
        if inputs.kind == "fields":
            self.fields_ = list(dict.fromkeys(name for document in inputs.data for name in document))
        index, ids = NameIndex.build(names, self.stemmer, self._texts(inputs))
        self.names_ = index if index.n_names else None
        if self.names_ is not None:
            self._set_entries(ids, labels, flags, names)
        return self.names_ is not None

    def _set_entries(self, ids: IntArray, labels: IntArray, flags: AnyArray, names: list[str]) -> None:
        """Group the labels of each name, given without qualifiers; flags (m, 2): was it qualified, is it a synonym."""
        assert self.names_ is not None
        keep = ids >= 0
        order = np.lexsort((flags[:, 1], flags[:, 0], labels, ids))
        order = order[keep[order]]
        pairs = np.stack([ids[order], labels[order]])
        first = np.ones(len(order), bool)
        first[1:] = np.any(pairs[:, 1:] != pairs[:, :-1], axis=0)  # a label with two names of the same words
        order = order[first]
        self.entry_indptr_ = indptr_from_counts(np.bincount(ids[order], minlength=self.names_.n_names))
        self.entry_labels_ = labels[order]
        lengths = np.array([len(names[i]) for i in order])
        words = np.array([len(names[i].split()) for i in order])
        self.entry_facts_ = np.column_stack([flags[order], lengths, words]).astype(np.float32)

    def _texts(self, inputs: Inputs) -> list[str]:
        """Texts of all fields, document by document."""
        if self.fields_ is None:
            return inputs.data  # type: ignore[no-any-return]
        return [document.get(name, "") for document in inputs.data for name in self.fields_]

    def _match(self, inputs: Inputs) -> Matches:
        """Find labels by their names; of several names of a label in a text, the first in it counts."""
        assert self.names_ is not None
        n_fields = 1 if self.fields_ is None else len(self.fields_)
        threads = resolve_threads(self.threads, len(inputs))
        found = self.names_.match(self._texts(inputs), n_fields, threads)
        starts = self.entry_indptr_[found.names]
        n_entries = self.entry_indptr_[found.names + 1] - starts
        at = np.repeat(np.arange(len(n_entries)), n_entries)
        before = np.cumsum(n_entries) - n_entries
        entries = starts[at] + np.arange(len(at)) - before[at]
        rows = np.repeat(np.arange(len(inputs)), np.diff(found.indptr))[at]
        ids, positions = self.entry_labels_[entries], found.positions[at]
        order = np.lexsort((positions, rows * np.int64(self.entry_labels_.max(initial=0) + 1) + ids))
        rows, ids = rows[order], ids[order]
        keep = np.ones(len(order), bool)
        keep[1:] = (rows[1:] != rows[:-1]) | (ids[1:] != ids[:-1])
        rest = order[keep]
        return Matches(
            rows[keep], ids[keep], entries[rest], positions[rest], found.counts[at[rest]], n_entries[at[rest]],
            found.n_words,
        )  # fmt: skip

    def _features(self, found: Matches, is_right: AnyArray | None = None) -> FloatArray:
        """Features (m, d) of matches; of training rows without what these rows say themselves."""
        own = 0 if is_right is None else 1
        right = self.n_right_[found.ids] - (0 if is_right is None else is_right)
        matches = self.n_matches_[found.ids] - own
        samples = self.n_samples_[found.ids] - (0 if is_right is None else is_right)
        mean = np.float32(self.mean_precision_)
        precision = (right + SMOOTHING * mean) / (matches + SMOOTHING)
        facts = self.entry_facts_[found.entries]
        columns = [
            np.where(samples > 0, precision, mean),  # without a sample, no match can have been right
            np.log1p(matches),
            np.log1p(samples),
            right / (samples + 1.0),
            found.positions,
            found.positions / np.maximum(1, found.n_words[found.rows]),
            found.counts,
            facts[:, 3],
            found.sharing,
            facts[:, 0],
            facts[:, 1],
            facts[:, 2],
        ]
        return np.array(columns, np.float32).T  # stored by columns, as the trees read them

    # ---- prediction ----

    def _evidence(self, inputs: Inputs, k: int) -> Evidence:
        return self._evidence_among(inputs, None)

    def _evidence_among(self, inputs: Inputs, allowed: AnyArray | None) -> Evidence:
        """Return what the names in the texts say about the labels; with a mask (L,), about those that it allows."""
        if self.names_ is None:
            empty = np.empty(0, np.float32)
            nothing = dict.fromkeys(("score", *COLUMNS), empty)
            return Evidence(
                np.empty(0, np.int64), np.empty(0, np.int32), nothing, {"words": np.zeros(len(inputs), np.float32)}
            )
        found = self._match(inputs)
        if allowed is not None:
            found = found.take(allowed[found.ids])  # what is said about a label depends on no other
        features = self._features(found)
        threads = resolve_threads(self.threads, len(inputs))
        scores = features[:, 0] if self.trees_ is None else self.trees_(features, threads)
        scores = self.frequency_.adjusted(scores, found.ids)
        columns = {"score": scores, **{name: features[:, i] for i, name in enumerate(COLUMNS)}}
        order = np.lexsort((found.ids, -scores, found.rows))
        sorted_columns = {name: values[order] for name, values in columns.items()}
        of_rows = {"words": found.n_words.astype(np.float32)}
        return Evidence(found.rows[order], found.ids[order], sorted_columns, of_rows)

    def _found(self, inputs: Inputs, k: int, allowed: AnyArray | None) -> tuple[IntArray, FloatArray]:
        evidence, n = self._evidence_among(inputs, allowed), len(inputs)
        rows, found, values = evidence.rows, evidence.ids, evidence.columns["score"]
        indptr = indptr_from_counts(np.bincount(rows, minlength=n))
        at = np.arange(len(rows)) - indptr[rows]
        keep = at < k
        ids, scores = np.full((n, k), -1, np.int32), np.full((n, k), -np.inf, np.float32)
        ids[rows[keep], at[keep]], scores[rows[keep], at[keep]] = found[keep], values[keep]
        return ids, scores

    def _predict_topk(self, inputs: Inputs, k: int) -> tuple[IntArray, FloatArray]:
        ids, scores = self._found(inputs, k, None)
        self.frequency_.fill(ids, scores)
        return ids, scores

    def _predict_allowed(self, inputs: Inputs, k: int, label_filter: LabelFilter) -> tuple[IntArray, FloatArray]:
        ids, scores = self._found(inputs, k, label_filter.allowed)
        self.frequency_.fill(ids, scores, label_filter)
        return ids, scores

    def _explain_parts(self, inputs: Inputs, label_id: int) -> dict[str, float]:
        if self.names_ is None:
            return {}
        found = self._match(inputs)
        at = np.flatnonzero(found.ids == label_id)
        if not len(at):
            return {"occurrences of the name": 0.0}
        features = dict(zip(COLUMNS, self._features(found)[at[0]].tolist(), strict=True))
        return {
            "occurrences of the name": features["count"],
            "word of the first one": features["position"] + 1,
            "training texts with the name": float(self.n_matches_[label_id]),
            "of these, with the label": float(self.n_right_[label_id]),
        }

    # ---- files ----

    def _save(self, writer: StoreWriter) -> dict[str, Any]:
        writer.array("priors", self.priors_)
        if self.names_ is None:
            return {"names": None, "trees": None, "fields": None, "mean_precision": 0.0}
        for name in ("entry_indptr", "entry_labels", "entry_facts", "n_matches", "n_right", "n_samples"):
            writer.array(name, getattr(self, f"{name}_"))
        return {
            "names": self.names_.save_to(writer, "names_"),
            "trees": None if self.trees_ is None else self.trees_.save_to(writer, "trees_"),
            "fields": self.fields_,
            "mean_precision": self.mean_precision_,
        }

    def _load(self, store: Store, state: Any) -> None:
        state, n_labels = check_state(store, state), self.n_labels
        self.priors_ = store.array("priors", np.float64, shape=(n_labels,))
        if not np.isfinite(self.priors_).all():
            raise ModelFormatError(f"{store.path}: the priors are not finite")
        self.frequency_ = FrequencyOrder.of(self.priors_)
        self.names_, self.trees_ = None, None
        if state.get("names") is None:
            return
        fields, mean = state.get("fields"), state.get("mean_precision")
        is_fields = isinstance(fields, list) and len(fields) > 0 and all(isinstance(name, str) for name in fields)
        if not (is_fields if self.input_kind_ == "fields" else self.input_kind_ == "text" and fields is None):
            raise ModelFormatError(f"the manifest of {store.path} does not describe the text fields")
        if not isinstance(mean, float) or not 0 <= mean <= 1:
            raise ModelFormatError(f"the manifest of {store.path} has no valid precision of the names")
        self.fields_, self.mean_precision_ = fields, mean
        self.names_ = NameIndex.load_from(store, state["names"], "names_", self.stemmer)
        self.entry_labels_ = store.array("entry_labels", np.int32, ndim=1, bounds=(0, max(1, n_labels)))
        m = len(self.entry_labels_)
        self.entry_indptr_ = store.array("entry_indptr", np.int64, shape=(self.names_.n_names + 1,))
        if not ascends(self.entry_indptr_, m):
            raise ModelFormatError(f"{store.path}: the labels of the names overlap")
        self.entry_facts_ = store.array("entry_facts", np.float32, shape=(m, 4))
        if not np.isfinite(self.entry_facts_).all():
            raise ModelFormatError(f"{store.path}: the facts of the names are not finite")
        for name in ("n_matches", "n_right", "n_samples"):
            setattr(self, f"{name}_", store.array(name, np.int32, shape=(n_labels,), bounds=(0, 2**31 - 1)))
        if state.get("trees") is not None:
            self.trees_ = BoostedTrees.load_from(store, state["trees"], "trees_", len(COLUMNS))


def _names_of(labels: LabelVocabulary, catalogue: LabelCatalogue | None) -> tuple[list[str], IntArray, AnyArray]:
    """Names without qualifiers, their labels (m,), and whether each was qualified and is a synonym (m, 2)."""
    names, ids, flags = list[str](), list[int](), list[tuple[bool, bool]]()
    for i, label in enumerate(labels) if catalogue is not None else ():
        entry = catalogue.get_entry(label)  # type: ignore[union-attr]
        given = [] if entry is None else [(name, False) for name in entry.names.values()]
        given += [] if entry is None else [(name, True) for name in entry.synonyms]
        for name, is_synonym in given:
            short = without_qualifiers(name)
            names.append(short)
            ids.append(i)
            flags.append((short != name, is_synonym))
    return names, np.array(ids, np.int32), np.array(flags, bool).reshape(-1, 2)
