"""How a model of ELIAS is trained: what the two stages have in common."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ramify.base.types import Csr, IntArray, LongArray
from ramify.models.elias_member import EliasMember
from ramify.nn.graph import GraphHead
from ramify.nn.learner import Encoder, EncoderWithHead
from ramify.nn.points import Points
from ramify.nn.torch_graph import TorchGraphHead
from ramify.nn.trainer import TrainingConfig, train


@dataclass(frozen=True)
class EliasRun:
    """The data of one training."""

    points: Points
    Y: Csr
    rows: LongArray
    judged: LongArray
    cluster_of: IntArray
    threads: int
    seed: int
    verbose: int
    settings: dict[str, Any]
    checkpoint: Path | None

    def train(
        self, encoder: Encoder, head: GraphHead | TorchGraphHead, config: TrainingConfig, title: str
    ) -> EliasMember:
        """Train encoder and head; return the state that was best on the held-out rows."""
        learner = EncoderWithHead(
            encoder, head, self.points, self.Y, self.judged, config, seed=self.seed + 1, threads=self.threads
        )
        history = train(
            self.rows,
            learner,
            config,
            title=title,
            seed=self.seed + 2,
            verbose=self.verbose,
            settings=self.settings,
            checkpoint=None if self.checkpoint is None else self.checkpoint / title.replace(" ", "-"),
        )
        arrays = head.arrays()
        return EliasMember(
            encoder,
            (arrays["cluster_weights.values"], arrays["cluster_offset.values"]),
            head.graph,
            (arrays["labels.weights"], arrays["labels.offset"]),
            head.log_alpha,
            head.options.beam_size,
            head.options.shortlist,
            self.cluster_of,
            history,
        )
