"""What changed in a cube at a glance: counts by dataset, the first rows, what a notebook shows."""

from __future__ import annotations

import pickle
from collections import defaultdict
from random import Random
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pytest

from kartothek_cube import (
    C,
    Cube,
    append_to_cube,
    build_cube,
    compact_cube,
    describe_cube_changes,
    extend_cube,
    options,
    plan_cube_query,
    query_cube_changes,
    remove_partitions,
    update_cube,
)
from kartothek_cube.api.dataset import history, read_table_arrow, undo
from kartothek_cube.core.runtime.executor import SizeEstimate
from kartothek_cube.core.stores.local import LocalStore, MemoryStore
from kartothek_cube.errors import HistoryUnavailable, InvalidInput, InvalidType
from kartothek_cube.testing.stores import CountingStore

CUBE = Cube(["x", "y"], ["p"], "cube")
SEED = pa.table({"x": [0, 1, 2, 3], "y": [0, 0, 1, 1], "p": ["a", "a", "b", "b"], "v1": [0.0, 1.0, 2.0, 3.0]})
OTHER = pa.table({"x": [0, 1, 2, 3], "p": ["a", "a", "b", "b"], "v2": ["k", "l", "m", None]})
FREE = pa.table({"y": [0, 1], "v3": [1, 2]})


@pytest.fixture
def store():
    store = MemoryStore()
    build_cube({"seed": SEED, "other": OTHER, "free": FREE}, CUBE, store, partition_on={"free": []})
    return store


def seen(store):
    return plan_cube_query(CUBE, store).commits


def counts(store, since, until=None, **more):
    found = describe_cube_changes(CUBE, store, since, until, **more).counts.to_pylist()
    return {row["dataset"]: (row["inserted"], row["updated"], row["deleted"]) for row in found}


# --- counts ---------------------------------------------------------------------------------------


def test_nothing_changed(store):
    found = describe_cube_changes(CUBE, store, seen(store))
    assert found.counts.to_pydict() == {
        "dataset": ["seed", "free", "other"],
        "inserted": [0, 0, 0],
        "updated": [0, 0, 0],
        "deleted": [0, 0, 0],
    }
    assert found.first.num_rows == 0
    assert found.first.schema.names == ["_change_type", "p", "v1", "v2", "v3", "x", "y"]


def test_cells_are_counted_by_the_dimensions_of_their_dataset(store):
    since = seen(store)
    more = SEED.slice(0, 2).set_column(1, "y", pa.array([5, 6]))
    append_to_cube({"seed": more, "free": FREE.slice(0, 1)}, CUBE, store)
    assert counts(store, since) == {"seed": (2, 0, 0), "free": (0, 0, 0), "other": (0, 0, 0)}


def test_the_newest_row_of_a_cell_counts(store):
    since = seen(store)
    for value in (7, 8, 1):
        append_to_cube({"free": FREE.slice(0, 1).set_column(1, "v3", pa.array([value]))}, CUBE, store)
    assert counts(store, since)["free"] == (0, 0, 0), "1, as it was"
    append_to_cube({"free": FREE.slice(0, 1).set_column(1, "v3", pa.array([9]))}, CUBE, store)
    assert counts(store, since)["free"] == (0, 1, 0)


def test_a_cell_that_moves_is_one_update(store):
    since = seen(store)
    moved = pa.table({"x": [2, 3], "p": ["c", "c"], "v2": ["m", None]})
    update_cube({"other": moved}, CUBE, store, remove_conditions=C("p") == "b", ktk_cube_dataset_ids=["other"])
    assert counts(store, since) == {"seed": (0, 0, 0), "free": (0, 0, 0), "other": (0, 2, 0)}


def test_a_cell_may_be_in_several_partitions(store):
    since = seen(store)
    append_to_cube({"other": OTHER.slice(0, 1).set_column(1, "p", pa.array(["b"]))}, CUBE, store)
    assert counts(store, since)["other"] == (1, 0, 0), "the one in partition a is still there"


def test_removed_partitions_and_new_datasets(store):
    since = seen(store)
    remove_partitions(CUBE, store, C("p") == "b", ktk_cube_dataset_ids=["seed"])
    extend_cube({"more": pa.table({"x": [0, 1, 1], "y": [0, 0, 1], "p": ["a"] * 3, "w": [1, 2, 3]})}, CUBE, store)
    assert counts(store, since) == {"seed": (0, 0, 2), "free": (0, 0, 0), "more": (3, 0, 0), "other": (0, 0, 0)}


def test_null_equals_null_and_nan_equals_nan(store):
    odd = pa.table({"x": [0, 1, 2], "p": ["a"] * 3, "v2": ["k", None, ""]})
    append_to_cube(
        {"other": odd, "seed": SEED.slice(0, 2).set_column(3, "v1", pa.array([float("nan")] * 2))}, CUBE, store
    )
    since = seen(store)
    append_to_cube(
        {"other": odd, "seed": SEED.slice(0, 2).set_column(3, "v1", pa.array([float("nan"), None]))}, CUBE, store
    )
    assert counts(store, since) == {"seed": (0, 1, 0), "free": (0, 0, 0), "other": (0, 0, 0)}


def newest(table, dimensions):
    """The newest row of each cell, by physical partition."""
    found = defaultdict(dict)
    for row in table.to_pylist():
        found[row.get("p")][tuple(row[c] for c in dimensions)] = row
    return found


def counted(before, after, dimensions):
    """How many cells came, changed, went: rows of a cell pair within a partition, then in any."""
    old, new = newest(before, dimensions), newest(after, dimensions)
    updated, went, came = 0, [], []
    for part in {*old, *new}:
        both = old[part].keys() & new[part].keys()
        updated += sum(old[part][cell] != new[part][cell] for cell in both)
        went += old[part].keys() - both
        came += new[part].keys() - both
    for cell in list(came):
        if cell in went:
            came.remove(cell)
            went.remove(cell)
            updated += 1
    return len(came), updated, len(went)


def random_step(random, store, step):
    """Any write to the cube."""
    x, y = (pa.array([random.randrange(n) for _ in range(6)]) for n in (6, 2))
    p, v = random.choice("abc"), pa.array([random.choice([None, 1.0, 2.0]) for _ in range(6)])
    cells = pa.table({"x": x, "y": y}).group_by(["x", "y"], use_threads=False).aggregate([]).to_pylist()
    seed = pa.table(
        {"x": [c["x"] for c in cells], "y": [c["y"] for c in cells], "p": [p] * len(cells), "v1": v[: len(cells)]}
    )
    xs = sorted({c["x"] for c in cells})
    other = pa.table({"x": xs, "p": [p] * len(xs), "v2": [random.choice([None, "k", "l"]) for _ in xs]})
    verb = random.randrange(8)
    if verb < 3:
        append_to_cube({"seed": seed, "other": other}, CUBE, store)
    elif verb == 3:
        update_cube(
            {"seed": seed}, CUBE, store, remove_conditions=C("p") == random.choice("abc"), ktk_cube_dataset_ids=["seed"]
        )
    elif verb == 4:
        remove_partitions(CUBE, store, C("p") == random.choice("abc"), ktk_cube_dataset_ids=["other"])
    elif verb == 5:
        compact_cube(CUBE, store)
    elif verb == 6:
        append_to_cube({"free": FREE.set_column(1, "v3", pa.array([random.randrange(2), 2]))}, CUBE, store)
    elif len(history("cube++seed", store)) > 1:
        undo("cube++seed", store)


@pytest.mark.parametrize("seed", range(4))
def test_counts_are_those_of_all_rows_of_both_states(store, seed):
    random, states = Random(seed), []
    dimensions = {"seed": ("x", "y"), "other": ("x",), "free": ("y",)}
    for step in range(12):
        states.append((seen(store), {name: read_table_arrow(f"cube++{name}", store) for name in dimensions}))
        random_step(random, store, step)
        now = {name: read_table_arrow(f"cube++{name}", store) for name in dimensions}
        with options(bytes_in_flight=random.choice([1, 2**20])):
            for since, then in random.sample(states, min(3, len(states))):
                expected = {name: counted(then[name], now[name], dimensions[name]) for name in dimensions}
                assert counts(store, since, rows=0) == expected, (seed, step)


def test_small_partitions_are_compared_together_and_a_large_one_alone(tmp_path):
    cube, store = Cube(["x"], ["p"], "many"), LocalStore(tmp_path)
    sizes = [*[3] * 40, 60_000, *[3] * 40]
    p = np.repeat(np.arange(len(sizes)), sizes)
    rows = pa.table({"x": np.arange(len(p)), "p": p, "v": np.zeros(len(p)), "w": [f"{i % 7}" for i in range(len(p))]})
    build_cube(rows, cube, store)
    since = plan_cube_query(cube, store).commits
    # In each partition one cell is new, one changes, and one moves to the next partition.
    first = np.searchsorted(p, np.arange(len(sizes)))
    kept = rows.take(pa.array(np.setdiff1d(np.arange(len(p)), first)))
    moved = rows.take(pa.array(first)).set_column(1, "p", pa.array(np.roll(p[first], -1)))
    other = rows.take(pa.array(first + 1)).set_column(2, "v", pa.array(np.ones(len(first))))
    new = other.set_column(0, "x", pa.array(len(p) + np.arange(len(first))))
    update_cube(pa.concat_tables([kept, moved]), cube, store, remove_conditions=C("p") >= 0)
    append_to_cube(pa.concat_tables([other, new]), cube, store)
    n = len(sizes)
    with options(bytes_in_flight=2**23, threads=2):
        found = describe_cube_changes(cube, store, since, rows=0)
    assert found.totals() == [("seed", n, 2 * n, 0)]


def test_the_memory_of_both_states_counts(store, monkeypatch):
    sizes = []
    monkeypatch.setattr(SizeEstimate, "measured", lambda _, nbytes: sizes.append(nbytes))
    since = seen(store)
    update_cube(SEED, CUBE, store, remove_conditions=C("p") >= "")
    describe_cube_changes(CUBE, store, since, rows=0)
    assert sizes
    assert min(sizes) > 0


def test_only_partitions_whose_files_differ_are_read(store):
    since = seen(store)
    append_to_cube({"seed": SEED.slice(3, 1)}, CUBE, store)
    counting = CountingStore(store)
    counts(counting, since, rows=0)
    read = [call.key for call in counting.calls if call.operation == "tail"]
    assert len(read) == 2, "the old and the new file of one partition, each once"
    assert all("cube++seed/table/p=b/" in key for key in read)


# --- the first rows -------------------------------------------------------------------------------


@pytest.mark.parametrize("n", range(5))
def test_so_many_changes_are_shown(store, n):
    since = seen(store)
    append_to_cube({"seed": SEED.set_column(3, "v1", pa.array([0.0, 9.0, 9.0, 9.0]))}, CUBE, store)
    append_to_cube({"seed": SEED.slice(0, 1).set_column(1, "y", pa.array([7]))}, CUBE, store)
    first = describe_cube_changes(CUBE, store, since, rows=n).first
    kinds = first.column("_change_type").to_pylist()
    assert len([kind for kind in kinds if kind != "update_postimage"]) == n
    assert kinds.count("update_preimage") == kinds.count("update_postimage")
    every = query_cube_changes(CUBE, store, since).read_all()
    assert first.schema == every.schema
    assert [row for row in first.to_pylist() if row not in every.to_pylist()] == []


@pytest.mark.parametrize(("rows", "error"), [(-1, InvalidInput), ("3", InvalidType), (True, InvalidType)])
def test_the_number_of_rows_is_checked(store, rows, error):
    with pytest.raises(error):
        describe_cube_changes(CUBE, store, seen(store), rows=rows)


def test_states_out_of_history(store):
    with pytest.raises(HistoryUnavailable):
        describe_cube_changes(CUBE, store, "0" * 32)
    first = history("cube++seed", store)["commit"].iloc[-1]
    append_to_cube({"seed": SEED}, CUBE, store)
    last = history("cube++seed", store)["commit"].iloc[0]
    assert describe_cube_changes(CUBE, store, first, last).until == last
    with pytest.raises(InvalidInput, match="comes before"):
        describe_cube_changes(CUBE, store, last, first)


# --- what is shown --------------------------------------------------------------------------------


def parsed(html):
    """The elements; fails where tags do not match or something is not escaped."""
    return ElementTree.fromstring(f"<body>{html.replace('<br>', '<br/>')}</body>")


def test_it_prints_as_text(store):
    since = seen(store)
    append_to_cube({"seed": SEED.slice(0, 1).set_column(1, "y", pa.array([7]))}, CUBE, store)
    found = describe_cube_changes(CUBE, store, since)
    assert repr(found).splitlines() == [
        "Changes of cube 'cube' since the commits of 3 datasets, until now",
        "  dataset  inserted  updated  deleted",
        "  seed            1        0        0",
        "  free            0        0        0",
        "  other           0        0        0",
    ]
    assert pickle.loads(pickle.dumps(found)) == found


def test_a_notebook_marks_what_an_update_changed():
    cube, store = Cube(["x"], ["p"], "evil"), MemoryStore()
    evil = "<script>alert('1')</script>&\x01"
    rows = pa.table({"x": [1, 2, 3], "p": ["a", "a", "b"], "v1": ["", evil, None], evil: [1, 2, 3]})
    build_cube(rows, cube, store)
    since = plan_cube_query(cube, store).commits
    append_to_cube(rows.slice(0, 2).set_column(2, "v1", pa.array([None, "z" * 99])), cube, store)
    remove_partitions(cube, store, C("p") == "b")
    append_to_cube(rows.slice(0, 1).set_column(0, "x", pa.array([9])), cube, store)
    html = describe_cube_changes(cube, store, since)._repr_html_()
    body = parsed(html)
    assert {element.tag for element in body.iter()} & {"script", "img", "link", "b"} == set()
    assert "\x01" not in html
    counted, first = body.iter("table")
    assert [["".join(cell.itertext()) for cell in row] for row in counted.iter("tr")][1] == ["seed", "1", "2", "1"]
    assert ["".join(cell.itertext()) for cell in first[0][0]][:4] == [
        "change",
        "x",
        "p",
        "<script>alert('1')</script>&\\x01",
    ]
    texts = ["".join(cell.itertext()) for row in first[1] for cell in row]
    assert texts.count("update") == 2, "one cell for both images"
    assert ["".join(element.itertext()) for element in first.iter("del")] == ["''", evil.replace("\x01", "\\x01")]
    assert ["".join(element.itertext()) for element in first.iter("ins")] == ["null", f"{'z' * 30}…{'z' * 29}"]
    kinds = [cell for cell in first.iter("td") if cell.text in ("insert", "update", "delete")]
    assert all(cell.get("class") == cell.text for cell in kinds)
    assert sorted(cell.text for cell in kinds) == ["delete", "insert", "update", "update"]


def test_many_columns_leave_room_for_those_that_changed():
    cube, store = Cube(["x"], ["p"], "wide"), MemoryStore()
    rows = pa.table({"x": [1], "p": ["a"], **{f"v{i:02}": [0] for i in range(40)}})
    build_cube(rows, cube, store)
    since = plan_cube_query(cube, store).commits
    append_to_cube(rows.set_column(41, "v39", pa.array([1])), cube, store)
    html = describe_cube_changes(cube, store, since)._repr_html_()
    first = list(parsed(html).iter("table"))[1]
    assert [cell.text for cell in first[0][0]] == ["change", "x", "p", *(f"v{i:02}" for i in range(11)), "v39"]
    assert "28 more columns not shown" in html
    assert len(html) < 25_000
