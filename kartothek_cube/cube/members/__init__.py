"""The datasets of a cube: found, checked against each other, and read in one consistent state.

No rows: these are read in `kartothek_cube.cube.execute`.
"""
