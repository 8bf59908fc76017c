"""Verification of one dataset: each module looks at one thing and gives findings."""
