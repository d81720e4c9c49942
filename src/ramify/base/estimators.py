"""What scikit-learn asks of an estimator beside its parameters: tags and metadata routing.

scikit-learn is imported only when it asks, since importing it takes a second.
"""

from __future__ import annotations

import inspect
from typing import Any, Self

_ROUTED = ("fit", "score")


def classifier_tags() -> Any:
    """Tags of a multi-label classifier of texts, text fields, sparse and dense features."""
    from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

    return Tags(
        estimator_type="classifier",
        target_tags=TargetTags(required=True, two_d_labels=True, multi_output=True, single_output=False),
        classifier_tags=ClassifierTags(multi_class=False, multi_label=True),
        input_tags=InputTags(sparse=True, string=True, dict=True),
    )


def text_transformer_tags() -> Any:
    """Tags of a transformer from texts to sparse float32 features."""
    from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags

    return Tags(
        estimator_type="transformer",
        target_tags=TargetTags(required=False),
        transformer_tags=TransformerTags(preserves_dtype=[]),
        input_tags=InputTags(one_d_array=True, two_d_array=False, string=True, dict=True),
    )


class MetadataRouting:
    """Requests of metadata, such as `sample_weight`, for scikit-learn's metadata routing."""

    _metadata_request: Any

    def get_metadata_routing(self) -> Any:
        """Return what `fit` and `score` request of the metadata that a meta-estimator is given."""
        from sklearn.utils.metadata_routing import MetadataRequest

        if hasattr(self, "_metadata_request"):
            return self._metadata_request
        request = MetadataRequest(owner=type(self).__name__)
        for method in _ROUTED:
            for name in self._metadata_of(method):
                getattr(request, method).add_request(param=name, alias=None)
        return request

    def set_fit_request(self, **requests: bool | str | None) -> Self:
        """Request metadata of `fit`, as in ``set_fit_request(sample_weight=True)``; see scikit-learn's user guide."""
        return self._set_request("fit", requests)

    def set_score_request(self, **requests: bool | str | None) -> Self:
        """Request metadata of `score`, as in ``set_score_request(sample_weight=True)``."""
        return self._set_request("score", requests)

    def _set_request(self, method: str, requests: dict[str, bool | str | None]) -> Self:
        known = self._metadata_of(method)
        for name in requests:
            if name not in known:
                raise TypeError(f"{method} of {type(self).__name__} takes no {name!r}; it takes: {', '.join(known)}")
        request = self.get_metadata_routing()
        for name, alias in requests.items():
            getattr(request, method).add_request(param=name, alias=alias)
        self._metadata_request = request
        return self

    @classmethod
    def _metadata_of(cls, method: str) -> list[str]:
        """Arguments of a method beside X and y."""
        function = getattr(cls, method, None)
        if function is None:
            return []
        names = inspect.signature(function).parameters
        return [name for name in names if name not in ("self", "X", "y", "documents")]
