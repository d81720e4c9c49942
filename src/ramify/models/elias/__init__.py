"""ELIAS: model (training and public API), graph_classifier (what a search needs), ranker (ELIAS++), report."""
