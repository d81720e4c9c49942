"""The graph and its classifiers in torch: what the native kernels do, written plainly, and for any device.

On a processor the native kernels are several times faster and need no memory for batch × shortlist × width; on a GPU
this is what trains. Both give the same loss and the same gradients.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ramify import native
from ramify.base.types import AnyArray, Csr, FloatArray, IntArray
from ramify.index.label_graph import LabelGraph
from ramify.nn.graph import REFRESH, Edges, GraphOptions
from ramify.nn.tables import Adam, Arrays


class TorchGraphHead:
    """Clusters, edges and label classifiers over vectors φ (n, D), as tensors on a device; see `GraphHead`."""

    def __init__(
        self,
        clusters: tuple[FloatArray, FloatArray],
        graph: LabelGraph | Edges,
        labels: tuple[FloatArray, FloatArray],
        options: GraphOptions,
        device: str = "cpu",
    ) -> None:
        import torch

        self._torch, self.device, self.options = torch, device, options
        self.log_alpha = math.log(options.alpha)
        self.edges = graph if isinstance(graph, Edges) else None
        self._pattern = graph.graph if isinstance(graph, Edges) else graph
        pattern = self._pattern
        counts = np.diff(pattern.indptr)
        width = max(1, int(counts.max(initial=0)))
        # The edges of a cluster as a row (C, κ), the last edge of all again behind its last one.
        places = np.where(np.arange(width) < counts[:, None], pattern.indptr[:-1, None] + np.arange(width), -1)
        self._places = self._tensor(places)
        self._edge_labels = self._tensor(pattern.labels.astype(np.int64))
        self._edge_clusters = self._tensor(pattern.edge_clusters().astype(np.int64))
        self.weights = {
            "cluster_weights.values": self._tensor(clusters[0]),
            "cluster_offset.values": self._tensor(clusters[1]),
            "labels.weights": self._tensor(labels[0]),
            "labels.offset": self._tensor(labels[1]),
        }
        if self.edges is not None:
            self.weights["edges.values"] = self._tensor(self.edges.logits.values)
        self._moments: dict[str, Any] = {}
        self._parents: Any = None

    def _tensor(self, array: AnyArray) -> Any:
        return self._torch.from_numpy(np.array(array)).to(self.device)

    # ---- the three hot pieces ----

    def edge_scores(self, logits: Any) -> Any:
        """Log scores (E,) log β + log softmax within the cluster, not yet cut at 0."""
        torch, n = self._torch, self._pattern.n_clusters
        top = torch.full((n,), -torch.inf, device=self.device).scatter_reduce(
            0, self._edge_clusters, logits.detach(), "amax"
        )
        shifted = logits - top[self._edge_clusters]
        total = torch.zeros(n, device=self.device).index_add(0, self._edge_clusters, torch.exp(shifted))
        return shifted - torch.log(total)[self._edge_clusters] + math.log(self.options.beta)

    def explore(
        self, clusters: Any, order: Any, edge_scores: Any, truth: tuple[Any, Any] | None
    ) -> tuple[Any, Any, Any]:
        """Follow the edges of the chosen clusters, keep the best path to each label, cut to the shortlist.

        Parameters
        ----------
        clusters, order : (n, C) log scores, and what the best clusters are chosen by
        edge_scores : (E,) log scores
        truth : rows and labels that are known, whose strongest cluster is explored besides

        Returns
        -------
        lists, scores : (n, K) labels and log scores of their best paths, -1 and -inf where fewer are reached
        paths : (n, L) log score of the best path to every label
        """
        torch, options = self._torch, self.options
        n, n_labels = len(clusters), self._pattern.n_labels
        chosen = torch.zeros_like(clusters, dtype=torch.bool)
        chosen.scatter_(1, order.topk(options.beam_size, dim=1).indices, True)
        if truth is not None:
            chosen[truth[0], self._parents[truth[1]]] = True
        rows, at = chosen.nonzero(as_tuple=True)
        places = self._places[at]  # (pairs, κ)
        there = places >= 0
        places = places.clamp(min=0)
        paths = clusters[rows, at].unsqueeze(1) + edge_scores[places]
        where = rows.unsqueeze(1) * n_labels + self._edge_labels[places]
        start = torch.full((n * n_labels,), -torch.inf, device=self.device)
        best = start.scatter_reduce(0, where[there], paths[there], "amax").reshape(n, n_labels)
        width = min(options.shortlist, n_labels)
        if self.edges is None:  # all labels of a cluster tie: the lower number goes first
            scores, lists = (part[:, :width] for part in best.sort(dim=1, descending=True, stable=True))
        else:
            scores, lists = best.topk(width, dim=1)
        return torch.where(scores > -torch.inf, lists, -1), scores, best

    def products(self, lists: Any, table: Any, offset: Any, vectors: Any) -> Any:
        """Products (n, K) of the label classifiers on the lists with the vectors (n, D)."""
        rows = lists.clamp(min=0)
        return self._torch.einsum("nkd,nd->nk", table[rows], vectors) + offset[rows]

    def row_adam(self, name: str, rows: Any, gradients: Any, adam: Adam, decays: bool = True) -> None:
        """One step of Adam for some rows of a table; moments of the others rest."""
        torch, values = self._torch, self.weights[name]
        if name not in self._moments:
            self._moments[name] = torch.zeros_like(values), torch.zeros_like(values)
        first, second = self._moments[name]
        m = adam.beta1 * first[rows] + (1 - adam.beta1) * gradients
        v = adam.beta2 * second[rows] + (1 - adam.beta2) * gradients.square()
        first[rows], second[rows] = m, v
        now = values[rows]
        if decays:
            now = now - adam.rate * adam.weight_decay * now
        m, v = m / (1 - adam.beta1**adam.step), v / (1 - adam.beta2**adam.step)
        values[rows] = now - adam.rate * m / (v.sqrt() + adam.epsilon)

    # ---- training ----

    def loss(self, vectors: Any, weights: dict[str, Any], Y: Csr, number: int) -> tuple[Any, Any]:
        """Loss of a batch of vectors (n, D) with the given weights, and the lists (n, K); see `GraphHead.gradients`."""
        torch, options, n = self._torch, self.options, len(vectors)
        logits = vectors @ weights["cluster_weights.values"].T + weights["cluster_offset.values"]
        clusters = (self.log_alpha + torch.log_softmax(logits, 1)).clamp(max=0)
        raw = self._tensor(self._pattern.scores) if self.edges is None else self.edge_scores(weights["edges.values"])
        if self._parents is None or (self.edges is not None and number % REFRESH == 0):
            self._parents = self._strongest(raw.detach())
        edge_scores = raw.clamp(max=0)
        rows = self._tensor(np.repeat(np.arange(n), np.diff(Y.indptr)))
        truth = rows, self._tensor(Y.indices.astype(np.int64))
        lists, scores, paths = self.explore(clusters, logits.detach(), edge_scores, truth)
        there = lists >= 0
        targets = torch.zeros((n, self._pattern.n_labels), dtype=torch.bool, device=self.device)
        targets[truth] = True
        right = targets.gather(1, lists.clamp(min=0)) & there
        u = torch.where(there, scores, 0.0)
        v = self.products(lists, weights["labels.weights"], weights["labels.offset"], vectors)
        log_right = torch.nn.functional.logsigmoid(v) + u
        wrong = -torch.expm1(u) + torch.exp(u) * torch.sigmoid(-v)
        cost = -torch.where(right, log_right, torch.log(wrong.clamp(min=1e-6)))
        loss = torch.where(there, cost, 0.0).sum() / (n * lists.shape[1])
        found = paths[truth]
        reached = found > -torch.inf
        widest = max(1, int(np.diff(Y.indptr).max(initial=0)))
        return loss - options.shortlist_weight / (n * widest) * found[reached].sum(), lists

    def _strongest(self, edge_scores: Any) -> Any:
        """Cluster (L,) of the strongest edge of each label, 0 where it has none; equal ones by the lower cluster."""
        torch, n_labels = self._torch, self._pattern.n_labels
        best = torch.full((n_labels,), -torch.inf, device=self.device)
        best = best.scatter_reduce(0, self._edge_labels, edge_scores, "amax")
        is_best = edge_scores == best[self._edge_labels]
        parents = torch.full((n_labels,), self._pattern.n_clusters, device=self.device)
        parents = parents.scatter_reduce(0, self._edge_labels[is_best], self._edge_clusters[is_best], "amin")
        return torch.where(parents < self._pattern.n_clusters, parents, 0)

    def gradients(self, vectors: FloatArray, Y: Csr, number: int) -> tuple[float, FloatArray, dict[str, Any], Any]:
        """Loss, gradients of the vectors (n, D) and of all weights by name, and the lists (n, K)."""
        leaves = {name: w.detach().requires_grad_() for name, w in self.weights.items()}
        phi = self._tensor(vectors).requires_grad_()
        loss, lists = self.loss(phi, leaves, Y, number)
        loss.backward()
        return float(loss.detach()), phi.grad.cpu().numpy(), {name: leaf.grad for name, leaf in leaves.items()}, lists

    def step(self, vectors: FloatArray, Y: Csr, adam: Adam, threads: int) -> tuple[float, FloatArray]:
        """Learn from a batch: loss and gradients (n, D) of its vectors (n, D)."""
        torch = self._torch
        loss, d_vectors, gradients, lists = self.gradients(vectors, Y, adam.step)
        with torch.no_grad():
            rows = torch.unique(lists[lists >= 0])
            self.row_adam("labels.weights", rows, gradients["labels.weights"][rows], adam)
            self.row_adam("labels.offset", rows, gradients["labels.offset"][rows], adam, decays=False)
            everything = slice(None)
            slow = Adam(self.options.cluster_share * adam.rate, adam.step, weight_decay=adam.weight_decay)
            for name in ("cluster_weights.values", "cluster_offset.values"):
                self.row_adam(name, everything, gradients[name], slow, decays=name == "cluster_weights.values")
            if self.edges is not None:
                share = Adam(self.options.edge_share * adam.rate, adam.step)
                moved = torch.zeros(self._pattern.n_clusters, dtype=torch.bool, device=self.device)
                moved[self._edge_clusters[gradients["edges.values"] != 0]] = True
                rows = moved[self._edge_clusters].nonzero(as_tuple=True)[0]
                self.row_adam("edges.values", rows, gradients["edges.values"][rows], share, decays=False)
        return loss, d_vectors

    # ---- what the loop asks for ----

    @property
    def graph(self) -> LabelGraph:
        """The graph as it is now."""
        if self.edges is None:
            return self._pattern
        scores = self.edge_scores(self.weights["edges.values"]).clamp(max=0).cpu().numpy()
        return LabelGraph(self._pattern.indptr, self._pattern.labels, scores, self._pattern.n_labels)

    def search(self, vectors: FloatArray, k: int, threads: int) -> tuple[IntArray, FloatArray]:
        """Ids and log scores (n, k) of the best labels of vectors (n, D), by the native search."""
        arrays, options = self.arrays(), self.options
        clusters = arrays["cluster_weights.values"], arrays["cluster_offset.values"]
        labels = arrays["labels.weights"], arrays["labels.offset"]
        width = max(options.shortlist, k)
        return native.neural.search_graph(
            self.graph.arrays, clusters, labels, self.log_alpha, options.beam_size, width, vectors, k, threads
        )

    def arrays(self) -> Arrays:
        """What is trained, as arrays."""
        return {name: tensor.detach().cpu().numpy() for name, tensor in self.weights.items()}

    def set_arrays(self, arrays: Mapping[str, AnyArray]) -> None:
        """Take over the values of all arrays."""
        for name, tensor in self.weights.items():
            tensor.copy_(self._tensor(arrays[name]))

    def moments(self) -> Arrays:
        """What the optimiser remembers, and the parents, which are not looked up at every step."""
        found = {f"{name}.{i}": m.cpu().numpy() for name, pair in self._moments.items() for i, m in enumerate(pair)}
        return found if self._parents is None else {**found, "parents": self._parents.cpu().numpy()}

    def set_moments(self, moments: Mapping[str, AnyArray]) -> None:
        """Go on from what `moments` gave."""
        self._parents = self._tensor(moments["parents"]) if "parents" in moments else None
        names = {key.rpartition(".")[0] for key in moments} - {""}
        self._moments = {n: (self._tensor(moments[f"{n}.0"]), self._tensor(moments[f"{n}.1"])) for n in names}
