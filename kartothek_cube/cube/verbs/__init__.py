"""The verbs of cubes, one file each."""
