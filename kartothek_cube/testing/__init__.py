"""What others test their stores and engines with: conformance suites, a naive model, random cubes."""
