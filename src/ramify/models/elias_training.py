"""How a model of ELIAS is trained: the two stages' common part."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ramify.base.ranking import Ranking
from ramify.base.types import Csr, LongArray
from ramify.metrics.report import evaluate
from ramify.models.elias_member import EliasMember
from ramify.nn.encoder import Bag
from ramify.nn.graph import GraphHead
from ramify.nn.points import Points
from ramify.nn.tables import Adam
from ramify.nn.trainer import TrainingConfig, train
from ramify.nn.transformer import Transformer


@dataclass(frozen=True)
class EliasRun:
    """The data of one training."""

    points: Points
    Y: Csr
    rows: LongArray
    judged: LongArray
    threads: int
    seed: int
    verbose: int

    def train(
        self,
        encoder: Bag | Transformer,
        head: GraphHead,
        config: TrainingConfig,
        cluster_share: float,
        edge_share: float,
        title: str,
    ) -> EliasMember:
        """Train encoder and head; return the state that was best on the held-out rows."""
        random = np.random.default_rng(self.seed + 1)
        keep = 1.0 - config.dropout

        def step(rows: LongArray, number: int, factor: float) -> float:
            vectors, tape = encoder.forward(self.points.take(rows), self.threads)
            mask = np.where(random.random(vectors.shape, np.float32) < keep, np.float32(1 / keep), np.float32(0))
            rate = factor * config.rate
            loss, d_vectors = head.step(
                vectors * mask,
                self.Y[rows],
                Adam(rate, number, weight_decay=config.weight_decay),
                cluster_share * rate,
                edge_share * rate,
                self.threads,
            )
            adam = Adam(factor * encoder.rate(config.encoder_rate), number, weight_decay=config.weight_decay)
            encoder.backward(tape, d_vectors * mask, adam, self.threads)
            return loss

        def state() -> EliasMember:
            return EliasMember(
                encoder,
                (head.cluster_weights.values, head.cluster_offset.values),
                head.graph,
                (head.labels.weights, head.labels.offset),  # type: ignore[arg-type]
                head.log_alpha,
                head.options.beam_size,
                head.options.shortlist,
                np.zeros(self.Y.shape[1], np.int32),
                [],
            )

        held = self.points.take(self.judged)

        def judge() -> float:
            k = min(5, self.Y.shape[1])
            ids, scores = state().search(held, k, self.threads)
            ranking = Ranking(ids, scores, self.Y.shape[1])
            return float(evaluate(ranking, self.Y[self.judged], ks=[k])[f"nDCG@{k}"])

        def snapshot() -> EliasMember:
            now = state()
            now.encoder = encoder.snapshot()
            now.clusters = now.clusters[0].copy(), now.clusters[1].copy()
            now.labels = now.labels[0].copy(), now.labels[1].copy()
            return now

        best, history = train(
            self.rows,
            step,
            judge if len(self.judged) else None,
            snapshot,
            config,
            title=title,
            seed=self.seed + 2,
            verbose=self.verbose,
        )
        best.history = history
        member: EliasMember = best
        return member
