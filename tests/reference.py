"""Reference implementations of the native kernels: plain Python and NumPy, written to be read."""

from __future__ import annotations

import itertools
import math

import numpy as np
from scipy import sparse


def topk(scores, k):
    """Ids and scores (n, k) of the best stored entries of each row; ties by id; padded with -1 and -inf."""
    scores = sparse.csr_matrix(scores)
    ids = np.full((scores.shape[0], k), -1, np.int32)
    best = np.full((scores.shape[0], k), -np.inf, np.float32)
    for row in range(scores.shape[0]):
        a, b = scores.indptr[row], scores.indptr[row + 1]
        order = sorted(range(a, b), key=lambda i: (-scores.data[i], scores.indices[i]))[:k]
        ids[row, : len(order)] = scores.indices[order]
        best[row, : len(order)] = scores.data[order]
    return ids, best


def hits(ids, truth):
    """Return 1 where ids (n, k) are in the row of the truth (n × L)."""
    out = np.zeros(ids.shape, np.uint8)
    for row in range(len(ids)):
        true = set(truth.indices[truth.indptr[row] : truth.indptr[row + 1]].tolist())
        out[row] = [i in true for i in ids[row].tolist()]
    return out


def metrics(ids, truth, ks, weights):
    """All ranking metrics in percent, from their definitions; {name: {k: value}}."""
    n = truth.shape[0]
    rows = [r for r in range(n) if truth.indptr[r + 1] > truth.indptr[r]]
    result = {name: {} for name in ("P", "nDCG", "R", "PSP", "PSnDCG", "coverage")}
    for k in ks:
        p = r_ = ndcg = psp = psp_best = psn = psn_best = 0.0
        hit_labels, true_labels = set(), set()
        for row in rows:
            true = set(truth.indices[truth.indptr[row] : truth.indptr[row + 1]].tolist())
            true_labels |= true
            found, gains, weighted, weighted_gains = set(), 0.0, 0.0, 0.0
            for rank, label in enumerate(ids[row, :k].tolist(), 1):
                if label in true and label not in found:
                    found.add(label)
                    gains += 1 / math.log2(rank + 1)
                    weighted += weights[label]
                    weighted_gains += weights[label] / math.log2(rank + 1)
            hit_labels |= found
            ideal = sum(1 / math.log2(rank + 1) for rank in range(1, min(k, len(true)) + 1))
            best = sorted((weights[label] for label in true), reverse=True)[:k]
            p += len(found) / k
            r_ += len(found) / len(true)
            ndcg += gains / ideal
            psp += weighted
            psp_best += sum(best)
            psn += weighted_gains / ideal
            psn_best += sum(w / math.log2(rank + 1) for rank, w in enumerate(best, 1)) / ideal
        m = max(1, len(rows))
        result["P"][k], result["R"][k], result["nDCG"][k] = 100 * p / m, 100 * r_ / m, 100 * ndcg / m
        result["PSP"][k] = 100 * psp / psp_best if psp_best else 0.0
        result["PSnDCG"][k] = 100 * psn / psn_best if psn_best else 0.0
        result["coverage"][k] = 100 * len(hit_labels) / max(1, len(true_labels))
    return result


def read_xmc(text):
    """Features and labels of an XMC text by a Python loop over its lines; the text must be valid."""
    lines = text.splitlines()
    n, d, n_labels = (int(x) for x in lines[0].split())
    features, labels = sparse.lil_matrix((n, d), dtype=np.float32), sparse.lil_matrix((n, n_labels), dtype=np.float32)
    for row, line in enumerate(lines[1:]):
        names, _, pairs = line.partition(" ")
        if ":" in names:
            names, pairs = "", line
        for name in names.split(","):
            if name:
                labels[row, int(name)] = 1
        for pair in pairs.split():
            f, _, v = pair.partition(":")
            features[row, int(f)] += np.float32(float(v))
    return features.tocsr(), labels.tocsr()


def largest_entries(matrix, n):
    """Return the n entries of each row with the largest magnitude, ties by column."""
    matrix = sparse.csr_matrix(matrix)
    result = sparse.lil_matrix(matrix.shape, dtype=np.float32)
    for row in range(matrix.shape[0]):
        a, b = matrix.indptr[row], matrix.indptr[row + 1]
        for i in sorted(range(a, b), key=lambda i: (-abs(matrix.data[i]), matrix.indices[i]))[:n]:
            result[row, matrix.indices[i]] = matrix.data[i]
    return result.tocsr()


def ovr_objective(X, y, w, *, loss="squared_hinge", cost=1.0, bias=1.0, dead_zone=5.0):
    """Primal objective of one classifier: X (n, d) dense, y (n,) of ±1, w (d + 1,) with the bias last."""
    margin = y * (X @ w[:-1] + bias * w[-1])
    shortfall = np.maximum(0, 1 - margin)
    logistic = np.logaddexp(0, -margin)
    losses = {
        "squared_hinge": shortfall**2,
        "hinge": shortfall,
        "logistic": logistic,
        "dead_zone_logistic": np.where(y > 0, logistic, np.maximum(0, logistic - np.log1p(np.exp(-dead_zone)))),
    }[loss]
    return 0.5 * w @ w + (cost * losses).sum()


def tree_scores(X, children, weights, bias, log_score):
    """Log scores (n, n_leaves) of every leaf of a tree, without a beam.

    weights: for each level (n_nodes, d); bias: for each level (n_nodes,); log_score(v, parent) as in `ScoreTransform`.
    """
    scores = np.zeros((X.shape[0], 1), np.float32)
    for indptr, W, b in zip(children, weights, bias, strict=True):
        parents = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
        scores = log_score((X @ W.T + b).astype(np.float32), scores[:, parents])
    return scores


def balanced_2means(Z, depth, seed_rows, n_iterations):
    """Spherical 2-means with halves of equal size; seed_rows(members) returns the two initial members."""
    parts = [np.arange(len(Z))]
    for _ in range(depth):
        below = []
        for members in parts:
            half = len(members) // 2
            a, b = seed_rows(members)
            direction = Z[a] - Z[b]
            for _ in range(n_iterations):
                order = np.lexsort((members, Z[members] @ direction))
                left, right = members[np.sort(order[:half])], members[np.sort(order[half:])]
                means = [Z[part].sum(axis=0) for part in (left, right)]
                means = [m / (np.linalg.norm(m) or 1) for m in means]
                direction = means[1] - means[0]
            below += [left, right]
        parts = below
    return parts


def unpack_features(block_starts, blocks, n_positions):
    """Weights (d, n_positions) of packed features; the layout is in cpp/linear/candidate_kernel.h."""
    weights = np.zeros((len(block_starts) - 1, n_positions), np.float32)
    for feature, (start, end) in enumerate(itertools.pairwise(block_starts)):
        block = blocks[4 * int(start) : 4 * int(end)].tobytes()
        if not block:
            continue
        n, is_bitmap = divmod(int(np.frombuffer(block, np.uint32, 1)[0]), 2)
        if is_bitmap:
            n_words = -(-n_positions // 64)
            words = np.frombuffer(block, np.dtype([("bits", "<u8"), ("before", "<u4")]), n_words, 4)
            present = np.unpackbits(words["bits"].copy().view(np.uint8), bitorder="little")
            positions, at = np.flatnonzero(present), 4 + 12 * n_words
            assert np.array_equal(words["before"], np.searchsorted(positions, 64 * np.arange(n_words)))
        else:
            kind = np.uint16 if n_positions <= 65536 else np.uint32
            positions, at = np.frombuffer(block, kind, n, 4), 4 + n * np.dtype(kind).itemsize
        assert len(positions) == n
        assert np.all(np.diff(positions.astype(np.int64)) > 0)
        weights[feature, positions] = (np.frombuffer(block, np.uint16, n, at).astype(np.uint32) << 16).view(np.float32)
    return weights


def candidate_margins(W, dense, bias, X, embeddings, norm, ids):
    """Margins (n, k) of classifiers W (L × d) and dense (L, D) on unit TF-IDF and embeddings of the given norm."""
    margins = np.zeros(ids.shape)
    for row in range(len(ids)):
        x, e = X[row].toarray().ravel().astype(float), embeddings[row].astype(float)
        x, e = x / (np.linalg.norm(x) or 1), norm * e / (np.linalg.norm(e) or 1)
        labels = np.flatnonzero(ids[row] >= 0)
        rows = ids[row, labels]
        margins[row, labels] = W[rows] @ x + dense[rows] @ e + bias[rows]
    return margins


def blended_scores(margins, log_score, ids, log_scores, *, power, tree, tree_weight, counts):
    """Log of p^γ q, or of its mean with a decision tree over p^γ q, p, q and the label's count."""
    out = np.full(ids.shape, -np.inf)
    for at in zip(*np.nonzero(ids >= 0), strict=True):
        p, q = math.exp(log_scores[at]), math.exp(log_score(margins[at]))
        score = p**power * q
        if tree is not None:
            feature, threshold, left, right, value, depth = tree
            features, node = (score, p, q, counts[ids[at]]), 0
            for _ in range(depth):
                node = left[node] if features[feature[node]] <= threshold[node] else right[node]
            score = (1 - tree_weight) * score + tree_weight * value[node]
        out[at] = math.log(max(score, 1e-38))
    return out
