"""The verbs of single datasets."""
