"""The verbs of single datasets: write, read, maintain, inspect. Their work is in rooms below."""
