"""Rankers: training and evaluation of classifiers over the candidates of an index, and their scores."""
