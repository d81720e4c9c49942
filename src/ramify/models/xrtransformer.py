"""XR-Transformer: an encoder fine-tuned down a label tree, then XR-Linear on its embeddings beside TF-IDF.

Zhang et al. (2021), Fast Multi-Resolution Transformer Fine-tuning for Extreme Multi-label Text Classification.

1. A preliminary tree is built from the PIFA representations of the labels.
2. From coarse to fine levels: the head of a level, one classifier for each node, is bootstrapped by `fit_ovr` on the
   embeddings as they are, then encoder and head are fine-tuned with the squared hinge loss on the children of the nodes
   that are true (teacher-forced) or that the level above proposes (matcher-aware).
3. XR-Linear, the `ranker`, is trained on TF-IDF concatenated with the embeddings, over a tree of its own.

Differences from the paper
- A frozen encoder skips steps 1 and 2: its embeddings join TF-IDF, the cheapest gain on a CPU.
- `min_match_clusters` skips coarse levels. The head of the first level is bootstrapped on a subset of the samples.
- Levels are trained by epochs with early stopping, not by a number of steps.
- The ranker's defaults are those of `XRLinear`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ramify.base.config import param
from ramify.base.mixed import Mixed
from ramify.base.progress import message
from ramify.base.sparse import csr_from_parts, pattern
from ramify.base.threads import resolve_threads
from ramify.base.types import AnyArray, Csr, FloatArray, LongArray
from ramify.index.kmeans import TreeConfig, build_tree
from ramify.index.tree import LabelTree
from ramify.io.inputs import Inputs
from ramify.io.store import Store, StoreWriter
from ramify.labels.representations import pifa_mixed
from ramify.models.base import check_state
from ramify.models.encoded import EncodedModel
from ramify.models.linear import Beam
from ramify.models.memory import DENSE_ENTRY, PACKED_DENSE_WEIGHT, DataSizes
from ramify.models.trained_tree import TrainedTreeModel, TreeOptions
from ramify.models.training_data import TrainingData
from ramify.models.xrlinear import XRLinear
from ramify.nn.checkpoint import CheckpointDirectory
from ramify.nn.config import TrainingConfig
from ramify.nn.encoders import Bag, Encoder
from ramify.nn.encoders.bag import BagEncoder
from ramify.nn.encoders.samples import Samples, with_embeddings
from ramify.nn.heads.losses import squared_hinge
from ramify.nn.heads.shortlist import ShortlistHead
from ramify.nn.learner import Learner
from ramify.nn.sampling.tree_levels import TreeLevel
from ramify.nn.validation import RankingValidator
from ramify.rank import negatives as mining
from ramify.rank.linear import LinearConfig, fit_ovr, ranking_config

BOOTSTRAP = LinearConfig(C=1.0, threshold=0.0)
"""Training of a level's head on the embeddings before the level."""
MIN_BOOTSTRAP_SAMPLES = 1024
"""The head of the first level is bootstrapped on this many samples, or twice its number of nodes."""


def _default_ranker() -> XRLinear:
    """Plain logistic loss, all negatives: beside embeddings the faster settings lower P@5 by 0.4 %."""
    return XRLinear(
        tree=TreeConfig(min_leaf_size=1, max_iterations=20, n_terms=512),
        linear=ranking_config(loss="logistic", tail_threshold=None).set_params(threshold=0.1),
        node_negative_fraction=1.0,
        matcher_fraction=1.0,
        beam_min_score=0.0,
    )


@dataclass(kw_only=True, eq=False, repr=False)
class XRTransformer(TrainedTreeModel, EncodedModel):
    """Fine-tunes an encoder on ever finer clusters of labels, then ranks labels by XR-Linear on TF-IDF and embeddings.

    A frozen encoder is not trained: its embeddings join TF-IDF, the cheapest gain on a CPU.
    """

    kind: ClassVar[str] = "xr-transformer"

    ranker: XRLinear = param(
        factory=_default_ranker,
        doc="linear ranker on TF-IDF and embeddings; its seed, threads, verbose and features are those of this model",
    )
    matcher_tree: TreeConfig = param(
        factory=lambda: TreeConfig(
            method="balanced-2means", branching=16, max_leaf_size=16, max_depth=None, n_terms=1024
        ),
        doc="tree on whose levels the encoder is fine-tuned, from coarse to fine",
    )
    min_match_clusters: int = param(
        1, "fine-tuning starts at the first level with this many nodes; 256 skips levels that teach little", low=1
    )
    max_match_clusters: int = param(32768, "fine-tuning ends before levels with more nodes than this", low=2)
    matcher_topk: int = param(
        20, "nodes that a level proposes for the negatives of the next; more are harder and take longer", low=1
    )
    cost_sensitive: bool = param(True, "weight a node by the number of a sample's labels below it")
    training: TrainingConfig = param(
        factory=lambda: TrainingConfig(epochs=1, batch_size=64, min_steps=1, dropout=0.1, learning_rate=0.002),
        doc="fine-tuning of each level",
    )
    embedding_weight: float = param(1.0, "norm of the embedding beside TF-IDF features of norm 1", low=0)
    reuse_tree: bool = param(False, "the ranker uses the matcher tree instead of a second one")

    def check_params(self) -> None:
        """Check also that the ranker asks for no texts of labels, which have no embeddings here."""
        super().check_params()
        if self.ranker.label_text_weight > 0:
            raise ValueError(
                f"the ranker of {type(self).__name__} takes no label_text_weight; it is for XRLinear alone"
            )

    # ---- training ----

    def _fit(self, data: TrainingData, options: TreeOptions | None = None) -> None:
        options = options or TreeOptions()
        if isinstance(self.encoder, BagEncoder) and self.encoder.to_dict() == BagEncoder().to_dict():
            message(
                f"{self.kind}: no encoder is given, so word embeddings are trained from scratch; for a pretrained "
                "transformer set encoder to its directory or its name on the Hugging Face hub",
                self.verbose,
            )
        samples, threads = self._fit_samples(data.inputs), resolve_threads(self.threads)
        self.bag_: Bag | None = None
        checkpoints = CheckpointDirectory(self.checkpoint_dir)
        if not self._is_frozen:
            Z = pifa_mixed(samples.features, data.Y, threads=self.threads)
            tree = build_tree(Z, self.matcher_tree, seed=self.seed, threads=self.threads)
            encoder = self._fine_tune(samples, data, tree, checkpoints, threads)
            if isinstance(encoder, Bag):
                self.bag_ = encoder
            else:
                self.transformer_ = encoder
            if self.reuse_tree and options.tree is None:
                options = replace(options, tree=tree)
        ranker = self.ranker.clone().set_params(seed=self.seed, threads=self.threads, verbose=self.verbose)
        self.trees_ = ranker.fit_trees(self._ranker_features(samples, threads), data.Y, data.labels, options)
        checkpoints.clear()

    @property
    def _is_frozen(self) -> bool:
        return bool(getattr(self.encoder, "frozen", False))

    def _matched_levels(self, tree: LabelTree) -> range:
        """Levels of the tree that the encoder is fine-tuned on."""
        end = max(1, sum(width <= self.max_match_clusters for width in tree.widths))
        return range(min(end - 1, sum(width < self.min_match_clusters for width in tree.widths)), end)

    def _fine_tune(
        self, samples: Samples, data: TrainingData, tree: LabelTree, checkpoints: CheckpointDirectory, threads: int
    ) -> Encoder:
        """Train the encoder level by level, coarse to fine; each level starts from the encoder of the one above."""
        split = self._split(samples, data, self.training.validation_size, self.seed)
        encoder = self.transformer_ or self._init_encoder(split.train_samples, split.train_Y, self.seed, threads)
        counts = tree.project(data.Y)  # labels of each sample below each node of a level (n × nodes)
        levels, weight = self._matched_levels(tree), data.sample_weight
        head: ShortlistHead | None = None
        for t in levels:
            random = np.random.default_rng([self.seed, t])
            train_rows = np.sort(random.permutation(split.rows)[: self.training.max_samples])
            known = train_rows
            if head is None:  # the few clusters of the first level show in a subset of the samples
                n_bootstrap = max(MIN_BOOTSTRAP_SAMPLES, 2 * tree.widths[t])
                known = np.sort(random.permutation(train_rows)[:n_bootstrap])
            phi = encoder.encode(samples.take(known), threads)
            if head is None:
                M, children = _root(len(train_rows)), np.array([0, tree.widths[t]])
                head = _bootstrap(phi, counts[t][known], _root(len(known)), children, threads, _taken(weight, known))
            else:
                children, above = tree.levels[t], counts[t - 1]
                proposed, _ = head.search(phi, self.matcher_topk, threads)
                M = mining.union(mining.teacher(above[train_rows]), mining.matcher(proposed, above.shape[1]))
                head = _bootstrap(phi, counts[t][known], M, children, threads, _taken(weight, known))
            # The samples of this level: first the training rows, then the validation rows.
            level_rows = np.concatenate([train_rows, split.validation_rows])
            level_samples, weights = samples.take(level_rows), counts[t][level_rows]
            positives = pattern(weights)
            held = np.arange(len(train_rows), len(level_rows))
            learner = Learner(
                encoder,
                head,
                TreeLevel(M, positives, weights if self.cost_sensitive else positives, children),
                RankingValidator(level_samples.take(held), positives[held], threads),
                level_samples,
                self.training,
                seed=self.seed + t,
                threads=threads,
                sample_weight=_taken(weight, level_rows),
            )
            self._train(
                learner,
                np.arange(len(train_rows)),
                title=f"level {t + 1 - levels.start} of {len(levels)}",
                seed=self.seed + 100 + t,
                checkpoint=checkpoints.path(f"level {t}"),
            )
        return encoder

    # ---- prediction ----

    def _n_outputs(self, n_labels: int) -> int:
        return min(n_labels, self.max_match_clusters)

    def _encoded_bytes(self, sizes: DataSizes) -> int:
        ranker, dim = self.ranker.clone().set_params(threads=self.threads), self._embedding_dim
        embeddings = self._word_bytes(sizes) + 2 * 4 * dim * sizes.n_samples
        ranking = ranker.classifier_bytes(sizes, dim) + PACKED_DENSE_WEIGHT * dim * sizes.n_labels
        if not self.reuse_tree:  # labels are clustered once more, by dense features too
            ranking = max(ranking, ranker.classifier_bytes(sizes) + DENSE_ENTRY * dim * sizes.n_labels)
        fine_tuning = 0 if self._is_frozen else super()._encoded_bytes(sizes)
        return max(fine_tuning, embeddings + ranking)

    def _kept_bytes(self, sizes: DataSizes) -> int:
        return super()._kept_bytes(sizes) + self.ranker.kept_bytes(sizes, self._embedding_dim)

    def _ranker_features(self, samples: Samples, threads: int) -> Mixed:
        """Features of the ranker: TF-IDF, then the embedding."""
        if self.bag_ is not None:
            phi = self.bag_.encode(samples, threads)
        elif self._is_frozen:
            phi = samples.features.dense
        else:
            assert self.transformer_ is not None
            phi = self.transformer_.encode(samples, threads)
        return with_embeddings(samples.features, phi, self.embedding_weight)

    def _tree_features(self, inputs: Inputs, threads: int) -> Mixed:
        return self._ranker_features(self._transform_samples(inputs), threads)

    @property
    def _beam(self) -> Beam:
        return self.ranker._beam

    # ---- files ----

    def _save(self, writer: StoreWriter) -> dict[str, Any]:
        return {
            **self._save_samples(writer),
            "trees": self._save_trees(writer),
            "bag": None if self.bag_ is None else self.bag_.save_to(writer, "bag_"),
        }

    def _load(self, store: Store, state: Any) -> None:
        state = check_state(store, state)
        shape = self._load_samples(store, state)
        self.bag_ = None if self.transformer_ is not None else Bag.load_from(store, state.get("bag"), "bag_", shape)
        encoder = self.bag_ or self.transformer_
        assert encoder is not None
        self._load_trees(store, state.get("trees"), shape[0] + encoder.dim)


def _root(n: int) -> Csr:
    """All samples below the root (n × 1)."""
    return csr_from_parts(np.ones(n, np.float32), np.zeros(n, np.int32), np.arange(n + 1), (n, 1))


def _taken(sample_weight: AnyArray | None, rows: LongArray) -> AnyArray | None:
    return None if sample_weight is None else sample_weight[rows]


def _bootstrap(
    phi: FloatArray, targets: Csr, M: Csr, children: LongArray, threads: int, sample_weight: AnyArray | None
) -> ShortlistHead:
    """Return the head of a level, trained by `fit_ovr` on the embeddings (n, D) before the level."""
    W = fit_ovr(
        phi, targets, M, clusters=children, config=BOOTSTRAP, sample_weight=sample_weight, threads=threads
    ).toarray()
    return ShortlistHead(np.ascontiguousarray(W[:, :-1]), np.ascontiguousarray(W[:, -1]), squared_hinge)
