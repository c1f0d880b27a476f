"""Metrics, matrices and their uncertainty."""
