"""Graph head in torch: the same computation as `nn.heads.graph` in plain tensor operations, for any device.

On a CPU the native kernels are several times faster and need no memory for batch × shortlist × D; on a GPU this head is
used. Both give the same loss and the same gradients; the backward pass here is autograd's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ramify.base.sparse import entry_rows
from ramify.base.types import AnyArray, Csr, FloatArray, IntArray
from ramify.index.label_graph import LabelGraph
from ramify.nn.heads.classifiers import Classifiers
from ramify.nn.heads.graph import PARENT_REFRESH_STEPS, GraphOptions, TrainedEdges, search_labels
from ramify.nn.optim import Adam, Arrays, restored


class TorchGraphHead:
    """Cluster classifiers, edges and label classifiers as tensors on a device; see `GraphHead`."""

    def __init__(
        self,
        cluster_classifiers: Classifiers,
        graph: LabelGraph | TrainedEdges,
        label_classifiers: Classifiers,
        options: GraphOptions,
        device: str = "cpu",
    ) -> None:
        import torch

        self._torch, self.device, self.options = torch, device, options
        self.log_alpha = math.log(options.alpha)
        self.edges = graph if isinstance(graph, TrainedEdges) else None
        self._pattern = graph.graph if isinstance(graph, TrainedEdges) else graph
        pattern = self._pattern
        counts = np.diff(pattern.indptr)
        width = max(1, int(counts.max(initial=0)))
        # Edge ids of each cluster as rows (C, κ), padded with -1.
        edge_ids = np.where(np.arange(width) < counts[:, None], pattern.indptr[:-1, None] + np.arange(width), -1)
        self._edge_ids = self._tensor(edge_ids)
        self._edge_labels = self._tensor(pattern.labels.astype(np.int64))
        self._edge_clusters = self._tensor(pattern.edge_clusters().astype(np.int64))
        self.tensors = {
            "cluster_weights.values": self._tensor(cluster_classifiers[0]),
            "cluster_bias.values": self._tensor(cluster_classifiers[1]),
            "labels.weights": self._tensor(label_classifiers[0]),
            "labels.bias": self._tensor(label_classifiers[1]),
        }
        if self.edges is not None:
            self.tensors["edges.values"] = self._tensor(self.edges.logits.values)
        self._moments: dict[str, Any] = {}
        self._parents: Any = None

    def _tensor(self, array: AnyArray) -> Any:
        return self._torch.from_numpy(np.array(array)).to(self.device)

    # ---- kernels ----

    def edge_scores(self, logits: Any) -> Any:
        """Log scores (E,) log β + log softmax within the cluster, before they are cut at 0."""
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
        clusters, order : (n, C) log scores, and the values by which the best clusters are chosen
        edge_scores : (E,) log scores
        truth : rows and ids of the true labels, whose strongest cluster is explored in addition

        Returns
        -------
        shortlists, scores : (n, K) labels and log scores of their best paths, padded with -1 and -inf
        paths : (n, L) log score of the best path to every label
        """
        torch, options = self._torch, self.options
        n, n_labels = len(clusters), self._pattern.n_labels
        chosen = torch.zeros_like(clusters, dtype=torch.bool)
        chosen.scatter_(1, order.topk(options.beam_size, dim=1).indices, True)
        if truth is not None:
            chosen[truth[0], self._parents[truth[1]]] = True
        rows, at = chosen.nonzero(as_tuple=True)
        edges = self._edge_ids[at]  # (pairs, κ)
        mask = edges >= 0
        edges = edges.clamp(min=0)
        paths = clusters[rows, at].unsqueeze(1) + edge_scores[edges]
        where = rows.unsqueeze(1) * n_labels + self._edge_labels[edges]
        unreached = torch.full((n * n_labels,), -torch.inf, device=self.device)
        best = unreached.scatter_reduce(0, where[mask], paths[mask], "amax").reshape(n, n_labels)
        width = min(options.shortlist_size, n_labels)
        if self.edges is None:  # all labels of a cluster tie: the lower id comes first
            scores, shortlists = (part[:, :width] for part in best.sort(dim=1, descending=True, stable=True))
        else:
            scores, shortlists = best.topk(width, dim=1)
        return torch.where(scores > -torch.inf, shortlists, -1), scores, best

    def label_logits(self, shortlists: Any, weights: Any, bias: Any, phi: Any) -> Any:
        """Logits (n, K) of the label classifiers on the shortlists for embeddings (n, D)."""
        rows = shortlists.clamp(min=0)
        return self._torch.einsum("nkd,nd->nk", weights[rows], phi) + bias[rows]

    def adam_rows(self, name: str, rows: Any, gradients: Any, adam: Adam, decays: bool = True) -> None:
        """One Adam step for some rows of a table; the moments of the others stay unchanged."""
        torch, values = self._torch, self.tensors[name]
        if name not in self._moments:
            self._moments[name] = torch.zeros_like(values), torch.zeros_like(values)
        first, second = self._moments[name]
        m = adam.beta1 * first[rows] + (1 - adam.beta1) * gradients
        v = adam.beta2 * second[rows] + (1 - adam.beta2) * gradients.square()
        first[rows], second[rows] = m, v
        now = values[rows]
        if decays:
            now = now - adam.learning_rate * adam.weight_decay * now
        m, v = m / (1 - adam.beta1**adam.step), v / (1 - adam.beta2**adam.step)
        values[rows] = now - adam.learning_rate * m / (v.sqrt() + adam.epsilon)

    # ---- training ----

    def loss(
        self, phi: Any, weights: dict[str, Any], Y: Csr, step: int, sample_weight: FloatArray | None = None
    ) -> tuple[Any, Any]:
        """Loss of a batch of embeddings (n, D), and the shortlists (n, K); see `GraphHead.gradients`."""
        torch, options, n = self._torch, self.options, len(phi)
        logits = phi @ weights["cluster_weights.values"].T + weights["cluster_bias.values"]
        clusters = (self.log_alpha + torch.log_softmax(logits, 1)).clamp(max=0)
        fixed = self.edges is None
        unclipped = self._tensor(self._pattern.scores) if fixed else self.edge_scores(weights["edges.values"])
        if self._parents is None or (self.edges is not None and step % PARENT_REFRESH_STEPS == 0):
            self._parents = self._strongest(unclipped.detach())
        edge_scores = unclipped.clamp(max=0)
        truth = self._tensor(entry_rows(Y)), self._tensor(Y.indices.astype(np.int64))
        shortlists, scores, paths = self.explore(clusters, logits.detach(), edge_scores, truth)
        mask = shortlists >= 0
        targets = torch.zeros((n, self._pattern.n_labels), dtype=torch.bool, device=self.device)
        targets[truth] = True
        positive = targets.gather(1, shortlists.clamp(min=0)) & mask
        u = torch.where(mask, scores, 0.0)
        z = self.label_logits(shortlists, weights["labels.weights"], weights["labels.bias"], phi)
        log_p = torch.nn.functional.logsigmoid(z) + u
        q = -torch.expm1(u) + torch.exp(u) * torch.sigmoid(-z)  # 1 - p
        cost = -torch.where(positive, log_p, torch.log(q.clamp(min=1e-6)))
        of_samples = self._tensor(np.ones(n, np.float32) if sample_weight is None else sample_weight)
        loss = (of_samples[:, None] * torch.where(mask, cost, 0.0)).sum() / (n * shortlists.shape[1])
        truth_scores = paths[truth]
        reached = truth_scores > -torch.inf
        max_labels = max(1, int(np.diff(Y.indptr).max(initial=0)))
        rewards = (of_samples[truth[0][reached]] * truth_scores[reached]).sum()
        return loss - options.shortlist_loss_weight / (n * max_labels) * rewards, shortlists

    def _strongest(self, edge_scores: Any) -> Any:
        """Cluster (L,) of the strongest edge of each label, the lowest of equals; 0 for labels without an edge."""
        torch, n_labels = self._torch, self._pattern.n_labels
        best = torch.full((n_labels,), -torch.inf, device=self.device)
        best = best.scatter_reduce(0, self._edge_labels, edge_scores, "amax")
        is_best = edge_scores == best[self._edge_labels]
        parents = torch.full((n_labels,), self._pattern.n_clusters, device=self.device)
        parents = parents.scatter_reduce(0, self._edge_labels[is_best], self._edge_clusters[is_best], "amin")
        return torch.where(parents < self._pattern.n_clusters, parents, 0)

    def gradients(
        self, phi: FloatArray, Y: Csr, step: int, sample_weight: FloatArray | None = None
    ) -> tuple[float, FloatArray, dict[str, Any], Any]:
        """Loss, gradients of the embeddings (n, D) and of all tensors by name, and the shortlists (n, K)."""
        leaves = {name: w.detach().requires_grad_() for name, w in self.tensors.items()}
        leaf = self._tensor(phi).requires_grad_()
        loss, shortlists = self.loss(leaf, leaves, Y, step, sample_weight)
        loss.backward()
        gradients = {name: tensor.grad for name, tensor in leaves.items()}
        return float(loss.detach()), leaf.grad.cpu().numpy(), gradients, shortlists

    def step(
        self, phi: FloatArray, Y: Csr, adam: Adam, threads: int, sample_weight: FloatArray | None = None
    ) -> tuple[float, FloatArray]:
        """Update from a batch of embeddings (n, D) with labels Y (n × L); return the loss and the gradients (n, D)."""
        torch, options = self._torch, self.options
        loss, d_phi, gradients, shortlists = self.gradients(phi, Y, adam.step, sample_weight)
        with torch.no_grad():
            rows = torch.unique(shortlists[shortlists >= 0])
            self.adam_rows("labels.weights", rows, gradients["labels.weights"][rows], adam)
            self.adam_rows("labels.bias", rows, gradients["labels.bias"][rows], adam, decays=False)
            everything = slice(None)
            cluster_lr = options.cluster_learning_rate_ratio * adam.learning_rate
            cluster_adam = Adam(cluster_lr, adam.step, weight_decay=adam.weight_decay)
            for name in ("cluster_weights.values", "cluster_bias.values"):
                self.adam_rows(name, everything, gradients[name], cluster_adam, decays=name == "cluster_weights.values")
            if self.edges is not None:
                edge_adam = Adam(options.edge_learning_rate_ratio * adam.learning_rate, adam.step)
                moved = torch.zeros(self._pattern.n_clusters, dtype=torch.bool, device=self.device)
                moved[self._edge_clusters[gradients["edges.values"] != 0]] = True
                rows = moved[self._edge_clusters].nonzero(as_tuple=True)[0]
                self.adam_rows("edges.values", rows, gradients["edges.values"][rows], edge_adam, decays=False)
        return loss, d_phi

    # ---- search and state ----

    @property
    def graph(self) -> LabelGraph:
        """The graph with its present scores."""
        if self.edges is None:
            return self._pattern
        scores = self.edge_scores(self.tensors["edges.values"]).clamp(max=0).cpu().numpy()
        return LabelGraph(self._pattern.indptr, self._pattern.labels, scores, self._pattern.n_labels)

    def search(self, phi: FloatArray, k: int, threads: int) -> tuple[IntArray, FloatArray]:
        """Ids and log scores (n, k) of the best labels for embeddings (n, D), by the native search."""
        classifiers = self.cluster_classifiers, self.label_classifiers
        return search_labels(self.graph, *classifiers, self.log_alpha, self.options.search_size, phi, k, threads)

    @property
    def cluster_classifiers(self) -> Classifiers:
        """Weights (C, D) and bias (C,)."""
        arrays = self.arrays()
        return arrays["cluster_weights.values"], arrays["cluster_bias.values"]

    @property
    def label_classifiers(self) -> Classifiers:
        """Weights (L, D) and bias (L,)."""
        arrays = self.arrays()
        return arrays["labels.weights"], arrays["labels.bias"]

    def arrays(self) -> Arrays:
        """Return the trained tensors as arrays."""
        return {name: tensor.detach().cpu().numpy() for name, tensor in self.tensors.items()}

    def set_arrays(self, arrays: Mapping[str, AnyArray]) -> None:
        """Copy the values of all arrays."""
        for name, tensor in self.tensors.items():
            tensor.copy_(self._tensor(restored(arrays, name, np.float32, tuple(tensor.shape))))

    def saved(self, arrays: Arrays) -> Arrays:
        """Return the arrays: every rank has all of them."""
        return arrays

    def own_part(self, arrays: Mapping[str, AnyArray]) -> Arrays:
        """Return the arrays: every rank has all of them."""
        return dict(arrays)

    def optimizer_state(self) -> Arrays:
        """Return the optimizer state, and the parents, which are not determined at every step."""
        state = {f"{name}.{i}": m.cpu().numpy() for name, pair in self._moments.items() for i, m in enumerate(pair)}
        return state if self._parents is None else {**state, "parents": self._parents.cpu().numpy()}

    def set_optimizer_state(self, state: Mapping[str, AnyArray]) -> None:
        """Restore what `optimizer_state` returned."""
        self._parents = None
        if "parents" in state:
            dtype, pattern = state["parents"].dtype, self._pattern
            dtype = dtype if dtype in (np.int32, np.int64) else np.dtype(np.int64)
            self._parents = self._tensor(
                restored(state, "parents", dtype, (pattern.n_labels,), (-1, pattern.n_clusters))
            )

        def moments(name: str) -> tuple[Any, Any]:
            shape = tuple(self.tensors[name].shape)
            first, second = (self._tensor(restored(state, f"{name}.{i}", np.float32, shape)) for i in (0, 1))
            return first, second

        self._moments = {name: moments(name) for name in self.tensors if f"{name}.0" in state}
