"""torch, if it is installed, and its devices."""

from __future__ import annotations

import os
from typing import Any

from ramify.base.extras import needed_for


def import_torch() -> Any:
    """Return torch, or raise an ImportError that says how to install it."""
    with needed_for("a TransformerEncoder", "torch and transformers", "deep", otherwise="a BagEncoder needs neither"):
        import torch
        import transformers  # noqa: F401
    return torch


def find_devices(device: str) -> list[str]:
    """Return the devices of a setting such as 'auto', 'cpu' or 'cuda:0,cuda:1'; the first one is the primary."""
    torch = import_torch()
    if device == "auto":
        gpus = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
        if gpus and "TORCHELASTIC_RUN_ID" in os.environ:  # the ranks of torchrun have one each
            return [gpus[int(os.environ["LOCAL_RANK"]) % len(gpus)]]
        return gpus or ["cpu"]
    devices = [name.strip() for name in device.split(",")]
    try:
        kinds = {torch.device(name).type for name in devices}
    except RuntimeError as error:
        raise ValueError(f"torch does not know the device {device!r}: {str(error).splitlines()[0]}") from error
    if "cuda" in kinds and not torch.cuda.is_available():
        raise ValueError(f"device is {device!r}, but torch finds no GPU; 'auto' falls back to the CPU")
    return devices


def has_bfloat16(device: str) -> bool:
    """Whether a device computes faster in bfloat16 than in float32."""
    torch = import_torch()
    if device.startswith("cuda"):
        return bool(torch.cuda.is_bf16_supported())
    # CPUs without bfloat16 instructions emulate it through float32, which is slower.
    is_supported = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    return (
        device == "cpu"
        and is_supported is not None
        and bool(is_supported())
        and "AVX512" in torch.backends.cpu.get_cpu_capability()
    )
