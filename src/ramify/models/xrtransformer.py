"""XR-Transformer: an encoder fine-tuned down a label tree, then XR-Linear on what it says (Zhang et al., 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ramify.base.config import param
from ramify.base.errors import ModelFormatError
from ramify.base.mixed import Mixed
from ramify.base.sparse import csr_from_parts
from ramify.base.splits import hold_out
from ramify.base.threads import resolve_threads
from ramify.base.types import Csr, FloatArray, LongArray
from ramify.index.kmeans import TreeConfig, build_tree
from ramify.index.tree import LabelTree
from ramify.io.inputs import Inputs
from ramify.io.labels import LabelVocabulary
from ramify.io.store import Store, StoreWriter
from ramify.labels.representations import pifa_mixed
from ramify.models.encoded import EncodedModel, joined
from ramify.models.xrlinear import XRLinear
from ramify.nn.encoder import Bag
from ramify.nn.learner import Encoder, EncoderWithHead
from ramify.nn.list_head import LevelTargets, ListHead, squared_hinge
from ramify.nn.points import Points
from ramify.nn.trainer import TrainingConfig, remove_checkpoint, train
from ramify.rank import negatives as mining
from ramify.rank.linear import LinearConfig, fit_ovr

BOOTSTRAP = LinearConfig(C=1.0, threshold=0.0)
"""How the head of a level is trained on the vectors that the level begins with."""
FIRST_POINTS = 1024
"""Points that the head of the first level is trained on at most, unless it has more than half as many nodes."""


@dataclass(kw_only=True, eq=False, repr=False)
class XRTransformer(EncodedModel, XRLinear):
    """Fine-tunes an encoder on ever finer clusters of labels, then walks a tree on TF-IDF and the encoder's vectors.

    A frozen encoder is not trained: its vectors stand beside TF-IDF, the cheapest gain on a processor.
    """

    kind: ClassVar[str] = "xr-transformer"

    tree: TreeConfig = param(factory=lambda: TreeConfig(n_terms=512), doc="how the tree of the ranker is made")
    matcher_tree: TreeConfig = param(
        factory=lambda: TreeConfig(
            method="balanced-2means", branching=16, max_leaf_size=16, max_depth=None, n_terms=1024
        ),
        doc="tree that the encoder learns, from its coarse levels to its fine ones",
    )
    min_match_clusters: int = param(
        1, "the encoder begins with the first level of so many nodes; 256 saves it levels that teach it little", low=1
    )
    max_match_clusters: int = param(32768, "the encoder learns the levels that have no more nodes than this", low=2)
    matcher_width: int = param(20, "nodes that the encoder proposes for the next level's negatives", low=1)
    weighted: bool = param(True, "a node that is right for several of a point's labels counts as often")
    training: TrainingConfig = param(
        factory=lambda: TrainingConfig(epochs=1, batch_size=64, min_steps=1, dropout=0.1, rate=0.002),
        doc="training of each level",
    )
    vector_weight: float = param(1.0, "length of the encoder's vector beside features of length 1", low=0)
    fixed_tree: bool = param(False, "the ranker uses the tree that the encoder learned, and no second one")
    checkpoints: str | None = param(None, "folder for checkpoints; a training that was interrupted goes on from there")

    # ---- training ----

    def _fit(self, inputs: Inputs, labels: Csr, names: LabelVocabulary, **given: Any) -> None:
        points, threads = self._fit_points(inputs), resolve_threads(self.threads)
        self.bag_: Bag | None = None
        if not self._is_frozen:
            tree = self._matcher_tree(points.features, labels)
            encoder = self._fine_tune(points, labels, tree, threads)
            if isinstance(encoder, Bag):
                self.bag_ = encoder
            else:
                self.transformer_ = encoder
            if self.fixed_tree and given["tree"] is None:
                given = {**given, "tree": tree}
        self.trees_ = self._fit_trees(self._with_vectors(points, threads), labels, names, given)
        if self.checkpoints is not None:
            for place in Path(self.checkpoints).glob("level-*"):
                remove_checkpoint(place)

    @property
    def _is_frozen(self) -> bool:
        return bool(getattr(self.encoder, "frozen", False))

    def _matcher_tree(self, X: Mixed, Y: Csr) -> LabelTree:
        """Return the preliminary tree, from what labels look like in TF-IDF."""
        Z = pifa_mixed(X, Y, threads=self.threads)
        return build_tree(Z, self.matcher_tree, seed=self.seed, threads=self.threads)

    def _matched_levels(self, tree: LabelTree) -> range:
        """Which levels of the tree the encoder learns."""
        end = max(1, sum(width <= self.max_match_clusters for width in tree.widths))
        return range(min(end - 1, sum(width < self.min_match_clusters for width in tree.widths)), end)

    def _fine_tune(self, points: Points, Y: Csr, tree: LabelTree, threads: int) -> Encoder:
        """Train the encoder level by level, coarse to fine; each begins with the encoder of the level above."""
        rows, judged = hold_out(Y, self.training.validation, self.seed)
        encoder = self.transformer_ or self._start_encoder(points.take(rows), Y[rows], self.seed, threads)
        counts = tree.project(Y)  # labels of each point below each node of a level (n × nodes)
        levels = self._matched_levels(tree)
        head: ListHead | None = None
        for t in levels:
            random = np.random.default_rng([self.seed, t])
            seen = np.sort(random.permutation(rows)[: self.training.examples])  # all, or as many as are looked at
            # The first level has few clusters, which show in some of the points as well as in all of them.
            n_first = max(FIRST_POINTS, 2 * tree.widths[t])
            known = np.sort(random.permutation(seen)[:n_first]) if head is None else seen
            vectors = encoder.encode(points.take(known), threads)
            if head is None:
                M, children = _everywhere(len(seen)), np.array([0, tree.widths[t]])
            else:
                children = tree.levels[t]
                found, _ = head.search(vectors, self.matcher_width, threads)
                M = mining.union(mining.teacher(counts[t - 1][seen]), mining.matcher(found, counts[t - 1].shape[1]))
            head = _bootstrap(vectors, counts[t][known], M[: len(known)], children, threads)
            here = np.concatenate([seen, judged])
            targets = counts[t][here]
            truth = targets.copy()
            truth.data[:] = 1.0
            learner = EncoderWithHead(
                encoder,
                head,
                points.take(here),
                truth,
                np.arange(len(seen), len(here)),
                self.training,
                seed=self.seed + t,
                threads=threads,
                targets=LevelTargets(M, targets if self.weighted else truth, children),
            )
            train(
                np.arange(len(seen)),
                learner,
                self.training,
                title=f"level {t + 1 - levels.start} of {len(levels)}",
                seed=self.seed + 100 + t,
                verbose=self.verbose,
                settings=self._settings(),
                checkpoint=None if self.checkpoints is None else Path(self.checkpoints) / f"level-{t}",
            )
        return encoder

    # ---- prediction ----

    def _with_vectors(self, points: Points, threads: int) -> Mixed:
        """Features as the ranker sees them: TF-IDF, then the encoder's vector; dense input has no other features."""
        X = points.features
        if self.bag_ is not None:
            vectors = self.bag_.encode(points, threads)
        elif self._is_frozen:
            vectors = X.dense
        else:
            assert self.transformer_ is not None
            vectors = self.transformer_.encode(points, threads)
        return joined(X, vectors, self.vector_weight)

    def _ranked_features(self, inputs: Inputs) -> Mixed:
        points = self._make_points(inputs)
        return self._with_vectors(points, resolve_threads(self.threads, len(points)))

    # ---- files ----

    def _save(self, writer: StoreWriter) -> dict[str, Any]:
        return {
            **self._save_points(writer),
            "trees": self._save_trees(writer),
            "bag": None if self.bag_ is None else self.bag_.save_to(writer, "bag_"),
        }

    def _load(self, store: Store, state: Any) -> None:
        if not isinstance(state, dict):
            raise ModelFormatError(f"the manifest of {store.path} does not name the model's parts")
        shape, _ = self._load_points(store, state)
        self.bag_ = None if self.transformer_ is not None else Bag.load_from(store, state.get("bag"), "bag_", shape)
        encoder = self.bag_ or self.transformer_
        assert encoder is not None
        self._load_trees(store, state, shape[0] + encoder.width)


def _everywhere(n: int) -> Csr:
    """Every point below the root (n × 1)."""
    return csr_from_parts(np.ones(n, np.float32), np.zeros(n, np.int32), np.arange(n + 1), (n, 1))


def _bootstrap(vectors: FloatArray, targets: Csr, M: Csr, children: LongArray, threads: int) -> ListHead:
    """Return a head for a level, trained on the vectors (n, D) as they are before the level."""
    W = fit_ovr(vectors, targets, M, clusters=children, config=BOOTSTRAP, threads=threads).toarray()
    return ListHead(np.ascontiguousarray(W[:, :-1]), np.ascontiguousarray(W[:, -1]), squared_hinge)
