"""kartothek's public classes: views of snapshots, indices, schemas and file formats.

Nothing below the verbs imports them.
"""
