"""HTML as text and explained plans; charts and reports of cubes are in `cube/report`."""
