"""The datasets of a cube: found, checked against each other, and read in one consistent state."""
