"""Footers of local files, which are kept for the next who opens the file."""

from __future__ import annotations

import os
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kartothek_cube.core.expressions.predicates import Clause
from kartothek_cube.core.io import parquet as parquet_footer
from kartothek_cube.core.io.parquet import file_state, open_file
from kartothek_cube.core.io.parquet_rows import read_parquet_inside
from kartothek_cube.core.runtime.executor import LruCache
from kartothek_cube.core.stores.open import open_store

KEY = "d/table/part.parquet"
LONG_AGO = 1_600_000_000


@pytest.fixture
def store(tmp_path):
    return open_store(f"hfs://{tmp_path}")


@pytest.fixture
def path(tmp_path):
    path = tmp_path / KEY
    path.parent.mkdir(parents=True)
    return path


@pytest.fixture
def settled(monkeypatch):
    """Files count as written long ago: nobody can set the time of a change back."""
    monkeypatch.setattr(parquet_footer, "_SETTLED_NS", -(10**12))


def write(path, values, seconds=LONG_AGO):
    """A file of two row groups that was written at some time."""
    pq.write_table(pa.table({"x": values, "v1": values}), path, row_group_size=-(-len(values) // 2))
    os.utime(path, (seconds, seconds))


def footer_of(store):
    with open_file(store, KEY, "d") as source:
        return source.footer


def values_of(store, predicates=None):
    schema = pa.schema([("x", pa.int64()), ("v1", pa.int64())])
    return read_parquet_inside(store, KEY, "d", ["v1"], schema, predicates)[0].column("v1").to_pylist()


@pytest.mark.usefixtures("settled")
def test_a_footer_is_read_once(store, path):
    write(path, [1, 2, 3, 4])
    assert footer_of(store) is footer_of(store)
    assert values_of(store) == values_of(store) == [1, 2, 3, 4]


def test_the_footer_of_a_file_that_may_still_be_written_is_read_again(store, path):
    write(path, [1, 2, 3, 4], seconds=time.time())
    assert footer_of(store) is not footer_of(store)


@pytest.mark.usefixtures("settled")
def test_a_replaced_file_is_read_as_it_is_now(store, path):
    write(path, [1, 2, 3, 4])
    assert values_of(store, ((Clause("x", ">", 3),),)) == [4]
    other = path.with_name("other")
    write(other, [7, 8, 9, 9, 9], seconds=LONG_AGO)
    other.replace(path)
    assert values_of(store, ((Clause("x", ">", 8),),)) == [9, 9, 9]


@pytest.mark.usefixtures("settled")
def test_a_file_that_changed_in_its_place_is_read_as_it_is_now(store, path):
    write(path, [1, 2, 3, 4])
    assert values_of(store) == [1, 2, 3, 4]
    size, inode = path.stat().st_size, path.stat().st_ino
    write(path, [5, 6, 7, 8], seconds=LONG_AGO + 1)
    assert (path.stat().st_size, path.stat().st_ino) == (size, inode)
    assert values_of(store, ((Clause("x", ">", 7),),)) == [8]


def test_a_file_whose_time_was_set_back_has_changed(path):
    write(path, [1, 2, 3, 4])
    before = file_state(str(path))
    while file_state(str(path)).changed_ns == before.changed_ns:  # until the clock of the file system moves
        os.utime(path, (LONG_AGO, LONG_AGO))
    assert file_state(str(path))._replace(changed_ns=before.changed_ns) == before


@pytest.mark.usefixtures("settled")
def test_a_file_that_is_replaced_while_it_opens_is_not_kept(store, path, monkeypatch):
    write(path, [1, 2, 3, 4])
    states = iter([file_state(str(path))._replace(inode=0), file_state(str(path))])
    monkeypatch.setattr("kartothek_cube.core.io.parquet.file_state", lambda _path: next(states))
    first = footer_of(store)
    monkeypatch.setattr("kartothek_cube.core.io.parquet.file_state", file_state)
    assert footer_of(store) is not first


@pytest.mark.usefixtures("settled")
def test_bounds_and_checks_are_kept_by_column_and_row_group(store, path):
    write(path, [1, 2, 3, 4])
    with open_file(store, KEY, "d") as source:
        source.chunks([0], {"x"})
        footer = source.footer
    assert footer.is_checked([0], [0])
    assert not footer.is_checked([0, 1], [0])
    assert not footer.is_checked([0], [0, 1])
    assert values_of(store, ((Clause("x", ">", 1),),)) == [2, 3, 4]
    assert footer_of(store) is footer
    assert footer.is_checked([0, 1], [0])
    assert footer.bounds["x", pa.int64()].maximum.to_pylist() == [2, 4]


@pytest.mark.usefixtures("settled")
def test_footers_count_by_the_memory_that_they_take(store, path, monkeypatch):
    write(path, [1, 2, 3, 4])
    footer, state = footer_of(store), file_state(str(path))
    nbytes = footer.metadata.serialized_size * parquet_footer._RATIO
    monkeypatch.setattr(parquet_footer, "_kept", LruCache(2 * nbytes))
    for name in ("a", "b", "c"):
        parquet_footer.keep_footer(name, state, footer)
    assert [name for name in ("a", "b", "c") if parquet_footer.kept_footer(name, state)] == ["b", "c"]
