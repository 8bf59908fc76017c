"""Making a change visible: changes as values, rebase, one compare-and-swap for all who wait."""
