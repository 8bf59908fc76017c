"""The verbs of cubes, a file for each subject."""
