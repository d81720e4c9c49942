"""Feature extraction: from texts to sparse feature matrices."""

from ramify.features.concat import Concat
from ramify.features.defaults import Suggestion, neighbor_features, suggest, text_features, word_features
from ramify.features.languages import detect_languages
from ramify.features.tfidf import Tfidf

__all__ = [
    "Concat",
    "Suggestion",
    "Tfidf",
    "detect_languages",
    "neighbor_features",
    "suggest",
    "text_features",
    "word_features",
]
