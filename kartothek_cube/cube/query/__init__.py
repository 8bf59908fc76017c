"""From the arguments of a query to its plan: the steps of the query system on arrays."""
