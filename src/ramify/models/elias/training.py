"""Training of one member of ELIAS: what its two stages have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ramify.base.types import Csr, LongArray
from ramify.nn.checkpoint import CheckpointDirectory
from ramify.nn.encoders import Encoder
from ramify.nn.encoders.samples import Samples
from ramify.nn.heads.graph import GraphHead
from ramify.nn.heads.graph_torch import TorchGraphHead
from ramify.nn.learner import Learner
from ramify.nn.sampling.positives import Positives
from ramify.nn.trainer import TrainingConfig, train
from ramify.nn.validation import RankingValidator


@dataclass(frozen=True)
class MemberTraining:
    """Data and settings of a member's training: samples with labels Y (n × L), split into training and validation."""

    samples: Samples
    Y: Csr
    rows: LongArray
    validation_rows: LongArray
    checkpoints: CheckpointDirectory
    settings: dict[str, Any]
    seed: int
    threads: int
    verbose: int

    def run(
        self, encoder: Encoder, head: GraphHead | TorchGraphHead, config: TrainingConfig, title: str
    ) -> list[tuple[float, float]]:
        """Train encoder and head, and leave both in their best state; return the history."""
        validation = self.samples.take(self.validation_rows), self.Y[self.validation_rows]
        learner = Learner(
            encoder,
            head,
            Positives(self.Y),
            RankingValidator(*validation, self.threads),
            self.samples,
            config,
            seed=self.seed + 1,
            threads=self.threads,
        )
        return train(
            self.rows,
            learner,
            config,
            title=title,
            seed=self.seed + 2,
            verbose=self.verbose,
            settings=self.settings,
            checkpoint=self.checkpoints.path(title),
        )
