"""The metadata document of a dataset: parsing, rendering, the chain of commits, and the snapshot."""
