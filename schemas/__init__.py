"""Data contracts: tables, recipe, expectations, errors, hashes, and the summary that every step hands up."""
