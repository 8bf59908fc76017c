"""The environments have the libraries that the other tests mean."""

from __future__ import annotations

import pytest

VERSION = """
import importlib.metadata, json, sys
import {name}
print("noise")
print(json.dumps([importlib.metadata.version("{name}"), sys.argv[1:]]))
"""


def test_kartothek_is_the_last_release(run_kartothek):
    assert run_kartothek(VERSION.format(name="kartothek"), "a b", 1) == ["5.3.0", ["a b", "1"]]


def test_plateau_is_the_last_release(run_plateau):
    assert run_plateau(VERSION.format(name="plateau")) == ["4.6.2", []]


def test_a_failing_script_fails_the_test(run_kartothek):
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        run_kartothek("1 / 0")
