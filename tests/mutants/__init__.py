"""Whether the tests notice that the package is wrong: `make mutants`."""
