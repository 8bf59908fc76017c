"""Planning a compaction: which neighbours become which file, and what is said of it. No store."""

from __future__ import annotations

import datetime as dt
import json
import pickle
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kartothek_cube.core.io.reader import FileStats
from kartothek_cube.core.maintenance.compaction_plan import (
    CellOrder,
    CompactionReport,
    Overlay,
    cell_order,
    check_target_rows,
    files_to_compare,
    neighbours,
    newest_cells,
    overlays,
    plan_compaction,
    whole_partitions,
)
from kartothek_cube.core.metadata.document import Document, PartitionColumns
from kartothek_cube.core.metadata.snapshot import make_snapshot
from kartothek_cube.errors import CorruptData, InvalidInput, InvalidType

SCHEMA = pa.schema({"p": pa.int64(), "q": pa.int64(), "x": pa.int64()})


def dataset(*folders, keys=("p",), tables=("table",)):
    """A dataset with one stored partition a folder, called f0, f1, ..."""
    labels = [f"{folder}/f{i}" if folder else f"f{i}" for i, folder in enumerate(folders)]
    files = {t: pa.array([f"uuid/{t}/{label}.parquet" for label in labels], type=pa.string()) for t in tables}
    partitions = PartitionColumns(pa.array(labels, type=pa.string()), files)
    return make_snapshot(
        Document("uuid", {}, keys, {}, partitions), "uuid.by-dataset-metadata.json", None, dict.fromkeys(tables, SCHEMA)
    )


def everything(snapshot):
    return np.ones(len(snapshot.partitions), dtype=bool)


def plan(snapshot, rows, target, order=None, selected=None):
    selected = everything(snapshot) if selected is None else selected
    figures = {
        key: FileStats(n, 10 * n, 100 * n)
        for files in snapshot.partitions.files.values()
        for key, n in zip(files.to_pylist(), rows, strict=True)
    }
    return plan_compaction(snapshot, neighbours(snapshot, selected, order), figures, target, selected)


def merged(compaction):
    """The numbers of the files in each merge."""
    return [[int(label.rpartition("f")[2]) for label in merge.inputs] for merge in compaction.merges]


def test_only_files_of_one_physical_partition_are_merged():
    snapshot = dataset("p=1", "p=2", "p=1", "p=2", "p=3")
    assert merged(plan(snapshot, [1] * 5, 10)) == [[0, 2], [1, 3]]


@pytest.mark.parametrize(
    ("rows", "target", "expected"),
    [
        ([1, 1, 1, 1], 10, [[0, 1, 2, 3]]),
        ([1, 1, 1, 1], 3, [[0, 1, 2]]),
        ([2, 2, 2, 2], 5, [[0, 1], [2, 3]]),
        ([1, 5, 1, 1], 10, [[2, 3]]),  # the large file is not passed over
        ([5, 5], 10, []),  # half of the target is enough
        ([4, 4, 4], 10, [[0, 1]]),
        ([1], 10, []),
        ([9, 1, 9, 1, 9], 10, []),
        ([0, 0, 0], 1, [[0, 1, 2]]),
        ([1, 1], 1, []),
        ([], 10, []),
    ],
)
def test_neighbours_are_merged_up_to_the_target_and_large_files_stay(rows, target, expected):
    assert merged(plan(dataset(*[""] * len(rows), keys=()), rows, target)) == expected


@pytest.mark.parametrize("rows", [[3, 4, 1, 1, 1, 2, 9, 1, 1, 4, 4], [1] * 40, [4, 1] * 9])
def test_what_was_merged_is_left_alone_the_next_time(rows):
    target = 10
    while groups := merged(plan(dataset(*[""] * len(rows), keys=()), rows, target)):
        sums = {group[0]: sum(rows[i] for i in group) for group in groups}
        inside = {i for group in groups for i in group[1:]}
        after = [sums.get(i, n) for i, n in enumerate(rows) if i not in inside]
        assert max(sums.values()) <= target
        assert sum(after) == sum(rows)
        assert merged(plan(dataset(*[""] * len(after), keys=()), after, target)) == []
        rows = after


def test_the_larger_table_of_a_partition_counts():
    snapshot = dataset("", "", keys=(), tables=("one", "two"))
    figures = {
        f"uuid/{t}/f{i}.parquet": FileStats(n, 1, 1)
        for t, i, n in [("one", 0, 1), ("one", 1, 1), ("two", 0, 1), ("two", 1, 8)]
    }
    runs = neighbours(snapshot, everything(snapshot))
    assert plan_compaction(snapshot, runs, figures, 10).merges == ()
    (merge,) = plan_compaction(snapshot, runs, figures, 20).merges
    assert merge.files == {
        "one": ("uuid/one/f0.parquet", "uuid/one/f1.parquet"),
        "two": ("uuid/two/f0.parquet", "uuid/two/f1.parquet"),
    }
    assert (merge.rows, merge.bytes) == (11, 4)


def test_only_what_was_asked_for_is_merged():
    snapshot = dataset("p=1", "p=2", "p=1", "p=2")
    asked = np.array([False, True, False, False])
    assert whole_partitions(snapshot, asked).tolist() == [False, True, False, True]
    assert merged(plan(snapshot, [1] * 4, 10, selected=whole_partitions(snapshot, asked))) == [[1, 3]]


# Files of p=1 with q=1 and q=2, which may hold the same cells: p addresses a cell, q does not.
CROSSED = ("p=1/q=1", "p=1/q=2", "p=1/q=1", "p=2/q=1", "p=1/q=1", "p=2/q=1")


def test_in_a_cube_no_file_that_may_hold_the_same_cells_is_passed_over():
    snapshot = dataset(*CROSSED, keys=("p", "q"))
    assert merged(plan(snapshot, [1] * 6, 10)) == [[0, 2, 4], [3, 5]]
    assert merged(plan(snapshot, [1] * 6, 10, CellOrder(("x",), ("p",)))) == [[2, 4], [3, 5]]
    assert merged(plan(snapshot, [1] * 6, 10, CellOrder(("x",), ()))) == []


def test_the_address_of_a_cell_is_what_the_cube_knows():
    snapshot = dataset("p=1/q=1", keys=("p", "q"))
    assert cell_order(snapshot, ["x", "y"], ["p"]) == CellOrder(("x",), ("p",))
    assert cell_order(snapshot, ["x", "q"], ["p"]) == CellOrder(("x",), ("p", "q"))


# --- overlays -------------------------------------------------------------------------------------


def overlay_plan(contents, target, bounds=None):
    """The plan for files with these cells, all of one physical partition."""
    snapshot = dataset(*[""] * len(contents), keys=())
    runs = neighbours(snapshot, everything(snapshot), CellOrder(("x",), ()))
    bounds = bounds or [((min(cells), max(cells)),) if cells else (None,) for cells in contents]
    figures = {
        f"uuid/table/f{i}.parquet": FileStats(len(cells), 1, 1, bounds=bounds[i]) for i, cells in enumerate(contents)
    }
    compared = files_to_compare(snapshot, runs, figures, target)
    found = [
        Overlay(tuple(positions[i] for i in overlay.files), overlay.rows)
        for positions in compared
        for overlay in overlays([np.array(sorted(contents[i]), dtype=np.int64) for i in positions])
    ]
    return compared, plan_compaction(snapshot, runs, figures, target, None, found)


def test_a_small_overlay_is_folded_into_a_large_file():
    compared, folding = overlay_plan([range(100), [3, 50]], 20)
    assert compared == [[0, 1]]
    assert merged(folding) == [[0, 1]]
    assert (folding.merges[0].pieces, folding.overlaid, folding.files_after) == (1, 2, 1)


def test_files_without_common_cells_are_not_rewritten():
    # The bounds of the second file overlap those of the first one, those of the third do not.
    compared, folding = overlay_plan([range(0, 100, 2), range(1, 100, 2), range(200, 250)], 20)
    assert compared == [[0, 1]]
    assert folding.merges == ()


def test_files_between_the_parts_of_an_overlay_stay():
    _, folding = overlay_plan([range(100), range(200, 300), [7], range(300, 400), [8]], 20)
    assert merged(folding) == [[0, 2, 4]]


def test_overlays_of_one_file_are_folded_at_once_and_small_files_grouped_as_ever():
    _, folding = overlay_plan([range(100), [1], [200], [1, 2], [201], [150], [300]], 20)
    assert merged(folding) == [[0, 1, 3], [4, 5, 6]]
    assert folding.overlaid == 3


def test_small_files_that_become_one_are_not_compared():
    compared, folding = overlay_plan([[1, 2], [2, 3], [3, 4]], 20)
    assert compared == []
    assert (merged(folding), folding.overlaid) == ([[0, 1, 2]], 0)


def test_small_files_of_one_cell_are_not_torn_apart():
    # By their number of rows, 0 and 1 would become a file, and 2 and 3.
    _, folding = overlay_plan([[1, 2], [3, 4], [5, 6], [1, 8]], 5)
    assert merged(folding) == [[1, 2], [0, 3]]


def test_more_rows_than_the_target_are_cut_into_equal_files():
    _, folding = overlay_plan([range(20), range(20, 40), range(15, 25)], 20)
    assert merged(folding) == [[0, 1, 2]]
    assert (folding.merges[0].pieces, folding.files_after) == (2, 2)
    _, folding = overlay_plan([range(50), [1]], 20)  # somebody has made a file this large
    assert folding.merges[0].pieces == 1


@pytest.mark.parametrize("unknown", [(None,), ()])
def test_without_bounds_keys_are_compared(unknown):
    compared, folding = overlay_plan([range(100), [500], [3]], 20, [unknown] * 3)
    assert compared == [[0, 1, 2]]
    assert merged(folding) == [[0, 2]]


def test_bounds_of_any_dimension_tell_files_apart():
    bounds = [((0, 9), ("a", "c")), ((5, 20), ("d", "f")), ((8, 9), ("b", "b"))]
    compared, _ = overlay_plan([range(100)] * 3, 20, bounds)
    assert compared == [[0, 2]]
    compared, _ = overlay_plan([range(100)] * 2, 20, [((dt.date(2026, 1, 1),) * 2,), ((dt.datetime(2026, 1, 2),) * 2,)])
    assert compared == [[0, 1]]


CELLS = st.sets(st.integers(0, 25), max_size=12)


@given(st.lists(CELLS, max_size=8), st.integers(1, 14))
def test_files_change_as_a_naive_model_says(contents, target):
    newest = {cell: number for number, cells in enumerate(contents) for cell in sorted(cells)}
    _, folding = overlay_plan(contents, target)
    groups = merged(folding)
    # Each file is rewritten at most once, and none that is large without a common cell.
    assert len({i for group in groups for i in group}) == sum(map(len, groups))
    for i in {i for group in groups for i in group}:
        others = set().union(*(cells for j, cells in enumerate(contents) if j != i))
        assert 2 * len(contents[i]) < target or contents[i] & others
    files = {i: dict.fromkeys(cells, i) for i, cells in enumerate(contents)}
    after = {i: [file] for i, file in files.items() if not any(i in group for group in groups)}
    for group, merge in zip(groups, folding.merges, strict=True):
        rows = sorted({cell: i for number in group for cell, i in files[number].items()}.items())
        ends = [n * len(rows) // merge.pieces for n in range(merge.pieces + 1)]
        after[group[-1]] = [dict(rows[a:b]) for a, b in pairwise(ends)]
        assert max(map(len, after[group[-1]])) <= max(target, *(len(contents[i]) for i in group))
    found = [file for _, pieces in sorted(after.items()) for file in pieces]
    assert {cell: i for file in found for cell, i in file.items()} == newest
    # No file overrides another, and so there is nothing left to do.
    assert sum(map(len, found)) == len(newest)
    _, again = overlay_plan([set(file) for file in found], target)
    assert again.merges == ()


def test_a_plan_says_which_files_share_cells():
    _, folding = overlay_plan([range(100), [3, 50], [200], [201]], 20)
    text = folding.explain()
    assert "overlaid            4          2  share cells, of which the newest row stays" in text
    assert "small               2          2  with less than 10 rows, beside another such one" in text


def test_labels_and_values_are_those_of_the_partition():
    snapshot = dataset("p=1/q=-2", "p=1/q=-2", keys=("p", "q"))
    (merge,) = plan(snapshot, [1, 2], 10).merges
    folder, _, name = merge.label.rpartition("/")
    assert (folder, merge.folder, merge.values) == ("p=1/q=-2", "p=1/q=-2", {"p": 1, "q": -2})
    assert len(name) == 32
    assert int(name, 16) >= 0


def test_a_plan_shows_itself():
    snapshot = dataset("p=1", "p=2", "p=1", "p=2", "p=3")
    compaction = plan(snapshot, [10, 20, 30, 40, 50], 1000)
    assert repr(compaction) == "CompactionPlan('uuid': 4 files → 2 in 2 physical partitions, 100 rows)"
    assert (len(compaction), compaction.partitions, compaction.files_before, compaction.files_after) == (
        2,
        ["p=1", "p=2"],
        4,
        2,
    )
    assert (compaction.rows_before, compaction.bytes_before) == (100, 1000)
    assert compaction.explain() == (
        "Compaction of dataset 'uuid'\n"
        "rows per file: at most 1,000\n"
        "rows: 100\n"
        "bytes: 1,000\n"
        "\n"
        "1. Search (stored partitions)\n"
        "                  before      after\n"
        "   asked for           5          5  whole physical partitions\n"
        "   neighbours          5          4  beside one of the same physical partition\n"
        "   small               4          4  with less than 500 rows, beside another such one\n"
        "\n"
        "2. Merging (files)\n"
        "                  before      after\n"
        "   p=1                 2          1  40 rows, 400 bytes\n"
        "   p=2                 2          1  60 rows, 600 bytes\n"
        "\n"
        "Files that are read: 4\n"
        "   uuid/table/p=1/f0.parquet\n"
        "   uuid/table/p=1/f2.parquet\n"
        "   uuid/table/p=2/f1.parquet\n"
        "   uuid/table/p=2/f3.parquet"
    )
    assert "<td>p=2</td>" in compaction._repr_html_()
    assert pickle.loads(pickle.dumps(compaction)).explain() == compaction.explain()
    with pytest.raises(InvalidInput, match="xml"):
        compaction.explain("xml")


def test_of_many_partitions_the_first_are_shown_and_json_has_all():
    compaction = plan(dataset(*[f"p={i // 2}" for i in range(60)]), [1] * 60, 10)
    assert "… and 10 more" in compaction.explain()
    assert len(json.loads(compaction.explain("json"))["steps"][1]["rows"]) == 30
    assert len(json.loads(compaction.explain("json"))["files"]) == 60


def test_a_report_says_what_came_of_it():
    compaction = plan(dataset("", "", keys=()), [10, 20], 1000)
    planned, done = CompactionReport(compaction, True), CompactionReport(compaction, False, "abc", 30, 250)
    assert repr(planned) == "CompactionReport('uuid': would be 2 files → 1 in 1 physical partition, 30 rows)"
    assert (
        repr(done)
        == "CompactionReport('uuid': 2 files → 1 in 1 physical partition, 30 rows, 300 → 250 bytes; commit abc)"
    )
    assert "commit: none, a dry run" in planned.explain()
    assert "commit: abc\nrows after: 30\nbytes after: 250\n" in done.explain()
    assert "all rows" in done._repr_html_()
    nothing = CompactionReport(plan(dataset("", keys=()), [1], 1000), False)
    assert repr(nothing) == "CompactionReport('uuid': nothing to do for 1 partition)"
    assert "nothing to do" in nothing.explain()


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (0, InvalidInput),
        (-1, InvalidInput),
        (1.5, InvalidType),
        ("10", InvalidType),
        (True, InvalidType),
        (None, InvalidType),
    ],
)
def test_the_target_is_a_positive_number_of_rows(value, error):
    with pytest.raises(error, match="target_rows"):
        check_target_rows(value)


def test_numbers_of_numpy_are_numbers():
    assert check_target_rows(np.int32(5)) == 5


def test_the_newest_row_of_a_cell_stays_and_cells_are_sorted():
    tables = [
        pa.table({"x": [1, 3], "v1": ["old", "old"]}),
        pa.table({"x": [2, 3], "v1": ["new", "new"]}),
        pa.table({"x": [1], "v1": ["newest"]}),
    ]
    assert newest_cells(tables, ["a", "b", "c"], ["x"], "uuid").to_pydict() == {
        "x": [1, 2, 3],
        "v1": ["newest", "new", "new"],
    }


def test_files_without_rows_give_none():
    empty = pa.table({"x": pa.array([], pa.int64())})
    assert newest_cells([empty, empty], ["a", "b"], ["x"], "uuid").num_rows == 0


def test_a_cell_twice_in_one_file_is_refused_by_name():
    tables = [pa.table({"x": [1], "y": [1]}), pa.table({"x": [2, 1, 2], "y": [7, 1, 7]})]
    with pytest.raises(CorruptData, match=r"'b'.*'uuid'.*\{'x': 2, 'y': 7\}"):
        newest_cells(tables, ["a", "b"], ["x", "y"], "uuid")


def test_where_paths_hold_all_dimensions_a_file_has_one_cell():
    tables = [pa.table({"v1": [1]}), pa.table({"v1": [2]})]
    assert newest_cells(tables, ["a", "b"], [], "uuid").to_pydict() == {"v1": [2]}
