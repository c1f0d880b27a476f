"""Pacing, and the order of training with its control arms."""
