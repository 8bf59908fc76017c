"""Predicates and conditions as values, their evaluation, and their text form."""

# The text and JSON forms know the operators that `conditions` registers, so it is always loaded.
from kartothek_cube.core.expressions import conditions as conditions
