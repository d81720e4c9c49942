"""The architecture of a transformer in a model directory: which settings may steer the transformers library, and how.

The library acts on settings that have nothing to do with the shape of a model, such as names of kernels that it
downloads. So only settings that the library's own default configuration of an architecture has are accepted, and the
module is built only if its weights have the shapes of the saved arrays.
"""

from __future__ import annotations

from typing import Any

from ramify.base.errors import ModelFormatError
from ramify.io.store import Store

_IGNORED = {  # not about the shape; new on every save
    "transformers_version", "architectures", "_name_or_path", "dtype", "torch_dtype", "id2label", "label2id",
    "problem_type", "auto_map", "output_attentions", "output_hidden_states", "return_dict", "use_cache",
    "quantization_config", "attn_implementation", "_attn_implementation", "experts_implementation",
}  # fmt: skip
_REPEATED = ("layer", "group", "block", "expert", "stage", "depth")
"""Integers with such names say how many modules are made: never more than there are weights."""


def saved_architecture(config: Any) -> dict[str, Any]:
    """Return the settings of a configuration that describe the architecture, for the manifest."""
    known = _known_settings(config.model_type)
    return {name: value for name, value in config.to_dict().items() if name in known and name not in _IGNORED}


def open_architecture(settings: Any, weights: Any, store: Store, prefix: str) -> Any:
    """Build the module that settings of a manifest describe, if the saved weights, by name, are those of the module."""
    import torch
    from transformers import AutoConfig, AutoModel

    model_type = settings.get("model_type") if isinstance(settings, dict) else None
    known = _known_settings(model_type)
    if not isinstance(weights, list):
        raise ModelFormatError(f"{store.path}: the manifest does not list the weights of the encoder")
    for name, value in settings.items():
        if name not in known or name in _IGNORED:
            raise ModelFormatError(f"{store.path}: the encoder has the setting {name!r}, which is not allowed")
        _check_value(store, name, value, len(weights))
    others = {name: value for name, value in settings.items() if name != "model_type"}
    config = AutoConfig.for_model(model_type, **others)
    config._attn_implementation = None  # the library's default
    with torch.device("meta"):  # shapes only, no memory
        shapes = {name: tuple(tensor.shape) for name, tensor in AutoModel.from_config(config).state_dict().items()}
    if sorted(shapes) != sorted(map(str, weights)):
        raise ModelFormatError(f"{store.path}: the architecture of the encoder has other weights than those saved")
    for name, shape in shapes.items():
        found = store.files.get(store.file_of(prefix + name), {}).get("shape")
        if found != list(shape):
            raise ModelFormatError(f"{store.path}: the weights {name} have shape {found}, the architecture {shape}")
    return AutoModel.from_config(config, trust_remote_code=False)


def _known_settings(model_type: Any) -> set[str]:
    from transformers import CONFIG_MAPPING

    if not isinstance(model_type, str) or model_type not in CONFIG_MAPPING:
        raise ModelFormatError(f"unknown architecture of the encoder: {model_type!r}")
    return set(CONFIG_MAPPING[model_type]().to_dict())


def _check_value(store: Store, name: str, value: Any, n_weights: int) -> None:
    """Refuse values that are no settings of a shape: paths, huge numbers, deep structures."""
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            _check_value(store, name, part, n_weights)
        return
    too_many = isinstance(value, int) and not isinstance(value, bool) and (
        abs(value) >= 2**31 or (value > max(n_weights, 1) and any(word in name for word in _REPEATED))
    )  # fmt: skip
    if too_many or (isinstance(value, str) and ("/" in value or len(value) > 100)):
        raise ModelFormatError(f"{store.path}: the encoder has the setting {name} = {value!r}, which is not allowed")
