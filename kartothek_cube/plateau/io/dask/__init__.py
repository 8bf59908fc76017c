"""Reading and writing in dask, as plateau has it."""
