"""Indexes over labels: label trees, label graphs and nearest neighbor indexes, each of which yields a shortlist."""
