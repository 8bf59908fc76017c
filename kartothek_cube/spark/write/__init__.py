"""Writes from Spark data frames: tasks check and stage the rows, the driver commits them once."""
