"""Pooling of token states into text embeddings, and of windows into long texts."""

from __future__ import annotations

from typing import Any

import numpy as np

from ramify.base.types import FloatArray, LongArray


def pooling_module(module: Any, pooling: str) -> Any:
    """Return a torch module from token ids and mask (n, length) to sums (n, D) and weights (n, 1) of pooled tokens."""
    import torch

    class Pooled(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, input_ids: Any, attention_mask: Any) -> tuple[Any, Any]:
            hidden = self.module(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state.float()
            mask = attention_mask.unsqueeze(-1).to(torch.float32)
            if pooling == "cls":
                return hidden[:, 0], torch.ones_like(mask[:, 0])
            return (hidden * mask).sum(1), mask.sum(1).clamp(min=1)

    return Pooled().eval()


def pool_windows(sums: FloatArray, weights: FloatArray, owners: LongArray) -> FloatArray:
    """Weighted means (n, D) over the windows of each text, given sums (m, D), weights (m, 1) and owners (m,)."""
    n = int(owners[-1]) + 1 if len(owners) else 0
    if len(owners) > n:
        starts = np.searchsorted(owners, np.arange(n))
        sums, weights = np.add.reduceat(sums, starts), np.add.reduceat(weights, starts)
    return sums / weights
