"""Encoders: from features or texts to embeddings φ (n, D)."""

from ramify.nn.encoders.bag import Bag
from ramify.nn.encoders.transformer import Transformer

Encoder = Bag | Transformer

__all__ = ["Bag", "Encoder", "Transformer"]
