"""Inference backends of a transformer: torch on any device, the compiled core on a CPU, onnxruntime for serving.

A backend computes the pooled embeddings (n, D) of tokens, before they are scaled to a common norm.
"""
