"""The report of a cube: statistics, advice, charts and the HTML page. The verb reads the store."""
