"""Queries and datasets as data frames of Spark, and functions applied to groups of a cube."""
