"""Collections of public names, as plateau has them."""
