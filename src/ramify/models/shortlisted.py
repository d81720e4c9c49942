"""What models have in common that search a shortlist of near labels, and let classifiers rank it."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ramify import native
from ramify.base.config import param
from ramify.base.errors import ModelFormatError
from ramify.base.threads import blas_threads, resolve_threads
from ramify.base.types import Csr, FloatArray, IntArray, LongArray
from ramify.index.ann import AnnConfig, AnnIndex
from ramify.io.inputs import Inputs
from ramify.io.store import Store, StoreWriter
from ramify.models.encoded import EncodedModel
from ramify.nn.encoder import Bag
from ramify.nn.graph import start_labels
from ramify.nn.learner import Encoder, EncoderWithHead
from ramify.nn.list_head import ListHead, cross_entropy
from ramify.nn.points import Points
from ramify.nn.shortlists import Judgement, ListLearner, best_beta, chances, row_share
from ramify.nn.trainer import TrainingConfig, remove_checkpoint, train
from ramify.nn.transformer import Transformer, TransformerEncoder
from ramify.rank.calibrate import RowCalibrator, fit_row_calibrator

RERANKED = 100
"""Labels of a row that a re-ranker looks at."""
ROWS_AT_ONCE = 4096
"""Points that are searched for together: each has some hundred candidates."""

Classifiers = tuple[FloatArray, FloatArray]
"""Weights (L, D) and offsets (L,)."""


@dataclass(eq=False)
class Reranker:
    """A second encoder with classifiers of its own, trained on what the first ones rank highest.

    `weight` is its share in the final score.
    """

    encoder: Encoder
    classifiers: Classifiers
    weight: float

    def rank(
        self, points: Points, ids: IntArray, scores: FloatArray, k: int, threads: int
    ) -> tuple[IntArray, FloatArray]:
        """Ids and scores (n, k) of the best labels, given lists (n, m), best first; those far behind stay there."""
        ids, rest, scores, behind = ids[:, :RERANKED], ids[:, RERANKED:], scores[:, :RERANKED], scores[:, RERANKED:]
        evidence = np.where(ids >= 0, scores, np.float32(0))
        vectors = self.encoder.encode(points, threads)
        found = native.neural.rank_blended(
            self.classifiers, self.weight, ids, evidence, vectors, min(k, RERANKED), threads
        )
        return found if k <= RERANKED else with_more(*found, rest, behind, k, threads)


@dataclass(kw_only=True, eq=False, repr=False)
class ShortlistedModel(EncodedModel):
    """Base of models whose search finds the labels near a point; classifiers score them.

    A trained one has `encoder_`, `classifiers_`, `beta_`, what its search needs, perhaps `reranker_` and `calibrator_`:
    what labels are ranked by says little of whether a label is right; held-out points do.
    """

    shortlist: int = param(300, "labels near a point that its classifiers are trained on and scored for", low=1)
    index: AnnConfig = param(factory=AnnConfig, doc="how near labels are found")
    beta: float | None = param(
        None, "weight of the classifier against the similarity; None: what is best on held-out points", low=0, high=1
    )
    rare: float = param(
        0.5,
        "how far rare labels are lifted: the logarithm of a label's inverse propensity, so often, is added to the "
        "classifier's score; 0: not at all; 1 and more find rare labels at the cost of precision",
        low=0,
    )
    min_error: float = param(
        0.01, "chance of a wrong label from which on it is learned from: most are told apart soon", low=0, high=1
    )
    reranker: bool = param(False, "train a second encoder with classifiers of its own on what is ranked highest")
    training: TrainingConfig = param(factory=TrainingConfig, doc="how encoder and classifiers are trained")
    checkpoints: str | None = param(None, "folder for checkpoints; a training that was interrupted goes on from there")

    # ---- training ----

    def _train(self, rows: LongArray, learner: EncoderWithHead, title: str, *, seed: int) -> int:
        """Train on some of the points; return how often the held-out ones were looked at."""
        place = None if self.checkpoints is None else Path(self.checkpoints) / title.replace(" ", "-")
        history = train(
            rows,
            learner,
            learner.config,
            title=title,
            seed=seed,
            verbose=self.verbose,
            settings=self._settings(),
            checkpoint=place,
        )
        return len(history)

    def _remove_checkpoints(self, *titles: str) -> None:
        for title in titles if self.checkpoints is not None else ():
            remove_checkpoint(Path(str(self.checkpoints)) / title.replace(" ", "-"))

    def _start_head(self, Y: Csr, vectors: FloatArray, threads: int) -> ListHead:
        loss = partial(cross_entropy, min_error=self.min_error)
        return ListHead(*start_labels(Y, vectors, min(self.shortlist, Y.shape[1]), threads), loss)

    def _set_beta(self, found: dict[float, Judgement]) -> None:
        """Choose the weight of the classifier, and remember what the held-out points say about others."""
        self.beta_ = best_beta(found) if self.beta is None else self.beta
        self.by_beta_ = [[beta, said.first, said.rare] for beta, said in found.items()]

    def _fit_reranker(self, points: Points, Y: Csr, rows: LongArray, judged: LongArray, threads: int) -> None:
        """Train the re-ranker on the lists that the model gives its points now."""
        self.reranker_: Reranker | None = None
        if not self.reranker:
            return
        width = min(RERANKED, Y.shape[1])
        encoder = self._start_encoder(points.take(rows), Y[rows], self.seed + 10, threads)
        head = self._start_head(Y[rows], encoder.encode(points.take(rows), threads), threads)
        learner = ListLearner(
            encoder,
            head,
            points,
            Y,
            rows,
            judged,
            self.training,
            beta=None,
            rare=self.rare,
            seed=self.seed + 11,
            threads=threads,
        )
        lists, _ = self._rank_points(points.take(rows), width, threads)
        ids, scores = self._rank_points(points.take(judged), width, threads)
        learner.set_lists(lists, (ids, row_share(np.where(ids >= 0, scores, np.float32(0)))))
        self._train(rows, learner, "re-ranker", seed=self.seed + 12)
        self.reranker_ = Reranker(encoder, learner.classifiers(), best_beta(learner.by_beta(), 0.5))
        self._remove_checkpoints("re-ranker")

    def _fit_calibrator(self, points: Points, Y: Csr, judged: LongArray, threads: int) -> None:
        """Learn from the held-out points what a score means."""
        self.calibrator_: RowCalibrator | None = None
        if len(judged):
            ids, scores = self._rank_points(points.take(judged), min(RERANKED, Y.shape[1]), threads)
            with blas_threads(1):  # what is learned must not depend on how sums are shared out
                self.calibrator_ = fit_row_calibrator(scores, native.matrix.ranking_hits(ids, Y[judged], threads))

    # ---- prediction ----

    @abstractmethod
    def _near(self, points: Points, k: int, threads: int) -> tuple[IntArray, FloatArray, FloatArray]:
        """Labels (n, k) near each point with their similarities, and the vectors (n, D) that classifiers see."""

    def _rank_points(self, points: Points, k: int, threads: int) -> tuple[IntArray, FloatArray]:
        """Ids and scores (n, k) of the best labels."""
        if len(points) <= ROWS_AT_ONCE:
            return self._rank_block(points, k, threads)
        rows = np.arange(len(points))
        parts = [rows[start : start + ROWS_AT_ONCE] for start in range(0, len(rows), ROWS_AT_ONCE)]
        ids, scores = zip(*(self._rank_block(points.take(part), k, threads) for part in parts), strict=True)
        return np.concatenate(ids), np.concatenate(scores)

    def _rank_block(self, points: Points, k: int, threads: int) -> tuple[IntArray, FloatArray]:
        """Rank some points, all of whose candidates are in memory together."""
        n_labels = len(self.classifiers_[1])
        width = min(self.shortlist, n_labels)
        ids, similarities, vectors = self._near(points, width, threads)
        wanted = min(k, width) if self.reranker_ is None else width
        ids, scores = native.neural.rank_blended(
            self.classifiers_, self.beta_, ids, chances(ids, similarities), vectors, wanted, threads
        )
        if self.reranker_ is not None:
            ids, scores = self.reranker_.rank(points, ids, scores, min(k, width), threads)
        if k > width:  # what is farther away comes behind, by nearness
            more, far, _ = self._near(points, k, threads)
            rows = np.arange(len(ids), dtype=np.int64)[:, None] * n_labels
            more = np.where(np.isin(rows + more, (rows + ids)[ids >= 0]), np.int32(-1), more)
            ids, scores = with_more(ids, scores, more, chances(more, far), k, threads)
        return ids, scores

    def _predict_topk(self, inputs: Inputs, k: int) -> tuple[IntArray, FloatArray]:
        points = self._make_points(inputs)
        ids, scores = self._rank_points(points, k, resolve_threads(self.threads, len(points)))
        return ids, scores if self.calibrator_ is None else self.calibrator_(scores)

    def _transformers(self) -> list[Transformer]:
        encoders = [self.encoder_] if self.reranker_ is None else [self.encoder_, self.reranker_.encoder]
        return [e for e in encoders if isinstance(e, Transformer)] or super()._transformers()

    # ---- looking at what was learned ----

    def curves(self) -> dict[str, list[list[float]]]:
        """P@1 and PSP@1 on the held-out points, by the weight of the classifier and by pass: rows of x, P@1, PSP@1."""
        self._check_fitted()
        return {"weight of the classifier": self.by_beta_, "pass": self.by_pass_}

    def report(self, X: Any = None, y: Any = None) -> dict[str, list[list[str]]]:
        """Tables of the curves and of the index."""
        tables = {
            f"held-out points by {name}": [
                [name, "P@1", "PSP@1"],
                *([f"{x:g}", f"{first:.2f}", f"{rare:.2f}"] for x, first, rare in rows),
            ]
            for name, rows in self.curves().items()
        }
        found = [["index", "method", "vectors", "effort", "recall"]]
        found += [
            [n, i.method, f"{len(i):,}", f"{i.search_width}", f"{i.recall:.1%}"] for n, i in self._indices().items()
        ]
        chosen = [["weight of the classifier", "of the re-ranker"], [f"{self.beta_:g}", self._reranker_weight()]]
        return {"index": found, "score": chosen, **tables}

    def _reranker_weight(self) -> str:
        return "none" if self.reranker_ is None else f"{self.reranker_.weight:g}"

    @abstractmethod
    def _indices(self) -> dict[str, AnnIndex]:
        """Return what is searched, by name."""

    # ---- files ----

    @abstractmethod
    def _save_search(self, writer: StoreWriter) -> dict[str, Any]:
        """Write what near labels are found by; return what the manifest says of it."""

    @abstractmethod
    def _load_search(self, store: Store, state: dict[str, Any]) -> int:
        """Open what `_save_search` wrote; return the width of the vectors that classifiers see."""

    def _save(self, writer: StoreWriter) -> dict[str, Any]:
        for name, array in zip(("weights", "offset"), self.classifiers_, strict=True):
            writer.array(f"classifier_{name}", array)
        again = None
        if self.reranker_ is not None:
            for name, array in zip(("weights", "offset"), self.reranker_.classifiers, strict=True):
                writer.array(f"reranker_{name}", array)
            encoder = self.reranker_.encoder.save_to(writer, "reranker_encoder_")
            again = {"encoder": encoder, "weight": self.reranker_.weight}
        return {
            **self._save_points(writer),
            "encoder": self.encoder_.save_to(writer, "encoder_"),
            "search": self._save_search(writer),
            "ranking": {
                "beta": self.beta_,
                "by_beta": self.by_beta_,
                "by_pass": self.by_pass_,
                "reranker": again,
                "calibrator": self.calibrator_,
            },
        }

    def _load(self, store: Store, state: Any) -> None:
        search, ranking = (state.get(name) if isinstance(state, dict) else None for name in ("search", "ranking"))
        if not isinstance(search, dict) or not isinstance(ranking, dict):
            raise ModelFormatError(f"the manifest of {store.path} does not name the model's parts")
        if not (_is_share(ranking.get("beta")) and all(_is_curve(ranking.get(n)) for n in ("by_beta", "by_pass"))):
            raise ModelFormatError(f"the manifest of {store.path} does not say how labels are ranked")
        self.beta_, self.by_beta_, self.by_pass_ = float(ranking["beta"]), ranking["by_beta"], ranking["by_pass"]
        numbers = ranking.get("calibrator")
        if numbers is not None and not _is_numbers(numbers, 4):
            raise ModelFormatError(f"the manifest of {store.path} does not say what scores mean")
        self.calibrator_ = None if numbers is None else RowCalibrator(*(float(x) for x in numbers))
        shape, trained = self._load_points(store, state)
        self.encoder_ = _open_encoder(store, state.get("encoder"), "encoder_", shape, trained)
        self.classifiers_ = self._load_classifiers(store, "classifier", self._load_search(store, search))
        self.reranker_, again = None, ranking.get("reranker")
        if again is not None:
            if not isinstance(again, dict) or not _is_share(again.get("weight")):
                raise ModelFormatError(f"the manifest of {store.path} does not describe the re-ranker")
            encoder = _open_encoder(store, again.get("encoder"), "reranker_encoder_", shape, trained)
            own = self._load_classifiers(store, "reranker", encoder.width)
            self.reranker_ = Reranker(encoder, own, float(again["weight"]))

    def _load_classifiers(self, store: Store, name: str, width: int) -> Classifiers:
        return (
            store.array(f"{name}_weights", np.float32, shape=(self.n_labels, width)),
            store.array(f"{name}_offset", np.float32, shape=(self.n_labels,)),
        )


def with_more(
    ids: IntArray, scores: FloatArray, more: IntArray, evidence: FloatArray, k: int, threads: int
) -> tuple[IntArray, FloatArray]:
    """Ids and scores (n, k) of ranked lists, with others behind their last, by evidence from 0 up."""
    last = scores.min(axis=1, keepdims=True, initial=1.0, where=ids >= 0)
    behind = last * row_share(np.where(more >= 0, evidence, np.float32(0))) * np.float32(0.999)
    return native.matrix.list_topk(np.hstack([ids, more]), np.hstack([scores, behind]), k, threads)


def _open_encoder(
    store: Store, info: Any, prefix: str, shape: tuple[int, int], trained: TransformerEncoder | None
) -> Encoder:
    """Open a saved encoder for points with so many sparse and dense features; `trained` if it is a transformer."""
    if trained is not None:
        return Transformer.load_from(store, info, prefix, trained)
    return Bag.load_from(store, info, prefix, shape)


def _is_share(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


def _is_curve(rows: Any) -> bool:
    return isinstance(rows, list) and all(_is_numbers(row, 3) for row in rows)


def _is_numbers(row: Any, n: int) -> bool:
    return isinstance(row, list) and len(row) == n and all(isinstance(x, int | float) for x in row)
