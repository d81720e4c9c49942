"""Heads: score labels from embeddings φ (n, D), and are trained together with the encoder."""
