"""Torch, where it is installed, and the devices that it finds."""

from __future__ import annotations

from typing import Any


def need_torch() -> Any:
    """Return torch, or say how to get it."""
    try:
        import torch
        import transformers  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "a TransformerEncoder needs torch and transformers: pip install 'ramify[deep]'; a BagEncoder needs neither"
        ) from error
    return torch


def find_devices(wish: str) -> list[str]:
    """Return the devices that a wish names, the first for all that is not shared out."""
    torch = need_torch()
    if wish == "auto":
        return [f"cuda:{i}" for i in range(torch.cuda.device_count())] or ["cpu"]
    devices = [name.strip() for name in wish.split(",")]
    try:
        kinds = {torch.device(name).type for name in devices}
    except RuntimeError as error:
        raise ValueError(f"device {wish!r} is none that torch knows: {str(error).splitlines()[0]}") from error
    if "cuda" in kinds and not torch.cuda.is_available():
        raise ValueError(f"device is {wish!r}, but torch finds no GPU; 'auto' takes one where there is one")
    return devices


def has_bfloat16(device: str) -> bool:
    """Whether a device computes faster with 16 bits."""
    torch = need_torch()
    if device.startswith("cuda"):
        return bool(torch.cuda.is_bf16_supported())
    # Other processors compute bfloat16 by way of float32, which takes longer.
    asks = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    return device == "cpu" and asks is not None and bool(asks()) and "AVX512" in torch.backends.cpu.get_cpu_capability()
