"""Names in texts, against a reference implementation that compares words one by one."""

from __future__ import annotations

import re

import numpy as np
import pytest

from ramify import native
from ramify.features.names import NameIndex, without_qualifiers

pytestmark = pytest.mark.native


def reference_match(names, texts):
    """For each text the names by their words: {words: (position, count)}."""
    split = [tuple(native.text.stem_words("english", re.findall(r"\w+", name.lower()))) for name in names]
    result = []
    for text in texts:
        words = native.text.stem_words("english", re.findall(r"\w+", text.lower()))
        found = {}
        for name in {name for name in split if name}:
            at = [i for i in range(len(words)) if tuple(words[i : i + len(name)]) == name]
            if at:
                found[name] = (at[0], len(at))
        result.append(found)
    return split, result


@pytest.mark.parametrize("threads", [1, 3])
def test_matches_the_reference_implementation(threads):
    random = np.random.default_rng(0)
    words = ["red", "foxes", "fox", "hen", "Straße", "λόγος", "eggs", "42", "a", "running", "ÅNGSTRÖM"]
    names = [" ".join(random.choice(words, random.integers(1, 4))) for _ in range(40)]
    names += ["", "…", "red  fox", "fox-hen", "x" * 300]
    texts = [" ".join(random.choice(words, random.integers(0, 40))) for _ in range(150)]
    texts += ["", "red", "x" * 300, "RED, foxes!", "never seen"]
    index, ids = NameIndex.build(names, "english", texts)
    found = index.match(texts, 1, threads)
    split, expected = reference_match(names, texts)
    words_of = {int(i): name for i, name in zip(ids, split, strict=True) if i >= 0}
    assert len(words_of) == index.n_names == len({name for name in split if name})
    assert [i < 0 for i in ids] == [not name for name in split]
    for row in range(len(texts)):
        at = slice(found.indptr[row], found.indptr[row + 1])
        assert np.all(np.diff(found.names[at]) > 0)
        own = {
            words_of[int(i)]: (int(p), int(c))
            for i, p, c in zip(found.names[at], found.positions[at], found.counts[at], strict=True)
        }
        assert own == expected[row]
        assert found.n_words[row] == len(re.findall(r"\w+", texts[row]))


def test_a_name_lies_within_a_field():
    index, _ = NameIndex.build(["red fox", "fox"], None, [])
    found = index.match(["a red", "fox", "red fox", ""], 2, 1)
    assert found.indptr.tolist() == [0, 1, 3]
    assert found.positions.tolist() == [2, 0, 1]


def test_qualifiers():
    assert without_qualifiers("Wilderness (motif) [x]") == "Wilderness"
    assert without_qualifiers("(motif)") == "(motif)"
    assert without_qualifiers("C <language>") == "C"


def test_damaged_tries_are_refused():
    index, _ = NameIndex.build(["red fox", "red hen", "hen"], None, [])
    for name, at, value in (
        ("indptr", 1, 99), ("edge_words", 0, 77), ("edge_nodes", 0, 0), ("edge_nodes", 0, 88), ("node_names", 1, 9),
        ("node_names", 1, -5), ("offsets", 1, 10**6), ("indptr", 0, 1),
    ):  # fmt: skip
        arrays = {key: array.copy() for key, array in index.arrays.items()}
        arrays[name][at] = value
        with pytest.raises(ValueError, match=r"trie|vocabulary"):
            NameIndex._of(None, None, arrays, index.n_names)
