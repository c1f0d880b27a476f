"""Launchers, worker, order sampler and model recipes."""
