"""Pretrained transformer encoders: any Hugging Face model, frozen with cached embeddings, or fine-tuned."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ramify.base.config import Config, param
from ramify.base.errors import DataError, ModelFormatError
from ramify.base.progress import progress
from ramify.base.sparse import normalize_rows
from ramify.base.types import AnyArray, FloatArray
from ramify.io.store import Store, StoreWriter
from ramify.nn.encoders.architecture import open_architecture, saved_architecture
from ramify.nn.encoders.backends.native import NativeBackend
from ramify.nn.encoders.backends.onnx import OnnxBackend, check_graph, export, is_installed
from ramify.nn.encoders.backends.torch import TorchBackend
from ramify.nn.encoders.cache import cache_directory, cached, digest_of
from ramify.nn.encoders.devices import find_devices, has_bfloat16, import_torch
from ramify.nn.encoders.fine_tuning import FineTuner, Tape
from ramify.nn.encoders.hub import check_hub
from ramify.nn.encoders.samples import Samples
from ramify.nn.encoders.tokenizer import TextTokenizer
from ramify.nn.encoders.tokens import Tokens
from ramify.nn.encoders.word_embeddings import EMBEDDING_NORM
from ramify.nn.optim import Adam, Arrays, SavedArrays

ONNX_TOLERANCE = 1e-3
"""Largest accepted difference between unit embeddings of onnxruntime and of torch."""
MAX_REMEMBERED_BYTES = 1 << 26
"""The embeddings of the last call are kept up to this size."""


@dataclass(kw_only=True, eq=False, repr=False)
class TransformerEncoder(Config):
    """A Hugging Face encoder. Frozen, its embeddings are computed once and a residual layer is trained on top of them.

    >>> TransformerEncoder("models/minilm", frozen=True, max_length=64)
    TransformerEncoder(model='models/minilm', frozen=True, max_length=64)
    """

    model: str = param("", "directory of the model, or its name on the Hugging Face hub", positional=True)
    frozen: bool = param(False, "keep the pretrained weights; only a residual layer on the embeddings is trained")
    pooling: Literal["mean", "cls"] = param("mean", "text embedding: mean of the token states, or the first token's")
    max_length: int = param(
        128, "tokens of a window; longer texts are truncated, or read in `n_windows` windows", low=4
    )
    n_windows: int = param(
        1,
        "windows of `max_length` tokens read of a long text, mean-pooled; time grows in proportion",
        low=1,
    )
    learning_rate: float = param(1e-4, "learning rate of the pretrained weights when fine-tuned", above=0)
    micro_batch_size: int = param(
        64, "texts of a forward and backward pass; bounds memory, does not change the batch of a step", low=1
    )
    dropout: bool = param(False, "fine-tune with the model's own dropout inside its layers; about a third slower")
    precision: Literal["auto", "float32", "bfloat16"] = param(
        "auto", "arithmetic of the model; auto: bfloat16 where the hardware has instructions for it"
    )
    device: str = param("auto", "'cpu', 'cuda', or several as 'cuda:0,cuda:1'; auto: all GPUs, or the CPU")
    cache_dir: str | None = param(
        None, "directory for computed embeddings and tokens; None: RAMIFY_CACHE, or ~/.cache/ramify"
    )

    def check_params(self) -> None:
        """Check also that a model is given."""
        super().check_params()
        if not self.model:
            raise ValueError("TransformerEncoder needs the directory of a model, or its name on the Hugging Face hub")


class Transformer:
    """A `TransformerEncoder` with its tokenizer and weights.

    torch holds the weights and trains them. Embeddings come from onnxruntime if the encoder was exported, from the
    compiled core for models of the BERT family on a CPU in float32, and from torch otherwise.
    """

    def __init__(self, config: TransformerEncoder, tokenizer: Any, module: Any) -> None:
        devices = find_devices(config.device)
        bfloat16 = config.precision == "bfloat16" or (config.precision == "auto" and has_bfloat16(devices[0]))
        self.config = config
        self.tokenizer = TextTokenizer(tokenizer, max_length=config.max_length, n_windows=config.n_windows)
        self.torch = TorchBackend(
            module, devices, pooling=config.pooling, max_length=config.max_length, bfloat16=bfloat16
        )
        self.onnx: OnnxBackend | None = None  # valid until the weights change
        self._native: NativeBackend | None = None  # made on demand, valid until the weights change
        self._last: tuple[str, FloatArray] | None = None
        self.begin_training(0)

    @classmethod
    def open(cls, config: TransformerEncoder) -> Transformer:
        """Read tokenizer and weights; the hub is asked only if there is no such directory."""
        import_torch()
        from transformers import AutoConfig, AutoModel, AutoTokenizer
        from transformers.utils import logging

        local = Path(config.model).expanduser()
        source = str(local) if local.is_dir() else config.model

        def read(local_files_only: bool) -> tuple[Any, Any]:
            # The folder's own code never runs, and nobody is asked whether it may.
            options: dict[str, Any] = {"local_files_only": local_files_only, "trust_remote_code": False}
            configuration = AutoConfig.from_pretrained(source, **options)
            configuration._attn_implementation = None  # a folder may name a kernel to download; this is the default
            tokenizer = AutoTokenizer.from_pretrained(source, use_fast=True, **options)
            return tokenizer, AutoModel.from_pretrained(source, config=configuration, use_safetensors=True, **options)

        shows_progress = logging.is_progress_bar_enabled()
        logging.disable_progress_bar()
        try:
            try:
                tokenizer, module = read(local_files_only=True)  # a directory, or what was downloaded before
            except (OSError, ValueError):
                if local.is_dir():
                    raise
                check_hub(config.model)
                tokenizer, module = read(local_files_only=False)
        except (OSError, ValueError) as error:
            raise DataError(
                f"cannot open the model {config.model!r}: {error}. Pass the directory of a Hugging Face model with "
                "config.json, tokenizer.json and model.safetensors, or its name on the hub (which needs a network)"
            ) from error
        finally:
            if shows_progress:
                logging.enable_progress_bar()
        return cls(config, tokenizer.backend_tokenizer, module.float())

    @property
    def dim(self) -> int:
        """Embedding dimension D."""
        return self.torch.dim

    @property
    def device(self) -> str:
        """The primary device."""
        return self.torch.device

    is_data_parallel = True
    """Each rank computes a part of every batch; `backward` adds the gradients of all."""

    default_epochs = 8
    """Training epochs that suit the encoder."""

    def learning_rate(self, default: float) -> float:
        """Return the encoder's own learning rate, whatever the default of other encoders."""
        return self.config.learning_rate

    # ---- embeddings ----

    def encode(self, samples: Samples, threads: int) -> FloatArray:
        """Embeddings (n, D) of samples with tokens."""
        if samples.tokens is None:
            raise DataError("a TransformerEncoder reads texts, but X is a matrix; pass texts, or use a BagEncoder")
        return self.encode_tokens(samples.tokens, threads)

    def encode_tokens(self, tokens: Tokens, threads: int, verbose: int = 0) -> FloatArray:
        """Embeddings (n, D) of norm `EMBEDDING_NORM`.

        The embeddings of the last call are kept, unless they are large: validation asks for the same texts repeatedly.
        """
        if self._last is not None and self._last[0] == tokens.digest():
            return self._last[1]
        with progress("embedding texts", len(tokens), verbose, "texts") as advance:
            pooled = self.backend.encode(tokens, max(1, threads), advance)
        embeddings = np.ascontiguousarray(normalize_rows(pooled) * np.float32(EMBEDDING_NORM), np.float32)
        embeddings.flags.writeable = False
        self._last = (tokens.digest(), embeddings) if embeddings.nbytes <= MAX_REMEMBERED_BYTES else None
        return embeddings

    @property
    def backend(self) -> OnnxBackend | NativeBackend | TorchBackend:
        """The backend that computes embeddings."""
        if self.onnx is not None:
            return self.onnx
        if self._native is None and self.torch.devices == ["cpu"] and not self.torch.bfloat16:
            config = self.config
            self._native = NativeBackend.build(
                self.torch.module.config, self.arrays(), pooling=config.pooling, max_length=config.max_length
            )
        return self.torch if self._native is None else self._native

    def cached_tokens(self, texts: list[str]) -> Tokens:
        """Tokenize texts once; the tokens are memory-mapped from the cache."""
        return self.tokenizer.cached(texts, self.config.cache_dir)

    def cached_embeddings(self, texts: list[str], threads: int, verbose: int) -> FloatArray:
        """Compute embeddings (n, D) once; the next training on the same texts reads them from the cache."""
        # The number of windows is part of the tokenizer's truncation.
        settings = json.dumps([self.config.pooling, self.config.max_length, self.torch.bfloat16])
        key = digest_of(settings, self.tokenizer.to_json(), self._weights_digest(), *texts)
        path = cache_directory(self.config.cache_dir) / f"embeddings-{key}"

        def is_valid(arrays: dict[str, AnyArray]) -> bool:
            array = arrays.get("embeddings")
            expected = np.dtype(np.float32), (len(texts), self.dim)
            return array is not None and (array.dtype, array.shape) == expected and bool(np.isfinite(array).all())

        def compute() -> dict[str, AnyArray]:
            return {"embeddings": self.encode_tokens(self.tokenizer(texts), threads, verbose)}

        return cached(path, compute, is_valid)["embeddings"]

    def _weights_digest(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        for name, array in self.torch.named_arrays():
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def to_onnx(self, *, int8: bool = False) -> None:
        """Compute embeddings by onnxruntime from now on; int8 is faster and slightly less accurate."""
        if self.device != "cpu":
            raise ValueError(f"the encoder runs on {self.device}; onnxruntime serves it on a CPU: device='cpu'")
        graph = export(self.torch.module, self.config.pooling, int8=int8)
        backend = OnnxBackend(graph, self.dim, max_length=self.config.max_length, int8=int8)
        tokens = Tokens.from_lists([[i % 50 for i in range(n)] for n in (3, 9, self.config.max_length)])
        before, embeddings = self.onnx, []
        bfloat16, self.torch.bfloat16 = self.torch.bfloat16, False  # the graph computes in float32
        try:
            for candidate in (None, backend):
                self.use_onnx(candidate)
                embeddings.append(self.encode_tokens(tokens, 1) / EMBEDDING_NORM)
        finally:
            self.torch.bfloat16 = bfloat16
        difference = float(np.abs(embeddings[0] - embeddings[1]).max())
        if not int8 and difference > ONNX_TOLERANCE:
            self.use_onnx(before)
            raise DataError(f"embeddings of onnxruntime differ from torch's by {difference:.1e}; nothing was exported")

    def use_onnx(self, backend: OnnxBackend | None) -> None:
        """Compute embeddings by an exported graph; None: by torch or the compiled core."""
        self.onnx, self._last = backend, None

    # ---- training ----

    def begin_training(self, seed: int) -> None:
        """Start a new training: reset the optimizer and seed the dropout masks."""
        config = self.config
        self._tuner = FineTuner(self.torch, micro_batch_size=config.micro_batch_size, dropout=config.dropout, seed=seed)

    def forward(self, samples: Samples, threads: int) -> tuple[FloatArray, Tape]:
        """Embeddings (n, D) of a batch, and the tape for `backward`."""
        assert samples.tokens is not None
        return self._tuner.forward(samples.tokens, threads)

    def backward(self, tape: Tape, d_phi: FloatArray, adam: Adam, threads: int) -> None:
        """Update the weights, given the gradients (n, D) of a batch's embeddings."""
        self._tuner.backward(tape, d_phi, adam, threads)
        self._drop_derived()

    def _drop_derived(self) -> None:
        """Drop what was computed from previous weights."""
        self._last, self._native, self.onnx = None, None, None

    def arrays(self) -> Arrays:
        """Weights by name."""
        return dict(self.torch.named_arrays())

    def set_arrays(self, arrays: Mapping[str, AnyArray]) -> None:
        """Copy the values of all weights."""
        self.torch.set_arrays(arrays)
        self._drop_derived()

    def optimizer_state(self) -> SavedArrays:
        """Return the state of the optimizer and of the dropout masks."""
        return self._tuner.optimizer_state()

    def set_optimizer_state(self, state: Mapping[str, AnyArray]) -> None:
        """Restore what `optimizer_state` returned."""
        self._tuner.set_optimizer_state(state)

    def copy(self) -> Transformer:
        """Return a copy with weights of its own, without optimizer state."""
        return Transformer(self.config, self.tokenizer.backend, copy.deepcopy(self.torch.module))

    # ---- files ----

    def save_to(self, writer: StoreWriter, prefix: str) -> dict[str, Any]:
        """Write tokenizer, configuration and weights into a model directory, which then needs no other files."""
        names = []
        for name, array in self.torch.named_arrays():
            writer.array(f"{prefix}{name}", array)
            names.append(name)
        writer.array(f"{prefix}tokenizer", np.frombuffer(self.tokenizer.to_json().encode(), np.uint8))
        info: dict[str, Any] = {
            "transformer": saved_architecture(self.torch.module.config),
            "weights": names,
            "onnx": None,
        }
        if self.onnx is not None:
            writer.array(f"{prefix}onnx", np.frombuffer(self.onnx.graph, np.uint8))
            info["onnx"] = "int8" if self.onnx.int8 else "float32"
        return info

    @classmethod
    def load_from(cls, store: Store, info: Any, prefix: str, config: TransformerEncoder) -> Transformer:
        """Open what `save_to` wrote; the directory contributes weights for a known architecture, never code."""
        if not isinstance(info, dict) or not isinstance(info.get("transformer"), dict):
            raise ModelFormatError(f"the manifest of {store.path} does not describe the encoder")
        torch = import_torch()
        from tokenizers import Tokenizer

        try:
            tokenizer = Tokenizer.from_str(bytes(store.array(f"{prefix}tokenizer", np.uint8, ndim=1)).decode())
            module = open_architecture(info["transformer"], info.get("weights"), store, prefix)
            for name, tensor in module.state_dict().items():
                dtype = np.dtype(str(tensor.dtype).removeprefix("torch."))
                array = store.array(f"{prefix}{name}", dtype, shape=tuple(tensor.shape))
                tensor.copy_(torch.from_numpy(np.array(array)))
        except ModelFormatError:
            raise
        except Exception as error:  # the configuration is another library's: damage can raise nearly anything
            raise ModelFormatError(f"{store.path}: the encoder is damaged: {error}") from error
        encoder, form = cls(config, tokenizer, module.float()), info.get("onnx")
        if form not in (None, "float32", "int8"):
            raise ModelFormatError(f"{store.path}: unknown form of the ONNX graph: {form!r}")
        if form is not None and is_installed() and encoder.device == "cpu":  # otherwise torch computes nearly the same
            graph = store.array(f"{prefix}onnx", np.uint8, ndim=1).tobytes()
            check_graph(graph)
            encoder.onnx = OnnxBackend(graph, encoder.dim, max_length=config.max_length, int8=form == "int8")
        return encoder
