"""Refreshed shortlists: hard negatives from an index of label embeddings that follows the encoder (LightDXML).

Every few epochs the label embeddings are learned again for the encoder as it is now, and each sample gets the nearest
labels as its negatives until the next refresh.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ramify.base.types import AnyArray, Csr, FloatArray, IntArray, LongArray
from ramify.index.ann import AnnConfig
from ramify.nn.encoders import Encoder
from ramify.nn.encoders.samples import Samples
from ramify.nn.label_embeddings import LabelEncoder, LabelEncoderConfig, label_centroids
from ramify.nn.label_index import LabelIndex
from ramify.nn.optim import Arrays, add_prefix, restored, select_prefix
from ramify.nn.sampling.targets import ShortlistTargets
from ramify.rank.blend import sigmoid_scores


class RefreshedShortlists:
    """The `shortlist_size` nearest labels of each training row, searched again every `refresh_every` epochs.

    It also retrieves the candidates of validation samples, from the same index (`nn.validation.CandidateSource`).

    Parameters
    ----------
    Y : (n × L) labels of all samples
    rows : (m,) training rows
    embeddings : (m, D) of the training rows by the untrained encoder; dropped after the first refresh

    Attributes
    ----------
    index : label embeddings of the last refresh; labels without a training sample are not in it
    """

    def __init__(
        self,
        samples: Samples,
        Y: Csr,
        rows: LongArray,
        embeddings: FloatArray,
        *,
        shortlist_size: int,
        refresh_every: int,
        label_encoder: LabelEncoderConfig,
        ann: AnnConfig,
        seed: int,
        threads: int,
    ) -> None:
        self.samples, self.Y, self.rows = samples, Y, rows
        self.shortlist_size, self.refresh_every, self.ann = shortlist_size, refresh_every, ann
        self.seed, self.threads = seed, threads
        self.label_encoder = LabelEncoder(embeddings.shape[1], label_encoder)
        self.counts = np.bincount(Y[rows].indices, minlength=Y.shape[1])
        self.index: LabelIndex | None = None
        self._initial: FloatArray | None = embeddings
        self._targets: ShortlistTargets | None = None

    def begin_epoch(self, epoch: int, encoder: Encoder) -> None:
        """Refresh the shortlists if it is time."""
        if epoch == 1 or epoch % self.refresh_every == 0:  # the encoder changes most in the first epoch
            known = self._initial if epoch == 0 else None
            self._initial = None
            embeddings = self.refresh_index(encoder, self.seed + epoch, known)
            assert self.index is not None
            self._set_shortlists(self.index.search(embeddings, self.shortlist_size, self.threads)[0])

    def refresh_index(self, encoder: Encoder, seed: int, embeddings: FloatArray | None = None) -> FloatArray:
        """Learn and index label embeddings for the present encoder; return the embeddings (m, D) of the samples.

        `embeddings` are those of the training rows, if they are known already.
        """
        Y = self.Y[self.rows]
        if embeddings is None:
            embeddings = encoder.encode(self.samples.take(self.rows), self.threads)
        centroids = label_centroids(embeddings, Y, self.threads)
        self.label_encoder.train(centroids, embeddings, Y, seed)
        known = np.flatnonzero(self.counts).astype(np.int32)
        self.index = LabelIndex.build(
            self.label_encoder.encode(centroids[known]),
            known,
            self.counts[known],
            self.ann,
            k=self.shortlist_size,
            queries=embeddings,
            seed=self.seed,
            threads=self.threads,
        )
        return embeddings

    def candidates(self, embeddings: FloatArray) -> tuple[IntArray, FloatArray]:
        """Nearest labels (n, k) of embeddings (n, D), and σ of their similarities."""
        assert self.index is not None
        ids, similarities = self.index.search(embeddings, self.shortlist_size, self.threads)
        return ids, sigmoid_scores(ids, similarities)

    def targets(self, rows: LongArray) -> Csr:
        """Targets (len(rows) × L) of a batch."""
        assert self._targets is not None
        return self._targets.targets(rows)

    def _set_shortlists(self, shortlists: IntArray) -> None:
        self._targets = ShortlistTargets(self.Y, self.rows, shortlists)

    # ---- checkpoints ----

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Return the label encoder, the index and the shortlists."""
        assert self.index is not None
        assert self._targets is not None
        index, info = self.index.to_arrays()
        arrays = {**add_prefix("index", index), **add_prefix("label_encoder", self.label_encoder.arrays())}
        return {**arrays, "shortlists": self._targets.shortlists}, {"index": info}

    def set_state(self, arrays: Mapping[str, AnyArray], values: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        self.label_encoder.set_arrays(select_prefix("label_encoder", arrays))
        dim, n_labels = len(self.label_encoder.bias.values), self.Y.shape[1]
        self.index = LabelIndex.from_arrays(select_prefix("index", arrays), values["index"], dim, n_labels)
        shape = len(self.rows), arrays["shortlists"].shape[-1]
        self._set_shortlists(restored(arrays, "shortlists", np.int32, shape, (-1, n_labels)))
