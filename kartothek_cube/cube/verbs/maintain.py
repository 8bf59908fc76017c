"""Looking after a cube: statistics, a description, and cleaning up what no dataset names."""
