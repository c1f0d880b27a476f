"""How mcd builds a split: units to place, the compiled loops of the greedy search, and the search itself."""
