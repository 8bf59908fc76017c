"""From a plan to rows: partitions loaded, joined, sorted, one by one or in batches.

Which files to read is decided in `kartothek_cube.cube.query`.
"""
