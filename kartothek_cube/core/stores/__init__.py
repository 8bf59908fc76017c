"""Stores: the contract of keys and bytes with a conditional put, its implementations, URLs, and opening."""
