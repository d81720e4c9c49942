"""Models with an encoder: embeddings of features or texts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ramify.base.config import param
from ramify.base.errors import ModelFormatError
from ramify.base.mixed import Mixed
from ramify.base.splits import hold_out
from ramify.base.threads import resolve_threads
from ramify.base.types import AnyArray, Csr, LongArray
from ramify.io.inputs import Inputs
from ramify.io.store import Store, StoreWriter
from ramify.metrics.report import evaluate
from ramify.models.features import FeatureModel
from ramify.models.memory import DataSizes, Memory, TransformerSizes, encoder_bytes, measure_sizes
from ramify.models.training_data import TrainingData
from ramify.nn.encoders import Bag, Encoder, Transformer
from ramify.nn.encoders.bag import BagEncoder
from ramify.nn.encoders.samples import Samples
from ramify.nn.encoders.tokens import texts_of
from ramify.nn.encoders.transformer import TransformerEncoder
from ramify.nn.learner import Learner
from ramify.nn.trainer import History, train

FeatureShape = tuple[int, int]
"""Number of sparse and of dense features of a sample."""


@dataclass(frozen=True, eq=False)
class SplitSamples:
    """Samples with labels Y (n × L), split into training and validation rows.

    `threads` for work on them; `sample_weight` (n,) are the weights of their losses.
    """

    samples: Samples
    Y: Csr
    rows: LongArray
    validation_rows: LongArray
    threads: int
    sample_weight: AnyArray | None = None

    @cached_property
    def train_samples(self) -> Samples:
        """Samples of the training rows."""
        return self.samples.take(self.rows)

    @cached_property
    def train_Y(self) -> Csr:
        """Labels of the training rows."""
        return self.Y[self.rows]

    @cached_property
    def validation_samples(self) -> Samples:
        """Samples of the validation rows."""
        return self.samples.take(self.validation_rows)

    @cached_property
    def validation_Y(self) -> Csr:
        """Labels of the validation rows."""
        return self.Y[self.validation_rows]


@dataclass(kw_only=True, eq=False, repr=False)
class EncodedModel(FeatureModel):
    """Base of models that are trained on embeddings.

    A fitted model with a `TransformerEncoder` has `transformer_`, which reads texts: the frozen encoder whose
    embeddings are the dense features of a sample, or the tokenizer and initial weights of fine-tuned encoders.
    """

    default_epochs: ClassVar[int | None] = None
    """Epochs of a training whose number is not set; None: those of the encoder."""

    encoder: BagEncoder | TransformerEncoder = param(factory=BagEncoder, doc="encoder of features or texts")
    checkpoint_dir: str | None = param(
        None, "directory for checkpoints; an interrupted training resumes from there, to the same bits"
    )

    # ---- memory ----

    def _training_memory(self, data: TrainingData) -> Memory:
        sizes, transformer, encoder = measure_sizes(data.inputs, data.Y, self.features), 0, self.encoder
        kept = sizes.labels + sizes.vocabulary + self._kept_bytes(sizes)
        if isinstance(encoder, TransformerEncoder):
            own = self._transformer_sizes
            kept += own.weights
            transformer = (
                own.frozen_bytes()
                if encoder.frozen
                else own.fine_tuning_bytes(min(encoder.micro_batch_size, sizes.n_samples), encoder.max_length)
            )
        training = max(sizes.making_features, sizes.features + self._encoded_bytes(sizes))
        return Memory(transformer + sizes.labels + training, kept)

    def _kept_bytes(self, sizes: DataSizes) -> int:
        """Bytes of the trained parameters, beside those of a transformer."""
        n_words = sizes.n_features if isinstance(self.encoder, BagEncoder) else 0
        return 4 * self._embedding_dim * (self._n_outputs(sizes.n_labels) + n_words)

    def _encoded_bytes(self, sizes: DataSizes) -> int:
        """Bytes of the training on given features, beside those of a transformer."""
        is_bag = isinstance(self.encoder, BagEncoder)
        return encoder_bytes(sizes, self._embedding_dim, self._n_outputs(sizes.n_labels), is_bag=is_bag)

    def _n_outputs(self, n_labels: int) -> int:
        """Classifiers of the head that is trained with the encoder."""
        return n_labels

    def _word_bytes(self, sizes: DataSizes) -> int:
        """Bytes of the word embeddings of a bag."""
        return 4 * self._embedding_dim * sizes.n_features if isinstance(self.encoder, BagEncoder) else 0

    @property
    def _embedding_dim(self) -> int:
        return self.encoder.dim if isinstance(self.encoder, BagEncoder) else self._transformer_sizes.dim

    @property
    def _transformer_sizes(self) -> TransformerSizes:
        assert isinstance(self.encoder, TransformerEncoder)
        return TransformerSizes.of(self.encoder.model)

    # ---- samples ----

    def _fit_samples(self, inputs: Inputs) -> Samples:
        """Fit the feature extraction; return the features, with tokens or embeddings of a transformer's texts."""
        self.transformer_: Transformer | None = None
        if isinstance(self.encoder, BagEncoder):
            return Samples(self._fit_features(inputs))
        texts = texts_of(inputs)
        X, self.transformer_ = self._fit_features(inputs), Transformer.open(self.encoder)
        if not self.encoder.frozen:
            return Samples(X, self.transformer_.cached_tokens(texts))
        embeddings = self.transformer_.cached_embeddings(texts, resolve_threads(self.threads), self.verbose)
        return Samples(Mixed(X.sparse, np.asarray(embeddings)))

    def _transform_samples(self, inputs: Inputs) -> Samples:
        if isinstance(self.encoder, BagEncoder) or self.transformer_ is None:
            return Samples(self._transform_features(inputs))
        tokens = self.transformer_.tokenizer(texts_of(inputs))
        X = self._transform_features(inputs)
        if not self.encoder.frozen:
            return Samples(X, tokens)
        embeddings = self.transformer_.encode_tokens(tokens, resolve_threads(self.threads, len(X)))
        return Samples(Mixed(X.sparse, embeddings))

    def _init_encoder(self, samples: Samples, Y: Csr, seed: int, threads: int) -> Encoder:
        """Return an untrained encoder for samples with labels Y (n × L); over a frozen one, a residual layer."""
        if isinstance(self.encoder, BagEncoder):
            features = getattr(self, "features_", None)
            terms = None if features is None else [str(term) for term in features.get_feature_names_out()]
            return Bag.initialize(samples.features, Y, self.encoder, seed=seed, threads=threads, terms=terms)
        if self.encoder.frozen:
            return Bag.initialize(samples.features, Y, None, seed=seed, threads=threads)
        assert self.transformer_ is not None
        return self.transformer_.copy()

    def _split(self, samples: Samples, data: TrainingData, validation_size: int, seed: int) -> SplitSamples:
        """Hold out a validation set; `samples` are those of the data."""
        rows, validation_rows = hold_out(data.Y, validation_size, seed)
        threads = resolve_threads(self.threads)
        return SplitSamples(samples, data.Y, rows, validation_rows, threads, data.sample_weight)

    def _train(
        self,
        learner: Learner,
        rows: LongArray,
        *,
        title: str,
        seed: int,
        checkpoint: Path | None,
        product_threads: int = 1,
    ) -> History:
        """Train a learner on the given rows; return the history."""
        irrelevant = ("threads", "verbose", "checkpoint_dir")
        return train(
            rows,
            learner,
            title=title,
            seed=seed,
            verbose=self.verbose,
            settings={name: value for name, value in self.to_dict().items() if name not in irrelevant},
            checkpoint=checkpoint,
            product_threads=product_threads,
        )

    # ---- export ----

    def export_encoder(
        self, X: Any = None, y: Any = None, *, int8: bool = False, max_loss: float = 0.5
    ) -> dict[str, float]:
        """Compute the embeddings of texts by onnxruntime from now on, also after the model was saved.

        Its embeddings equal torch's within 1e-3. With `int8`, matrix products are quantized, which is faster and costs
        some accuracy: P@1 is measured on X with labels y, and the graph is kept if it drops by at most `max_loss`
        percentage points. Where onnxruntime is not installed, torch computes the embeddings as before.

        Returns
        -------
        metrics : P@1 in percent "before" and "after", and whether the graph was "kept"; empty without data
        """
        self._check_fitted()
        encoders = self._transformers()
        if not encoders:
            raise ValueError("the model has no transformer; there is nothing to export")
        if int8 and X is None:
            raise ValueError("int8 costs accuracy: pass texts X and their labels y to measure it")
        backends, metrics = [encoder.onnx for encoder in encoders], {}

        def precision() -> float:
            return float(evaluate(self.predict_topk(X, 1), y, ks=[1])["P@1"])

        if X is not None:
            metrics["before"] = precision()
        for encoder in encoders:
            encoder.to_onnx(int8=int8)
        if X is not None:
            metrics["after"] = precision()
            metrics["kept"] = float(not int8 or metrics["before"] - metrics["after"] <= max_loss)
            if not metrics["kept"]:
                for encoder, backend in zip(encoders, backends, strict=True):
                    encoder.use_onnx(backend)
        return metrics

    def _transformers(self) -> list[Transformer]:
        """Return the transformers that embed new texts."""
        return [] if self.transformer_ is None else [self.transformer_]

    # ---- files ----

    def _save_samples(self, writer: StoreWriter) -> dict[str, Any]:
        return {
            "features": self._save_features(writer),
            "transformer": None if self.transformer_ is None else self.transformer_.save_to(writer, "transformer_"),
        }

    def _load_samples(self, store: Store, state: dict[str, Any]) -> FeatureShape:
        """Open feature extraction and transformer; return the shape of a sample's features."""
        n_features = self._load_features(store, state) or 0
        self.transformer_ = None
        if isinstance(self.encoder, BagEncoder):
            return (0, n_features) if self.input_kind_ == "dense" else (n_features, 0)
        self.transformer_ = Transformer.load_from(store, state.get("transformer"), "transformer_", self.encoder)
        return n_features, self.transformer_.dim

    def _load_encoder(self, store: Store, info: Any, prefix: str, shape: FeatureShape) -> Encoder:
        """Open a trained encoder."""
        if isinstance(self.encoder, TransformerEncoder) and not self.encoder.frozen:
            return Transformer.load_from(store, info, prefix, self.encoder)
        return Bag.load_from(store, info, prefix, shape)


def check_history(store: Store, history: Any) -> History:
    """Check a training history from a manifest: pairs of loss and validation nDCG@5, which may be None."""

    def is_pair(entry: Any) -> bool:
        return (
            isinstance(entry, list)
            and len(entry) == 2
            and isinstance(entry[0], int | float)
            and isinstance(entry[1], int | float | None)
        )

    if not isinstance(history, list) or not all(is_pair(entry) for entry in history):
        raise ModelFormatError(f"the manifest of {store.path} does not describe the training")
    return [(float(loss), None if score is None else float(score)) for loss, score in history]
