"""Search in the labels of a model by text: in the labels themselves, their names, synonyms and notations."""

from __future__ import annotations

import bisect
import itertools
from typing import Any

import numpy as np

from ramify.serve.served import LoadedModel

_MAX_HITS = 10_000


class LabelSearch:
    """All texts of all labels in one string, the most frequent labels first."""

    def __init__(self, loaded: LoadedModel) -> None:
        self._loaded = loaded
        counts = loaded.model.label_counts_.counts
        self._order: list[int] = np.argsort(-counts, kind="stable").tolist()
        rows = [_folded(loaded, i) for i in self._order]
        self._starts = [0, *itertools.accumulate(len(row) + 1 for row in rows)]
        self._text = "\n".join(rows)

    def find(self, query: str, limit: int, offset: int = 0) -> tuple[list[int], int]:
        """Label ids with the query in one of their texts, and their number.

        Those with a text that is the query come first, then those with a text that starts with it, then the others;
        frequent labels come before rare ones. At most 10,000 are looked at.
        """
        folded = query.casefold().strip().replace("\n", " ")
        if not folded:
            return self._order[offset : offset + limit], len(self._order)
        classes: tuple[list[int], list[int], list[int]] = ([], [], [])
        row, n = -1, 0
        at = self._text.find(folded)
        while at >= 0 and n < _MAX_HITS:
            row = bisect.bisect_right(self._starts, at) - 1
            texts = self._text[self._starts[row] : self._starts[row + 1] - 1].split("\t")
            best = 0 if folded in texts else 1 if any(text.startswith(folded) for text in texts) else 2
            classes[best].append(self._order[row])
            n += 1
            at = self._text.find(folded, self._starts[row + 1])
        found = [i for group in classes for i in group]
        return found[offset : offset + limit], len(found)

    def describe(self, label_id: int, language: str | None) -> dict[str, Any]:
        """Return what is known about a label."""
        model = self._loaded.model
        label = model.labels_[label_id]
        entry = self._loaded.entry(label)
        return {
            "label": label,
            "name": None if entry is None else entry.name(language),
            "notation": None if entry is None else entry.notation,
            "samples": int(model.label_counts_.counts[label_id]),
        }


def _folded(loaded: LoadedModel, label_id: int) -> str:
    label = loaded.model.labels_[label_id]
    entry = loaded.entry(label)
    texts = [str(label)]
    if entry is not None:
        texts += [*entry.names.values(), *entry.synonyms, *([entry.notation] if entry.notation else [])]
    return "\t".join(text.casefold().replace("\n", " ").replace("\t", " ") for text in texts)
