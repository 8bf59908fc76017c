"""Predicates and conditions as values, their evaluation on columns and bounds, and their text form.

Pure: which files a predicate leaves is decided in ``core/scan``.
"""

# The text and JSON forms know the operators that `conditions` registers, so it is always loaded.
from kartothek_cube.core.expressions import conditions as conditions
