"""Vectors for labels, from which indexes are built."""
