"""kartothek's import paths. Modules here hold imports only."""
