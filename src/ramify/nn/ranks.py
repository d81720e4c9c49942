"""Ranks: processes that train one neural model together, started by torchrun.

Every rank runs the same program on the same data and draws the same random numbers, so that all of them take the same
decisions. They divide the expensive parts:

- label classifiers and their optimizer state: each rank holds a range of the labels (`optim.ShardedTable`);
- a fine-tuned transformer: each rank computes a part of every batch (`learner.Learner`, `encoders.fine_tuning`).

Embeddings, logits, rankings and gradients are exchanged; the weights of the labels are only to write a checkpoint, from
each rank to the first, shard by shard, and to return the trained model, to a file in the temporary directory of each
rank. Sums over ranks are rounded in another order than those of one process, so losses agree with it to rounding.
"""

from __future__ import annotations

import atexit
import itertools
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ramify.base.types import AnyArray, FloatArray

BLOCK_BYTES = 16 << 20
"""Bytes of a shard that travel at a time."""


@dataclass(frozen=True)
class Ranks:
    """The ranks, of which this process is number `rank` of `size`."""

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and messages."""
        return self.rank == 0

    def part(self, n: int) -> slice:
        """Rows of this rank out of n: contiguous ranges of nearly equal length."""
        return slice(n * self.rank // self.size, n * (self.rank + 1) // self.size)

    def sum(self, array: FloatArray) -> FloatArray:
        """Sum of an array over all ranks, in place; the same bits on each."""
        if self.size > 1:
            import torch

            self._reduce(torch.from_numpy(array))
        return array

    def sum_tensors(self, tensors: list[Any]) -> None:
        """Sum tensors over all ranks, in place; they travel as one."""
        if self.size == 1 or not tensors:
            return
        import torch

        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        self._reduce(flat)
        for tensor, total in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
            tensor.copy_(total.reshape(tensor.shape))

    def concatenate(self, own: AnyArray, *, in_file: bool = False) -> AnyArray:
        """Rows of all ranks, in their order; the ranks may have different numbers of rows.

        Each rank sends its rows to their place in the result, so that nothing else is in memory; with `in_file` the
        result is a mapped file without a name, of which the system keeps in memory what there is room for.
        """
        if self.size == 1:
            return own
        import torch
        from torch import distributed

        ends = self._ends(own)
        shape = ends[-1], *own.shape[1:]
        if in_file and 0 not in shape:
            with tempfile.TemporaryFile(prefix="ramify-") as file:
                if hasattr(os, "posix_fallocate"):  # a full disk is an error here, and kills the process later
                    os.posix_fallocate(file.fileno(), 0, own.itemsize * int(np.prod(shape, dtype=np.int64)))
                joined: AnyArray = np.asarray(np.memmap(file, own.dtype, "r+", shape=shape))
        else:
            joined = np.empty(shape, own.dtype)
        joined[ends[self.rank] : ends[self.rank + 1]] = own
        for rank in range(self.size):
            if ends[rank] < ends[rank + 1]:
                distributed.broadcast(torch.from_numpy(joined[ends[rank] : ends[rank + 1]]), rank)
        return joined

    def blocks(self, own: AnyArray) -> Iterator[AnyArray]:
        """Rows of all ranks, in their order and a block at a time, on the first rank; the others send theirs to it."""
        import torch
        from torch import distributed

        ends = self._ends(own)
        size = max(1, BLOCK_BYTES // max(1, own.itemsize * int(np.prod(own.shape[1:], dtype=np.int64))))
        for rank in range(self.size):
            for begin in range(ends[rank], ends[rank + 1], size):
                end = min(begin + size, ends[rank + 1])
                if rank == self.rank:
                    block = np.ascontiguousarray(own[begin - ends[rank] : end - ends[rank]])
                    if not self.is_first:
                        distributed.send(torch.from_numpy(block), 0)
                elif self.is_first:
                    block = np.empty((end - begin, *own.shape[1:]), own.dtype)
                    distributed.recv(torch.from_numpy(block), rank)
                if self.is_first:
                    yield block

    def total(self, n: int) -> int:
        """Sum of a number over all ranks."""
        return int(self.concatenate(np.array([n], np.int64)).sum())

    def _ends(self, own: AnyArray) -> list[int]:
        """Boundaries (ranks + 1) of the rows of each rank."""
        import torch
        from torch import distributed

        counts = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        distributed.all_gather(counts, torch.tensor([len(own)]))
        return list(itertools.accumulate(map(int, counts), initial=0))

    def wait(self) -> None:
        """Wait until every rank is here."""
        if self.size > 1:
            from torch import distributed

            distributed.barrier()

    @staticmethod
    def _reduce(tensor: Any) -> None:
        from torch import distributed

        distributed.all_reduce(tensor)


@dataclass(frozen=True, eq=False)
class Shard:
    """The rows of this rank of an array that is divided among the ranks, to be written as one.

    Every rank iterates over `blocks`, for all shards in the same order.
    """

    own: AnyArray
    shape: tuple[int, ...]
    ranks: Ranks

    @classmethod
    def of(cls, own: AnyArray, ranks: Ranks) -> Shard:
        """Return the shard; all ranks do so together."""
        return cls(own, (ranks.total(len(own)), *own.shape[1:]), ranks)

    def blocks(self) -> Iterator[AnyArray]:
        """All rows, in order, on the first rank; nothing on the others."""
        return self.ranks.blocks(self.own)


def current_ranks() -> Ranks:
    """Ranks of this process: those of torchrun, or of a process group that the program made; otherwise one.

    Under torchrun the first call makes the process group, gloo for CPUs and NCCL for GPUs, and divides the cores of a
    machine among its ranks unless ``RAMIFY_THREADS`` is set.
    """
    size = int(os.environ.get("WORLD_SIZE", "1")) if "TORCHELASTIC_RUN_ID" in os.environ else 1
    if size == 1:
        return Ranks()
    import torch
    from torch import distributed

    if not distributed.is_initialized():
        distributed.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
        # A process that ends with the group's threads still running is aborted by C++.
        atexit.register(_leave)
        n_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        os.environ.setdefault("RAMIFY_THREADS", str(max(1, n_cores // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))))
    return Ranks(distributed.get_rank(), distributed.get_world_size())


def _leave() -> None:
    """Leave the process group, unless the program already did."""
    from torch import distributed

    if distributed.is_initialized():
        distributed.destroy_process_group()
