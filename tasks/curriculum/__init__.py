"""Pacing, selection and order."""
