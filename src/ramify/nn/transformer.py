"""Pretrained encoders of texts: any Hugging Face model, frozen with cached vectors, or trained along."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ramify.base.config import Config, param
from ramify.base.errors import DataError, ModelFormatError
from ramify.base.progress import Advance, progress
from ramify.base.sparse import normalize_rows
from ramify.base.types import AnyArray, FloatArray, LongArray
from ramify.io.store import Store, StoreWriter
from ramify.native.neural import TextEncoder
from ramify.nn.cache import cache_folder, digest_of, write_array
from ramify.nn.encoder import START_LENGTH
from ramify.nn.native_encoder import native_encoder
from ramify.nn.onnx import OnnxGraph, export, is_installed, pooling_module
from ramify.nn.points import Points, Tokens, batches_by_length, parts_of_like_length
from ramify.nn.tables import Adam, Arrays, RowTable, arrays_of, named_arrays
from ramify.nn.torch_devices import find_devices, has_bfloat16, need_torch

TOKENS_AT_ONCE = {"cpu": 1024, "cuda": 16384}
"""Tokens that go through the model together, padding included: few on a processor, so that its caches hold them."""
TEXTS_AT_ONCE = 1024
"""Texts that the tokenizer, and the compiled core, are given together."""
ONNX_TOLERANCE = 1e-3
"""How far a graph's vectors of length 1 may be from the model's."""
REMEMBERED_BYTES = 1 << 26
"""Vectors of the last call that are remembered at most."""


@dataclass(kw_only=True, eq=False, repr=False)
class TransformerEncoder(Config):
    """A Hugging Face model. Frozen, its vectors are computed once and a small residual layer learns on top of them.

    >>> TransformerEncoder("models/minilm", frozen=True, max_len=64)
    TransformerEncoder(model='models/minilm', frozen=True, max_len=64)
    """

    model: str = param("", "folder of the model, or its name on the hub", positional=True)
    frozen: bool = param(False, "the model stays as it is; a residual layer on its vectors is trained")
    pooling: Literal["mean", "cls"] = param("mean", "a text's vector: the mean of its tokens, or its first token")
    max_len: int = param(128, "tokens of a text that are read at once", low=4)
    windows: int = param(1, "stretches of `max_len` tokens that are read of a long text, and pooled together", low=1)
    rate: float = param(1e-4, "learning rate of the model, unless frozen", above=0)
    rows_at_once: int = param(64, "texts that a training step computes together; does not change the batch", low=1)
    dropout: bool = param(False, "training also drops numbers inside the model, by its own settings; a third slower")
    precision: Literal["auto", "float32", "bfloat16"] = param(
        "auto", "numbers that the model computes with; auto: bfloat16 where the machine has instructions for it"
    )
    device: str = param("auto", "'cpu', 'cuda', several as 'cuda:0,cuda:1'; auto: all GPUs, the processor without one")
    cache: str | None = param(None, "folder for computed vectors and tokens; None: RAMIFY_CACHE, or ~/.cache/ramify")

    def check_params(self) -> None:
        """Also ask for the model's place."""
        super().check_params()
        if not self.model:
            raise ValueError("TransformerEncoder needs the folder of a model, or its name on the hub")


@dataclass(frozen=True)
class _Part:
    """Some texts of a batch: where they are computed, which they are, and the number of their random numbers."""

    tokens: Tokens
    place: int
    rows: LongArray
    turn: int


class Transformer:
    """A `TransformerEncoder` with its tokenizer and weights, on its devices."""

    def __init__(self, config: TransformerEncoder, tokenizer: Any, module: Any) -> None:
        self.config = config
        self.tokenizer = tokenizer
        self.tokenizer.enable_truncation(2 + config.windows * (config.max_len - 2))  # 2: the marks at both ends
        self.tokenizer.no_padding()
        self.devices = find_devices(config.device)
        self.device = self.devices[0]
        self.module = module.to(self.device).eval()
        self._copies = [self.module, *(copy.deepcopy(module).to(device).eval() for device in self.devices[1:])]
        self._pooling = [pooling_module(module, config.pooling) for module in self._copies]
        self._native: TextEncoder | None = None  # made when it is needed, until the weights change
        self.onnx: OnnxGraph | None = None  # computes vectors in place of torch, until the weights change
        self.half = config.precision == "bfloat16" or (config.precision == "auto" and has_bfloat16(self.device))
        self._optimizer: Any = None
        self._words: RowTable | None = (
            None  # the vectors of tokens, of which a step uses a few; on GPUs one of many weights
        )
        self._seed, self._turn = 0, 0  # of the dropout
        self._last: tuple[str, FloatArray] | None = None

    @classmethod
    def open(cls, config: TransformerEncoder) -> Transformer:
        """Read tokenizer and weights; the hub is asked only where there is no such folder."""
        need_torch()
        from transformers import AutoModel, AutoTokenizer
        from transformers.utils import logging

        local = Path(config.model).expanduser()
        place = str(local) if local.is_dir() else config.model
        options: dict[str, Any] = {"local_files_only": local.is_dir()}
        shows_bars = logging.is_progress_bar_enabled()
        logging.disable_progress_bar()
        try:
            tokenizer = AutoTokenizer.from_pretrained(place, use_fast=True, **options)
            module = AutoModel.from_pretrained(place, use_safetensors=True, **options)
        except (OSError, ValueError) as error:
            raise DataError(
                f"cannot open the model {config.model!r}: {error}. Give the folder of a Hugging Face model with "
                "config.json, tokenizer.json and model.safetensors, or its name on the hub (which needs a network)"
            ) from error
        finally:
            if shows_bars:
                logging.enable_progress_bar()
        return cls(config, tokenizer.backend_tokenizer, module.float())

    @property
    def width(self) -> int:
        """Numbers D in a vector."""
        return int(self.module.config.hidden_size)

    @property
    def _tokens_at_once(self) -> int:
        return TOKENS_AT_ONCE["cpu" if self.device == "cpu" else "cuda"]

    def rate(self, _: float) -> float:
        """Learning rate: the encoder's own, whatever suits others."""
        return self.config.rate

    # ---- texts and tokens ----

    def tokens(self, texts: list[str]) -> Tokens:
        """Cut texts into tokens, some at a time: all that a tokenizer tells about them takes far more memory."""
        parts = [texts[start : start + TEXTS_AT_ONCE] for start in range(0, len(texts), TEXTS_AT_ONCE)]
        return Tokens.joined([Tokens.of([e.ids for e in self.tokenizer.encode_batch(part)]) for part in parts])

    def cached_tokens(self, texts: list[str]) -> Tokens:
        """Cut texts into tokens once; they lie on disk and are mapped into memory."""
        key = digest_of(self.tokenizer.to_str(), *texts)
        folder = cache_folder(self.config.cache)
        ids = folder / f"tokens-{key}.npy"
        begin = folder / f"tokens-{key}-begin.npy"
        if not (ids.exists() and begin.exists()):
            made = self.tokens(texts)
            write_array(begin, made.begin)
            write_array(ids, made.ids)
        return Tokens(np.load(begin, mmap_mode="r"), np.load(ids, mmap_mode="r"))

    # ---- vectors ----

    def encode(self, points: Points, threads: int) -> FloatArray:
        """Vectors (n, D) of points with tokens."""
        if points.tokens is None:
            raise DataError("a TransformerEncoder reads texts, but X is a matrix; give texts, or use a BagEncoder")
        return self.encode_tokens(points.tokens, threads)

    def encode_tokens(self, tokens: Tokens, threads: int, verbose: int = 0) -> FloatArray:
        """Vectors (n, D), of the length that word vectors start from.

        Those of the last call are remembered, unless they are many: whoever measures asks for the same texts again.
        """
        if self._last is not None and self._last[0] == tokens.digest():
            return self._last[1]
        with progress("vectors of texts", len(tokens), verbose) as advance:
            compute = self._by_torch if self.native is None else self._by_core
            vectors = compute(tokens, max(1, threads), advance)
        vectors = np.ascontiguousarray(normalize_rows(vectors) * np.float32(START_LENGTH), np.float32)
        vectors.flags.writeable = False
        self._last = (tokens.digest(), vectors) if vectors.nbytes <= REMEMBERED_BYTES else None
        return vectors

    @property
    def native(self) -> TextEncoder | None:
        """The encoder as the compiled core runs it; None: of another kind, or for onnxruntime, a GPU or bfloat16."""
        if self._native is None and self.onnx is None and self.devices == ["cpu"] and not self.half:
            self._native = native_encoder(self.module.config, self.arrays())
        return None if self.onnx is not None else self._native

    def _by_core(self, tokens: Tokens, threads: int, advance: Advance) -> FloatArray:
        """Vectors (n, D), not yet of one length."""
        encoder, first = self.native, self.config.pooling == "cls"
        assert encoder is not None
        vectors = np.empty((len(tokens), self.width), np.float32)
        for start in range(0, len(tokens), TEXTS_AT_ONCE):
            rows = np.arange(start, min(start + TEXTS_AT_ONCE, len(tokens)))
            part, owner = tokens.take(rows).windows(self.config.max_len)
            found = encoder.encode(part.ids, part.begin, first, threads)
            if len(owner) > len(rows):
                weights = np.ones(len(owner), np.float32) if first else np.diff(part.begin).astype(np.float32)
                begin = np.searchsorted(owner, np.arange(len(rows)))
                vectors[rows] = np.add.reduceat(found * weights[:, None], begin)
                vectors[rows] /= np.add.reduceat(weights, begin)[:, None]
            else:
                vectors[rows] = found
            advance(len(rows))
        return vectors

    def _by_torch(self, tokens: Tokens, threads: int, advance: Advance) -> FloatArray:
        """Vectors (n, D), not yet of one length; texts of like length go together."""
        torch = need_torch()
        vectors = np.zeros((len(tokens), self.width), np.float32)
        batches, n = list(batches_by_length(np.diff(tokens.begin), self._tokens_at_once)), len(self.devices)
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            with torch.inference_mode():
                for start in range(0, len(batches), n):
                    group = batches[start : start + n]  # every device has its work before the first is asked for it
                    pooled = [self._vectors(tokens.take(rows), place, threads) for place, rows in enumerate(group)]
                    for rows, part in zip(group, pooled, strict=True):
                        vectors[rows] = part.float().cpu().numpy()
                        advance(len(rows))
        finally:
            torch.set_num_threads(before)
        return vectors

    def cached_vectors(self, texts: list[str], threads: int, verbose: int) -> FloatArray:
        """Compute vectors (n, D) once; they lie on disk for the next training on the same texts."""
        # How many windows there are stands in the tokenizer, which cuts texts off behind the last.
        settings = json.dumps([self.config.pooling, self.config.max_len, self.half])
        key = digest_of(settings, self.tokenizer.to_str(), self._weights_digest(), *texts)
        place = cache_folder(self.config.cache) / f"vectors-{key}.npy"
        if not place.exists():
            write_array(place, self.encode_tokens(self.tokens(texts), threads, verbose))
        vectors: FloatArray = np.load(place, mmap_mode="r")
        return vectors

    def _weights_digest(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        for name, array in self._arrays():
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def _vectors(self, tokens: Tokens, place: int, threads: int) -> Any:
        """Mean or first token (n, D) as a tensor, by onnxruntime where there is a graph."""
        if self.onnx is None:
            return self._pooled(tokens, place)
        tokens, owner = tokens.windows(self.config.max_len)
        sums, weights = (need_torch().from_numpy(part) for part in self.onnx(*tokens.padded(), max(1, threads)))
        return _of_texts(sums, weights, owner)

    def _pooled(self, tokens: Tokens, place: int = 0) -> Any:
        """Mean or first token (n, D) as a tensor that gradients flow through, on one of the devices."""
        torch, device = need_torch(), self.devices[place]
        tokens, owner = tokens.windows(self.config.max_len)
        ids, mask = (torch.from_numpy(array).to(device) for array in tokens.padded())
        with torch.autocast(device.split(":")[0], torch.bfloat16, enabled=self.half):
            sums, weights = self._pooling[place](ids, mask)
        return _of_texts(sums, weights, owner)

    def to_onnx(self, *, int8: bool = False) -> None:
        """Compute vectors by onnxruntime from now on; int8: faster, and a little off."""
        if self.device != "cpu":
            raise ValueError(f"the encoder runs on {self.device}; onnxruntime serves it on a processor: device='cpu'")
        graph = OnnxGraph(export(self.module, self.config.pooling, int8=int8), int8=int8)
        tokens = Tokens.of([[i % 50 for i in range(n)] for n in (3, 9, self.config.max_len)])
        before, vectors = self.onnx, []
        for way in (None, graph):
            self.use_onnx(way)
            vectors.append(self.encode_tokens(tokens, 1) / START_LENGTH)
        apart = float(np.abs(vectors[0] - vectors[1]).max())
        if not int8 and apart > ONNX_TOLERANCE:
            self.use_onnx(before)
            raise DataError(f"onnxruntime's vectors are {apart:.1e} away from torch's; the encoder stays as it is")

    def use_onnx(self, graph: OnnxGraph | None) -> None:
        """Compute vectors by a graph; None: by torch."""
        self.onnx, self._last = graph, None

    # ---- training ----

    def begin(self, seed: int) -> None:
        """Get ready for a training of its own: forget moments, and drop out by the seed."""
        self._optimizer, self._words = None, None
        self._seed, self._turn = seed, 0

    def forward(self, points: Points, threads: int) -> tuple[FloatArray, Any]:
        """Vectors (n, D) of a batch, and what `backward` needs.

        Texts of like length go through the model together. Of batches beyond `rows_at_once`, what the gradients need is
        computed again by `backward`, with the same random numbers, so that memory does not bound the batch. The parts
        of a batch are shared out among the devices; how many there are does not change the batch.
        """
        torch, n, size = need_torch(), len(points), self.config.rows_at_once
        assert points.tokens is not None
        torch.set_num_threads(max(1, threads))
        for module in self._copies:
            module.train(self.config.dropout)
        self._embeddings.sparse = self.devices == ["cpu"]
        vectors, tape, found = np.empty((n, self.width), np.float32), [], []
        most = min(size, -(-n // len(self.devices)))
        for number, rows in enumerate(parts_of_like_length(np.diff(points.tokens.begin), most, self._tokens_at_once)):
            part = _Part(points.tokens.take(rows), number % len(self.devices), rows, self._turn)
            with torch.set_grad_enabled(n <= size):
                found.append(self._of_part(part))
            tape.append((part, found[-1] if n <= size else None))
            self._turn += 1
        for (part, _), pooled in zip(tape, found, strict=True):
            vectors[part.rows] = pooled.detach().cpu().numpy()
        return vectors, tape

    def _of_part(self, part: _Part) -> Any:
        """Vectors of a part of a batch; the same are dropped whenever it is asked for."""
        torch = need_torch()
        with torch.random.fork_rng([int(d.partition(":")[2] or 0) for d in self.devices if d.startswith("cuda")]):
            torch.manual_seed(int(np.random.SeedSequence([self._seed, part.turn]).generate_state(1)[0]))
            pooled = self._pooled(part.tokens, part.place)
        return torch.nn.functional.normalize(pooled, dim=1) * START_LENGTH

    def backward(self, tape: Any, d_vectors: FloatArray, adam: Adam, threads: int) -> None:
        """Learn from the gradients (n, D) of a batch's vectors, by AdamW; offsets and gains do not decay."""
        torch = need_torch()
        optimizer = self._prepare(adam.weight_decay)
        for group in optimizer.param_groups:
            group["lr"] = adam.rate
        for module in self._copies:
            module.zero_grad(set_to_none=True)
        gradients = torch.from_numpy(np.ascontiguousarray(d_vectors))
        for part, pooled in tape:
            own = gradients[torch.from_numpy(part.rows)].to(self.devices[part.place])
            (self._of_part(part) if pooled is None else pooled).backward(own)
        for module in self._copies[1:]:
            for mine, other in zip(self.module.parameters(), module.parameters(), strict=True):
                if other.grad is not None:
                    theirs = other.grad.to(self.device)
                    mine.grad = theirs if mine.grad is None else mine.grad + theirs
        if self._words is not None:
            self._step_words(self._words, adam, threads)
        optimizer.step()
        self._embeddings.sparse = False
        self._changed()
        for module in self._copies:
            module.eval()

    @property
    def _embeddings(self) -> Any:
        return self.module.get_input_embeddings()

    def _step_words(self, words: RowTable, adam: Adam, threads: int) -> None:
        """Move the vectors of the tokens of a batch."""
        weight = self._embeddings.weight
        gradients, weight.grad = weight.grad.coalesce(), None
        rows, values = gradients.indices()[0].numpy().astype(np.int32), gradients.values().numpy()
        n = len(rows)
        words.step((rows, np.arange(n + 1), np.arange(n)), np.ones((n, 1), np.float32), values, adam, threads)

    def _changed(self) -> None:
        """Bring the weights of the first device to the others; what was made of old ones is of no use."""
        torch = need_torch()
        self._last, self._native, self.onnx = None, None, None
        with torch.no_grad():
            for module in self._copies[1:]:
                for mine, other in zip(self.module.state_dict().values(), module.state_dict().values(), strict=True):
                    other.copy_(mine)

    def _prepare(self, weight_decay: float) -> Any:
        if self._optimizer is None:
            torch = need_torch()
            words = self._embeddings.weight
            if self.devices == ["cpu"]:
                self._words = RowTable(words.detach().numpy(), None)
            rest = [p for p in self.module.parameters() if p.requires_grad and (self._words is None or p is not words)]
            groups = [
                {"params": [p for p in rest if p.ndim > 1], "weight_decay": weight_decay},
                {"params": [p for p in rest if p.ndim <= 1], "weight_decay": 0.0},
            ]
            self._optimizer = torch.optim.AdamW(groups, fused=True)
        return self._optimizer

    def arrays(self) -> Arrays:
        """Weights by name."""
        return dict(self._arrays())

    def set_arrays(self, arrays: Mapping[str, AnyArray]) -> None:
        """Take over the values of all weights."""
        torch = need_torch()
        with torch.no_grad():
            for name, tensor in self.module.state_dict().items():
                tensor.copy_(torch.from_numpy(np.ascontiguousarray(arrays[name])))
        self._changed()

    def moments(self) -> Arrays:
        """What AdamW and the dropout remember."""
        found: Arrays = {"random": np.array([self._seed, self._turn])}
        if self._optimizer is not None:
            for i, entry in self._optimizer.state_dict()["state"].items():
                found |= {f"{i}.{name}": value.detach().cpu().numpy() for name, value in entry.items()}
            found["weight_decay"] = np.array([self._optimizer.param_groups[0]["weight_decay"]])
        return found if self._words is None else {**found, **named_arrays("words", self._words.moments())}

    def set_moments(self, moments: Mapping[str, AnyArray]) -> None:
        """Go on from what `moments` gave."""
        torch = need_torch()
        self._seed, self._turn = map(int, moments["random"])
        if "weight_decay" not in moments:
            return
        optimizer = self._prepare(float(moments["weight_decay"][0]))
        state: dict[int, dict[str, Any]] = {}
        for key, value in moments.items():
            number, _, name = key.partition(".")
            if name and number != "words":
                tensor = torch.from_numpy(np.array(value))
                state.setdefault(int(number), {})[name] = tensor.reshape(()) if name == "step" else tensor
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
        if self._words is not None:
            self._words.set_moments(arrays_of("words", moments))

    def snapshot(self) -> Transformer:
        """Return a copy, without moments."""
        return Transformer(self.config, self.tokenizer, copy.deepcopy(self.module))

    # ---- files ----

    def _arrays(self) -> Iterator[tuple[str, FloatArray]]:
        for name, tensor in sorted(self.module.state_dict().items()):
            yield name, tensor.detach().cpu().numpy()

    def save_to(self, writer: StoreWriter, prefix: str) -> dict[str, Any]:
        """Write tokenizer, settings and weights into a model's directory, which so needs nothing else."""
        names = []
        for name, array in self._arrays():
            writer.array(f"{prefix}{name}", array)
            names.append(name)
        writer.array(f"{prefix}tokenizer", np.frombuffer(self.tokenizer.to_str().encode(), np.uint8))
        info = {"transformer": self.module.config.to_dict(), "weights": names, "onnx": None}
        if self.onnx is not None:
            writer.array(f"{prefix}onnx", np.frombuffer(self.onnx.graph, np.uint8))
            info["onnx"] = "int8" if self.onnx.int8 else "float32"
        return info

    @classmethod
    def load_from(cls, store: Store, info: Any, prefix: str, config: TransformerEncoder) -> Transformer:
        """Open what `save_to` wrote; no code comes from the directory, only a known architecture with its weights."""
        if not isinstance(info, dict) or not isinstance(info.get("transformer"), dict):
            raise ModelFormatError(f"the manifest of {store.path} does not describe the encoder")
        torch = need_torch()
        from tokenizers import Tokenizer
        from transformers import AutoConfig, AutoModel

        settings = dict(info["transformer"])
        try:
            tokenizer = Tokenizer.from_str(bytes(store.array(f"{prefix}tokenizer", np.uint8, ndim=1)).decode())
            shape = AutoConfig.for_model(settings.pop("model_type"), **settings)
            module = AutoModel.from_config(shape)
            for name, tensor in module.state_dict().items():
                dtype = np.dtype(str(tensor.dtype).removeprefix("torch."))
                array = store.array(f"{prefix}{name}", dtype, shape=tuple(tensor.shape))
                tensor.copy_(torch.from_numpy(np.array(array)))
        except ModelFormatError:
            raise
        except Exception as error:  # the settings are another library's: damage can raise nearly anything
            raise ModelFormatError(f"{store.path}: the encoder is damaged: {error}") from error
        encoder, way = cls(config, tokenizer, module.float()), info.get("onnx")
        if way not in (None, "float32", "int8"):
            raise ModelFormatError(f"{store.path}: the encoder is in a form that this Ramify does not know: {way!r}")
        if way is not None and is_installed() and encoder.device == "cpu":  # torch computes nearly the same without it
            encoder.onnx = OnnxGraph(store.array(f"{prefix}onnx", np.uint8, ndim=1).tobytes(), int8=way == "int8")
        return encoder


def _of_texts(sums: Any, weights: Any, owner: LongArray) -> Any:
    """Means (n, D) over the windows of each text, of which all that they read counts alike."""
    if len(owner) > owner[-1] + 1:
        torch, n = need_torch(), int(owner[-1]) + 1
        texts = torch.from_numpy(owner).to(sums.device)
        sums, weights = (
            torch.zeros(n, part.shape[1], device=sums.device).index_add(0, texts, part) for part in (sums, weights)
        )
    return sums / weights
