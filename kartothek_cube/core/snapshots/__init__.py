"""Datasets as they are or were in a store: documents read and swapped, snapshots loaded and cached, states of the past."""
