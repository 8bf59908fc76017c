"""A task on its rows, without a session: cutting, streams, bounds, equal files for any memory."""

from __future__ import annotations

import dataclasses
import pickle
from contextlib import nullcontext
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kartothek_cube import Cube, open_store
from kartothek_cube.core.arrow.keys import pack_one
from kartothek_cube.core.kartothek.serializers import ParquetSerializer
from kartothek_cube.core.runtime.options import current_options, options
from kartothek_cube.core.write.plan import plan_dataset_update as plan_update
from kartothek_cube.cube.write.plan import plan_build
from kartothek_cube.errors import InvalidInput, Unsupported
from kartothek_cube.spark import stage
from kartothek_cube.spark import stage as blocks_module
from kartothek_cube.spark.stage import (
    BUCKET,
    CubeRows,
    DatasetRows,
    StageTask,
    Target,
    accepted,
    blocks,
    full_schema,
    make_layout,
    make_stage_task,
    runs,
    sorted_pieces,
    stage_batches,
    take_until,
)

PLENTY, LITTLE = 2**28, 4 * 1024
SORTED = pa.schema([("x", pa.float64()), ("y", pa.string()), ("v1", pa.int64())])
SCHEMA = pa.schema([("x", pa.int64()), ("p", pa.string()), ("i1", pa.int64()), ("v1", pa.string())])


def table(n=1000, p="ab"):
    """Sorted rows of some partitions, each larger than what fits into little memory."""
    rows = [(x, letter, x % 7, f"value {x}") for letter in p for x in range(n)]
    return pa.table(dict(zip(SCHEMA.names, zip(*rows, strict=True), strict=True)), schema=SCHEMA)


def cube_rows(serializer=None, index="i1"):
    cube = Cube(["x"], ["p"], "cube", index_columns=[index])
    return CubeRows(plan_build(cube, {"seed": SCHEMA}, {}, serializer=serializer).datasets["seed"])


def dataset_rows(sort=("x",)):
    return DatasetRows(plan_update("dataset", None, ["p"], ["i1"], sort_partitions_by=list(sort)), "table", SCHEMA)


def staged(store, rows, table, memory, cut_by=("p",), size=64):
    staging = StageTask(rows, store, "mine", tuple(table.column_names), cut_by, memory)
    batches = stage_batches(staging, table.to_batches(max_chunksize=size))
    return accepted([row for batch in batches for row in batch.to_pylist()], "mine", [rows.id])[rows.id]


def read(store, receipt):
    return pq.read_table(pa.BufferReader(store.get(receipt.key)))


def bounds_of(receipt):
    """What statistics say of the rows."""
    (entry,) = receipt.statistics.source.table.slice(receipt.statistics.row, 1).to_pylist()
    return {name: value for name, value in entry.items() if name not in ("file", "bytes")}


@pytest.mark.parametrize(
    "rows",
    [cube_rows(), dataset_rows(), dataset_rows(sort=("p", "x"))],
    ids=["of a cube", "of a dataset", "sorted by its partitions too"],
)
def test_a_stream_writes_what_is_written_from_memory(rows):
    store = open_store("hmemory://")
    whole, streamed = (staged(store, rows, table(), memory) for memory in (PLENTY, LITTLE))
    assert [r.label.split("/")[0] for r in streamed] == ["p=a", "p=b"]
    for one, other in zip(whole, streamed, strict=True):
        assert read(store, one).equals(read(store, other))
        assert len(pq.ParquetFile(pa.BufferReader(store.get(one.key))).metadata.to_dict()["row_groups"]) == 1
        same = {
            f.name: getattr(one, f.name)
            for f in dataclasses.fields(one)
            if f.name not in ("label", "key", "size", "entries", "staged", "statistics")
        }
        assert bounds_of(one) == bounds_of(other)
        assert same == {name: getattr(other, name) for name in same}
        assert {c: sorted(v.to_pylist()) for c, v in one.entries.items()} == {
            c: sorted(v.to_pylist()) for c, v in other.entries.items()
        }
        assert other.size == len(store.get(other.key))
        assert one.schema.equals(full_schema(rows))


def test_a_row_group_of_a_stream_is_as_large_as_the_memory_unless_the_serializer_says_so():
    store, rows = open_store("hmemory://"), table(5000, "a")

    def groups(receipt):
        metadata = pq.ParquetFile(pa.BufferReader(store.get(receipt.key))).metadata
        return [group["num_rows"] for group in metadata.to_dict()["row_groups"]]

    (receipt,) = staged(store, cube_rows(), rows, LITTLE)
    assert groups(receipt) == [1024] * 4 + [904]
    (receipt,) = staged(store, cube_rows(ParquetSerializer(chunk_size=2000)), rows, LITTLE)
    assert groups(receipt) == [2000, 2000, 1000]


@pytest.mark.parametrize("memory", [PLENTY, LITTLE])
@pytest.mark.parametrize("at", [5, 63, 64, 640, 999])
def test_a_cell_that_comes_twice_is_found_wherever_the_batches_end(memory, at):
    rows = table()
    twice = pa.concat_tables([rows.slice(0, at + 1), rows.slice(at)])
    with pytest.raises(
        InvalidInput, match=rf"duplicate cells by \[p, x\] in dataset \"seed\": 1 row with.*'x': {at}}}"
    ):
        staged(open_store("hmemory://"), cube_rows(), twice, memory)


@pytest.mark.parametrize("memory", [PLENTY, LITTLE])
@pytest.mark.parametrize("column", ["x", "i1"])
def test_nulls_are_found_wherever_they_are(memory, column):
    rows = table()
    values = rows.column(column).to_pylist()
    values[700] = None
    holed = rows.set_column(rows.column_names.index(column), SCHEMA.field(column), pa.array(values, pa.int64()))
    with pytest.raises(InvalidInput, match=f'Found NULL-values in .* column "{column}" of dataset "seed"'):
        staged(open_store("hmemory://"), cube_rows(), holed, memory)


@pytest.mark.parametrize("memory", [PLENTY, LITTLE])
@pytest.mark.parametrize("rows", [cube_rows(), dataset_rows()], ids=["of a cube", "of a dataset"])
def test_a_null_in_a_partition_column_is_named(memory, rows):
    nulls = table(p="a").set_column(1, SCHEMA.field("p"), pa.nulls(1000, pa.string()))
    with pytest.raises(
        InvalidInput, match=r"nulls in the partition columns \['p'\]|NULL-values in partition column \"p\""
    ):
        staged(open_store("hmemory://"), rows, nulls, memory)


@pytest.mark.parametrize("memory", [PLENTY, LITTLE])
def test_a_partition_value_that_makes_no_key_is_named(memory):
    rows = table(p="a").set_column(1, SCHEMA.field("p"), pa.array(["x" * 300] * 1000))
    with pytest.raises(InvalidInput, match="x" * 300):
        staged(open_store("hmemory://"), cube_rows(), rows, memory)


@pytest.mark.parametrize("memory", [PLENTY, LITTLE])
@pytest.mark.parametrize("rows", [cube_rows(), dataset_rows()], ids=["of a cube", "of a dataset"])
def test_rows_come_in_any_order_and_are_sorted_in_their_file(rows, memory):
    store = open_store("hmemory://")
    (receipt,) = staged(store, rows, table(p="a").take([i * 377 % 1000 for i in range(1000)]), memory)
    assert read(store, receipt).column("x").to_pylist() == list(range(1000))
    assert (receipt.low, receipt.high) == ((0,), (999,))


@settings(max_examples=20)
@given(
    st.lists(st.tuples(st.sampled_from([-3, 0, 7, 2**40]), st.integers(0, 2)), max_size=60),
    st.sampled_from([1, 200, 700, PLENTY]),
    st.sampled_from([1, 5, 60]),
    st.sampled_from([("p",), ("p", BUCKET), (BUCKET, "p"), (BUCKET,)]),
)
def test_each_file_has_its_rows_in_the_order_in_which_they_come(rows, memory, size, cut_by):
    wanted = {}
    for number, row in enumerate(rows):
        named = dict(zip(("p", BUCKET), row, strict=True))
        wanted.setdefault(tuple(named[c] for c in cut_by), []).append(number)
    schema = pa.schema([("p", pa.int64()), ("v1", pa.int64())])
    given = pa.table(
        {
            "p": pa.array([p for p, _ in rows], pa.int64()),
            "v1": pa.array(range(len(rows)), pa.int64()),
            BUCKET: [b for _, b in rows],
        }
    )
    store, keys = open_store("hmemory://"), ["p"] if "p" in cut_by else []
    receipts = staged(
        store, DatasetRows(plan_update("dataset", None, keys, []), "table", schema), given, memory, cut_by, size
    )
    assert sorted(read(store, r).column("v1").to_pylist() for r in receipts) == sorted(wanted.values())


def test_rows_that_fit_into_memory_make_no_temporary_file(monkeypatch):
    monkeypatch.setattr(stage, "sorted_pieces", Mock(side_effect=ZeroDivisionError))
    mixed = table().take([i * 377 % 2000 for i in range(2000)])
    assert [r.rows for r in staged(open_store("hmemory://"), cube_rows(), mixed, PLENTY)] == [1000, 1000]
    with pytest.raises(ZeroDivisionError):
        staged(open_store("hmemory://"), cube_rows(), mixed, LITTLE)


@pytest.mark.parametrize("memory", [PLENTY, LITTLE])
def test_rows_of_many_partitions_are_put_together(memory):
    rows = pa.table(
        {"x": range(1000), "p": [f"{x % 50}" for x in range(1000)], "i1": [0] * 1000, "v1": ["value"] * 1000},
        schema=SCHEMA,
    )
    store = open_store("hmemory://")
    receipts = staged(store, cube_rows(), rows, memory, size=500)
    assert sorted((r.values["p"], read(store, r).column("x").to_pylist()) for r in receipts) == sorted(
        (f"{p}", [*range(p, 1000, 50)]) for p in range(50)
    )


@settings(max_examples=20)
@given(
    st.lists(
        st.tuples(st.sampled_from([None, -1.5, -0.0, 0.0, 2.0, float("nan")]), st.sampled_from(["", "a", "ä", "b"])),
        max_size=60,
    ),
    st.sampled_from([30, 100, 400]),
    st.integers(0, 9),
    st.sampled_from([2, 3, 256]),
)
def test_pieces_are_sorted_as_if_they_were_one_table(rows, most, size, ranges):
    table = pa.table(
        {"x": pa.array([x for x, _ in rows], pa.float64()), "y": [y for _, y in rows], "v1": range(len(rows))},
        schema=SORTED,
    )
    pieces = [table.slice(i, size) for i in range(0, len(rows), max(size, 1))] if size else [table.slice(0, 0), table]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks_module, "_RANGES", ranges)
        found = pa.concat_tables([SORTED.empty_table(), *sorted_pieces(iter(pieces), ("x", "y"), most)])
    order = np.argsort(pack_one(table, ("x", "y")), kind="stable")
    assert found.column("v1").to_pylist() == order.tolist()


def in_pieces(x, most):
    rows = pa.table({"x": x})
    pieces = list(sorted_pieces(iter([rows.slice(i, 100) for i in range(0, len(x), 100)]), ("x",), most))
    assert pa.concat_tables(pieces).column("x").to_pylist() == sorted(x)
    return [piece.num_rows for piece in pieces]


@pytest.mark.parametrize(
    "x",
    [
        [i * 7919 % 20_000 if i % 3 else 5 for i in range(20_000)],
        [*range(1000)] * 20,
        [5] * 20_000,
        [*range(20_000)][::-1],
    ],
)
def test_no_piece_of_sorted_rows_is_much_larger_than_asked_for(x):
    pieces = in_pieces(x, 16_000)
    assert len(pieces) == 20
    assert max(pieces) < 1.5 * 1000


def test_ranges_that_are_too_large_are_divided_once_more(monkeypatch):
    monkeypatch.setattr(blocks_module, "_RANGES", 3)
    pieces = in_pieces([i * 7919 % 20_000 for i in range(20_000)], 16_000)
    assert len(pieces) < 50
    assert max(pieces) <= 1.5 * 1000


@pytest.mark.parametrize("end", ["all are taken", "dropped half-way", "an error comes"])
def test_no_temporary_file_stays_behind(tmp_path, monkeypatch, end):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def rows():
        for i in range(20):
            yield pa.table({"x": [i, -i] * 50})
        assert any(tmp_path.iterdir())
        if end == "an error comes":
            raise ZeroDivisionError

    pieces = sorted_pieces(rows(), ("x",), 1000)
    with pytest.raises(ZeroDivisionError) if end == "an error comes" else nullcontext():
        assert next(pieces).column("x")[0].as_py() == -19
        assert any(tmp_path.iterdir())
        _ = list(pieces) if end == "all are taken" else pieces.close()
    assert not any(tmp_path.iterdir())


def test_temporary_files_go_before_an_error_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def broken(store, request, label, values, pieces, *rest):
        next(iter(pieces))
        assert any(tmp_path.iterdir())
        raise ZeroDivisionError

    monkeypatch.setattr(stage, "stage_stream", broken)
    with pytest.raises(ZeroDivisionError) as told:
        staged(open_store("hmemory://"), cube_rows(), table(p="a"), LITTLE)
    assert told.value.__traceback__ is not None
    assert not any(tmp_path.iterdir())


def test_temporary_files_are_where_spark_has_its_own(tmp_path, monkeypatch):
    spilled = []
    monkeypatch.setattr(
        stage, "stage_stream", lambda *arguments: spilled.append([path.name for path in tmp_path.iterdir()]) or 1 / 0
    )
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    with pytest.raises(ZeroDivisionError):
        staged(open_store("hmemory://"), cube_rows(), table(p="a"), LITTLE)
    assert spilled[0][0].startswith("kartothek_cube-")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    "names",
    [
        ["__kartothek_cube_arrival"],
        ["__kartothek_cube_arrival", "__kartothek_cube_arrival_", "__kartothek_cube_arrival__"],
    ],
)
def test_no_name_of_a_column_is_taken(names):
    schema = pa.schema([("x", pa.int64()), ("p", pa.string()), *((name, pa.int64()) for name in names)])
    rows = pa.table(
        {"x": range(1000), "p": ["a"] * 1000, **{name: range(i, i + 1000) for i, name in enumerate(names)}},
        schema=schema,
    )
    store, write = open_store("hmemory://"), plan_build(Cube(["x"], ["p"], "cube"), {"seed": schema}, {})
    (receipt,) = staged(store, CubeRows(write.datasets["seed"]), rows.sort_by([("x", "descending")]), LITTLE)
    assert read(store, receipt).equals(rows.drop_columns(["p"]).select(read(store, receipt).column_names))


def narrowed():
    """Rows sorted by numbers that become equal in their stored type, and the stored schema."""
    schema = pa.schema([("x", pa.float32()), ("y", pa.int64()), ("p", pa.string())])
    return pa.table(
        {"x": [0.1 * (1 + 1e-12 * i) for i in range(400)], "y": range(400, 0, -1), "p": ["a"] * 400}
    ), schema


@pytest.mark.parametrize("memory", [PLENTY, LITTLE])
@pytest.mark.parametrize("cut_by", [("p",), ("p", BUCKET)])
def test_rows_are_sorted_in_the_types_in_which_they_are_stored(memory, cut_by):
    (rows, schema), store = narrowed(), open_store("hmemory://")
    rows = (
        rows.append_column(BUCKET, pa.array([y % 2 for y in rows.column("y").to_pylist()]))
        if BUCKET in cut_by
        else rows
    )
    dataset = DatasetRows(plan_update("dataset", None, ["p"], [], sort_partitions_by=["x", "y"]), "table", schema)
    found = [read(store, receipt).column("y").to_pylist() for receipt in staged(store, dataset, rows, memory, cut_by)]
    assert found == [[*range(1, 401)]] if cut_by == ("p",) else [[*range(2, 401, 2)], [*range(1, 401, 2)]]


@pytest.mark.parametrize("memory", [PLENTY, LITTLE])
def test_cells_that_become_equal_when_they_are_stored_are_found(memory):
    rows, schema = narrowed()
    twice = rows.set_column(1, "y", pa.array([i * 7 % 200 for i in range(400)]))
    cube = CubeRows(plan_build(Cube(["x", "y"], ["p"], "cube"), {"seed": schema}, {}).datasets["seed"])
    with pytest.raises(InvalidInput, match="duplicate cells"):
        staged(open_store("hmemory://"), cube, twice, memory, size=200)


def test_what_cannot_be_sorted_is_named_before_anything_is():
    schema = pa.schema([("p", pa.string()), ("x", pa.list_(pa.int64()))])
    rows = pa.table({"p": ["a"] * 1000, "x": [[1]] * 1000}, schema=schema)
    with pytest.raises(Unsupported, match="sort_partitions_by"):
        staged(
            open_store("hmemory://"),
            DatasetRows(plan_update("dataset", None, ["p"], [], sort_partitions_by=["x"]), "table", schema),
            rows,
            LITTLE,
        )


def test_a_dataset_that_is_not_sorted_keeps_the_order_in_which_rows_come():
    store = open_store("hmemory://")
    (receipt,) = staged(store, dataset_rows(sort=()), table(p="a").sort_by([("x", "descending")]), LITTLE)
    assert read(store, receipt).column("x").to_pylist() == list(range(999, -1, -1))


def test_a_task_whose_rows_are_not_sorted_writes_blocks():
    store, rows = open_store("hmemory://"), dataset_rows()
    assert len(staged(store, rows, table(), PLENTY, cut_by=None)) == 2
    receipts = staged(store, rows, table(), LITTLE, cut_by=None)
    assert len(receipts) > 10
    assert sum(r.rows for r in receipts) == 2000
    assert max(read(store, r).nbytes for r in receipts) < LITTLE


@pytest.mark.parametrize("rows", [cube_rows(), dataset_rows()], ids=["of a cube", "of a dataset"])
def test_what_travels_to_a_task_is_small(rows):
    assert (
        len(pickle.dumps(StageTask(rows, open_store("hfs:///nowhere"), "mine", tuple(SCHEMA.names), ("p",), PLENTY)))
        < 3000
    )


@pytest.mark.parametrize(("given", "threads"), [({}, 2), ({"threads": 1}, 1), ({"threads": 5}, 5)], ids=str)
def test_options_of_the_driver_hold_in_the_task(given, threads, store):
    class Noting(CubeRows):
        def staged(self, store, table):
            seen.append((current_options().threads, current_options().bytes_in_flight))
            return []

    seen = []
    with options(bytes_in_flight=PLENTY, **given):
        staging = make_stage_task(Noting(cube_rows().write), Target(store, "mine", 1), tuple(SCHEMA.names), None)
    list(stage_batches(staging, table(3).to_batches()))
    assert seen == [(threads, PLENTY)]


def test_batches_without_rows_make_no_file():
    for cut_by in (None, ("p",), ()):
        assert staged(open_store("hmemory://"), dataset_rows(), table().slice(0, 0), PLENTY, cut_by) == []


def test_runs_are_cut_across_batches():
    tables = [
        pa.Table.from_batches([b])
        for b in pa.table({"p": [1, 1, 2, 2, 2, 3], "q": list("aaabbb"), "x": range(6)}).to_batches(max_chunksize=2)
    ]
    cut = lambda by: [[x for t in run for x in t.column("x").to_pylist()] for run in runs(tables, by)]  # noqa: E731
    assert cut(["p", "q"]) == [[0, 1], [2], [3, 4], [5]]
    assert cut([]) == [[0, 1, 2, 3, 4, 5]]
    assert list(runs([], ["p"])) == []


def test_a_null_key_is_a_run_of_its_own():
    rows = pa.table({"p": [None, None, 1.5], "x": range(3)})
    assert [
        [x for t in run for x in t.column("x").to_pylist()] for run in runs([rows.slice(0, 1), rows.slice(1)], ["p"])
    ] == [[0, 1], [2]]


def test_keys_that_partitions_tell_apart_are_runs_of_their_own():
    # In New York it is half past one twice, an hour apart; and moments need not have a year that
    # Python knows.
    moments = pa.chunked_array([pa.array([1730611800, 1730615400, 2**60 // 10**6], pa.timestamp("s"))]).cast(
        pa.timestamp("us", "America/New_York")
    )
    for keys, expected in ((moments, [[0], [1], [2]]), (pa.array([-0.0, 0.0, 0.0]), [[0, 1, 2]])):
        rows = pa.table({"p": keys, "x": range(3)})
        for size in (1, 3):
            tables = [pa.Table.from_batches([b]) for b in rows.to_batches(max_chunksize=size)]
            assert [[x for t in run for x in t.column("x").to_pylist()] for run in runs(tables, ["p"])] == expected


def test_text_that_is_no_text_is_a_key_too():
    broken = pa.StringArray.from_buffers(2, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe"))
    assert [
        [x for t in run for x in t.column("x").to_pylist()]
        for run in runs([pa.table({"p": broken, "x": range(2)})], ["p"])
    ] == [[0], [1]]


def test_a_column_that_has_the_name_of_the_bucket_is_refused_where_there_are_buckets():
    rows = DatasetRows(plan_update("dataset", None, ["p"], []), "table", SCHEMA.append(pa.field(BUCKET, pa.int64())))
    with pytest.raises(InvalidInput, match=f"Column '{BUCKET}' of dataset 'dataset'"):
        make_layout(True, 2, ["x"], [rows])
    assert make_layout(True, 1, None, [rows]).shuffle


def test_blocks_are_as_large_as_asked_for():
    pieces = [pa.table({"x": pa.array(range(n), pa.int64())}) for n in (2, 0, 3, 4, 1)]
    assert [t.num_rows for t in blocks(pieces, 40)] == [5, 5]
    assert [t.num_rows for t in blocks(pieces, 1)] == [2, 3, 4, 1]
    assert [t.num_rows for t in blocks(pieces, 1000)] == [10]


def test_no_more_is_taken_than_fits():
    taken = []

    def pieces():
        for n in range(5):
            taken.append(n)
            yield pa.table({"x": pa.array([n, n], pa.int64())})

    again, rows, size, complete = take_until(pieces(), 40)
    assert (taken, rows, size, complete) == ([0, 1, 2], 6, 48, False)
    assert [t.column("x")[0].as_py() for t in again] == [0, 1, 2, 3, 4]
    again, rows, size, complete = take_until(pieces(), 80)
    assert (rows, size, complete) == (10, 80, True)
    assert len(list(again)) == 5


@pytest.mark.parametrize("memory", [PLENTY, LITTLE])
@pytest.mark.parametrize("cut_by", [("p",), None])
def test_files_of_a_task_are_cut_at_the_target_size(memory, cut_by):
    store, target = open_store("hmemory://"), 8_000
    with options(target_file_bytes=target):
        rows = dataset_rows()
    receipts = staged(store, rows, table(4000), memory, cut_by, size=512)
    assert len({r.label for r in receipts}) == len(receipts) >= 8
    # A file ends with the row group that fills it.
    assert max(r.size for r in receipts) <= 2.5 * target
    files = [read(store, r).column("x").to_pylist() for r in receipts]
    assert sorted(x for file in files for x in file) == sorted([*range(4000)] * 2)
    assert all(file == sorted(file) for file in files)
    if cut_by is not None:  # files of a partition do not overlap
        for letter in "ab":
            of_one = sorted(f for f, r in zip(files, receipts, strict=True) if r.values["p"] == letter)
            assert [x for file in of_one for x in file] == [*range(4000)]
