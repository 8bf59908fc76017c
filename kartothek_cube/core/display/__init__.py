"""Values shown to people: HTML and SVG as text, explained plans."""
