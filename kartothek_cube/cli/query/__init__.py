"""Queries on the command line: their options, export into files, and the interactive shell."""
