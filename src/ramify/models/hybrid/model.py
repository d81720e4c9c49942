"""One learned ranker over the evidence of several models.

Linear and neural classifiers know a label by its training samples. Its name and the labels of similar samples say more:
how much of each to believe depends on the sample and on the label. The candidates of a sample are the union of what the
members find. For each (sample, label) pair boosted trees estimate the probability that the label is right, from the
scores and ranks of the members, their agreement, how frequent the label is, and what members say beside their score.

The trees learn from training rows that the members were not trained on (stacking, Wolpert 1992): members are trained on
parts of the rows, predict the others, and are then trained again on all rows. With `labels="catalogue"` some labels are
hidden from the members meanwhile, so that the trees learn what speaks for a label that has no training sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np

from ramify import native
from ramify.base.config import param
from ramify.base.errors import ModelFormatError
from ramify.base.progress import progress
from ramify.base.sparse import csr_from_parts, indptr_from_counts
from ramify.base.threads import resolve_threads
from ramify.base.types import Csr, FloatArray, IntArray, LongArray
from ramify.features.defaults import spelling_features
from ramify.io.catalogue import LabelCatalogue
from ramify.io.inputs import Inputs, take_rows
from ramify.io.store import Store, StoreWriter
from ramify.models.base import Model
from ramify.models.hybrid.pairs import OWN, Pairs, feature_names, make_pairs, raise_some
from ramify.models.hybrid.stacking import KEPT, NEAR, OutOfFold, default_folds, fold_rows, hide_labels
from ramify.models.knn import KNN
from ramify.models.label_matcher import LabelMatcher
from ramify.models.member_checkpoints import MemberCheckpoints
from ramify.models.members import describe_members, load_members, members_of, save_members
from ramify.models.memory import Memory, boosting_bytes
from ramify.models.training_data import TrainingData
from ramify.models.xrlinear import XRLinear
from ramify.models.zestxml import ZestXML
from ramify.nn.encoders.transformer import TransformerEncoder
from ramify.rank.bilinear import BilinearConfig
from ramify.rank.boosted import BoostedTrees, fit_boosted
from ramify.rank.explanation import Neighbor
from ramify.rank.filters import LabelFilter
from ramify.rank.frequency import LEAST, FrequencyOrder

OWNER = "a Hybrid"
BLOCK = 2048
"""Rows whose pairs are in memory at a time."""
TREES, OPEN_TREES = 150, 300
"""Trees of the ranker of labels seen in training, and of all labels, whose five members say more."""
DISTINCT = 0.7
"""Candidates of a sample, of those that all members find, for the estimate of memory: members find the same ones."""
SPELLING_ROWS = 2000
"""Training rows of the member that compares spelling: it learns two numbers."""


@dataclass(kw_only=True, eq=False, repr=False)
class Hybrid(Model):
    """Ranks what several models find, by everything that they know.

    Without `members` these are `XRLinear` and `KNN` and, of texts whose labels have names (`label_catalogue=` of
    `fit`, from which `XRLinear` learns, too), `LabelMatcher` and, for labels without a training sample, `ZestXML`, by
    words and by spelling. The scores are probabilities; those of labels without a training sample are raised by
    `unseen_weight`.

    >>> texts, labels = ["red fox", "grey hen", "red hen"] * 4, [["fox"], ["hen"], ["hen"]] * 4
    >>> model = Hybrid(n_trees=5).fit(texts, labels, label_catalogue={"fox": "fox", "hen": "hen"})
    >>> model.predict_topk(["a fox"], k=1).labels()[0][0][0]
    'fox'
    """

    kind: ClassVar[str] = "hybrid"
    scores_are_probabilities: ClassVar[bool] = True

    members: tuple[Model, ...] = param((), "models whose evidence is ranked; none: chosen by the data", positional=True)
    encoder: TransformerEncoder | None = param(
        None, "frozen encoder of texts, by whose embeddings a further `KNN` compares them, unless `members` are given"
    )
    labels: Literal["seen", "catalogue"] = param(
        "seen", "'catalogue': labels of the catalogue without a training sample can be predicted too; 'seen': not"
    )
    n_candidates: int = param(100, "labels that each member finds for a sample; raising it costs time", low=1)
    n_trees: int | None = param(
        None, "boosted trees of the ranker; None: 150, or 300 with labels='catalogue', whose evidence is larger", low=1
    )
    n_leaves: int = param(15, "leaves of a tree", low=2, high=32)
    learning_rate: float = param(0.05, "step size of the boosting; lowering it needs more trees", low=1e-4, high=1)
    n_folds: int | None = param(
        None,
        "parts that the training rows are split into: members trained on the others predict each, for the ranker to "
        "learn from; 1: a single part of `max_rows`; None: 3, or 1 where a tenth of the rows is enough",
        low=1,
    )
    max_rows: int = param(9000, "training rows that the ranker learns from", low=1)
    hidden: float = param(0.1, "fraction of the labels that members do not see, with labels='catalogue'", low=0, high=1)

    unseen_weight: float = param(
        2.0,
        "factor on the odds of labels without a training sample, with labels='catalogue'; raising it finds more of "
        "them, but ranks others lower; the best label stays in its place; 1: their scores are probabilities, too",
        above=0,
    )
    checkpoint_dir: str | None = param(
        None,
        "directory for checkpoints of trained members; an interrupted training resumes from there, to the same bits",
    )

    # ---- training ----

    def _training_memory(self, data: TrainingData) -> Memory:
        """Members of a fold beside the pairs of others, then all pairs and the ranker, then members on all rows."""
        members = self.members or self._default_members(data.inputs, data.catalogue is not None)
        training = Memory.in_sequence(model._training_memory(data) for model in members)
        width = len(_feature_names(members))
        n, n_labels = data.Y.shape
        # What each member finds for a sample: only a matcher of names does not find as many as are wanted.
        most = min(self.n_candidates, n_labels)
        widths = [min(most, m.matches_per_row(data)) if isinstance(m, LabelMatcher) else most for m in members]
        n_found, n_near = DISTINCT * sum(widths), DISTINCT * sum(min(NEAR, found) for found in widths)
        n_folds = self.n_folds or default_folds(n, self.max_rows)
        fraction = max(0.5, 1 - self.max_rows / n) if n_folds == 1 else 1 - 1 / n_folds
        n_rows = min(self.max_rows, n / 2 if n_folds == 1 else n)
        pairs = (4 * width + 10) * n_found * n_rows
        ranker = boosting_bytes(n_rows * (n_near + KEPT * (n_found - n_near)), width)
        in_folds = fraction * training.peak + (1 - 1 / n_folds) * pairs
        return Memory(int(max(training.peak, in_folds, pairs + ranker)), training.kept)

    def _default_members(self, inputs: Inputs, has_names: bool) -> tuple[Model, ...]:
        common: dict[str, Any] = {"seed": self.seed, "threads": self.threads, "verbose": self.verbose}
        has_names = has_names and inputs.kind in ("text", "fields")
        # Names mislead a classifier alone now and then, but the trees know when.
        text_weight = 1.0 if has_names and self.labels == "seen" else 0.0
        members: list[Model] = [XRLinear(label_text_weight=text_weight, **common), KNN(**common)]
        if self.encoder is not None:
            members.append(KNN(encoder=self.encoder, **common))
        if has_names:
            members.append(LabelMatcher(**common))
            # It finds labels without a sample; for the others it costs half a query more and gains nothing.
            if self.labels == "catalogue":
                by_spelling = BilinearConfig(n_links=0, max_rows=SPELLING_ROWS)
                members += [
                    ZestXML(**common),
                    ZestXML(features=spelling_features(), identity=0, bilinear=by_spelling, **common),
                ]
        return tuple(members)

    def _check_training_data(self, X: Any, y: Any, label_catalogue: Any = None) -> TrainingData:
        data = super()._check_training_data(X, y, label_catalogue)
        return data.with_catalogue_labels() if self.labels == "catalogue" else data

    def _fit(self, data: TrainingData) -> None:
        members = self.members or self._default_members(data.inputs, data.catalogue is not None)
        names, checkpoints = data.names_by_id(), MemberCheckpoints(self.checkpoint_dir, self, data)
        folds = fold_rows(data.Y, self.n_folds, self.max_rows, self.seed)
        is_open = self.labels == "catalogue"
        out_of_fold = OutOfFold(_keys(members))
        # Members are trained for each fold, then the ranker, then the members on all rows.
        with progress("round", len(folds) + 2, self.verbose, "rounds") as advance:
            for i, (rows, held) in enumerate(folds):
                Y = data.Y[rows]
                if is_open:
                    Y = hide_labels(Y, self.hidden, self.seed + i)
                models = self._fit_members(members, data, rows, Y, names, checkpoints, f"fold {i + 1}")
                self._predict_fold(models, data, held, Y, out_of_fold)
                del models  # the next ones need the memory
                advance(1)
            self.trees_, self.summary_ = self._fit_ranker(out_of_fold), out_of_fold.summary()
            advance(1)
            self.frequency_ = FrequencyOrder.of(np.bincount(data.Y.indices, minlength=data.Y.shape[1]))
            rows = np.arange(len(data.inputs))
            self.members_ = self._fit_members(members, data, rows, data.Y, names, checkpoints, "all")
        checkpoints.clear()
        for model in self.members_:
            model.labels_ = data.labels  # so that each member also ranks the labels, not their ids
            model.catalogue_ = None
        self.feature_names_ = _feature_names(self.members_)

    def _predict_fold(
        self, models: Sequence[Model], data: TrainingData, held: LongArray, Y: Csr, out_of_fold: OutOfFold
    ) -> None:
        """Add the pairs of the rows `held`, given members that were trained on other rows, with labels Y."""
        counts = np.bincount(Y.indices, minlength=Y.shape[1])
        weights = None if data.sample_weight is None else data.sample_weight[held]
        held_inputs = take_rows(data.inputs, held)
        for start in range(0, len(held), BLOCK):
            part = np.arange(start, min(start + BLOCK, len(held)))
            found = [model._evidence(take_rows(held_inputs, part), self.n_candidates) for model in models]
            pairs = make_pairs(found, len(part), Y.shape[1], counts)
            if self.labels == "seen":  # a label without a sample is no candidate of the final members
                pairs = pairs.take(counts[pairs.ids] > 0)
            out_of_fold.add(pairs, found, data.Y[held[part]], None if weights is None else weights[part])

    def _fit_ranker(self, out_of_fold: OutOfFold) -> BoostedTrees | None:
        features, targets, weights = out_of_fold.training_set(self.seed)
        n_trees = self.n_trees or (OPEN_TREES if self.labels == "catalogue" else TREES)
        with progress(f"ranker of {len(targets):,} candidates", None, self.verbose):
            return fit_boosted(
                features, targets, n_trees=n_trees, n_leaves=self.n_leaves, learning_rate=self.learning_rate,
                sample_weight=weights, seed=self.seed, threads=resolve_threads(self.threads),
            )  # fmt: skip

    @staticmethod
    def _fit_members(
        members: Sequence[Model],
        data: TrainingData,
        rows: LongArray,
        Y: Csr,
        names: LabelCatalogue | None,
        checkpoints: MemberCheckpoints,
        stage: str,
    ) -> list[Model]:
        """Train the members on some rows."""
        weights = None if data.sample_weight is None else data.sample_weight[rows]
        inputs = take_rows(data.inputs, rows).data
        return [
            checkpoints.fit(member, f"{stage} {key}", inputs, Y, weights, names)
            for member, key in zip(members, _keys(members), strict=True)
        ]

    # ---- prediction ----

    def _pairs(self, inputs: Inputs, width: int) -> Pairs:
        found = [model._evidence(inputs, width) for model in self.members_]
        return make_pairs(found, len(inputs), self.n_labels, self.label_counts_.counts)

    def _scores(self, pairs: Pairs, threads: int) -> FloatArray:
        """Probabilities (m,) of pairs; without trees, which need data, what the members agree on."""
        agreement = pairs.columns[OWN.index("agreement")]
        scores = agreement * np.float32(0.98) if self.trees_ is None else self.trees_(pairs.columns.T, threads)
        scores = self.frequency_.adjusted(scores, pairs.ids)
        if self.labels == "catalogue":
            scores = raise_some(scores, pairs.rows, self.label_counts_.counts[pairs.ids] == 0, self.unseen_weight)
        return np.maximum(scores, np.float32(LEAST))

    def _found(self, inputs: Inputs, k: int, label_filter: LabelFilter | None) -> tuple[IntArray, FloatArray]:
        """Ids and scores (n, k) of the candidates; where there are too few, what members rank best follows."""
        parts = []
        for start in range(0, max(1, len(inputs)), BLOCK):
            rows = np.arange(start, min(start + BLOCK, len(inputs)))
            parts.append(self._found_of_block(take_rows(inputs, rows), k, label_filter))
        if len(parts) == 1:
            return parts[0]
        return np.concatenate([ids for ids, _ in parts]), np.concatenate([scores for _, scores in parts])

    def _found_of_block(self, inputs: Inputs, k: int, label_filter: LabelFilter | None) -> tuple[IntArray, FloatArray]:
        threads = resolve_threads(self.threads, len(inputs))
        pairs = self._pairs(inputs, self.n_candidates)  # whatever k is, since their evidence depends on it
        if label_filter is not None:
            pairs = pairs.take(label_filter.allowed[pairs.ids])
        matrix = pairs.to_csr(self._scores(pairs, threads), (len(inputs), self.n_labels))
        ids, scores = native.matrix.csr_topk(matrix, k, threads)
        wanted = k if label_filter is None else min(k, len(label_filter))
        lacking = np.flatnonzero(ids[:, wanted - 1] < 0)
        if len(lacking):
            more, values = self._best_of_members(take_rows(inputs, lacking), wanted, label_filter)
            for row, others, own in zip(lacking, more, values, strict=True):
                n = int((ids[row] >= 0).sum())
                at = np.flatnonzero((others >= 0) & ~np.isin(others, ids[row, :n]))[: wanted - n]
                ids[row, n : n + len(at)], scores[row, n : n + len(at)] = others[at], own[at]
        return ids, scores

    def _predict_topk(self, inputs: Inputs, k: int) -> tuple[IntArray, FloatArray]:
        ids, scores = self._found(inputs, k, None)
        self.frequency_.fill(ids, scores)
        return ids, scores

    def _predict_allowed(self, inputs: Inputs, k: int, label_filter: LabelFilter) -> tuple[IntArray, FloatArray]:
        if not len(label_filter):
            return super()._predict_allowed(inputs, k, label_filter)
        return self._found(inputs, k, label_filter)

    def _best_of_members(self, inputs: Inputs, k: int, label_filter: LabelFilter | None) -> tuple[IntArray, FloatArray]:
        """Labels (n, k) that the scores of all members together rank best, padded with -1, and their scores.

        No member knows all labels: a classifier knows nothing of those without a training sample. The scores are below
        those of candidates; those of at most `n_candidates` allowed labels depend on no other one.
        """
        threads, width = resolve_threads(self.threads, len(inputs)), max(k, self.n_candidates)
        if label_filter is None:
            width = min(width, self.n_labels)
            found = [model._predict_topk(inputs, width) for model in self.members_]
        else:
            width = min(width, len(label_filter))
            found = [model._predict_allowed(inputs, width, label_filter) for model in self.members_]
        ids, scores = (np.concatenate(parts, axis=1) for parts in zip(*found, strict=True))
        rows, columns = np.nonzero(ids >= 0)
        pairs = np.lexsort((ids[rows, columns], rows))  # a label of several members is several entries
        rows, labels, values = rows[pairs], ids[rows, columns][pairs], scores[rows, columns][pairs]
        starts = np.flatnonzero(np.r_[True, (rows[1:] != rows[:-1]) | (labels[1:] != labels[:-1])])
        indptr = indptr_from_counts(np.bincount(rows[starts], minlength=len(inputs))).astype(np.int32)
        sums = csr_from_parts(np.add.reduceat(values, starts), labels[starts], indptr, (len(inputs), self.n_labels))
        best, totals = native.matrix.csr_topk(sums, k, threads)
        totals = np.where(best >= 0, totals, np.float32(0))
        return best, np.float32(LEAST / 2) * (1 + totals / (1 + np.abs(totals)))  # below all candidates

    # ---- explanations ----

    def _explain_parts(self, inputs: Inputs, label_id: int) -> dict[str, float]:
        pairs = self._pairs(inputs, self.n_candidates)
        at = np.flatnonzero(pairs.ids == label_id)
        parts: dict[str, float] = {}
        for model, key in zip(self.members_, _keys(self.members_), strict=True):
            for name in ("score", "rank"):
                column = self.feature_names_.index(f"{key} {name}")
                value = float(pairs.columns[column, at[0]]) if len(at) else -1.0
                if value >= 0:
                    parts[f"{key}: {name}"] = value + (name == "rank")
            parts |= {f"{key}: {name}": value for name, value in model._explain_parts(inputs, label_id).items()}
        return parts

    def _explain_neighbors(self, inputs: Inputs, label_id: int) -> list[Neighbor]:
        found = [model._explain_neighbors(inputs, label_id) for model in self.members_]
        return next((neighbors for neighbors in found if neighbors), [])

    def report(self, X: Any = None, y: Any = None) -> dict[str, list[list[str]]]:
        """Return a table of what each member brought, on training rows that it was not trained on."""
        self._check_fitted()
        header = ["member", "P@1 alone", "nDCG@5 alone", "true labels found", "found by no other"]
        rows = [[str(facts["kind"]), *(f"{facts[key]:.2f}" for key in FACTS)] for facts in self.summary_]
        return {"What each member brought": [header, *rows]} if rows else {}

    # ---- files ----

    def to_dict(self) -> dict[str, Any]:
        """Nested parameters as plain values; each member with its kind."""
        return {**super().to_dict(), "members": describe_members(self.members)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Restore what `to_dict` returned."""
        return super().from_dict({**values, "members": members_of(values.get("members", ()), OWNER)})

    def _set(self, path: str, value: Any) -> None:
        super()._set(path, members_of(value, OWNER) if path == "members" else value)

    def _save(self, writer: StoreWriter) -> dict[str, Any]:
        return {
            "members": save_members(self.members_, writer),
            "trees": None if self.trees_ is None else self.trees_.save_to(writer, "trees_"),
            "features": self.feature_names_,
            "summary": self.summary_,
        }

    def _load(self, store: Store, state: Any) -> None:
        parts = state.get("members") if isinstance(state, dict) else None
        if not isinstance(parts, list) or not parts:
            raise ModelFormatError(f"the manifest of {store.path} does not describe the members")
        names, summary = state.get("features"), state.get("summary")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ModelFormatError(f"the manifest of {store.path} does not describe the features of the ranker")
        if not isinstance(summary, list) or not all(_are_facts(facts) for facts in summary):
            raise ModelFormatError(f"the manifest of {store.path} does not describe what the members brought")
        self.feature_names_, self.summary_ = names, summary
        self.frequency_ = FrequencyOrder.of(self.label_counts_.counts)
        self.members_ = load_members(store, parts, self.n_labels, OWNER)
        own = self.input_kind_, self.n_features_in_
        if any((model.input_kind_, model.n_features_in_) != own for model in self.members_):
            raise ModelFormatError(f"{store.path}: the members were trained on other kinds of input")
        if _feature_names(self.members_) != names:
            raise ModelFormatError(f"{store.path}: the ranker was trained on the evidence of other members")
        info = state.get("trees")
        self.trees_ = None if info is None else BoostedTrees.load_from(store, info, "trees_", len(names))


def _feature_names(models: Sequence[Model]) -> list[str]:
    return feature_names(
        [model.evidence_columns for model in models], [model.evidence_of_rows for model in models], _keys(models)
    )


def _keys(models: Sequence[Model]) -> list[str]:
    """Keys of members: their kinds, numbered where a kind occurs again."""
    keys = list[str]()
    for model in models:
        n = sum(other.kind == model.kind for other in models[: len(keys)])
        keys.append(model.kind if n == 0 else f"{model.kind} {n + 1}")
    return keys


FACTS = ("P@1", "nDCG@5", "recall", "alone")
"""What is said about a member, in %."""


def _are_facts(facts: Any) -> bool:
    return (
        isinstance(facts, dict)
        and isinstance(facts.get("kind"), str)
        and all(isinstance(facts.get(key), float) for key in FACTS)
    )
