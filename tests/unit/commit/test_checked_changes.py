"""What is known of a change that was checked before it is published, and what a commit returns
without reading it.
"""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kartothek_cube.core.arrow.types import ordered
from kartothek_cube.core.commit import change as apply
from kartothek_cube.core.commit import commit
from kartothek_cube.core.commit.change import Change
from kartothek_cube.core.commit.commit import commit_change, prepare_commit
from kartothek_cube.core.dataset.read import read_table_arrow
from kartothek_cube.core.io.formats import ParquetFormat
from kartothek_cube.core.metadata.document import dataset_schema, render_document, to_mapping
from kartothek_cube.core.snapshots.loader import find_snapshot, load_snapshot
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.core.write.layout import StageRequest
from kartothek_cube.core.write.prepare import split_rows
from kartothek_cube.core.write.stage import stage_parts
from kartothek_cube.errors import CommitConflict
from tests.caches import forget
from tests.support.commits import UUID, labels, make_change, write

ROWS = {"p": [3], "i1": [3]}


@pytest.fixture
def store():
    found = MemoryStore()
    write(found, {"p": [1, 2], "i1": [1, 2]}, on=["p"], index=["i1"])
    return found


@pytest.fixture
def applied(monkeypatch):
    bases = []
    real = apply.apply_change
    monkeypatch.setattr(
        apply, "apply_change", lambda change, base, *args: (bases.append(base), real(change, base, *args))[1]
    )
    return bases


def checked_change(store, **more):
    base = find_snapshot(store, UUID)
    change = make_change(store, ROWS, on=["p"], index=["i1"], **more)
    return change, base, prepare_commit(store, change, base)


def test_what_was_checked_is_applied_once(store, applied):
    change, base, checked = checked_change(store)
    assert commit_change(store, change, base, checked).result.id == change.commit
    assert len(applied) == 1


def test_a_commit_since_the_check_is_kept(store, applied):
    change, base, checked = checked_change(store)
    write(store, {"p": [4], "i1": [4]}, on=["p"], index=["i1"])
    commit_change(store, change, base, checked)
    forget(store)
    assert read_table_arrow(UUID, store).column("p").to_pylist() == [1, 2, 4, 3]
    assert len(applied) == 3


def test_a_conflict_since_the_check_is_found(store):
    change, base, checked = checked_change(store, removed=labels(find_snapshot(store, UUID))[:1])
    write(store, {"p": [], "i1": []}, on=["p"], index=["i1"], removed=labels(base)[:1])
    with pytest.raises(CommitConflict, match="replaced or removed"):
        commit_change(store, change, base, checked)
    assert labels(load_snapshot(store, UUID)) == labels(base)[1:]


@pytest.mark.parametrize("when", [1, 2])
def test_a_commit_between_the_last_look_and_the_swap_is_kept(store, applied, monkeypatch, when):
    change, base, checked = checked_change(store)
    real, swaps = commit.swap, []

    def swap(*args):
        swaps.append(args)
        if len(swaps) <= when:
            monkeypatch.setattr(commit, "swap", real)
            write(store, {"p": [9 + len(swaps)], "i1": [9]}, on=["p"], index=["i1"])
            monkeypatch.setattr(commit, "swap", swap)
        return real(*args)

    monkeypatch.setattr(commit, "swap", swap)
    landed = commit_change(store, change, base, checked)
    forget(store)
    assert landed.result.tries == when + 1
    assert (
        landed.values.column("p").to_pylist()
        == load_snapshot(store, UUID).values.column("p").to_pylist()
        == [1, 2, *range(10, 10 + when), 3]
    )


# --- what a commit returns ------------------------------------------------------------------------

TEXTS = st.sampled_from(["a", "c d", 'q"', "back\\slash", "ü/%41", "=&", "\u2028", "0", "\x7f"])


def staged(store, values, tables, label):
    found = {t: pa.table({"p": values, "i1": range(len(values))}) for t in tables}
    receipts = []
    for name, table in found.items():
        request = StageRequest(UUID, ("p",), ("i1",), (), ParquetFormat(), name)
        receipts += stage_parts(store, request, split_rows(table, ["p"], label, UUID), table.schema)
    return tuple(receipts), {t: ordered(dataset_schema(table.schema, ["p"]), ["p"]) for t, table in found.items()}


@settings(max_examples=10)
@given(
    st.lists(
        st.tuples(st.sampled_from(["append", "remove", "put again"]), st.lists(TEXTS, min_size=1, max_size=3)),
        max_size=3,
    ),
    st.sampled_from([["table"], ["one", "other"]]),
    st.booleans(),
)
def test_what_a_commit_returns_is_what_its_bytes_say(steps, tables, msgpack):
    store, landed = MemoryStore(), None
    for number, (how, values) in enumerate([("append", ["a"]), *steps]):
        receipts, schemas = staged(store, values, tables, "again" if how == "put again" else f'"{number}')
        removed = pa.array(labels(landed)[:1] if how == "remove" else [], type=pa.string())
        landed = commit_change(
            store, Change(UUID, receipts, schemas, ("p",), ("i1",), removed=removed, msgpack=msgpack), landed
        )
        forget(store)
        read = load_snapshot(store, UUID)
        assert (landed.values, landed.partitions, landed.schemas, landed.token) == (
            read.values,
            read.partitions,
            read.schemas,
            read.token,
        )
        assert landed.document == read.document
        plain = json.loads(render_document(landed.document))
        assert plain["partitions"] == to_mapping(read.partitions)
        assert plain["metadata"] == read.document.metadata
