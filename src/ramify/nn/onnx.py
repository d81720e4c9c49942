"""An encoder as an ONNX graph, run by onnxruntime: for serving, without torch's weight on every query."""

from __future__ import annotations

import contextlib
import io
import logging
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from ramify.base.types import FloatArray, LongArray

LONGEST = 512
"""Tokens of a text that a graph takes at most; the windows of an encoder are shorter."""


def pooling_module(module: Any, pooling: str) -> Any:
    """Return a torch module from tokens and mask (n, length) to sums (n, D) and weights (n, 1) of what is pooled."""
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


def export(module: Any, pooling: str, *, int8: bool) -> bytes:
    """Write an encoder's model as an ONNX graph; int8: with whole numbers for the weights of its products."""
    import torch

    _need("onnxscript")
    batch, length = torch.export.Dim("batch", min=1, max=1 << 20), torch.export.Dim("length", min=2, max=LONGEST)
    shape = {0: batch, 1: length}
    ids = torch.ones(3, 8, dtype=torch.int64)
    with tempfile.TemporaryDirectory() as folder, _quietly():
        place = Path(folder) / "encoder.onnx"
        torch.onnx.export(
            pooling_module(module, pooling),
            (ids, torch.ones_like(ids)),
            dynamo=True,
            dynamic_shapes={"input_ids": shape, "attention_mask": shape},
            input_names=["input_ids", "attention_mask"],
            output_names=["sums", "weights"],
            external_data=False,
        ).save(place)
        if int8:
            _need("onnx")
            from onnxruntime.quantization import QuantType, quantize_dynamic

            small = Path(folder) / "int8.onnx"
            # Seven bits and a scale for each column: without VNNI, sums of eight-bit products are cut off.
            kinds = ["MatMul", "Gemm"]
            quantize_dynamic(place, small, kinds, per_channel=True, reduce_range=True, weight_type=QuantType.QInt8)
            place = small
        return place.read_bytes()


class OnnxGraph:
    """A graph that `export` wrote, with a session for each number of threads that was asked for."""

    def __init__(self, graph: bytes, *, int8: bool) -> None:
        _need("onnxruntime")
        self.graph, self.int8 = graph, int8
        self._sessions: dict[int, Any] = {}

    def __call__(self, ids: LongArray, mask: LongArray, threads: int) -> tuple[FloatArray, FloatArray]:
        """Sums (n, D) and weights (n, 1) of the tokens (n, length)."""
        if threads not in self._sessions:
            import onnxruntime

            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = threads
            options.log_severity_level = 3
            self._sessions[threads] = onnxruntime.InferenceSession(
                self.graph, options, providers=["CPUExecutionProvider"]
            )
        sums, weights = self._sessions[threads].run(None, {"input_ids": ids, "attention_mask": mask})
        return np.asarray(sums, np.float32), np.asarray(weights, np.float32)


def is_installed() -> bool:
    """Whether onnxruntime is there to run a graph."""
    with contextlib.suppress(ImportError):
        import onnxruntime  # noqa: F401

        return True
    return False


def _need(package: str) -> None:
    try:
        __import__(package)
    except ImportError as error:
        raise ImportError(f"an encoder in ONNX needs {package}: pip install 'ramify[onnx]'") from error


@contextlib.contextmanager
def _quietly() -> Any:
    """Keep the exporter's reports off the screen; its errors are raised all the same."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
