from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pytest
from sklearn.base import clone

import ramify
from ramify.base.config import Config, coerce, param, type_name


@dataclass(kw_only=True, eq=False, repr=False)
class Tree(Config):
    max_leaf: int = param(100, "labels per leaf", low=1)
    kind: Literal["means", "own"] = param("means", "clustering method")


@dataclass(kw_only=True, eq=False, repr=False)
class Estimator(Config):
    tree: Tree = param(factory=Tree, doc="the label tree")
    spare: Tree | None = param(None, "a second tree")
    rate: float = param(0.5, "dropout rate", above=0, high=1)
    span: tuple[int, int] = param((1, 2), "lower and upper bound")
    weights: dict[str, float] | None = param(None, "weight by name")


def test_set_params_is_atomic():
    estimator = Estimator()
    assert estimator.set_params(tree__max_leaf=7, rate=1) is estimator
    assert (estimator.tree.max_leaf, estimator.rate) == (7, 1.0)
    with pytest.raises(ValueError, match=r"Tree\.max_leaf must be at least 1"):
        estimator.set_params(rate=0.25, tree__max_leaf=0)
    assert (estimator.tree.max_leaf, estimator.rate) == (7, 1.0)
    estimator.set_params(**{"spare.max_leaf": 3})
    assert estimator.spare.max_leaf == 3


def test_components_are_not_shared_between_objects():
    a, b = Estimator(), Estimator()
    a.set_params(tree__max_leaf=1)
    assert b.tree.max_leaf == 100
    c = a.clone()
    c.set_params(tree__max_leaf=2)
    assert a.tree.max_leaf == 1


@pytest.mark.parametrize(("values", "message"), [
    ({"rat": 1.0}, "Did you mean 'rate'"),
    ({"max_leaf": 3}, r"Did you mean 'tree\.max_leaf'"),
    ({"tree": 5}, "Estimator.tree must be Tree"),
    ({"rate": 0.0}, "above 0"),
    ({"rate": 2.0}, "at most 1"),
    ({"rate": float("nan")}, "must be float"),
    ({"rate": "fast"}, "must be float"),
    ({"rate": True}, "must be float"),
    ({"span": (1,)}, "span"),
    ({"span": (1, 2.5)}, "span"),
    ({"tree__kind": "oak"}, "'means' or 'own'"),
    ({"rate__x": 1}, "no parameters of its own"),
    ({"weights": {"a": "b"}}, "weights"),
])  # fmt: skip
def test_invalid_values_raise_with_a_reason(values, message):
    with pytest.raises(ValueError, match=message):
        Estimator().set_params(**values)


def test_dict_round_trip():
    estimator = Estimator(tree=Tree(max_leaf=3), span=(4, 5), weights={"a": 2.0})
    values = estimator.to_dict()
    assert values["tree"] == {"max_leaf": 3, "kind": "means"}
    assert Estimator.from_dict(values).to_dict() == values
    with pytest.raises(ValueError, match="has no parameter 'nope'"):
        Estimator.from_dict({"nope": 1})
    assert coerce([4, 5], tuple[int, int]) == (4, 5)
    assert coerce("none", int | None) is None
    assert coerce("true", bool) is True
    assert coerce(1, float) == 1.0


def test_scikit_learn_clone():
    estimator = Estimator(tree=Tree(max_leaf=3))
    copy = clone(estimator)
    assert copy is not estimator
    assert copy.to_dict() == estimator.to_dict()
    assert estimator.get_params()["tree__max_leaf"] == 3
    assert "tree__max_leaf" not in estimator.get_params(deep=False)


def test_repr_shows_changed_parameters():
    assert repr(Estimator()) == "Estimator()"
    assert repr(Estimator(rate=0.25, tree=Tree(kind="own"))) == "Estimator(tree=Tree(kind='own'), rate=0.25)"


def test_describe_lists_every_parameter():
    described = {info.path: info for info in Estimator.describe()}
    assert list(described) == ["tree.max_leaf", "tree.kind", "spare", "rate", "span", "weights"]
    assert described["tree.kind"].type_name == "'means' or 'own'"
    assert described["weights"].type_name == "dict[str, float] or None"
    assert type_name(tuple[Tree, ...]) == "tuple[Tree, ...]"
    assert all(info.doc for info in described.values())


def test_numpy_scalars_are_converted():
    import numpy as np

    estimator = Estimator(rate=np.float64(0.25), tree=Tree(max_leaf=np.int64(5)))
    assert (type(estimator.rate), type(estimator.tree.max_leaf)) == (float, int)
    with pytest.raises(ValueError, match="must be float"):
        Estimator(rate=10**400)


def test_component_type_is_inferred_from_its_parameters():
    model = ramify.Elias().set_params(encoder__model="folder", encoder__frozen=True)
    assert isinstance(model.encoder, ramify.TransformerEncoder)
    assert (model.encoder.model, model.encoder.frozen) == ("folder", True)
    assert isinstance(ramify.Elias.from_dict(model.to_dict()).encoder, ramify.TransformerEncoder)
    assert isinstance(ramify.Elias().set_params(encoder__dim=7).encoder, ramify.BagEncoder)
    with pytest.raises(ValueError, match="needs the directory"):
        ramify.Elias().set_params(encoder__frozen=True)
    with pytest.raises(ValueError, match="no parameter 'wdth'"):
        ramify.Elias().set_params(encoder__wdth=7)


@pytest.mark.parametrize("values", ["", "seed", [], None, 7])
def test_parameters_of_a_file_are_names_with_values(values):
    with pytest.raises(ValueError, match="names with values"):
        ramify.XRLinear.from_dict(values)
    with pytest.raises(ValueError, match="names with values"):
        ramify.Hybrid.from_dict({"members": [{"kind": "knn", "params": values}]})
