"""ONNX backend: the encoder as a graph that onnxruntime runs, for serving without torch's overhead on every query."""

from __future__ import annotations

import contextlib
import io
import logging
import math
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ramify.base.errors import ModelFormatError
from ramify.base.extras import needed_for
from ramify.base.progress import Advance
from ramify.base.types import FloatArray
from ramify.nn.encoders.backends.pooling import pool_windows, pooling_module
from ramify.nn.encoders.tokens import Tokens, batches_by_length

MAX_GRAPH_LENGTH = 512
"""Tokens of a text that a graph takes at most; the windows of an encoder are shorter."""
MAX_TOKENS = 1024
"""Tokens of a run, padding included."""


def export(module: Any, pooling: str, *, int8: bool) -> bytes:
    """Export an encoder as an ONNX graph; with `int8`, the weights of matrix products are quantized to int8."""
    import torch

    _require("onnxscript")
    batch, length = (
        torch.export.Dim("batch", min=1, max=1 << 20),
        torch.export.Dim("length", min=2, max=MAX_GRAPH_LENGTH),
    )
    shape = {0: batch, 1: length}
    ids = torch.ones(3, 8, dtype=torch.int64)
    with tempfile.TemporaryDirectory() as folder, _silenced():
        path = Path(folder) / "encoder.onnx"
        torch.onnx.export(
            pooling_module(module, pooling),
            (ids, torch.ones_like(ids)),
            dynamo=True,
            dynamic_shapes={"input_ids": shape, "attention_mask": shape},
            input_names=["input_ids", "attention_mask"],
            output_names=["sums", "weights"],
            external_data=False,
        ).save(path)
        if int8:
            _require("onnx")
            _require("onnxruntime")
            from onnxruntime.quantization import QuantType, quantize_dynamic

            small = Path(folder) / "int8.onnx"
            # Seven bits and one scale a column: without VNNI, sums of eight-bit products saturate.
            kinds = ["MatMul", "Gemm"]
            quantize_dynamic(path, small, kinds, per_channel=True, reduce_range=True, weight_type=QuantType.QInt8)
            path = small
        return path.read_bytes()


ALLOWED_OPERATORS = {
    "Abs", "Add", "And", "Cast", "Clip", "Concat", "Constant", "ConstantOfShape", "Cos", "CumSum", "DequantizeLinear",
    "Div", "DynamicQuantizeLinear", "Equal", "Erf", "Exp", "Expand", "Flatten", "Gather", "GatherElements", "GatherND",
    "Gelu", "Gemm", "Greater", "GreaterOrEqual", "Identity", "IsNaN", "LayerNormalization", "Less", "LessOrEqual",
    "Log", "MatMul", "MatMulInteger", "Max", "Min", "Mul", "Neg", "Not", "Or", "Pow", "QuantizeLinear",
    "RMSNormalization", "Range", "Reciprocal", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum", "Relu", "Reshape",
    "Shape", "Sigmoid", "Sign", "Sin", "Slice", "Softmax", "Softplus", "Split", "Sqrt", "Squeeze", "Sub", "Tanh",
    "Transpose", "Trilu", "Unsqueeze", "Where",
}  # fmt: skip
"""Operators of exported encoders: no loops or branches, nothing that reads files."""


def check_graph(graph: bytes) -> None:
    """Raise `ModelFormatError` for a graph that `export` cannot have written.

    onnxruntime trusts what it runs: a graph may name files to read weights from, or loop for ever.
    """
    _require("onnx")
    import onnx

    try:
        model = onnx.load_from_string(graph)
    except Exception as error:
        raise ModelFormatError(f"the ONNX graph is damaged: {error}") from error
    tensors = list(model.graph.initializer)
    for node in model.graph.node:
        if node.domain not in ("", "ai.onnx") or node.op_type not in ALLOWED_OPERATORS:
            raise ModelFormatError(
                f"the ONNX graph has the operator {node.domain} {node.op_type}, which is not allowed"
            )
        for attribute in node.attribute:
            if attribute.HasField("g") or attribute.graphs:
                raise ModelFormatError("the ONNX graph has a graph within a graph")
            tensors += [attribute.t, *attribute.tensors]
    if model.functions or model.training_info or model.graph.sparse_initializer:
        raise ModelFormatError("the ONNX graph has functions, training or sparse weights")
    for tensor in tensors:
        if tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.external_data:
            raise ModelFormatError("the ONNX graph reads weights from another file")
        if math.prod(tensor.dims) > 8 * max(1, len(graph)) or any(n < 0 for n in tensor.dims):
            raise ModelFormatError("the ONNX graph has weights that are larger than the graph")


class OnnxBackend:
    """A graph that `export` wrote, with one session for each number of threads in use."""

    def __init__(self, graph: bytes, dim: int, *, max_length: int, int8: bool) -> None:
        _require("onnxruntime")
        self.graph, self.dim, self.max_length, self.int8 = graph, dim, max_length, int8
        self._sessions: dict[int, Any] = {}

    def encode(self, tokens: Tokens, threads: int, advance: Advance) -> FloatArray:
        """Pooled embeddings (n, D); texts of similar length share a run."""
        embeddings = np.zeros((len(tokens), self.dim), np.float32)
        for rows in batches_by_length(tokens.lengths, MAX_TOKENS):
            windows, owners = tokens.take(rows).windows(self.max_length)
            ids, mask = windows.padded()
            sums, weights = self._session(threads).run(None, {"input_ids": ids, "attention_mask": mask})
            embeddings[rows] = pool_windows(np.asarray(sums, np.float32), np.asarray(weights, np.float32), owners)
            advance(len(rows))
        return embeddings

    def _session(self, threads: int) -> Any:
        if threads not in self._sessions:
            import onnxruntime

            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = threads
            options.log_severity_level = 3
            self._sessions[threads] = onnxruntime.InferenceSession(
                self.graph, options, providers=["CPUExecutionProvider"]
            )
        return self._sessions[threads]


def is_installed() -> bool:
    """Whether onnxruntime is installed, and onnx, which checks graphs."""
    with contextlib.suppress(ImportError):
        import onnxruntime  # noqa: F401

        return True
    return False


def _require(package: str) -> None:
    with needed_for("the ONNX backend", package, "onnx"):
        __import__(package)


@contextlib.contextmanager
def _silenced() -> Iterator[None]:
    """Suppress the exporter's reports; its errors are still raised."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
