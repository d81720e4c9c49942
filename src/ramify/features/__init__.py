"""Feature extraction: from texts to sparse feature matrices."""

from ramify.features.concat import Concat
from ramify.features.tfidf import Tfidf

__all__ = ["Concat", "Tfidf"]
