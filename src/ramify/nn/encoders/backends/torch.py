"""torch backend: replicas of a Hugging Face model on one or several devices, for inference and fine-tuning."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ramify.base.progress import Advance
from ramify.base.threads import ordered_map
from ramify.base.types import AnyArray, FloatArray, LongArray
from ramify.nn.encoders.backends.pooling import pooling_module
from ramify.nn.encoders.devices import import_torch
from ramify.nn.encoders.tokens import Tokens, batches_by_length
from ramify.nn.optim import restored

MAX_TOKENS = {"cpu": 1024, "cuda": 16384}
"""Tokens of a forward pass, padding included: few on a CPU, so that activations stay in its caches."""


class TorchBackend:
    """Replicas of a model; the first one, on the primary device, holds the weights that count."""

    def __init__(self, module: Any, devices: list[str], *, pooling: str, max_length: int, bfloat16: bool) -> None:
        self.devices, self.max_length, self.bfloat16 = devices, max_length, bfloat16
        self.module = module.to(devices[0]).eval()
        self.replicas = [self.module, *(copy.deepcopy(module).to(device).eval() for device in devices[1:])]
        self._pooling = [pooling_module(replica, pooling) for replica in self.replicas]

    @property
    def device(self) -> str:
        """The primary device."""
        return self.devices[0]

    @property
    def dim(self) -> int:
        """Embedding dimension D."""
        return int(self.module.config.hidden_size)

    @property
    def max_tokens(self) -> int:
        """Tokens of a forward pass on the primary device."""
        return MAX_TOKENS["cpu" if self.device == "cpu" else "cuda"]

    def encode(self, tokens: Tokens, threads: int, advance: Advance) -> FloatArray:
        """Pooled embeddings (n, D); texts of similar length share a batch.

        On a CPU each thread computes batches of its own. Inside an operation torch's threads wait for each other in
        busy loops: beside any other work on the same cores they take many times the CPU time of the operation.
        """
        torch = import_torch()
        embeddings = np.zeros((len(tokens), self.dim), np.float32)
        batches = list(batches_by_length(tokens.lengths, self.max_tokens))
        on_cpu, n = self.devices == ["cpu"], len(self.devices)
        groups = [batches[start : start + n] for start in range(0, len(batches), n)]

        def compute(group: list[LongArray]) -> int:
            with torch.inference_mode():  # a setting of the thread
                # Start every device before waiting for the first.
                pooled = [self.pooled(tokens.take(rows), replica) for replica, rows in enumerate(group)]
                for rows, part in zip(group, pooled, strict=True):
                    embeddings[rows] = part.float().cpu().numpy()
            return sum(len(rows) for rows in group)

        before = torch.get_num_threads()
        torch.set_num_threads(1 if on_cpu else threads)
        try:
            for n_rows in ordered_map(compute, groups, threads if on_cpu else 1):
                advance(n_rows)
        finally:
            torch.set_num_threads(before)
        return embeddings

    def pooled(self, tokens: Tokens, replica: int = 0) -> Any:
        """Pooled embeddings (n, D) as a tensor that gradients flow through, on the device of a replica."""
        torch, device = import_torch(), self.devices[replica]
        tokens, owners = tokens.windows(self.max_length)
        ids, mask = (torch.from_numpy(array).to(device) for array in tokens.padded())
        with torch.autocast(device.split(":")[0], torch.bfloat16, enabled=self.bfloat16):
            sums, weights = self._pooling[replica](ids, mask)
        return _pool_windows(sums, weights, owners)

    # ---- weights ----

    def named_arrays(self) -> Iterator[tuple[str, FloatArray]]:
        """Weights by name, in sorted order."""
        for name, tensor in sorted(self.module.state_dict().items()):
            yield name, tensor.detach().cpu().numpy()

    def set_arrays(self, arrays: Mapping[str, AnyArray]) -> None:
        """Copy the values of all weights to all replicas."""
        torch = import_torch()
        with torch.no_grad():
            for name, tensor in self.module.state_dict().items():
                dtype = str(tensor.dtype).removeprefix("torch.")
                tensor.copy_(torch.from_numpy(restored(arrays, name, dtype, tuple(tensor.shape))))
        self.synchronize()

    def synchronize(self) -> None:
        """Copy the weights of the primary device to the other replicas."""
        torch = import_torch()
        with torch.no_grad():
            for replica in self.replicas[1:]:
                for mine, other in zip(self.module.state_dict().values(), replica.state_dict().values(), strict=True):
                    other.copy_(mine)


def _pool_windows(sums: Any, weights: Any, owners: LongArray) -> Any:
    """Compute `pooling.pool_windows` with tensors, on their device."""
    if len(owners) > owners[-1] + 1:
        torch, n = import_torch(), int(owners[-1]) + 1
        texts = torch.from_numpy(owners).to(sums.device)
        sums, weights = (
            torch.zeros(n, part.shape[1], device=sums.device).index_add(0, texts, part) for part in (sums, weights)
        )
    return sums / weights
