"""A small corpus in several files, with everything that training distinguishes, and digests of model directories."""

from __future__ import annotations

import hashlib
import itertools
import json
import lzma
from pathlib import Path

import numpy as np

N_ROWS, N_LABELS = 420, 150
GERMAN = ["das Steuerrecht", "die Häuser", "Bibliothek und Archiv", "nicht der Straßenbau", "eine Studie über"]


def samples(n_rows=N_ROWS, n_labels=N_LABELS, seed=0):
    """Texts and labels: some labels frequent, most rare; words of the labels, German and English texts, empty ones."""
    random = np.random.default_rng(seed)
    rows = []
    for i in range(n_rows):
        labels = np.unique((n_labels * random.random(3) ** 2).astype(int))
        words = [f"topic{label} area{label % 12}" for label in labels]
        words += random.choice(GERMAN if i % 3 else ["the study of houses", "archives and libraries"], 3).tolist()
        labels = [] if i % 50 == 7 else [f"label {label}" for label in labels]
        rows.append({"text": "" if i % 61 == 5 else " ".join(words), "labels": labels})
    return rows


def write_files(directory, rows, sizes=(1, 150, 200)):
    """Write rows as JSON Lines, plain and compressed; the last file has the rest."""
    directory.mkdir(exist_ok=True)
    bounds = [0, *np.cumsum(sizes).tolist(), len(rows)]
    for i, (a, b) in enumerate(itertools.pairwise(bounds)):
        content = "".join(json.dumps(row) + "\n" for row in rows[a:b]).encode()
        if i % 2:
            (directory / f"part-{i}.jsonl.xz").write_bytes(lzma.compress(content))
        else:
            (directory / f"part-{i}.jsonl").write_bytes(content)
    return str(directory / "part-*.jsonl*")


def digest(directory):
    """Hash of every file of a model directory."""
    found = hashlib.sha256()
    for file in sorted(Path(directory).iterdir()):
        found.update(file.name.encode() + b"\0" + file.read_bytes())
    return found.hexdigest()
