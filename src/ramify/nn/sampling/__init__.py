"""Samplers: which labels a sample trains on.

A sampler yields the targets (n × L) of a batch: a weight above 0 for each positive, and an explicit 0 for each negative
that the head scores. Heads that find their own negatives only read the positives.
"""
