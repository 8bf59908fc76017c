"""Cubes from streams that are larger than memory: the same rows, the same refusals, and nothing
visible before all is well.
"""

from __future__ import annotations

import weakref
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kartothek_cube import options
from kartothek_cube.api.cube import (
    C,
    Cube,
    append_to_cube,
    build_cube,
    count_cube,
    extend_cube,
    query_cube_arrow,
    update_cube,
)
from kartothek_cube.api.serialization import CsvSerializer, ParquetSerializer
from kartothek_cube.core.stores.contract import ReadOnlyView, StoreView
from kartothek_cube.core.stores.local import LocalStore, MemoryStore
from kartothek_cube.core.write.stage import stage_parts
from kartothek_cube.cube.write.plan import check_duplicates, make_write, overlapping, prepare_parts
from kartothek_cube.errors import (
    AlreadyExists,
    AtomicityRequired,
    InvalidInput,
    InvalidType,
    MultiTableCommitAborted,
    ReadOnlyStore,
)
from kartothek_cube.testing.stores import CountingStore
from tests.support.cubes import answers, files, index_of, snapshot, stored_rows, table, with_column

CUBE = Cube(["x", "y"], ["p"], "cube", index_columns=["i1"])
SMALL = options(bytes_in_flight=4_000, threads=2)


def seed(rows=400, start=0):
    """Cells in three physical partitions, far from sorted; about 40 bytes a row."""
    n = np.arange(start, start + rows)
    return pa.table(
        {"x": (n * 37) % 1009, "y": pa.array([f"y{i}" for i in n // 1009]), "p": n % 3, "i1": n % 5, "v1": n * 0.5}
    )


def enrichment(rows=300):
    return pa.table({"x": np.arange(rows)[::-1], "v2": np.arange(rows)})


def blocks(data, size=25):
    return (data.slice(i, size) for i in range(0, data.num_rows, size))


def both(*data):
    """Mixed elements: the datasets interleaved, now and then nothing."""
    for left, right in zip(*(list(blocks(d)) for d in data), strict=False):
        yield {"seed": left, "e": right}
        yield None
        yield {"e": None}
    rest = min(*(d.num_rows for d in data))
    yield data[0].slice(rest)
    yield {"e": data[1].slice(rest)}


@pytest.fixture
def store():
    return MemoryStore()


def nothing_visible(store, prefix="cube"):
    return not [key for key in store.list(recursive=True).keys if key.startswith(prefix) and "/table/" not in key]


# --- the same cube --------------------------------------------------------------------------------

FORMS = {
    "generator of tables": blocks,
    "generator of frames": lambda data: (block.to_pandas() for block in blocks(data)),
    "generator of dicts": lambda data: ({"seed": block} for block in blocks(data)),
    "generator of batches": lambda data: (batch for batch in data.to_batches(max_chunksize=30)),
    "generator of readers": lambda data: (block.to_reader() for block in blocks(data, 90)),
    "reader": lambda data: data.to_reader(max_chunksize=30),
    "reader of one large batch": lambda data: data.to_reader(),
    "reader in a dict": lambda data: {"seed": data.to_reader(max_chunksize=30)},
    "list of readers": lambda data: [data[:150].to_reader(max_chunksize=30), data[150:].to_reader(max_chunksize=30)],
    "with empty blocks": lambda data: (
        part for block in blocks(data) for part in (data[:0], None, block, {"seed": None})
    ),
    "an untyped empty block first": lambda data: (
        pd.DataFrame({c: [] for c in data.column_names}) if i < 0 else data[i : i + 25] for i in range(-25, 400, 25)
    ),
    "columns in another order": lambda data: (
        b.select(b.column_names[::-1]) if i % 2 else b for i, b in enumerate(blocks(data))
    ),
    "one row at a time": lambda data: blocks(data, 1),
    "one large block": lambda data: iter([data]),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_stream_makes_the_same_cube_as_the_rows_in_memory(store, form):  # cube 67, 68, 70, 72, 244
    build_cube(seed(), CUBE.copy(uuid_prefix="other"), store)
    build_cube(FORMS[form](seed()), CUBE, store, options=SMALL)
    assert answers(store, CUBE) == answers(store, CUBE.copy(uuid_prefix="other"))
    assert snapshot(store).schema == snapshot(store, prefix="other").schema
    assert snapshot(store).secondary_columns == {"x", "y", "i1"}


@pytest.mark.parametrize("threads", [1, 4])
def test_one_partition_gets_several_sorted_files_with_their_entries_in_the_indices(store, threads):  # cube 50, 244
    build_cube(blocks(seed()), CUBE, store, options=options(bytes_in_flight=8_000, threads=threads))
    keys = files(store)
    assert len(keys) > 9
    assert {key.split("/")[2] for key in keys} == {"p=0", "p=1", "p=2"}
    for key in keys:
        rows = stored_rows(store, key)
        assert (
            rows.select(["x", "y"]).to_pylist()
            == rows.sort_by([("x", "ascending"), ("y", "ascending")]).select(["x", "y"]).to_pylist()
        )
    found = index_of(store, "x")[37]
    assert [
        row["x"] for label in found for row in stored_rows(store, f"cube++seed/table/{label}.parquet").to_pylist()
    ].count(37) == 1


def test_rows_that_fit_into_memory_are_one_file_a_partition_however_they_come(store):
    build_cube(blocks(seed()), CUBE, store)
    assert len(files(store)) == 3


@pytest.mark.parametrize(
    "form", [list, tuple, lambda data: [{"seed": block} for block in data]], ids=["list", "tuple", "list of dicts"]
)
def test_rows_that_are_in_memory_are_one_file_a_partition_however_little_may_be_in_flight(store, form):
    build_cube(form(blocks(seed())), CUBE, store, options=SMALL)
    assert len(files(store)) == 3


class InMemory:
    """As Polars has it: a stream, but one that knows its size."""

    def __init__(self, data):
        self._data = data

    def estimated_size(self):
        return self._data.nbytes

    def __arrow_c_stream__(self, requested_schema=None):
        return self._data.__arrow_c_stream__(requested_schema)


def test_a_frame_of_another_library_is_in_memory(store):
    build_cube(InMemory(seed()), CUBE, store, options=SMALL)
    assert len(files(store)) == 3


def test_datasets_may_come_interleaved(store):  # cube 68, 69, 72
    partition_on = {"e": (c for c in ())}
    result = build_cube(
        both(seed(), enrichment()),
        CUBE,
        store,
        partition_on=partition_on,
        metadata={"e": {"a": 1}, "seed": {"b": 2}},
        options=SMALL,
    )
    build_cube({"seed": seed(), "e": enrichment()}, CUBE.copy(uuid_prefix="other"), store, partition_on={"e": []})
    assert answers(store, CUBE) == answers(store, CUBE.copy(uuid_prefix="other"))
    assert len(files(store, "e")) > 1
    assert (result["e"].metadata["a"], result["seed"].metadata["b"]) == (1, 2)


def test_small_blocks_of_a_dataset_wait_while_those_of_another_leave(store):
    data = ({"seed": block, "e": enrichment()[i : i + 1]} for i, block in enumerate(blocks(seed())))
    build_cube(data, CUBE, store, partition_on={"e": []}, options=SMALL)
    assert (len(files(store, "e")), snapshot(store, "e").partitions.labels.to_pylist()[0].count("/")) == (1, 0)
    assert len(files(store)) > 9


def test_an_extension_an_append_and_an_update_take_streams(store):
    build_cube(seed(), CUBE, store)
    extend_cube({"e": enrichment().to_reader(max_chunksize=20)}, CUBE, store, partition_on={"e": []}, options=SMALL)
    append_to_cube(blocks(with_column(seed(), "v1", np.zeros(400))), CUBE, store, options=SMALL)
    assert {row["v1"] for row in answers(store, CUBE)} == {0.0}
    update_cube(
        blocks(seed().filter(pa.compute.equal(seed()["p"], 1))), CUBE, store, (c for c in [C("p") == 1]), options=SMALL
    )
    assert {row["p"] for row in answers(store, CUBE, conditions=C("v1") > 0.0)} == {1}
    assert count_cube(CUBE, store) == 400
    assert {row["v2"] is None for row in answers(store, CUBE, conditions=C("x") < 300)} == {False}


def test_an_overwrite_by_a_stream_leaves_nothing_of_the_old_rows(store):  # cube 79
    build_cube(seed(), CUBE, store)
    build_cube(blocks(seed(200, start=5000)), CUBE, store, overwrite=True, options=SMALL)
    assert count_cube(CUBE, store) == 200


def test_columns_move_between_datasets_that_one_stream_replaces(store):  # cube 109
    build_cube(
        {"seed": seed(), "a": enrichment(), "b": enrichment().rename_columns(["x", "v3"])},
        CUBE,
        store,
        partition_on={"a": [], "b": []},
    )
    swapped = [{"b": block} for block in blocks(enrichment())] + [
        {"a": block.rename_columns(["x", "v3"])} for block in blocks(enrichment())
    ]
    extend_cube(iter(swapped), CUBE, store, overwrite=True, partition_on={"a": [], "b": []}, options=SMALL)
    assert snapshot(store, "a").schema.names == ["v3", "x"]


ROWS = st.lists(st.tuples(st.integers(0, 4), st.sampled_from("abc"), st.integers(0, 1)), min_size=1, max_size=40)


@given(ROWS, st.integers(1, 7), st.integers(40, 2_000))
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_the_blocks_the_answer_is_that_of_the_rows_in_memory(cells, size, limit):  # cube 62, 244, 245
    data = table(x=[c[0] for c in cells], y=[c[1] for c in cells], p=[c[2] for c in cells], v1=list(range(len(cells))))
    whole, streamed = MemoryStore(), MemoryStore()
    if len(set(cells)) == len(cells):
        build_cube(data, CUBE, whole)
        build_cube(blocks(data, size), CUBE, streamed, options=options(bytes_in_flight=limit, threads=1))
        assert answers(streamed, CUBE) == answers(whole, CUBE)
    else:
        with pytest.raises(InvalidInput, match="duplicate cells"):
            build_cube(blocks(data, size), CUBE, streamed, options=options(bytes_in_flight=limit, threads=1))
        assert nothing_visible(streamed)


# --- memory ---------------------------------------------------------------------------------------


def test_memory_does_not_grow_with_the_stream(tmp_path):
    cube, limit, rows = CUBE.copy(index_columns=[], suppress_index_on=["x", "y"]), 2**22, 20_000
    before, most = pa.total_allocated_bytes(), []

    def stream():
        for i in range(60):
            most.append(pa.total_allocated_bytes() - before)
            n = np.arange(i * rows, (i + 1) * rows)
            yield pa.table(
                {
                    "x": pa.array(n % 7919),
                    "y": pa.array(n // 7919),
                    "p": pa.array(n % 2),
                    "v1": pa.array(np.random.default_rng(i).random(rows)),
                }
            )

    build_cube(stream(), cube, LocalStore(tmp_path), options=options(bytes_in_flight=limit, threads=2))
    assert 60 * rows * 32 > 8 * limit
    assert max(most) < 2 * limit
    assert count_cube(cube, LocalStore(tmp_path)) == 60 * rows


def test_blocks_are_let_go_once_they_are_stored(store):
    arrays, alive = [], []

    def stream():
        for block in blocks(seed(4_000), 50):
            values = np.random.default_rng(1).random(block.num_rows)
            arrays.append(weakref.ref(values))
            alive.append(sum(reference() is not None for reference in arrays))
            yield with_column(block, "v1", pa.array(values))
            del values

    build_cube(stream(), CUBE, store, options=SMALL)
    assert len(alive) == 80
    assert max(alive) < 8


# --- cells that occur twice -----------------------------------------------------------------------


def test_a_cell_in_two_blocks_is_found(store):  # cube 62, 245
    repeated = with_column(seed()[7:8], "v1", [9.25])
    data = [*blocks(seed()), repeated]
    cell = rf"\[p, x, y\] in dataset \"seed\": 1 row with.*'p': 1, 'x': {7 * 37}, 'y': 'y0'.*two blocks"
    with pytest.raises(InvalidInput, match=cell):
        build_cube(iter(data), CUBE, store, options=SMALL)
    assert nothing_visible(store)


def test_cells_of_a_projected_dataset_are_compared_by_its_own_dimensions(store):  # cube 63
    data = [{"seed": seed()}, *({"e": block} for block in blocks(enrichment())), {"e": table(x=[5], v2=[0])}]
    with pytest.raises(InvalidInput, match=r'by \[x\] in dataset "e"'):
        build_cube(iter(data), CUBE, store, partition_on={"e": []}, options=SMALL)
    assert nothing_visible(store)


def test_cells_in_two_partitions_are_two_cells_and_other_dimensions_make_another_cell(store):  # cube 64, 65
    again = [with_column(seed(), "p", seed()["p"].to_numpy() + 3), with_column(seed(), "y", ["z"] * 400)]
    build_cube((block for data in (seed(), *again) for block in blocks(data)), CUBE, store, options=SMALL)
    assert count_cube(CUBE, store) == 1200


def test_rows_that_differ_in_an_extra_key_alone_are_one_cell(store):  # cube 94
    data = with_column(enrichment(), "k", [0] * 300)
    with pytest.raises(InvalidInput, match="duplicate cells"):
        build_cube(
            iter([seed(), *({"e": b} for b in blocks(data)), {"e": table(x=[5], v2=[0], k=[1])}]),
            CUBE,
            store,
            partition_on={"e": ["k"]},
            options=SMALL,
        )
    assert nothing_visible(store)


def test_cells_in_a_dataset_that_is_partitioned_by_a_dimension(store):  # cube 91
    data = {"partition_on": {"e": ["x"]}, "options": SMALL}
    rows = pa.table({"x": np.arange(300) % 3, "y": [str(i) for i in range(300)], "v2": np.arange(300)})
    build_cube(iter([seed(), *({"e": b} for b in blocks(rows))]), CUBE, store, **data)
    assert len(files(store, "e")) > 3
    with pytest.raises(InvalidInput, match="'x': 1, 'y': '1'"):
        build_cube(
            iter([seed(), *({"e": b} for b in blocks(rows)), {"e": rows[1:2]}]), CUBE, store, overwrite=True, **data
        )
    assert count_cube(CUBE, store) == 400


@pytest.mark.parametrize(
    "serializer", [CsvSerializer(), ParquetSerializer(chunk_size=3)], ids=["csv", "small row groups"]
)
def test_cells_are_compared_in_files_of_every_format(store, serializer):
    build_cube(blocks(seed()), CUBE, store, df_serializer=serializer, options=SMALL)
    assert count_cube(CUBE, store) == 400
    with pytest.raises(InvalidInput, match="duplicate cells"):
        build_cube(
            iter([*blocks(seed()), seed(1)]), CUBE, store, overwrite=True, df_serializer=serializer, options=SMALL
        )


def test_an_append_may_write_the_same_cell_again_but_not_twice(store):  # cube 134
    build_cube(seed(), CUBE, store)
    append_to_cube(blocks(seed()), CUBE, store, options=SMALL)
    before = files(store)
    with pytest.raises(InvalidInput, match="duplicate cells"):
        append_to_cube((block for _ in range(2) for block in blocks(seed())), CUBE, store, options=SMALL)
    assert files(store) == before


def test_sorted_streams_are_not_read_again(store):
    counting = CountingStore(store)
    data = seed().sort_by([("p", "ascending"), ("x", "ascending"), ("y", "ascending")])
    build_cube(blocks(data), CUBE, counting, options=SMALL)
    assert len(files(store)) > 9
    assert [
        key for key in counting.touched("get", "get_range", "tail", "open", "get_versioned") if key.endswith(".parquet")
    ] == []


def staged(store, cells):
    """Files with these sorted cells in one partition, as a write leaves them, and the write."""
    rows = table(x=list(cells), y=["a"] * len(cells), p=[0] * len(cells))
    write = make_write(CUBE, "seed", rows.schema, ("p",))
    (receipt,) = stage_parts(
        store, write.request, prepare_parts(write, rows, f"f{cells[0]}-{len(cells)}-{cells[-1]}"), write.schema
    )
    return write, receipt


@pytest.mark.parametrize("most", [2, 3, 64])
@pytest.mark.parametrize("repeated", [None, 0, 3, 100, 2_998])
def test_files_are_read_side_by_side_in_pieces_and_in_several_passes(store, monkeypatch, repeated, most):
    monkeypatch.setattr("kartothek_cube.cube.write.plan._LEAST_PIECE", 1)
    monkeypatch.setattr("kartothek_cube.cube.write.plan._MOST_OPEN", most)
    strides = [range(i, 3_000, 5) for i in range(5)]
    made = [staged(store, cells) for cells in strides] + ([staged(store, [repeated])] if repeated is not None else [])
    write, receipts = made[0][0], [receipt for _, receipt in made]
    with options(bytes_in_flight=2_000, threads=1):
        if repeated is None:
            check_duplicates(store, write, receipts)
            return
        with pytest.raises(InvalidInput, match=rf"'x': {repeated}\b"):
            check_duplicates(store, write, receipts)


def test_only_files_whose_ranges_overlap_are_compared(store):
    write, a = staged(store, [1, 5])
    b, c = (staged(store, cells)[1] for cells in ([6, 9], [9, 12]))
    assert list(overlapping(write, [c, a, b])) == [[b, c]]


# --- types ----------------------------------------------------------------------------------------


def typed(column, *kinds, start=0):
    """Streams of 100 rows of each type."""
    for i, kind in enumerate(kinds):
        data = with_column(
            seed(100, start=start + 100 * i), "v9", pa.array([None if pa.types.is_null(kind) else i] * 100, kind)
        )
        yield from blocks(data.rename_columns([column if name == "v9" else name for name in data.column_names]))


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ((pa.int8(), pa.int64(), pa.int16()), pa.int64()),
        ((pa.int64(), pa.int8()), pa.int64()),
        ((pa.float32(), pa.float64()), pa.float64()),
        ((pa.null(), pa.uint8(), pa.null(), pa.uint16()), pa.uint16()),
    ],
    ids=str,
)
def test_later_blocks_may_widen_a_column(store, kinds, expected):
    build_cube(typed("v9", *kinds), CUBE, store, options=SMALL)
    assert snapshot(store).schema.field("v9").type == expected
    wanted = sorted(
        ([None] if pa.types.is_null(kind) else [i]) * 100 for i, kind in enumerate(kinds) if not pa.types.is_null(kind)
    )
    assert sorted(row["v9"] for row in answers(store, CUBE) if row["v9"] is not None) == [
        v for vs in wanted for v in vs
    ]


def test_dimensions_partitions_and_indices_may_widen_too(store):
    narrow = pa.schema(
        [("x", pa.int16()), ("y", pa.string()), ("p", pa.int8()), ("i1", pa.int8()), ("v1", pa.float64())]
    )
    data = [*blocks(seed(200).cast(narrow)), *blocks(seed(200, start=200))]
    build_cube(iter(data), CUBE, store, options=SMALL)
    build_cube(seed(), CUBE.copy(uuid_prefix="other"), store)
    assert query_cube_arrow(CUBE, store).equals(query_cube_arrow(CUBE.copy(uuid_prefix="other"), store))
    with pytest.raises(InvalidInput, match="duplicate cells"):
        build_cube(iter([*data, seed(1).cast(narrow)]), CUBE, store, overwrite=True, options=SMALL)


WRONG_BLOCKS = {
    "another family": (
        with_column(seed(25, 9_000), "v1", pa.array(range(25))),
        InvalidInput,
        ["seed", "'v1'", "double", "int64"],
    ),
    "another sign": (
        with_column(seed(25, 9_000), "x", pa.array(range(25), pa.uint64())),
        InvalidInput,
        ["seed", "'x'", "uint64"],
    ),
    "a column less": (seed(25, 9_000).drop_columns(["v1"]), InvalidInput, ["seed", "same set of columns"]),
    "a column less without rows": (
        seed(25, 9_000).drop_columns(["v1"])[:0],
        InvalidInput,
        ["seed", "same set of columns"],
    ),
    "null in a dimension": (
        with_column(seed(25, 9_000), "x", [None, *range(24)]),
        InvalidInput,
        ["NULL", "dimension", '"x"'],
    ),
    "null in an index column": (
        with_column(seed(25, 9_000), "i1", pa.nulls(25, pa.int64())),
        InvalidInput,
        ["NULL", "index", '"i1"'],
    ),
    "not a frame": (5, InvalidType, ["int", "seed"]),
    "single values": (pa.chunked_array([[1, 2]]), InvalidType, ["ChunkedArray", "seed"]),
    "dataset without dimension": ({"e": table(z=[1])}, InvalidInput, ['"e"', "x, y"]),
    "dataset with payload of the seed": (
        {"e": table(x=[1], p=[0], v1=[0.5])},
        MultiTableCommitAborted,
        ["v1", "e, seed"],
    ),
    "dataset with another type of a dimension": (
        {"e": table(x=[1.5], p=[0], v2=[0.5])},
        MultiTableCommitAborted,
        ['"x"', '"e"', '"seed"'],
    ),
    "dataset id that is none": ({"e f": table(x=[1])}, InvalidInput, ["e f"]),
}


@pytest.mark.parametrize("name", WRONG_BLOCKS)
def test_a_wrong_block_ends_the_stream_before_anything_is_visible(store, name):  # cube 53, 55, 58, 59, 61, 75, 76
    wrong, error, words = WRONG_BLOCKS[name]
    asked = []

    def stream():
        yield from blocks(seed())
        yield wrong
        for i in range(10_000, 90_000, 100):
            asked.append(i)
            yield seed(100, start=i)

    with pytest.raises(error) as caught:
        build_cube(stream(), CUBE, store, options=SMALL)
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert nothing_visible(store)
    assert len(asked) < 10


# --- failures -------------------------------------------------------------------------------------


class OutOfOrderError(Exception):
    pass


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("after", [0, 1, 15])
def test_a_generator_that_fails_leaves_nothing_visible(store, after, threads):
    def stream():
        yield from list(blocks(seed()))[:after]
        raise OutOfOrderError

    with pytest.raises(OutOfOrderError):
        build_cube(stream(), CUBE, store, options=options(bytes_in_flight=4_000, threads=threads))
    assert nothing_visible(store)
    build_cube(blocks(seed()), CUBE, store, options=SMALL)
    with pytest.raises(OutOfOrderError):
        append_to_cube(stream(), CUBE, store, options=SMALL)
    assert count_cube(CUBE, store) == 400


FAILING = {
    "no seed": (
        build_cube,
        lambda: ({"e": b} for b in blocks(enrichment())),
        {"partition_on": {"e": []}},
        InvalidInput,
        "seed.*missing",
    ),
    "a dataset of None": (
        build_cube,
        lambda: iter([*blocks(seed()), {"e": None}]),
        {},
        InvalidInput,
        "no data for dataset e",
    ),
    "an empty dataset": (
        build_cube,
        lambda: iter([*blocks(seed()), {"e": enrichment()[:0]}]),
        {"partition_on": {"e": []}},
        MultiTableCommitAborted,
        "empty datasets: e",
    ),
    "metadata of a dataset that did not come": (
        build_cube,
        lambda: blocks(seed()),
        {"metadata": {"e": {}}},
        InvalidInput,
        "metadata.*: e",
    ),
    "metadata that is none": (
        build_cube,
        lambda: blocks(seed()),
        {"metadata": {"e": 1}},
        InvalidType,
        "e should be a dict",
    ),
    "the seed partitioned otherwise": (
        build_cube,
        lambda: blocks(seed()),
        {"partition_on": {"seed": ["x"]}},
        InvalidInput,
        "fixed partition-on",
    ),
}


@pytest.mark.parametrize("name", FAILING)
def test_what_only_the_whole_stream_shows_is_found_before_anything_is_visible(
    store, name
):  # cube 57, 71, 73, 74, 84, 87
    verb, data, arguments, error, words = FAILING[name]
    with pytest.raises(error, match=words):
        verb(data(), CUBE, store, options=SMALL, **arguments)
    assert nothing_visible(store)


def test_what_the_first_block_shows_is_found_at_the_first_block(store):  # cube 78, 101, 121
    build_cube(seed(), CUBE, store)
    asked = []

    def stream(name):
        for i in range(100):
            asked.append(i)
            yield {name: seed(100, start=100 * i)}

    for verb, name, error in (
        (build_cube, "seed", AlreadyExists),
        (extend_cube, "seed", InvalidInput),
        (append_to_cube, "u", InvalidInput),
    ):
        asked.clear()
        with pytest.raises(error):
            verb(stream(name), CUBE, store, options=SMALL)
        assert len(asked) < 5


def test_part_of_a_cube_is_not_overwritten(store):  # cube 80
    build_cube({"seed": seed(), "e": enrichment()}, CUBE, store, partition_on={"e": []})
    before = files(store)
    with pytest.raises(InvalidInput, match="partial overwrite"):
        build_cube(blocks(seed()), CUBE, store, overwrite=True, options=SMALL)
    assert files(store) == before


def test_a_store_that_cannot_be_written_to_is_refused_at_the_start_of_the_stream(store):
    with pytest.raises(ReadOnlyStore):
        build_cube(blocks(seed()), CUBE, ReadOnlyView(store), options=SMALL)


class Unconditional(StoreView):
    """Takes documents whoever was there before."""

    @property
    def capabilities(self):
        return replace(self.inner.capabilities, conditional_put=False)


def test_a_store_that_cannot_commit_is_refused_before_a_file_of_the_stream_is_stored(store):
    with pytest.raises(AtomicityRequired):
        build_cube(blocks(seed()), CUBE, Unconditional(store), options=SMALL)
    assert store.list(recursive=True).keys == []


def test_who_commits_while_a_stream_runs_loses_nothing(store):
    build_cube(seed(), CUBE, store)

    def stream():
        yield from blocks(seed())
        append_to_cube(seed(1), CUBE, store)

    before = len(snapshot(store).partitions)
    append_to_cube(seed(1), CUBE, store)
    more = len(snapshot(store).partitions) - before
    append_to_cube(stream(), CUBE, store, options=SMALL)
    assert len(snapshot(store).partitions) > before + 2 * more
