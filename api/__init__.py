"""Difficulty- and diversity-aware curation of training data."""
