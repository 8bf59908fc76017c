"""Stores of keys and bytes: contract, implementations, URLs, opening. No file formats here."""
