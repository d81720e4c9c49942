"""XR-Linear: linear classifiers down a label tree.

Yu et al. (2022), PECOS: Prediction for Enormous and Correlated Output Spaces. Labels are clustered into a tree by their
representations Z (L × d). For each level t of the tree, from the root down, a linear classifier is trained for each
node, against samples of its parent:

    W^t = fit_ovr(X, Y^t, M^t)     Y^t (n × nodes): the labels, projected to the level
                                   M^t (n × nodes above): samples that give the children of a node their negatives

teacher-forced: M^t = Y^{t-1}; matcher-aware: M^t = the nodes that the beam search finds. At prediction, the score of a
node is its classifier's score combined with its parent's (`rank.score_transforms`), and the search keeps the
`beam_size` best nodes of each level.

Differences from the paper
- The defaults: k-means trees with 100 branches, the dead-zone logistic loss (cpp/linear/ovr_kernel.h) with tail
  weighting, both kinds of negatives for labels, a weighted sample of them, lp-norm scores and beam 50.
  `XRLinear.pecos()` is close to PECOS's defaults; the paper's tables have B = 32.
- Weights are rounded to 8 bits for search; a node that nothing contradicts gets an extra margin.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal, Self

import numpy as np

from ramify.base.config import param
from ramify.base.errors import DataError
from ramify.base.mixed import Mixed
from ramify.base.progress import progress, steps
from ramify.base.sparse import as_csr
from ramify.base.threads import resolve_threads
from ramify.base.types import Csr, FloatArray
from ramify.index.kmeans import TreeConfig, build_tree
from ramify.index.tree import LabelTree, paths_in_order
from ramify.io.labels import LabelVocabulary
from ramify.labels import representations
from ramify.models import paper_settings
from ramify.models.label_texts import TextSamples, as_documents, label_texts
from ramify.models.level_checkpoints import LevelCheckpoints
from ramify.models.level_times import level_times
from ramify.models.linear import Beam, LinearModel
from ramify.models.memory import ENTRY, PACKED_WEIGHT, DataSizes, solver_bytes, tree_bytes
from ramify.models.trained_tree import TrainedTreeModel, TreeOptions
from ramify.models.training_data import TrainingData
from ramify.rank import negatives as mining
from ramify.rank.beam import LinearTree, PackedLevel
from ramify.rank.linear import (
    LinearConfig,
    drop_small_weights,
    fit_ovr,
    normalize_relevance,
    ranking_config,
)
from ramify.rank.score_transforms import ScoreTransform

LabelRepresentation = Literal["pifa", "pii", "spectral"]

_NODE_WEIGHTS, _LABEL_WEIGHTS = 1.3, 0.3
"""Estimates for memory: weights of nodes per entry of X, of labels per entry of Z."""


@dataclass(kw_only=True, eq=False, repr=False)
class XRLinear(TrainedTreeModel, LinearModel):
    """Finds labels by beam search down a tree of label clusters, with a linear classifier at each node.

    >>> model = XRLinear().fit(["red fox", "red hen", "grey whale"], [["fox"], ["hen"], ["whale"]])
    >>> model.predict_topk(["a whale"], k=1).labels()[0][0][0]
    'whale'
    """

    kind: ClassVar[str] = "xr-linear"

    label_representation: LabelRepresentation | tuple[LabelRepresentation, ...] = param(
        "pifa", "representation Z of labels for clustering; with several, the trees of an ensemble take turns"
    )
    tree: TreeConfig = param(factory=TreeConfig, doc="construction of the label tree")
    linear: LinearConfig = param(factory=ranking_config, doc="training of the classifiers")
    beam_size: int = param(50, "nodes of a level that the search follows; more find more labels and take longer", low=1)
    beam_min_score: float = param(
        0.005,
        "the beam drops nodes whose score is below this fraction of the best one's; raising it is faster and finds "
        "fewer labels; 0: none are dropped",
        low=0,
        high=1,
    )
    negatives: mining.Scheme = param(
        "teacher+matcher",
        "negatives of the label classifiers: samples of the own cluster ('teacher'), samples that the search sends "
        "there ('matcher'), or both",
    )
    node_negatives: mining.Scheme = param("teacher", "negatives of the classifiers of inner nodes")
    node_negative_fraction: float = param(
        0.2, "`negative_fraction` of the classifiers of inner nodes, which have samples in plenty", above=0, high=1
    )
    node_tolerance: float | None = param(
        None, "`tolerance` of the classifiers of inner nodes; raising it is faster; None: `linear.tolerance`", above=0
    )
    node_threshold: float | None = param(
        None,
        "weights of inner nodes below this magnitude are dropped; raising it shrinks and speeds up the model; None: as "
        "labels without a sample",
        low=0,
    )
    matcher_kept: int = param(
        4,
        "matcher: best clusters of a sample that always take it as a negative; the cluster of rank r takes it with "
        "probability matcher_kept / r, weighted by the inverse; raising it is slower",
        low=0,
    )
    matcher_fraction: float = param(
        0.05, "matcher: lower bound of this probability; raising it is slower; 1: all", above=0, high=1
    )
    relevance_norm: Literal["none", "l1", "l2", "max"] = param(
        "none", "normalization of given relevance within each sample, at each level"
    )
    label_text_weight: float = param(
        0.0,
        "weight of the text of a label in the catalogue (names, synonyms, description) as a further training sample; "
        "with n samples a label has label_text_weight / (1 + n / 3); raising it finds more rare labels; 0: none",
        low=0,
    )
    score_transform: str = param(
        "l4-norm", "transform from margins to scores, such as l3-hinge, l12-norm, sigmoid or noop"
    )
    label_score_transform: str | None = param(
        None, "score transform of the last level, the labels; None: as `score_transform`"
    )
    n_trees: int = param(
        1, "trees whose scores are averaged, each with a seed of its own; time and size grow in proportion", low=1
    )

    checkpoint_dir: str | None = param(
        None, "directory for checkpoints after each level; an interrupted training resumes from there, to the same bits"
    )

    def check_params(self) -> None:
        """Check also that the score transforms exist."""
        super().check_params()
        for name in (self.score_transform, self.label_score_transform or self.score_transform):
            ScoreTransform.parse(name)

    # ---- settings of the papers ----

    @classmethod
    def pecos(cls, **params: Any) -> Self:
        """Return settings close to PECOS's defaults: balanced 16-way trees, leaves of 100, l3-hinge, beam 10.

        Weights of inner nodes have twice PECOS's threshold of 0.1, and twice the tolerance: rankings stay the
        same, and the model has a third of PECOS's size.
        """
        return cls(**{**paper_settings.pecos(), **params})

    @classmethod
    def parabel(cls, **params: Any) -> Self:
        """Return the settings of Parabel (Prabhu et al., 2018): three balanced binary trees."""
        return cls(**{**paper_settings.parabel(), **params})

    @classmethod
    def bonsai(cls, **params: Any) -> Self:
        """Return the settings of Bonsai (Khandagale et al., 2020): three wide, shallow, unbalanced trees."""
        return cls(**{**paper_settings.bonsai(), **params})

    @classmethod
    def dismec(cls, **params: Any) -> Self:
        """Return the settings of DiSMEC (Babbar and Schölkopf, 2017): one-vs-rest over all samples, no tree."""
        return cls(**{**paper_settings.dismec(), **params})

    # ---- training ----

    def fit_files(self, files: Any, **options: Any) -> Self:
        """Train on many files by many processes or machines, to the same bits as `fit`; see `ramify.fit_files`."""
        import ramify  # the layer of distributed training is above this one

        ramify.fit_files(self, files, **options)
        return self

    @property
    def _beam(self) -> Beam:
        return Beam(self.beam_size, self.beam_min_score)

    def classifier_bytes(self, sizes: DataSizes, n_dense: int = 0) -> int:
        """Estimated bytes of the training: of the clustering, or of negatives, solver and weights."""
        clustering = 0
        if sizes.n_labels > self.tree.max_leaf_size:
            n_centroids = 2 if self.tree.method == "balanced-2means" else self.tree.branching
            clustering = tree_bytes(sizes, n_terms=self.tree.n_terms, n_centroids=n_centroids)
        n_weights = self._n_weights(sizes, n_dense)
        n_clusters = max(1, sizes.n_labels // self.tree.max_leaf_size)
        negatives = 3 * ENTRY * sizes.n_samples * min(self.beam_size, n_clusters)
        solver = solver_bytes(sizes, n_dense, resolve_threads(self.threads))
        kept = (self.n_trees - 1) * PACKED_WEIGHT * n_weights
        if self.label_text_weight > 0:
            solver += sizes.features  # a copy of the samples, with the texts of labels below
        return int(kept + max(clustering, negatives + solver + 1.5 * ENTRY * n_weights))

    def kept_bytes(self, sizes: DataSizes, n_dense: int = 0) -> int:
        """Estimated bytes of the trees."""
        return int(self.n_trees * PACKED_WEIGHT * self._n_weights(sizes, n_dense))

    @staticmethod
    def _n_weights(sizes: DataSizes, n_dense: int) -> float:
        """Estimated weights of a tree."""
        of_labels = _LABEL_WEIGHTS * float(sizes.label_entries.sum())
        return _NODE_WEIGHTS * sizes.n_entries + of_labels + n_dense * sizes.n_labels

    def _check_training_data(self, X: Any, y: Any, label_catalogue: Any = None) -> TrainingData:
        data = super()._check_training_data(X, y, label_catalogue)
        if self.label_text_weight > 0 and (data.catalogue is None or data.inputs.kind not in ("text", "fields")):
            missing = "texts, not a matrix" if data.inputs.n_features else "a label_catalogue with their texts"
            raise DataError(f"label_text_weight makes samples of the texts of labels: it needs {missing}")
        return data

    def _fit(self, data: TrainingData, options: TreeOptions | None = None) -> None:
        X, options = self._fit_features(data.inputs), options or TreeOptions()
        if self.label_text_weight > 0:
            texts = as_documents(label_texts(data.labels, data.catalogue), data.inputs, self.features)
            counts = np.bincount(data.Y.indices, minlength=data.Y.shape[1])
            samples = TextSamples.of(self.features_.transform(texts), counts, self.label_text_weight)
            options = replace(options, label_texts=samples)
        self.trees_ = self.fit_trees(X, data.Y, data.labels, options)

    def fit_trees(self, X: Mixed, Y: Csr, labels: LabelVocabulary, options: TreeOptions) -> list[LinearTree]:
        """Train all trees on features X (n × d) with labels Y (n × L); the model itself does not change."""
        own_tree = _as_tree(options.tree, labels, Y.shape[1])
        irrelevant = ("threads", "verbose", "checkpoint_dir", "threshold", "features")
        settings = {name: value for name, value in self.to_dict().items() if name not in irrelevant}
        data = [X, Y, replace(options, tree=None)]
        checkpoints = LevelCheckpoints(self.checkpoint_dir, settings, data)
        trees: list[LinearTree] = []
        with progress("tree", self.n_trees, self.verbose if self.n_trees > 1 else 0, "trees") as advance:
            for index in range(self.n_trees):
                tree = own_tree
                if tree is None and Y.shape[1] <= self.tree.max_leaf_size:
                    tree = LabelTree.flat(Y.shape[1])  # nothing to cluster
                elif tree is None:
                    with progress(f"clustering {Y.shape[1]:,} labels", None, self.verbose):
                        Z = self._represent_labels(X, Y, options.label_features, index)
                        tree = build_tree(Z, self.tree, seed=self.seed + index, threads=self.threads)
                        del Z
                trees.append(self._fit_tree(X, Y, tree, options, index, checkpoints))
                advance(1)
        checkpoints.clear()
        return trees

    def _fit_tree(
        self, X: Mixed, Y: Csr, tree: LabelTree, options: TreeOptions, index: int, checkpoints: LevelCheckpoints
    ) -> LinearTree:
        """Train the classifiers of one tree, from the root down."""
        nodes = tree.project(Y)  # Y^t of each level
        relevance = None
        if options.relevance is not None:
            relevance = [normalize_relevance(R, self.relevance_norm) for R in tree.project(options.relevance)]
        label_transform = ScoreTransform.parse(self.label_score_transform or self.score_transform)
        transforms = [ScoreTransform.parse(self.score_transform)] * (tree.depth - 1) + [label_transform]
        n_sparse = X.sparse.shape[1]
        levels: list[PackedLevel] = []  # as the model keeps them
        mining_levels: list[PackedLevel] = []  # as they propose negatives
        n_mined = 0.0
        if "matcher" in self.negatives:
            n_found = min(self.beam_size, len(tree.levels[-1]) - 1)  # clusters that the search can find
            probabilities = np.minimum(1.0, self.matcher_kept / np.arange(1, n_found + 1))
            n_mined = float(np.maximum(self.matcher_fraction, probabilities).sum())
        times = level_times(tree, nodes, n_mined)
        texts = options.label_texts
        trained = X, nodes, relevance, options.sample_weight
        if texts is not None:
            trained = texts.below(*trained, tree)
        with progress("classifiers", sum(tree.widths), self.verbose, "nodes") as advance:
            for t, children in enumerate(tree.levels):
                if finished := checkpoints.load(index, tree, levels, n_sparse):
                    levels.append(finished[0])
                    mining_levels += [] if finished[1] is None else [finished[1]]
                    advance(tree.widths[t])
                    continue
                M = pool = None
                if t > 0:
                    matcher = LinearTree(tree, mining_levels, transforms[:t], n_sparse)
                    own = options.negatives[t] if options.negatives and t < len(options.negatives) else None
                    M, pool = self.mine_negatives(X, nodes[t - 1], matcher, t, self.seed + index, own)
                are_labels = t == tree.depth - 1
                rows, positives, costs, sample_weight = trained
                W = fit_ovr(
                    rows,
                    positives[t],
                    M if texts is None else texts.no_negatives(M, len(X)),
                    clusters=children,
                    config=self.linear if are_labels else self.node_linear(),
                    relevance=None if costs is None else costs[t],
                    sample_weight=sample_weight,
                    seed=self.seed + index,
                    threads=self.threads,
                    progress=steps(advance, times[t]),
                )
                extra = mining.extra_margins(nodes[t], pool, children, are_labels=are_labels)
                pack = partial(PackedLevel.pack, children=children, n_sparse=n_sparse, bias=self.linear.bias,
                               threads=self.threads, extra=extra)  # fmt: skip
                kept = W
                if not are_labels:
                    kept = self.prune_node_weights(W, n_sparse)
                levels.append(pack(kept))
                if not are_labels:
                    mining_levels.append(pack(W) if kept.nnz < W.nnz else levels[-1])
                checkpoints.save(index, tree, t, (levels[-1], None if are_labels else mining_levels[-1]))
        return LinearTree(tree, levels, transforms, n_sparse)

    def node_linear(self) -> LinearConfig:
        """Return the training of the classifiers of inner nodes.

        They keep weights that the search does not need: without them it proposes worse negatives, and P@5 falls by
        0.3 %.
        """
        threshold = min(self.linear.threshold, _MINING_THRESHOLD)
        # A node with a dead zone whose training ends early loses all labels below it: under some numberings of the
        # labels P@1 fell by 1.6.
        has_zone = self.linear.loss == "dead_zone_logistic"
        return self.linear.clone().set_params(
            threshold=threshold,
            tail_threshold=None,
            negative_fraction=self.node_negative_fraction,
            tolerance=self.node_tolerance or self.linear.tolerance,
            max_full_epochs=None if has_zone else self.linear.max_full_epochs,
        )

    def prune_node_weights(self, W: Csr, n_sparse: int) -> Csr:
        """Drop the weights of inner nodes that the search does not need."""
        config = self.linear if self.node_threshold is None else LinearConfig(threshold=self.node_threshold)
        return drop_small_weights(W, n_sparse, config.thresholds(np.zeros(W.shape[0])))

    def mine_negatives(
        self,
        X: Mixed,
        Y_above: Csr,
        matcher: LinearTree,
        level: int,
        seed: int,
        own: Csr | None = None,
        first_row: int = 0,
    ) -> tuple[Csr, Csr]:
        """M (n × nodes above) of a level: which samples give negatives to the children of each node, with weights.

        `own` are further negatives. The rows may be a part of all, from `first_row` on; they get the same negatives.
        Returns M, and the pool of all samples that it was drawn from.
        """
        certain, n_above = [], Y_above.shape[1]
        scheme = self.negatives if level == matcher.tree.depth - 1 else self.node_negatives
        if "teacher" in scheme:
            certain.append(mining.teacher(Y_above))
        if own is not None:
            certain.append(as_csr(own, f"negatives[{level}]"))
        if "matcher" not in scheme:
            M = mining.union(*certain)
            return M, M
        width = min(self.beam_size, n_above)
        proposed, _ = matcher.search(
            X, width, self.beam_size, resolve_threads(self.threads), min_score=self.beam_min_score
        )
        pool = mining.union(*certain, mining.matcher(proposed, n_above))
        if self.matcher_fraction == 1.0 or width <= self.matcher_kept:
            return pool, pool
        kept, fraction = self.matcher_kept, self.matcher_fraction
        sampled = mining.sampled_matcher(proposed, n_above, kept, fraction, seed, first_row)
        return mining.with_weights(mining.union(*certain), sampled) if certain else sampled, pool

    def representation_of(self, index: int) -> str:
        """Return the label representation of a tree."""
        kinds = self.label_representation
        return kinds if isinstance(kinds, str) else kinds[index % len(kinds)]

    def _represent_labels(self, X: Mixed, Y: Csr, label_features: Any, index: int) -> Csr | FloatArray:
        kind = self.representation_of(index)
        if kind == "pii":
            return representations.pii(Y)
        if kind == "spectral":
            return representations.spectral(Y, seed=self.seed + index)
        if label_features is not None:
            features: Csr | FloatArray = X.sparse if X.sparse.shape[1] else X.dense
            return representations.pifa_with_features(features, Y, label_features, threads=self.threads)
        return representations.pifa_mixed(X, Y, threads=self.threads)


_MINING_THRESHOLD = 0.1


def _as_tree(given: Any, labels: LabelVocabulary, n_labels: int) -> LabelTree | None:
    if given is None:
        return None
    if isinstance(given, LabelTree):
        tree = given
    elif isinstance(given, Mapping):
        tree = LabelTree.from_paths(paths_in_order(given, labels))
    else:
        tree = LabelTree.from_chain(given)
    if tree.n_labels != n_labels:
        raise DataError(f"the given tree has {tree.n_labels} labels, y has {n_labels}")
    return tree.check_complete()
