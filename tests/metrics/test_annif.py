"""Annif's metrics against an implementation that loops over documents."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.metrics import f1_score, precision_score, recall_score

import ramify
from ramify.metrics import annif_label_table, annif_metrics


def random_case(seed, n=60, n_labels=25, k=12):
    random = np.random.default_rng(seed)
    ids = np.argsort(random.random((n, n_labels)), axis=1)[:, :k].astype(np.int32)
    scores = -np.sort(-random.random((n, k)).astype(np.float32), axis=1)
    n_found = random.integers(0, k + 1, n)
    for row, m in enumerate(n_found):
        ids[row, m:], scores[row, m:] = -1, -np.inf
    labels = [f"u{i:02d}" for i in range(n_labels)]
    truth = [
        [*(labels[j] for j in random.permutation(n_labels)[: random.integers(0, 5)]), *["new"] * random.integers(0, 2)]
        for _ in range(n)
    ]
    return ramify.Ranking(ids, scores, n_labels, labels), truth, labels


def ndcg(found, truth, limit):
    """One document: found is the list of suggestions, best first."""
    found = found if limit is None else found[:limit]
    n = len(truth) if limit is None else min(limit, len(truth))
    ideal = sum(1 / math.log2(j + 2) for j in range(n))
    gain = sum(1 / math.log2(j + 2) for j, label in enumerate(found) if label in truth)
    return np.float32(gain / ideal) if ideal > 0 else np.float32(1)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("limit", [10, 5, 20])
def test_against_a_loop_over_documents(seed, limit):
    ranking, truth, labels = random_case(seed)
    columns = [*labels, "new"]
    found = [[label for label, score in row[:limit] if score > 0] for row in ranking.labels()]

    def matrix(rows):
        return np.array([[label in row for label in columns] for row in rows])

    y_true, y_pred = matrix(truth), matrix(found)
    expected = {}
    for name, average in (
        ("(doc avg)", "samples"),
        ("(subj avg)", "macro"),
        ("(weighted subj avg)", "weighted"),
        ("(microavg)", "micro"),
    ):
        for title, function in (("Precision", precision_score), ("Recall", recall_score), ("F1 score", f1_score)):
            expected[f"{title} {name}"] = function(y_true, y_pred, average=average, zero_division=0)
    first = lambda k: matrix([row[:k] for row in found])  # noqa: E731
    expected["F1@5"] = f1_score(y_true, first(5), average="samples", zero_division=0)
    for k in (1, 3, 5):
        expected[f"Precision@{k}"] = precision_score(y_true, first(k), average="samples", zero_division=0)
    for name, k in (("NDCG", None), ("NDCG@5", 5), ("NDCG@10", 10)):
        each = [ndcg(row, set(gold), k) for row, gold in zip(found, truth, strict=True)]
        expected[name] = float(np.array(each, np.float32).mean())
    expected["True positives"] = int((y_true & y_pred).sum())
    expected["False positives"] = int((~y_true & y_pred).sum())
    expected["False negatives"] = int((y_true & ~y_pred).sum())
    expected["Documents evaluated"] = len(truth)
    assert annif_metrics(ranking, truth, limit=limit) == expected  # to the last digit


def test_table_by_label():
    ranking, truth, labels = random_case(3)
    header, *rows = annif_label_table(ranking, truth, limit=5)
    assert header[:3] == ["URI", "Label", "Support"]
    assert [row[0] for row in rows] == [*labels, "new"]
    found = [[label for label, _ in row[:5]] for row in ranking.labels()]
    for label, _, support, tp, fp, fn, precision, recall, f1 in rows:
        hits = sum(label in a and label in b for a, b in zip(found, truth, strict=True))
        assert tp == hits
        assert support == tp + fn == sum(label in row for row in truth)
        assert tp + fp == sum(label in row for row in found)
        assert precision == (tp / (tp + fp) if tp + fp else 0)
        assert recall == (tp / support if support else 0)
        assert f1 == pytest.approx(2 * precision * recall / (precision + recall) if tp else 0)


def test_more_subjects_lower_the_average_over_subjects():
    ranking, truth, _ = random_case(1)
    few, many = (annif_metrics(ranking, truth, n_subjects=n) for n in (None, 52))
    assert many["F1 score (subj avg)"] == pytest.approx(few["F1 score (subj avg)"] * 26 / 52)
    assert many["F1 score (doc avg)"] == few["F1 score (doc avg)"]
    with pytest.raises(ramify.DataError, match="n_subjects"):
        annif_metrics(ranking, truth, n_subjects=3)


def test_rankings_that_are_too_narrow_are_refused():
    ranking = ramify.Ranking(np.array([[0, 1]]), np.array([[0.9, 0.1]]), 30)
    with pytest.raises(ramify.DataError, match="2 labels of each row"):
        annif_metrics(ranking, [[0]], limit=10)
