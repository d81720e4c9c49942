from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pytest
from sklearn.base import clone

import ramify
from ramify.base.config import Config, coerce, param


@dataclass(kw_only=True, eq=False, repr=False)
class Tree(Config):
    max_leaf: int = param(100, "labels in a leaf", low=1)
    kind: Literal["means", "own"] = param("means", "how it is built")


@dataclass(kw_only=True, eq=False, repr=False)
class Machine(Config):
    tree: Tree = param(factory=Tree, doc="the tree")
    spare: Tree | None = param(None, "another tree")
    rate: float = param(0.5, "a rate", above=0, high=1)
    span: tuple[int, int] = param((1, 2), "from and to")
    weights: dict[str, float] | None = param(None, "by name")


def test_nested_values_are_set_all_or_none():
    machine = Machine()
    assert machine.set_params(tree__max_leaf=7, rate=1) is machine
    assert (machine.tree.max_leaf, machine.rate) == (7, 1.0)
    with pytest.raises(ValueError, match=r"Tree\.max_leaf must be at least 1"):
        machine.set_params(rate=0.25, tree__max_leaf=0)
    assert (machine.tree.max_leaf, machine.rate) == (7, 1.0)
    machine.set_params(**{"spare.max_leaf": 3})
    assert machine.spare.max_leaf == 3


def test_two_objects_never_share_a_part():
    a, b = Machine(), Machine()
    a.set_params(tree__max_leaf=1)
    assert b.tree.max_leaf == 100
    c = a.clone()
    c.set_params(tree__max_leaf=2)
    assert a.tree.max_leaf == 1


@pytest.mark.parametrize(("values", "message"), [
    ({"rat": 1.0}, "Did you mean 'rate'"),
    ({"tree": 5}, "Machine.tree must be Tree"),
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
def test_wrong_values_are_refused_in_words(values, message):
    with pytest.raises(ValueError, match=message):
        Machine().set_params(**values)


def test_dicts_go_there_and_back():
    machine = Machine(tree=Tree(max_leaf=3), span=(4, 5), weights={"a": 2.0})
    values = machine.to_dict()
    assert values["tree"] == {"max_leaf": 3, "kind": "means"}
    assert Machine.from_dict(values).to_dict() == values
    with pytest.raises(ValueError, match="has no parameter 'nope'"):
        Machine.from_dict({"nope": 1})
    assert coerce([4, 5], tuple[int, int]) == (4, 5)
    assert coerce("none", int | None) is None
    assert coerce("true", bool) is True
    assert coerce(1, float) == 1.0


def test_scikit_learn_can_copy_it():
    machine = Machine(tree=Tree(max_leaf=3))
    copy = clone(machine)
    assert copy is not machine
    assert copy.to_dict() == machine.to_dict()
    assert machine.get_params()["tree__max_leaf"] == 3
    assert "tree__max_leaf" not in machine.get_params(deep=False)


def test_repr_shows_what_differs():
    assert repr(Machine()) == "Machine()"
    assert repr(Machine(rate=0.25, tree=Tree(kind="own"))) == "Machine(tree=Tree(kind='own'), rate=0.25)"


def test_every_parameter_is_described():
    described = {info.path: info for info in Machine.describe()}
    assert list(described) == ["tree.max_leaf", "tree.kind", "spare", "rate", "span", "weights"]
    assert described["tree.kind"].type_name == "'means' or 'own'"
    assert all(info.doc for info in described.values())


def test_numpy_numbers_are_numbers():
    import numpy as np

    machine = Machine(rate=np.float64(0.25), tree=Tree(max_leaf=np.int64(5)))
    assert (type(machine.rate), type(machine.tree.max_leaf)) == (float, int)
    with pytest.raises(ValueError, match="must be float"):
        Machine(rate=10**400)


def test_a_part_of_another_kind_is_told_by_its_parameters():
    model = ramify.Elias().set_params(encoder__model="folder", encoder__frozen=True)
    assert isinstance(model.encoder, ramify.TransformerEncoder)
    assert (model.encoder.model, model.encoder.frozen) == ("folder", True)
    assert isinstance(ramify.Elias.from_dict(model.to_dict()).encoder, ramify.TransformerEncoder)
    assert isinstance(ramify.Elias().set_params(encoder__width=7).encoder, ramify.BagEncoder)
    with pytest.raises(ValueError, match="needs the folder"):
        ramify.Elias().set_params(encoder__frozen=True)
    with pytest.raises(ValueError, match="no parameter 'wdth'"):
        ramify.Elias().set_params(encoder__wdth=7)
