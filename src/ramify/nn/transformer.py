"""Pretrained encoders of texts: any Hugging Face model, frozen with cached vectors, or trained along."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ramify.base.config import Config, param
from ramify.base.errors import DataError, ModelFormatError
from ramify.base.progress import progress
from ramify.base.types import AnyArray, FloatArray, LongArray
from ramify.io.store import Store, StoreWriter
from ramify.labels.representations import normalize_rows
from ramify.nn.encoder import START_LENGTH
from ramify.nn.points import Points, Tokens
from ramify.nn.tables import Adam, Arrays

TOKENS_AT_ONCE = 4096
"""Tokens that go through the model together where nothing is trained, padding included."""


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
    precision: Literal["auto", "float32", "bfloat16"] = param(
        "auto", "numbers that the model computes with; auto: bfloat16 where the machine has instructions for it"
    )
    device: str = param("auto", "'cpu', 'cuda', …; auto: a GPU if there is one")
    cache: str | None = param(None, "folder for computed vectors and tokens; None: RAMIFY_CACHE, or ~/.cache/ramify")

    def check_params(self) -> None:
        """Also ask for the model's place."""
        super().check_params()
        if not self.model:
            raise ValueError("TransformerEncoder needs the folder of a model, or its name on the hub")


class Transformer:
    """A `TransformerEncoder` with its tokenizer and weights, on its device."""

    def __init__(self, config: TransformerEncoder, tokenizer: Any, module: Any) -> None:
        torch = _torch()
        self.config = config
        self.tokenizer = tokenizer
        self.tokenizer.enable_truncation(2 + config.windows * (config.max_len - 2))  # 2: the marks at both ends
        self.tokenizer.no_padding()
        self.device = ("cuda" if torch.cuda.is_available() else "cpu") if config.device == "auto" else config.device
        self.module = module.to(self.device).eval()
        self.half = config.precision == "bfloat16" or (config.precision == "auto" and _has_bfloat16(self.device))
        self._optimizer: Any = None

    @classmethod
    def open(cls, config: TransformerEncoder) -> Transformer:
        """Read tokenizer and weights; the hub is asked only where there is no such folder."""
        _torch()
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

    def rate(self, _: float) -> float:
        """Learning rate: the encoder's own, whatever suits others."""
        return self.config.rate

    # ---- texts and tokens ----

    def tokens(self, texts: list[str]) -> Tokens:
        """Cut texts into tokens."""
        return Tokens.of([encoding.ids for encoding in self.tokenizer.encode_batch(texts)])

    def cached_tokens(self, texts: list[str]) -> Tokens:
        """Cut texts into tokens once; they lie on disk and are mapped into memory."""
        key = _digest(self.tokenizer.to_str(), *texts)
        folder = _cache_folder(self.config)
        ids = folder / f"tokens-{key}.npy"
        begin = folder / f"tokens-{key}-begin.npy"
        if not (ids.exists() and begin.exists()):
            made = self.tokens(texts)
            _write_array(begin, made.begin)
            _write_array(ids, made.ids)
        return Tokens(np.load(begin, mmap_mode="r"), np.load(ids, mmap_mode="r"))

    # ---- vectors ----

    def encode(self, points: Points, threads: int) -> FloatArray:
        """Vectors (n, D) of points with tokens."""
        if points.tokens is None:
            raise DataError("a TransformerEncoder reads texts, but X is a matrix; give texts, or use a BagEncoder")
        return self.encode_tokens(points.tokens, threads)

    def encode_tokens(self, tokens: Tokens, threads: int, verbose: int = 0) -> FloatArray:
        """Vectors (n, D), of the length that word vectors start from; texts of like length go together."""
        torch = _torch()
        vectors = np.zeros((len(tokens), self.width), np.float32)
        before = torch.get_num_threads()
        torch.set_num_threads(max(1, threads))
        try:
            with torch.inference_mode(), progress("vectors of texts", len(tokens), verbose) as advance:
                for rows in _batches_by_length(np.diff(tokens.begin)):
                    vectors[rows] = self._pooled(tokens.take(rows)).float().cpu().numpy()
                    advance(len(rows))
        finally:
            torch.set_num_threads(before)
        return np.ascontiguousarray(normalize_rows(vectors) * np.float32(START_LENGTH), np.float32)

    def cached_vectors(self, texts: list[str], threads: int, verbose: int) -> FloatArray:
        """Compute vectors (n, D) once; they lie on disk for the next training on the same texts."""
        # How many windows there are stands in the tokenizer, which cuts texts off behind the last.
        settings = json.dumps([self.config.pooling, self.config.max_len, self.half])
        key = _digest(settings, self.tokenizer.to_str(), self._weights_digest(), *texts)
        place = _cache_folder(self.config) / f"vectors-{key}.npy"
        if not place.exists():
            _write_array(place, self.encode_tokens(self.tokens(texts), threads, verbose))
        vectors: FloatArray = np.load(place, mmap_mode="r")
        return vectors

    def _weights_digest(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        for name, array in self._arrays():
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def _pooled(self, tokens: Tokens) -> Any:
        """Mean or first token (n, D) as a tensor that gradients flow through."""
        torch = _torch()
        tokens, owner = tokens.windows(self.config.max_len)
        ids, mask = (torch.from_numpy(array).to(self.device) for array in tokens.padded())
        with torch.autocast(self.device.split(":")[0], torch.bfloat16, enabled=self.half):
            hidden = self.module(input_ids=ids, attention_mask=mask).last_hidden_state
        if self.config.pooling == "cls":
            sums, weights = hidden[:, 0].float(), torch.ones(len(ids), 1, device=self.device)
        else:
            mask = mask.unsqueeze(-1).to(torch.float32)
            sums, weights = (hidden.float() * mask).sum(1), mask.sum(1).clamp(min=1)
        if len(ids) > owner[-1] + 1:  # some texts have several windows: all that they read counts alike
            texts = torch.from_numpy(owner).to(self.device)
            n = int(owner[-1]) + 1
            sums, weights = (
                torch.zeros(n, part.shape[1], device=self.device).index_add(0, texts, part) for part in (sums, weights)
            )
        return sums / weights

    # ---- training ----

    def begin(self, seed: int) -> None:
        """Get ready for a training of its own: forget moments, and drop out by the seed."""
        self._optimizer = None
        _torch().manual_seed(seed)

    def forward(self, points: Points, threads: int) -> tuple[FloatArray, Any]:
        """Vectors (n, D) of a batch, and what `backward` needs.

        No more than `rows_at_once` go through the model together: what they need for the gradients is computed again
        by `backward`, with the same random numbers, so that memory does not bound the batch.
        """
        torch = _torch()
        assert points.tokens is not None
        torch.set_num_threads(max(1, threads))
        self.module.train()
        n, size = len(points), self.config.rows_at_once
        if n <= size:
            vectors = self._of_length(self._pooled(points.tokens))
            return vectors.detach().cpu().numpy(), vectors
        parts, found = [], []
        for start in range(0, n, size):
            tokens = points.tokens.take(np.arange(start, min(n, start + size)))
            parts.append((tokens, torch.get_rng_state()))
            with torch.no_grad():
                found.append(self._of_length(self._pooled(tokens)).cpu().numpy())
        return np.concatenate(found), parts

    @staticmethod
    def _of_length(pooled: Any) -> Any:
        return _torch().nn.functional.normalize(pooled, dim=1) * START_LENGTH

    def backward(self, tape: Any, d_vectors: FloatArray, adam: Adam, threads: int) -> None:
        """Learn from the gradients (n, D) of a batch's vectors, by AdamW; offsets and gains do not decay."""
        torch = _torch()
        optimizer = self._prepare(adam.weight_decay)
        for group in optimizer.param_groups:
            group["lr"] = adam.rate
        optimizer.zero_grad(set_to_none=True)
        gradients = torch.from_numpy(np.ascontiguousarray(d_vectors)).to(self.device)
        if not isinstance(tape, list):
            tape.backward(gradients)
        else:
            after, start = torch.get_rng_state(), 0
            for tokens, random in tape:
                torch.set_rng_state(random)
                self._of_length(self._pooled(tokens)).backward(gradients[start : start + len(tokens)])
                start += len(tokens)
            torch.set_rng_state(after)
        optimizer.step()
        self.module.eval()

    def _prepare(self, weight_decay: float) -> Any:
        if self._optimizer is None:
            torch = _torch()
            named = [p for _, p in self.module.named_parameters() if p.requires_grad]
            groups = [
                {"params": [p for p in named if p.ndim > 1], "weight_decay": weight_decay},
                {"params": [p for p in named if p.ndim <= 1], "weight_decay": 0.0},
            ]
            self._optimizer = torch.optim.AdamW(groups)
        return self._optimizer

    def arrays(self) -> Arrays:
        """Weights by name."""
        return dict(self._arrays())

    def set_arrays(self, arrays: Mapping[str, AnyArray]) -> None:
        """Take over the values of all weights."""
        torch = _torch()
        with torch.no_grad():
            for name, tensor in self.module.state_dict().items():
                tensor.copy_(torch.from_numpy(np.ascontiguousarray(arrays[name])))

    def moments(self) -> Arrays:
        """What AdamW and the dropout remember."""
        torch = _torch()
        found: Arrays = {"random": torch.get_rng_state().numpy()}
        if self._optimizer is not None:
            for i, entry in self._optimizer.state_dict()["state"].items():
                found |= {f"{i}.{name}": value.detach().cpu().numpy() for name, value in entry.items()}
            found["weight_decay"] = np.array([self._optimizer.param_groups[0]["weight_decay"]])
        return found

    def set_moments(self, moments: Mapping[str, AnyArray]) -> None:
        """Go on from what `moments` gave."""
        torch = _torch()
        torch.set_rng_state(torch.from_numpy(np.array(moments["random"])))
        if "weight_decay" not in moments:
            return
        optimizer = self._prepare(float(moments["weight_decay"][0]))
        state: dict[int, dict[str, Any]] = {}
        for key, value in moments.items():
            number, _, name = key.partition(".")
            if name:
                tensor = torch.from_numpy(np.array(value))
                state.setdefault(int(number), {})[name] = tensor.reshape(()) if name == "step" else tensor
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})

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
        return {"transformer": self.module.config.to_dict(), "weights": names}

    @classmethod
    def load_from(cls, store: Store, info: Any, prefix: str, config: TransformerEncoder) -> Transformer:
        """Open what `save_to` wrote; no code comes from the directory, only a known architecture with its weights."""
        if not isinstance(info, dict) or not isinstance(info.get("transformer"), dict):
            raise ModelFormatError(f"the manifest of {store.path} does not describe the encoder")
        torch = _torch()
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
        return cls(config, tokenizer, module.float())


def _torch() -> Any:
    try:
        import torch
        import transformers  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "a TransformerEncoder needs torch and transformers: pip install 'ramify[deep]'; a BagEncoder needs neither"
        ) from error
    return torch


def _has_bfloat16(device: str) -> bool:
    torch = _torch()
    if device.startswith("cuda"):
        return bool(torch.cuda.is_bf16_supported())
    # Other processors compute bfloat16 by way of float32, which takes longer.
    asks = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    return device == "cpu" and asks is not None and bool(asks()) and "AVX512" in torch.backends.cpu.get_cpu_capability()


def _batches_by_length(lengths: LongArray) -> Iterator[LongArray]:
    """Rows of like length, as many as fit into `TOKENS_AT_ONCE`."""
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        count = max(1, TOKENS_AT_ONCE // max(1, int(lengths[order[start]])))
        yield order[start : start + count]
        start += count


def _digest(*parts: str) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def _cache_folder(config: TransformerEncoder) -> Path:
    folder = Path(config.cache or os.environ.get("RAMIFY_CACHE") or "~/.cache/ramify").expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _write_array(place: Path, array: Any) -> None:
    """Write an array beside its place and move it there: another process sees all of it or nothing."""
    with tempfile.NamedTemporaryFile(dir=place.parent, suffix=".npy", delete=False) as out:
        np.save(out, array, allow_pickle=False)
    Path(out.name).replace(place)
