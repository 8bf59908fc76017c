"""Deprecation warnings point at the user's line, however deep in the package they are raised."""

from __future__ import annotations

import warnings

import pytest

from kartothek_cube.core.arguments import warn_deprecated
from kartothek_cube.errors import KartothekCubeDeprecationWarning

VERB = """
def verb(depth):
    if depth:
        return verb(depth - 1)
    warn_deprecated("compress=", use="compression=", removal="2.0")
"""


def verb_of(module):
    names = {"__name__": module, "warn_deprecated": warn_deprecated}
    exec(compile(VERB, f"{module}.py", "exec"), names)
    return names["verb"]


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_the_warning_is_at_the_line_that_calls_the_package(depth):
    verb = verb_of("kartothek_cube.cube.verbs.made_up")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        verb(depth)
    assert [warning.filename for warning in caught] == [__file__]
    assert caught[0].lineno == test_the_warning_is_at_the_line_that_calls_the_package.__code__.co_firstlineno + 5


def test_a_package_with_a_similar_name_is_a_caller():
    verb = verb_of("kartothek_cube_plugins.made_up")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        verb(0)
    assert [warning.filename for warning in caught] == ["kartothek_cube_plugins.made_up.py"]


def test_the_message_names_version_and_replacement():
    text = "compress= is deprecated and will be removed in version 2.0. Use compression= instead."
    with pytest.warns(KartothekCubeDeprecationWarning) as caught:
        warn_deprecated("compress=", use="compression=", removal="2.0")
    assert str(caught[0].message) == text


def test_a_filter_for_deprecations_of_python_sees_it():
    assert issubclass(KartothekCubeDeprecationWarning, DeprecationWarning)
