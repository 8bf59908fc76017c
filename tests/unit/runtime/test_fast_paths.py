from __future__ import annotations

import os
import subprocess
import sys

import pytest

PRINT = "from kartothek_cube.core.runtime.options import uses_fast_paths; print(uses_fast_paths())"


@pytest.mark.parametrize(("value", "expected"), [(None, "True"), ("1", "True"), ("0", "False")])
def test_the_environment_says_whether_fast_paths_are_taken(value, expected):
    environment = {k: v for k, v in os.environ.items() if k != "KARTOTHEK_CUBE_FAST"}
    environment |= {} if value is None else {"KARTOTHEK_CUBE_FAST": value}
    done = subprocess.run([sys.executable, "-c", PRINT], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected
