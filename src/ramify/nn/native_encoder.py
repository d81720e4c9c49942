"""Encoders of the BERT family run by the compiled core: without padding, and without a copy of what layers pass on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ramify import native
from ramify.base.types import FloatArray

BERT = {
    "positions": "embeddings.position_embeddings",
    "norm": "embeddings.LayerNorm",
    "layer": "encoder.layer.{}.",
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "out": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "output_norm": "output.LayerNorm",
}
"""What the parts of a BERT and of its relatives are called in their files."""
DISTILBERT = {
    **BERT,
    "layer": "transformer.layer.{}.",
    "query": "attention.q_lin",
    "key": "attention.k_lin",
    "value": "attention.v_lin",
    "out": "attention.out_lin",
    "attention_norm": "sa_layer_norm",
    "up": "ffn.lin1",
    "down": "ffn.lin2",
    "output_norm": "output_layer_norm",
}
FAMILY = {"bert": BERT, "roberta": BERT, "xlm-roberta": BERT, "distilbert": DISTILBERT}


def native_encoder(config: Any, weights: Mapping[str, FloatArray]) -> native.neural.TextEncoder | None:
    """Return the compiled core's encoder with a Hugging Face model's settings and weights; None: of another kind."""
    names = FAMILY.get(config.model_type)
    activation = getattr(config, "hidden_act", None) or getattr(config, "activation", None)
    positions = getattr(config, "position_embedding_type", None) or "absolute"
    if names is None or activation != "gelu" or positions != "absolute" or getattr(config, "is_decoder", False):
        return None

    def dense(name: str) -> tuple[FloatArray, FloatArray]:
        return np.ascontiguousarray(weights[f"{name}.weight"]), np.ascontiguousarray(weights[f"{name}.bias"])

    places = weights[f"{names['positions']}.weight"]
    if config.model_type in ("roberta", "xlm-roberta"):
        places = places[config.pad_token_id + 1 :]  # the first ones are no places
    kinds = weights.get("embeddings.token_type_embeddings.weight")
    if kinds is not None:
        places = places + kinds[0]  # all tokens are of the first kind
    prefixes = [names["layer"].format(i) for i in range(config.num_hidden_layers)]
    encoder = native.neural.TextEncoder(
        np.ascontiguousarray(weights["embeddings.word_embeddings.weight"]),
        np.ascontiguousarray(places),
        dense(names["norm"]),
        config.num_attention_heads,
        len(weights[f"{prefixes[0]}{names['up']}.bias"]) if prefixes else 1,
        getattr(config, "layer_norm_eps", 1e-12),
    )
    for prefix in prefixes:
        encoder.add_layer(
            **{part: dense(prefix + names[part]) for part in ("query", "key", "value", "out", "attention_norm")},
            **{part: dense(prefix + names[part]) for part in ("up", "down")},
            norm=dense(prefix + names["output_norm"]),
        )
    return encoder
