"""The vocabulary of ARCHITECTURE.md: other words for its concepts are rejected."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SUFFIXES = {".py", ".pyi", ".cpp", ".h", ".md", ".txt", ".toml"}
FILES = sorted(
    [
        *(path for folder in ("src", "cpp", "docs", "examples", "benchmarks") for path in (ROOT / folder).rglob("*")),
        *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")),
    ]
)
FILES = [path for path in FILES if path.is_file() and path.suffix in SUFFIXES]

# Words without another meaning here, as regular expressions, and what to write instead. An underscore counts as a word
# border, so that identifiers are covered: `judged_rows`, `n_points`.
WORDS = {
    r"chances?": "probability",
    r"judge[ds]?|judging|judge?ments?": "validate, validation",
    r"held[- ]out points?": "validation set",
    r"(training|test|validation) points?|n_points|points_per|per_point": "samples",
    r"relabel(s|ed|ing)?": "refresh",
    r"near labels?": "shortlist, candidates",
    r"competing labels?": "hard negatives",
    r"slow twins?": "reference implementation",
    r"one door": "native bindings",
    r"noughts?": "zeros",
    r"numbers (in|of) a vector|numbers left out": "dimension; dropout probability",
    r"whole numbers?": "integer",
    r"middles": "centroids",
    r"passes over|pass over the (points|samples|data|rows)|begin_pass|n_passes": "epochs",
    r"by[_ ]pass": "by epoch",
    r"lifts?|lifted": "tail weighting, propensity",
    r"evidence shares?|(calibrated|cluster|edge)_share": "blended score; weight, ratio",
    r"leaf places?|label places?|places? (of|for) (the )?labels?|place_labels": "leaf; label embedding",
    r"vectors? of (a |the )?texts?": "embedding",
    r"efforts?": "nprobe, ef_search, search_width",
    r"floors (above|below)|(lower|upper|own) floors?": "layer",
    r"fused scores?|score fusion": "blended score",
}
# Identifiers that were renamed, matched as a whole; CHANGELOG.md has their final names.
IDENTIFIERS = (
    "warm_up|build_width|relabel_every|rare_weight|rare_points|fresh_labels|"
    "min_error|vector_weight|fixed_tree|matcher_width|max_leaf|max_len|"
    "power_steps|max_passes|encoder_rate|cluster_rate|edge_rate|neighbour_weight|"
    "leaf_scores|label_vectors|train_shortlist|start_logits|search_alike|of_metric|"
    "VectorLists|FaissVectors|CyclicLearner|ListLearner|EncoderWithHead"
)
# In the code a "point" is always a sample, except in these terms. The documentation also has percentage points.
POINT = re.compile(
    r"""(?<!code )(?<!floating )(?<!floating-)(?<!fixed )(?<!entry )(?<!percentage )(?<!metavar=")\bpoints?\b""", re.I
)

PATTERNS = {re.compile(rf"(?<![^\W_])(?:{pattern})(?![^\W_])", re.I): word for pattern, word in WORDS.items()}
PATTERNS[re.compile(rf"\b(?:{IDENTIFIERS})\b")] = "its final name (CHANGELOG.md)"
PATTERNS[re.compile(r"""["']halves["']""")] = "balanced-2means"

# (file, text that the line contains): reason
EXCEPTIONS: dict[tuple[str, str], str] = {
    ("src/ramify/index/ann/ivf.py", "min_points_per_centroid"): "an attribute of faiss",
}


def excepted(path: Path, line: str) -> bool:
    return any(path == ROOT / file and text in line for file, text in EXCEPTIONS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_file_uses_the_vocabulary(path):
    patterns = PATTERNS
    if path.is_relative_to(ROOT / "src") or path.is_relative_to(ROOT / "cpp"):
        patterns = {**PATTERNS, POINT: "sample"}
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match[0]!r}; write: {word}"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if not excepted(path, line)
        for pattern, word in patterns.items()
        for match in pattern.finditer(line)
    ]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize("text", ["chance", "n_points", "judged_rows", "A slow twin.", "warm_up=0.1", "Chances"])
def test_rejected_words_are_found(text):
    assert any(pattern.search(text) for pattern in PATTERNS)


@pytest.mark.parametrize("text", ["warmup_ratio", "decimal places", "bypassed", "max_leaf_size", "lifetime"])
def test_other_words_are_allowed(text):
    assert not any(pattern.search(text) for pattern in PATTERNS), text


@pytest.mark.parametrize("text", ["a code point", "floating-point", "entry points", "checkpoint", "pointer"])
def test_other_points_are_allowed(text):
    assert not POINT.search(text)


def test_exceptions_are_needed():
    for file, text in EXCEPTIONS:
        assert any(text in line for line in (ROOT / file).read_text(encoding="utf-8").splitlines()), (file, text)
