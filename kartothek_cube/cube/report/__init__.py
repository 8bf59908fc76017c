"""The report of a cube: figures, advice, charts and the page."""
