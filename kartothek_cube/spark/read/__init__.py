"""Queries and datasets as lazy Spark data frames, and user functions on groups of a cube."""
