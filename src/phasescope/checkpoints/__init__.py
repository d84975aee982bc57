"""Checkpoints on disk: which model a name means, which grids it has, its weights, the shipped ones."""
