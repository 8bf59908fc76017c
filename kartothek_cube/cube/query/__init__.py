"""From the arguments of a query to its plan: the steps of the query system on arrays.

Only `planning.make_plan` reads the store. No data file is read: see `kartothek_cube.cube.execute`.
"""
