"""Classes of datasets, as plateau has them."""
