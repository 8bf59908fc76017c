"""What a verification says of statistics: files that are gone or damaged, and wrong bounds."""

from __future__ import annotations

import datetime as dt
import json

import pyarrow as pa
import pytest

from kartothek_cube.api.cube import Cube, build_cube, verify_cube
from kartothek_cube.api.dataset import build_statistics
from kartothek_cube.core.metadata.statistics import STATISTICS_KEY
from kartothek_cube.core.snapshots import statistics
from kartothek_cube.core.stores.local import MemoryStore
from tests.caches import forget
from tests.support.cubes import contents
from tests.support.damage import UUID, data_keys, edit, edit_file, found, put_table, verify, write


@pytest.fixture
def store():
    return MemoryStore()


@pytest.fixture
def with_file(store, monkeypatch):
    """The key of the statistics file of a dataset in ``store``."""
    monkeypatch.setattr(statistics, "_MOST_INSIDE", 0)
    write(store, statistics=True)
    (key,) = [key for key in contents(store) if "/_statistics/" in key]
    return key


def damage(store, key):
    store.put(key, b"nonsense")


def with_other_columns(store, key):
    put_table(store, key, pa.table({"rows": [1]}))


@pytest.mark.parametrize(
    ("harm", "check"),
    [
        (lambda store, key: store.delete(key), "missing-statistics"),
        (damage, "statistics-unreadable"),
        (with_other_columns, "statistics-unreadable"),
    ],
)
def test_a_statistics_file_that_cannot_be_read_is_found_and_can_be_built(store, with_file, harm, check, monkeypatch):
    assert found(store, deep=True) == []
    harm(store, with_file)
    forget(store)
    (finding,) = verify(store, deep=True).findings
    assert (finding.severity, finding.check, finding.key) == ("warning", check, with_file)
    assert finding.mend == f"build_statistics({UUID!r}, store)"
    monkeypatch.undo()  # what is built has room in the document
    assert build_statistics(UUID, store) == 2
    forget(store)
    assert {check for _, check in found(store, deep=True)} <= {"garbage"}


@pytest.mark.parametrize(
    "entry", ["nonsense", "[]", json.dumps({"stored": [], "recent": ["bm9uc2Vuc2U="]}), json.dumps({"stored": 1})]
)
def test_statistics_inside_the_document_that_cannot_be_read_are_found(store, entry):
    write(store, statistics=True)
    edit(store, lambda content: content["metadata"].__setitem__(STATISTICS_KEY, entry))
    assert found(store, deep=True) == [("warning", "statistics-unreadable")]


def test_a_cube_says_it_of_its_datasets(store, monkeypatch):
    monkeypatch.setattr(statistics, "_MOST_INSIDE", 0)
    cube = Cube(["x"], ["p"], "cube")
    build_cube(pa.table({"x": [1, 2], "p": ["a", "b"]}), cube, store)
    (key,) = [key for key in contents(store) if "/_statistics/" in key]
    store.delete(key)
    (finding,) = verify_cube(cube, store).findings
    assert (finding.check, finding.dataset, finding.key) == ("missing-statistics", "cube++seed", key)


MANY = {
    "n": pa.array([1, 5, None, 7], pa.int16()),
    "f": pa.array([0.5, float("nan"), -0.0, 2.0]),
    "t": pa.array(["b", "x" * 40 + "b", "\U0010ffff" * 40, None]),
    "d": pa.array([dt.date(2024, 1, day) for day in range(1, 5)]),
    "z": pa.array([dt.datetime(2024, 1, day, tzinfo=dt.UTC) for day in range(1, 5)]),
    "c": pa.array(["u", "v", "u", "v"]).dictionary_encode(),
    "nothing": pa.nulls(4, pa.int64()),
}


def test_bounds_of_all_types_fit_their_rows(store):
    write(store, pa.table({"p": ["a", "a", "b", "b"], **MANY}), index=[], statistics=True)
    assert {severity for severity, _ in found(store, deep=True)} == {"info"}


CHANGES = [
    ("x", lambda values: pa.array([1, 9]), "Values are outside of the bounds 1 to 2"),
    ("x", lambda values: pa.array([-1, 2]), "Values are outside of the bounds 1 to 2"),
    ("v1", lambda values: pa.array([0.5, None]), "0 values are null or NaN, but 1 are"),
    ("v1", lambda values: pa.array([0.5, float("nan")]), "0 values are null or NaN, but 1 are"),
]


@pytest.mark.parametrize(("column", "change", "text"), CHANGES)
def test_rows_that_contradict_the_bounds_are_found(store, column, change, text):
    write(store, index=[], statistics=True)
    key = data_keys(store)[0]
    edit_file(store, key, lambda t: t.set_column(t.column_names.index(column), column, change(t.column(column))))
    assert found(store) == []
    (finding,) = verify(store, deep=True).findings
    assert (finding.severity, finding.check, finding.key, finding.column) == ("error", "statistics", key, column)
    assert text in finding.message


def test_another_number_of_rows_is_found(store):
    write(store, index=[], statistics=True)
    key = data_keys(store)[0]
    edit_file(store, key, lambda t: t.slice(0, 1))
    (finding,) = verify(store, deep=True).findings
    assert (finding.check, finding.column) == ("statistics", None)
    assert "2 rows, but it has 1" in finding.message
