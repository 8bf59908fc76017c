"""A write to several datasets of a cube: input, checks, plan, staging, and the commits.

How files and one dataset are written is in `kartothek_cube.core.write` and `.core.commit`.
"""
