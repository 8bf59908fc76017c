"""Conformance suites for stores and engines, a naive model of a cube, and random cubes."""
