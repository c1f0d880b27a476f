"""Item response models: their likelihoods, fits, errors, links and pictures."""
