"""Approximate nearest neighbor search by cosine similarity: one interface over IVF with int8 codes and over faiss."""

from ramify.index.ann.index import AnnConfig, AnnIndex

__all__ = ["AnnConfig", "AnnIndex"]
