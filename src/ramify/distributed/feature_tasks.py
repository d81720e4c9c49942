"""Tasks that make features of texts: vocabulary and document frequencies by map and merge, then X by rows."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from ramify.distributed.data_tasks import documents
from ramify.distributed.task import Job, Shard
from ramify.features.concat import Concat, feature_parts
from ramify.features.languages import sample_step
from ramify.features.term_counts import (
    TermCounts,
    count_languages,
    count_terms,
    count_words,
    document_frequency,
    features_of,
    fields_of,
    language_of,
    merge_counts,
    set_terms,
    set_weights,
)
from ramify.features.tfidf import Tfidf
from ramify.models.features import load_features
from ramify.models.xrlinear import XRLinear


def features_from(params: dict[str, Any]) -> Tfidf | Concat:
    """Return unfitted features from their parameters."""
    return XRLinear.from_dict({"features": params}).features.clone()


def is_chosen_by_texts(features: Tfidf | Concat) -> bool:
    """Whether the features, or the language of their stems, depend on a sample of the texts."""
    may_be_long = isinstance(features, Concat) and features.long_texts is not None
    return may_be_long or any(tfidf.stemmer == "auto" for tfidf in feature_parts(features))


def _features(job: Job) -> Tfidf | Concat:
    return features_from(job.params["features"])


def _documents(job: Job, first: int = 0, step: int = 1) -> list[Any]:
    begin, end = job.params["begin"] + first, job.params["end"]
    return documents(job.inputs["file"][0], begin, end, job.params["names"], step)


def sample_texts(job: Job) -> dict[str, Any]:
    """Languages of a sample of the texts of a block, as each extractor reads them, and words as the first does."""
    step, names, parts = sample_step(job.params["n"]), job.params["names"], feature_parts(_features(job))
    texts = _documents(job, -job.params["first"] % step, step)  # the rows of the sample: all of them are counted
    at = (0, len(texts))
    languages = [dict(count_languages(tfidf, texts, fields_of(tfidf, names), *at)) for tfidf in parts]
    n_words, n = count_words(parts[0], texts, fields_of(parts[0], names), *at)
    return {"languages": languages, "n_words": n_words, "n": n}


def choose_features(job: Job) -> dict[str, Any]:
    """Extractors that suit the texts, with the language of the stems of each."""
    features, shards = _features(job), [shard.result for shard in job.inputs["samples"]]
    counts: list[Counter[str]] = [Counter() for _ in feature_parts(features)]
    for shard in shards:
        for total, found in zip(counts, shard["languages"], strict=True):
            total.update(found)
    if isinstance(features, Concat):
        n_words, n = (sum(shard[name] for shard in shards) for name in ("n_words", "n"))
        features = features.suited_to_counts(n_words, n, counts[0])
    languages = [language_of(tfidf, found) for tfidf, found in zip(feature_parts(features), counts, strict=False)]
    return {"languages": languages, "features": features.to_dict()}


def count_block(job: Job) -> dict[str, Any]:
    """Terms of the texts of a block with their frequencies, and the counts of each text: no later task analyzes it."""
    texts, languages = _documents(job), job.inputs["languages"][0].result["languages"]
    for i, (tfidf, language) in enumerate(zip(feature_parts(_features(job)), languages, strict=True)):
        terms, counts = count_terms(tfidf, texts, fields_of(tfidf, job.params["names"]), language)
        _write_counts(job, i, terms)
        job.write_csr(f"{i}_counts", counts)
    return {}


def merge_blocks(job: Job) -> dict[str, Any]:
    """Terms of several blocks, or of several merged ones."""
    for i in range(len(feature_parts(_features(job)))):
        _write_counts(job, i, merge_counts([_read_counts(shard, i) for shard in job.inputs["counts"]]))
    return {}


def _write_counts(job: Job, part: int, counts: TermCounts) -> None:
    for name, array in counts._asdict().items():
        job.writer.array(f"{part}_{name}", array)


def _read_counts(shard: Shard, part: int) -> TermCounts:
    return TermCounts(*(shard.array(f"{part}_{name}") for name in TermCounts._fields))


def learn_terms(job: Job) -> dict[str, Any]:
    """Vocabularies of all extractors, from the terms of all texts; without weights where they are counted later."""
    features, names = _features(job), job.params["names"]
    languages = job.inputs["languages"][0].result["languages"]
    parts, found = feature_parts(features), False
    for i, (tfidf, language) in enumerate(zip(parts, languages, strict=True)):
        counts = merge_counts([_read_counts(shard, i) for shard in job.inputs["counts"]])
        needs_terms = i == len(parts) - 1 and not found
        df = set_terms(tfidf, counts, job.params["n"], fields_of(tfidf, names), language, needs_terms)
        found = found or tfidf.n_features > 0
        set_weights(tfidf, df)
    return {"features": features.save_to(job.writer, "features_"), "n_features": features.n_features}


def _learned(job: Job, shard: Shard) -> Tfidf | Concat:
    kind = "text" if job.params["names"] is None else "fields"
    return load_features(shard.store, shard.result["features"], "features_", type(_features(job)), kind)


def count_parts(job: Job) -> dict[str, Any]:
    """Documents of a block with each term, also as a part of a word, of the extractors that count parts of words."""
    block = job.inputs["counts"][0]
    for i, tfidf in enumerate(feature_parts(_learned(job, job.inputs["terms"][0]))):
        if tfidf.subwords is not None:
            job.writer.array(f"{i}_df", document_frequency(tfidf, _read_counts(block, i), block.csr(f"{i}_counts")))
    return {}


def learn_weights(job: Job) -> dict[str, Any]:
    """All extractors with their weights."""
    features = _learned(job, job.inputs["terms"][0])
    for i, tfidf in enumerate(feature_parts(features)):
        if tfidf.subwords is not None:
            df = np.zeros(tfidf.n_features, np.int64)
            for shard in job.inputs["parts"]:
                df += shard.array(f"{i}_df")
            set_weights(tfidf, df)
    return {"features": features.save_to(job.writer, "features_"), "n_features": features.n_features}


def transform(job: Job) -> dict[str, Any]:
    """X (rows × d) of a block of texts."""
    block, features = job.inputs["counts"][0], _learned(job, job.inputs["features"][0])
    parts = [
        features_of(tfidf, _read_counts(block, i), block.csr(f"{i}_counts"))
        for i, tfidf in enumerate(feature_parts(features))
    ]
    X = features.beside_each_other(parts) if isinstance(features, Concat) else parts[0]
    job.write_csr("X", X)
    return {"n_entries": int(X.nnz), "n": int(X.shape[0])}


def take_features(job: Job) -> dict[str, Any]:
    """X (rows × d) of a block of a file of features."""
    X = job.inputs["file"][0].csr("X")[job.params["begin"] : job.params["end"]]
    job.write_csr("X", X)
    return {"n_entries": int(X.nnz), "n": int(X.shape[0])}
