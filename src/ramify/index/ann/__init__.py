"""Approximate nearest neighbor search: one interface over IVF lists with int8 codes and faiss."""

from ramify.index.ann.index import AnnConfig, AnnIndex

__all__ = ["AnnConfig", "AnnIndex"]
