"""Native backend: encoders of the BERT family, run by the compiled core.

There is no padding, and a text gets the same bits whatever its batch and the number of threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ramify import native
from ramify.base.progress import Advance
from ramify.base.types import FloatArray
from ramify.nn.encoders.backends.pooling import pool_windows
from ramify.nn.encoders.tokens import Tokens

BATCH_SIZE = 1024
"""Texts of a call of the compiled core."""
BERT = {
    "positions": "embeddings.position_embeddings",
    "embedding_norm": "embeddings.LayerNorm",
    "layer": "encoder.layer.{}.",
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "output": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "output_norm": "output.LayerNorm",
}
"""Names of the weights of BERT, RoBERTa and XLM-R."""
DISTILBERT = {
    **BERT,
    "layer": "transformer.layer.{}.",
    "query": "attention.q_lin",
    "key": "attention.k_lin",
    "value": "attention.v_lin",
    "output": "attention.out_lin",
    "attention_norm": "sa_layer_norm",
    "up": "ffn.lin1",
    "down": "ffn.lin2",
    "output_norm": "output_layer_norm",
}
MODEL_FAMILIES = {"bert": BERT, "roberta": BERT, "xlm-roberta": BERT, "distilbert": DISTILBERT}


class NativeBackend:
    """The compiled core's encoder with the weights of a Hugging Face model."""

    def __init__(self, encoder: native.neural.TextEncoder, dim: int, *, pooling: str, max_length: int) -> None:
        self._encoder, self.dim, self.pooling, self.max_length = encoder, dim, pooling, max_length

    @classmethod
    def build(
        cls, config: Any, weights: Mapping[str, FloatArray], *, pooling: str, max_length: int
    ) -> NativeBackend | None:
        """Build the backend from a Hugging Face configuration and its weights; None for other architectures."""
        encoder = build_text_encoder(config, weights)
        return None if encoder is None else cls(encoder, config.hidden_size, pooling=pooling, max_length=max_length)

    def encode(self, tokens: Tokens, threads: int, advance: Advance) -> FloatArray:
        """Pooled embeddings (n, D)."""
        first_token = self.pooling == "cls"
        embeddings = np.empty((len(tokens), self.dim), np.float32)
        for start in range(0, len(tokens), BATCH_SIZE):
            rows = np.arange(start, min(start + BATCH_SIZE, len(tokens)))
            windows, owners = tokens.take(rows).windows(self.max_length)
            pooled = self._encoder.encode(windows.ids, windows.indptr, first_token, threads)
            if len(owners) > len(rows):
                weights = np.ones(len(owners), np.float32) if first_token else windows.lengths.astype(np.float32)
                pooled = pool_windows(pooled * weights[:, None], weights[:, None], owners)
            embeddings[rows] = pooled
            advance(len(rows))
        return embeddings


def build_text_encoder(config: Any, weights: Mapping[str, FloatArray]) -> native.neural.TextEncoder | None:
    """Return the compiled encoder for a Hugging Face configuration and weights; None if it is not supported."""
    names = MODEL_FAMILIES.get(config.model_type)
    activation = getattr(config, "hidden_act", None) or getattr(config, "activation", None)
    position_type = getattr(config, "position_embedding_type", None) or "absolute"
    if names is None or activation != "gelu" or position_type != "absolute" or getattr(config, "is_decoder", False):
        return None

    def dense(name: str) -> tuple[FloatArray, FloatArray]:
        return np.ascontiguousarray(weights[f"{name}.weight"]), np.ascontiguousarray(weights[f"{name}.bias"])

    positions = weights[f"{names['positions']}.weight"]
    if config.model_type in ("roberta", "xlm-roberta"):
        positions = positions[config.pad_token_id + 1 :]  # positions count from the padding id
    token_types = weights.get("embeddings.token_type_embeddings.weight")
    if token_types is not None:
        positions = positions + token_types[0]  # every token has type 0
    prefixes = [names["layer"].format(i) for i in range(config.num_hidden_layers)]
    encoder = native.neural.TextEncoder(
        np.ascontiguousarray(weights["embeddings.word_embeddings.weight"]),
        np.ascontiguousarray(positions),
        dense(names["embedding_norm"]),
        config.num_attention_heads,
        len(weights[f"{prefixes[0]}{names['up']}.bias"]) if prefixes else 1,
        getattr(config, "layer_norm_eps", 1e-12),
    )
    layer_parts = ("query", "key", "value", "output", "attention_norm", "up", "down", "output_norm")
    for prefix in prefixes:
        encoder.add_layer(*(dense(prefix + names[part]) for part in layer_parts))
    return encoder
