"""Parameters of training."""

from __future__ import annotations

from dataclasses import dataclass

from ramify.base.config import Config, param


@dataclass(kw_only=True, eq=False, repr=False)
class TrainingConfig(Config):
    """How encoder and head are trained: AdamW with linear warmup and decay, and early stopping."""

    epochs: int | None = param(
        None,
        "number of epochs at most; None: 8, or 5 for a residual layer over fixed embeddings, more on small data sets",
        low=1,
    )
    max_samples: int | None = param(
        None, "number of samples to train on in total, in place of `epochs`; None: by epochs", low=1
    )
    batch_size: int = param(256, "samples in a step; larger batches train faster and take fewer steps", low=1)
    min_steps: int | None = param(
        None, "minimum number of steps: small data sets get more epochs; None: 200, or none if `epochs` is set", low=1
    )
    patience: int = param(2, "validations without a better nDCG@5 after which training stops", low=1)
    validation_size: int = param(
        2000, "samples held out for validation, at most a tenth of the data; 0: none, the last epoch counts", low=0
    )
    learning_rate: float = param(0.01, "peak learning rate of the head", above=0)
    encoder_learning_rate: float = param(
        0.015,
        "peak learning rate of a BagEncoder, a fifth of it for a residual layer over fixed embeddings; a "
        "TransformerEncoder has its own",
        above=0,
    )
    warmup_ratio: float = param(0.1, "fraction of the steps over which the learning rate rises", low=0, high=1)
    weight_decay: float = param(0.01, "decoupled weight decay (AdamW), relative to the learning rate", low=0)
    dropout: float = param(0.3, "dropout probability on the embedding", low=0, high=0.95)
    gradient_clip: float | None = param(
        10.0, "clip the encoder's gradients to this multiple of their running mean norm; None: no clipping", above=0
    )
