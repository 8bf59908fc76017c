"""A write to several datasets of a cube: input, checks, plan, staging, and the commits in order."""
