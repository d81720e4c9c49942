"""`Explanation`: why a label has its score, and the exact margins of linear classifiers behind it."""

from __future__ import annotations

import html
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from ramify import native
from ramify.base.mixed import Mixed
from ramify.base.types import Csr, FloatArray, Label, LongArray
from ramify.index.tree import LabelTree
from ramify.rank.beam import LinearTree

SHOWN_TERMS = 12
SHOWN_CHARACTERS = 100
ENCODER = "(encoder)"
"""Term of the contribution of dense features."""


@dataclass(frozen=True, eq=False)
class Level:
    """One node on the path to a label: margin = bias + the sum of the contributions.

    Attributes
    ----------
    title : such as "level 2, cluster 17" or "label"
    contributions : terms of the sample with their contributions, the largest first
    log_score : log score of the path down to here
    """

    title: str
    margin: float
    bias: float
    contributions: list[tuple[str, float]]
    log_score: float


class Neighbor(NamedTuple):
    """A training text near the explained one: its cosine similarity, its labels, and whether it has the explained one.

    A text is a string, or a dict of text fields.
    """

    text: Any
    similarity: float
    labels: list[Label]
    has_label: bool


@dataclass(frozen=True, eq=False)
class Explanation:
    """Why a label has its score: `print` it, `to_dict` it, or show it in a notebook with the text highlighted.

    Attributes
    ----------
    label, name : the label and its display name, or None
    score, probability : probability is None if the model is not calibrated
    terms : contribution of each word, the largest first: exact contributions to the margin of the label ("linear"), or
        how much the score falls without the word ("leave-one-out"); `method` says which
    levels : linear models: each node on the path, in each tree
    parts : what the score is made of, by name, such as the probability of the cluster
    without : words that were left out, and the score without them; None if none were
    neighbors : the nearest training texts, of a model that keeps them
    """

    text: Any
    label: Label
    name: str | None
    score: float
    probability: float | None
    method: str
    terms: list[tuple[str, float]]
    levels: list[Level] = field(default_factory=list)
    parts: dict[str, float] = field(default_factory=dict)
    without: tuple[list[str], float] | None = None
    neighbors: list[Neighbor] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values."""
        values: dict[str, Any] = {"label": self.label, "name": self.name, "score": self.score}
        values |= {"probability": self.probability, "method": self.method, "terms": [list(t) for t in self.terms]}
        values["levels"] = [
            {"title": level.title, "margin": level.margin, "bias": level.bias, "log_score": level.log_score,
             "contributions": [list(c) for c in level.contributions]}
            for level in self.levels
        ]  # fmt: skip
        values["parts"] = self.parts
        if self.without is not None:
            values["without"] = {"words": self.without[0], "score": self.without[1]}
        if self.neighbors:
            values["neighbors"] = [neighbor._asdict() for neighbor in self.neighbors]
        return values

    def __str__(self) -> str:
        shown = str(self.label) if self.name is None else f"{self.name} ({self.label})"
        lines = [f"{shown}: score {self.score:.4f}"]
        if self.probability is not None:
            lines[0] += f", probability {self.probability:.3f}"
        lines += [f"  {name}: {value:.4g}" for name, value in self.parts.items()]
        for level in self.levels:
            lines.append(f"  {level.title}: margin {level.margin:+.3f} = bias {level.bias:+.3f}{_sum(level)}")
        if not self.levels:
            lines.append("  fall of the score without each word:")
            lines += [f"    {word} {value:+.4f}" for word, value in self.terms[:SHOWN_TERMS]]
        if self.without is not None:
            words, score = self.without
            lines.append(f"  without {', '.join(words)}: score {score:.4f}")
        if self.neighbors:
            lines.append("  nearest training texts (* with the label):")
            lines += [
                f"  {'*' if n.has_label else ' '} {n.similarity:.3f} {_shortened(n.text)}" for n in self.neighbors
            ]
        return "\n".join(lines)

    __repr__ = __str__

    def to_html(self) -> str:
        """Return the text with each term colored by its contribution: green for the label, red against it."""
        text = self.text if isinstance(self.text, str) else None
        if isinstance(self.text, dict):
            text = "\n".join(str(part) for part in self.text.values())
        shown = html.escape(str(self.label) if self.name is None else self.name)
        head = f"<p><b>{shown}</b>: score {self.score:.4f}"
        head += "</p>" if self.probability is None else f", probability {self.probability:.3f}</p>"
        if text is None:
            rows = "".join(f"<tr><td>{html.escape(t)}</td><td>{v:+.4f}</td></tr>" for t, v in self.terms[:SHOWN_TERMS])
            return f"{head}<table>{rows}</table>"
        near = "".join(
            f"<li>{'<b>with the label</b>, ' if n.has_label else ''}{n.similarity:.3f}: "
            f"{html.escape(_shortened(n.text))}</li>"
            for n in self.neighbors
        )
        return f"{head}<p>{_highlight(text, self.terms)}</p>" + (f"<ul>{near}</ul>" if near else "")

    _repr_html_ = to_html


def _shortened(text: Any) -> str:
    """Return a text, or the fields of one, on a line."""
    line = " ".join(str(text if isinstance(text, str) else " ".join(map(str, text.values()))).split())
    return line if len(line) <= SHOWN_CHARACTERS else line[: SHOWN_CHARACTERS - 1] + "…"


def _sum(level: Level) -> str:
    shown, rest = level.contributions[:SHOWN_TERMS], level.contributions[SHOWN_TERMS:]
    text = "".join(f" {value:+.3f} {term}" for term, value in shown)
    return text + (f" {sum(v for _, v in rest):+.3f} ({len(rest)} more)" if rest else "")


def weighted_pieces(text: str, terms: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
    """Pieces of a text, in order, with the sum of the contributions of the terms that they belong to."""
    weights = np.zeros(len(text))
    for term, value in terms:
        stripped = re.escape(term.strip())
        if not stripped or term == ENCODER:
            continue
        word = re.finditer(rf"(?<!\w){stripped}(?!\w)", text, re.IGNORECASE)
        found = list(word) or list(re.finditer(stripped, text, re.IGNORECASE))
        for match in found:  # a word, or else an n-gram of characters
            weights[match.start() : match.end()] += value
    ends = [*(np.flatnonzero(np.diff(weights)) + 1).tolist(), len(text)] if text else []
    return [(text[start:end], float(weights[start])) for start, end in itertools.pairwise([0, *ends])]


def _highlight(text: str, terms: Sequence[tuple[str, float]]) -> str:
    """HTML of a text whose characters are colored by the terms they belong to."""
    found = weighted_pieces(text, terms)
    largest = max((abs(weight) for _, weight in found), default=0.0) or 1.0
    pieces = []
    for piece, weight in found:
        color = "0,140,60" if weight > 0 else "200,40,40"
        style = f"background:rgba({color},{abs(weight) / largest:.2f})"
        shown = html.escape(piece)
        pieces.append(shown if weight == 0 else f'<span style="{style}" title="{weight:+.4f}">{shown}</span>')
    return "".join(pieces)


def path_to(tree: LabelTree, leaf: int) -> LongArray:
    """Nodes (depth,) on the path from the root to a leaf, the leaf included."""
    nodes = [leaf]
    for children in reversed(tree.levels[1:]):
        nodes.append(int(np.searchsorted(children, nodes[-1], side="right")) - 1)
    return np.array(nodes[::-1], np.int64)


def margins_on_path(tree: LinearTree, X: Mixed, path: LongArray) -> FloatArray:
    """Margins (depth, n) of rows X (n × d) for the nodes of a path, the bias included.

    A tree cut off below a level, with the identity as score transform, has the margins of that level as its scores.
    """
    result = np.empty((len(path), len(X)), np.float32)
    csr = X.sparse
    for t in range(len(path)):
        n_nodes = int(tree.tree.levels[t][-1])
        cut = native.linear.BeamTree(tree.n_sparse, None, n_nodes, False)
        for children, level in zip(tree.tree.levels[: t + 1], tree.levels[: t + 1], strict=True):
            cut.add_level(
                children=children, block_starts=level.block_starts, blocks=level.blocks, codebook=level.codebook,
                bias=level.bias, dense=level.dense, transform=0, power=1.0, is_norm=False,
            )  # fmt: skip
        result[t] = cut.score_selected(
            csr.indptr, csr.indices, csr.data, X.dense,
            np.arange(len(X) + 1, dtype=np.int64), np.full(len(X), path[t], np.int32),
            np.arange(n_nodes + 1, dtype=np.int64), np.arange(n_nodes, dtype=np.int32), 1,
        )  # fmt: skip
    return result


def explain_path(
    tree: LinearTree, X: Mixed, leaf: int, terms: Sequence[str], fractions: Csr, title: str = ""
) -> list[Level]:
    """Levels of the path to a leaf for one row X (1 × d).

    Its m nonzero features belong to w `terms`, such as words: `fractions` (m × w), each row of which sums to 1.
    """
    row, path = X.sparse, path_to(tree.tree, leaf)
    m, n_dense = row.nnz, X.dense.shape[1]
    # One row for each feature alone, one with the dense features alone, one without any feature: the bias.
    indptr = np.minimum(np.arange(m + 3), m).astype(row.indptr.dtype)
    single = sparse.csr_matrix((row.data, row.indices, indptr), shape=(m + 2, row.shape[1]))
    dense = np.zeros((m + 2, n_dense), np.float32)
    dense[m] = X.dense[0]
    margins = margins_on_path(tree, Mixed(single, dense), path).astype(np.float64)
    whole = margins_on_path(tree, X, path)[:, 0]
    levels, log_score = [], 0.0
    for t, node in enumerate(path):
        bias = margins[t, m + 1]
        values = fractions.T @ (margins[t, :m] - bias)
        found: dict[str, float] = {}
        for term, value in zip(terms, values, strict=True):
            if value != 0:
                found[term] = found.get(term, 0.0) + float(value)
        if n_dense:
            found[ENCODER] = float(margins[t, m] - bias)
        contributions = sorted(found.items(), key=lambda pair: -abs(pair[1]))
        is_label = t == len(path) - 1
        log_score = float(tree.transforms[t].log_score(whole[t], np.float32(log_score), are_labels=is_label))
        name = "label" if is_label else f"level {t + 1}, cluster {node}"
        levels.append(Level(f"{title}{name}", float(whole[t]), float(bias), contributions, log_score))
    return levels
