"""Settings of `XRLinear` that are close to the models of the papers."""

from __future__ import annotations

from typing import Any

from ramify.index.kmeans import TreeConfig
from ramify.rank.linear import LinearConfig

_BALANCED: dict[str, Any] = {
    "method": "balanced-2means",
    "max_leaf_size": 100,
    "max_depth": None,
    "n_terms": None,
    "max_iterations": 8,
    "tolerance": 0.001,
}


def pecos() -> dict[str, Any]:
    """Return settings of PECOS (Yu et al., 2022)."""
    return {
        **_common(),
        "tree": TreeConfig(branching=16, **_BALANCED),
        "linear": LinearConfig(threshold=0.1, tail_threshold=0.11, max_full_epochs=2),
        "node_tolerance": 0.4,
        "node_threshold": 0.2,
        "score_transform": "l3-hinge",
    }


def parabel() -> dict[str, Any]:
    """Return settings of Parabel (Prabhu et al., 2018)."""
    return {**_common(), "tree": TreeConfig(branching=2, **_BALANCED), "n_trees": 3}


def bonsai() -> dict[str, Any]:
    """Return settings of Bonsai (Khandagale et al., 2020)."""
    tree = TreeConfig(
        method="kmeans", branching=100, max_leaf_size=100, min_leaf_size=1, max_depth=2, max_iterations=20
    )
    return {**_common(), "tree": tree, "n_trees": 3}


def dismec() -> dict[str, Any]:
    """Return settings of DiSMEC (Babbar and Schölkopf, 2017)."""
    tree = TreeConfig(max_leaf_size=2**31 - 1)
    return {**_common(), "tree": tree, "linear": LinearConfig(threshold=0.01), "score_transform": "noop"}


def _common() -> dict[str, Any]:
    return {
        "linear": LinearConfig(threshold=0.1, max_full_epochs=2),
        "negatives": "teacher",
        "node_negatives": "teacher",
        "node_negative_fraction": 1.0,
        "score_transform": "l2-hinge",
        "label_score_transform": None,
        "beam_size": 10,
        "beam_min_score": 0.0,
    }
