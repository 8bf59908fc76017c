from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from kartothek_cube.core.arrow.keys import bit_array, one_value, where_valid

PRINT = "from kartothek_cube.core.runtime.options import uses_fast_paths; print(uses_fast_paths())"


@pytest.mark.parametrize(("value", "expected"), [(None, "True"), ("1", "True"), ("0", "False")])
def test_the_environment_says_whether_fast_paths_are_taken(value, expected):
    environment = {k: v for k, v in os.environ.items() if k != "KARTOTHEK_CUBE_FAST"}
    environment |= {} if value is None else {"KARTOTHEK_CUBE_FAST": value}
    done = subprocess.run([sys.executable, "-c", PRINT], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected


@pytest.mark.usefixtures("fast_paths")
def test_arrays_of_bare_buffers_have_the_values_of_others():
    mask = np.array([True, False, True, True, False, False, True, False, True])
    assert bit_array(mask).to_pylist() == mask.tolist()
    column = pa.chunked_array([list(range(9))])
    hidden = where_valid(column, bit_array(mask))
    hidden.validate(full=True)
    assert hidden.to_pylist() == [i if valid else None for i, valid in enumerate(mask)]
    assert one_value(pa.py_buffer(b"rows")).to_pylist() == [b"rows"]
