"""Label classifiers as arrays: weights (L, D) and bias (L,)."""

from __future__ import annotations

import math

import numpy as np

from ramify.base.types import FloatArray
from ramify.io.store import Store, StoreWriter

Classifiers = tuple[FloatArray, FloatArray]
"""Weights (L, D) and bias (L,)."""


def uniform_classifiers(n: int, dim: int, seed: int) -> Classifiers:
    """Return random classifiers, initialized like `torch.nn.Linear`: weights from U(±1/√D); the bias is 0."""
    bound = 1 / math.sqrt(dim)
    weights = np.random.default_rng(seed).uniform(-bound, bound, (n, dim))
    return weights.astype(np.float32), np.zeros(n, np.float32)


def shifted(classifiers: Classifiers, bias_shift: FloatArray) -> Classifiers:
    """Return classifiers with a shifted bias (L,); the weights are shared."""
    weights, bias = classifiers
    return weights, bias + bias_shift


def save_classifiers(writer: StoreWriter, prefix: str, classifiers: Classifiers) -> None:
    """Write weights and bias into a model directory."""
    for name, array in zip(("weights", "bias"), classifiers, strict=True):
        writer.array(f"{prefix}_{name}", array)


def load_classifiers(store: Store, prefix: str, n: int, dim: int) -> Classifiers:
    """Open what `save_classifiers` wrote."""
    return (
        store.array(f"{prefix}_weights", np.float32, shape=(n, dim)),
        store.array(f"{prefix}_bias", np.float32, shape=(n,)),
    )
