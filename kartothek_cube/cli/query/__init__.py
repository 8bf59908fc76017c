"""The query command: conditions as text, results into files, the interactive rounds."""
