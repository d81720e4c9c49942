"""Data and models in and out: readers, writers, the `Dataset`, label names, and the model store."""
