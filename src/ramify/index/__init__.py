"""Indexes: what narrows millions of labels down to a few hundred."""
