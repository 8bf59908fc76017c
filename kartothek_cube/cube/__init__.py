"""Several datasets as one cube, joined by their shared key columns."""
