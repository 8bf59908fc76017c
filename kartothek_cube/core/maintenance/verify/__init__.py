"""Verification of one dataset: each module checks one part of it and yields findings."""
