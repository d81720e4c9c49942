"""One learned ranker over the evidence of several models."""
