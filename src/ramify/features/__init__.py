"""From inputs to feature matrices."""

from ramify.features.concat import Concat
from ramify.features.tfidf import Tfidf

__all__ = ["Concat", "Tfidf"]
