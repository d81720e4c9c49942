"""Rankers: what scores the labels that an index proposes."""
