"""Fine-tuning of a transformer: forward and backward passes in micro-batches, and AdamW."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ramify.base.types import AnyArray, FloatArray, LongArray
from ramify.nn.encoders.backends.torch import TorchBackend
from ramify.nn.encoders.devices import import_torch
from ramify.nn.encoders.tokens import Tokens, micro_batches
from ramify.nn.encoders.word_embeddings import EMBEDDING_NORM
from ramify.nn.optim import Adam, Arrays, RowTable, SavedArrays, add_prefix, restored, select_prefix
from ramify.nn.ranks import current_ranks


@dataclass(frozen=True)
class _MicroBatch:
    """Texts of a batch that one replica computes together; `seed` identifies their dropout mask."""

    tokens: Tokens
    replica: int
    rows: LongArray
    seed: int


Tape = list[tuple[_MicroBatch, Any]]
"""Micro-batches of a forward pass, each with its embeddings, or None if `backward` computes them again."""


class FineTuner:
    """Trains the weights of a `TorchBackend`.

    On a CPU the input embeddings are a `RowTable`, of which a step updates the rows of its tokens; all other weights,
    and everything on GPUs, are trained by torch's AdamW.
    """

    def __init__(self, backend: TorchBackend, *, micro_batch_size: int, dropout: bool, seed: int = 0) -> None:
        self.backend, self.micro_batch_size, self.dropout = backend, micro_batch_size, dropout
        self._seed, self._n_micro_batches = seed, 0  # identify the dropout masks
        self._ranks = current_ranks()
        self._optimizer: Any = None
        self._words: RowTable | None = None

    @property
    def _input_embeddings(self) -> Any:
        return self.backend.module.get_input_embeddings()

    @property
    def _on_cpu(self) -> bool:
        return self.backend.devices == ["cpu"]

    def forward(self, tokens: Tokens, threads: int) -> tuple[FloatArray, Tape]:
        """Embeddings (n, D) of a batch, and the tape for `backward`.

        Texts of similar length share a micro-batch. For batches beyond `micro_batch_size`, `backward` recomputes the
        activations with the same dropout masks, so memory does not limit the batch size. Micro-batches are distributed
        over the devices; their number does not change the result.
        """
        torch, backend, n = import_torch(), self.backend, len(tokens)
        torch.set_num_threads(max(1, threads))
        for replica in backend.replicas:
            replica.train(self.dropout)
        self._input_embeddings.sparse = self._on_cpu
        keeps_activations = n <= self.micro_batch_size
        tape: Tape = []
        outputs = []
        max_rows = min(self.micro_batch_size, -(-n // len(backend.devices)))
        for i, rows in enumerate(micro_batches(tokens.lengths, max_rows, backend.max_tokens)):
            batch = _MicroBatch(tokens.take(rows), i % len(backend.devices), rows, self._n_micro_batches)
            with torch.set_grad_enabled(keeps_activations):
                outputs.append(self._embed(batch))
            tape.append((batch, outputs[-1] if keeps_activations else None))
            self._n_micro_batches += 1
        embeddings = np.empty((n, backend.dim), np.float32)
        for (batch, _), output in zip(tape, outputs, strict=True):
            embeddings[batch.rows] = output.detach().cpu().numpy()
        return embeddings, tape

    def _embed(self, batch: _MicroBatch) -> Any:
        """Embeddings of a micro-batch; every call has the same dropout mask."""
        torch = import_torch()
        gpus = [int(d.partition(":")[2] or 0) for d in self.backend.devices if d.startswith("cuda")]
        with torch.random.fork_rng(gpus):
            torch.manual_seed(int(np.random.SeedSequence([self._seed, batch.seed]).generate_state(1)[0]))
            pooled = self.backend.pooled(batch.tokens, batch.replica)
        return torch.nn.functional.normalize(pooled, dim=1) * EMBEDDING_NORM

    def backward(self, tape: Tape, d_phi: FloatArray, adam: Adam, threads: int) -> None:
        """Update the weights by AdamW, given the gradients (n, D) of a batch's embeddings; biases do not decay."""
        torch, backend = import_torch(), self.backend
        optimizer = self._prepare(adam.weight_decay)
        for group in optimizer.param_groups:
            group["lr"] = adam.learning_rate
        for replica in backend.replicas:
            replica.zero_grad(set_to_none=True)
        gradients = torch.from_numpy(np.ascontiguousarray(d_phi))
        for batch, output in tape:
            own = gradients[torch.from_numpy(batch.rows)].to(backend.devices[batch.replica])
            (self._embed(batch) if output is None else output).backward(own)
        for replica in backend.replicas[1:]:
            for mine, other in zip(backend.module.parameters(), replica.parameters(), strict=True):
                if other.grad is not None:
                    theirs = other.grad.to(backend.device)
                    mine.grad = theirs if mine.grad is None else mine.grad + theirs
        if self._words is not None:
            self._step_words(self._words, adam, threads)
        self._sum_over_ranks([weight for group in optimizer.param_groups for weight in group["params"]])
        optimizer.step()
        self._input_embeddings.sparse = False
        backend.synchronize()
        for replica in backend.replicas:
            replica.eval()

    def _sum_over_ranks(self, weights: list[Any]) -> None:
        """Add up the gradients of all ranks; a weight without a gradient on any of them keeps none."""
        if self._ranks.size == 1:
            return
        torch = import_torch()
        has_gradient = self._ranks.sum(np.array([w.grad is not None for w in weights], np.float32)) > 0
        used = [weight for weight, is_used in zip(weights, has_gradient, strict=True) if is_used]
        for weight in used:  # a rank without a sample of the batch has none
            weight.grad = torch.zeros_like(weight) if weight.grad is None else weight.grad
        self._ranks.sum_tensors([weight.grad for weight in used])

    def _step_words(self, words: RowTable, adam: Adam, threads: int) -> None:
        """Update the input embeddings of a batch's tokens."""
        weight = self._input_embeddings.weight
        rows, values = np.empty(0, np.int64), np.empty((0, weight.shape[1]), np.float32)
        if weight.grad is not None:
            gradients, weight.grad = weight.grad.coalesce(), None
            rows, values = gradients.indices()[0].numpy(), gradients.values().numpy()
        if self._ranks.size > 1:
            rows, parts = self._ranks.concatenate(rows), self._ranks.concatenate(values)
            rows, inverse = np.unique(rows, return_inverse=True)
            values = np.zeros((len(rows), parts.shape[1]), np.float32)
            np.add.at(values, inverse, parts)
        n = len(rows)
        words.step(
            (rows.astype(np.int32), np.arange(n + 1), np.arange(n)), np.ones((n, 1), np.float32), values, adam, threads
        )

    def _prepare(self, weight_decay: float) -> Any:
        """Return the optimizer, which is made at the first step."""
        if self._optimizer is None:
            torch = import_torch()
            words = self._input_embeddings.weight
            if self._on_cpu:
                self._words = RowTable(words.detach().numpy(), None)
            weights = [p for p in self.backend.module.parameters() if p.requires_grad]
            rest = [p for p in weights if self._words is None or p is not words]
            groups = [
                {"params": [p for p in rest if p.ndim > 1], "weight_decay": weight_decay},
                {"params": [p for p in rest if p.ndim <= 1], "weight_decay": 0.0},
            ]
            self._optimizer = torch.optim.AdamW(groups, fused=True)
        return self._optimizer

    # ---- optimizer state ----

    def optimizer_state(self) -> SavedArrays:
        """Return the state of AdamW and of the dropout masks."""
        state: Arrays = {"random": np.array([self._seed, self._n_micro_batches])}
        if self._optimizer is not None:
            for i, entry in self._optimizer.state_dict()["state"].items():
                state |= {f"{i}.{name}": value.detach().cpu().numpy() for name, value in entry.items()}
            state["weight_decay"] = np.array([self._optimizer.param_groups[0]["weight_decay"]])
        return state if self._words is None else {**state, **add_prefix("words", self._words.optimizer_state())}

    def set_optimizer_state(self, state: Mapping[str, AnyArray]) -> None:
        """Restore what `optimizer_state` returned."""
        torch = import_torch()
        self._seed, self._n_micro_batches = map(int, restored(state, "random", np.int64, (2,), (0, 2**62)))
        if "weight_decay" not in state:
            return
        optimizer = self._prepare(float(restored(state, "weight_decay", np.float64, (1,))[0]))
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        by_parameter: dict[int, dict[str, Any]] = {}
        for i, weight in enumerate(weights):
            if f"{i}.step" in state:  # a weight that no batch has used has no state
                shape = tuple(weight.shape)
                parts = {name: restored(state, f"{i}.{name}", np.float32, shape) for name in ("exp_avg", "exp_avg_sq")}
                step = restored(state, f"{i}.step", np.float32, state[f"{i}.step"].shape).reshape(())
                by_parameter[i] = {name: torch.from_numpy(part) for name, part in {**parts, "step": step}.items()}
        optimizer.load_state_dict({**optimizer.state_dict(), "state": by_parameter})
        if self._words is not None:
            self._words.set_optimizer_state(select_prefix("words", state))
