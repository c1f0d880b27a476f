"""Readers, column mapping and procedural data sets."""
