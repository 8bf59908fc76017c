"""kartothek's classes: views of snapshots, indices, schemas and formats, for users.

Nothing below the verbs imports them.
"""
