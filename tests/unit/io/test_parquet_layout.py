"""How files are laid out: the rows of row groups by order, and dictionaries only where they pay."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kartothek_cube.core.io.formats import (
    GROUP_ROWS,
    AdaptiveParquetFormat,
    ParquetFormat,
    row_group_rows,
    unique_columns,
)

N = 131_072
COUNT = np.arange(N)
RANDOM = np.random.default_rng(0)
SHUFFLED = RANDOM.permutation(N)


def streamed(table, size, file_format):
    sink = io.BytesIO()
    pieces = (table.slice(start, size) for start in range(0, table.num_rows, size))
    file_format.write_stream(pieces, table.schema, sink)
    return sink.getvalue()


def metadata(data):
    return pq.read_metadata(pa.BufferReader(data))


def groups(data):
    footer = metadata(data)
    return [footer.row_group(g).num_rows for g in range(footer.num_row_groups)]


# --- row groups -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "column",
    [
        COUNT // 7,
        pa.array(COUNT, pa.timestamp("us")),
        pa.array([f"{i:06d}" for i in range(N)]),
        np.linspace(-1, 1, N),
        pa.array([None, *range(N - 1)]),
        np.where(COUNT % 1_000 == 7, 0, COUNT),  # but for a few rows
    ],
    ids=["integers", "moments", "texts", "floats", "a null", "almost"],
)
def test_row_groups_of_sorted_files_are_small(column):
    table = pa.table({"x": SHUFFLED, "y": column})
    assert row_group_rows(table) == 32_768
    assert groups(ParquetFormat().encode(table)) == [32_768] * 4


@pytest.mark.parametrize(
    "column",
    [
        SHUFFLED,
        COUNT[::-1],
        COUNT // 10_000,
        np.zeros(N),
        COUNT >= N // 2,
        pa.array([[i] for i in range(N)]),
        pa.nulls(N),
        pa.nulls(N, pa.int64()),
        np.full(N, np.nan),
    ],
    ids=["shuffled", "falls", "few values", "one value", "booleans", "lists", "null", "nulls", "NaN"],
)
def test_other_files_have_large_row_groups(column):
    table = pa.table({"x": column})
    assert row_group_rows(table) == GROUP_ROWS
    assert groups(ParquetFormat().encode(table)) == [N]


@pytest.mark.parametrize(("columns", "rows"), [(8, 32_768), (9, 65_536), (32, 65_536), (33, 131_072)])
def test_wide_files_have_larger_row_groups(columns, rows):
    table = pa.table({f"x{i}": COUNT for i in range(columns)})
    assert row_group_rows(table) == rows


def test_a_smaller_file_is_one_row_group():
    table = pa.table({"x": COUNT}).slice(0, N - 1)
    assert groups(ParquetFormat().encode(table)) == groups(streamed(table, 10_000, ParquetFormat())) == [N - 1]


@pytest.mark.parametrize("size", [10_000, N, 3 * N])
def test_the_first_rows_of_a_stream_choose(size):
    numbers = np.arange(3 * N)
    table = pa.table({"x": numbers, "y": numbers % 3})
    data = streamed(table, size, ParquetFormat())
    assert groups(data) == [32_768] * 12
    assert pq.read_table(pa.BufferReader(data)) == table
    assert groups(streamed(table.select(["y"]), size, ParquetFormat())) == [3 * N]


def test_the_user_knows_better():
    assert groups(ParquetFormat(chunk_size=100_000).encode(pa.table({"x": COUNT}))) == [100_000, N - 100_000]


# --- dictionaries ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "pays"),
    [
        (RANDOM.random(N), False),
        (SHUFFLED, False),
        (COUNT, False),
        (COUNT // 7, True),
        (COUNT % 99, True),
        (RANDOM.integers(0, 20_000, N), True),
        (RANDOM.integers(0, 100_000, N), False),
        (np.where(COUNT % 2, RANDOM.random(N), 0.0), True),
        (pa.array(RANDOM.random(N), mask=COUNT % 3 > 0), True),
        (pa.array(COUNT, pa.timestamp("us")), False),
        (pa.array([f"{i}" for i in range(N)]), True),
        (pa.array(COUNT % 2 == 0), True),
        (pa.array(COUNT.astype(np.int8)), True),
        (RANDOM.integers(0, 27_500, N), True),  # a little fewer than a fourth of the rows
        (RANDOM.integers(0, 40_000, N), False),
    ],
)
def test_numbers_that_hardly_repeat_have_no_dictionary(column, pays):
    table = pa.table({"x": column, "y": COUNT % 5})
    assert unique_columns(table, N) == ([] if pays else ["x"])
    for data in (ParquetFormat().encode(table), streamed(table, 50_000, AdaptiveParquetFormat())):
        assert pq.read_table(pa.BufferReader(data)) == table
        is_boolean = pa.types.is_boolean(table.schema.field("x").type)  # never has one
        assert metadata(data).row_group(0).column(0).has_dictionary_page == (pays and not is_boolean)


def test_the_size_of_row_groups_counts():
    """Of 40,000 values many repeat in a million rows, and few in 50,000."""
    table = pa.table({"x": RANDOM.integers(0, 40_000, 2**20)})
    assert (unique_columns(table, 2**20), unique_columns(table, 50_000)) == ([], ["x"])


@pytest.mark.parametrize("rows", [0, 1, 16_383])
def test_small_files_are_not_looked_at(rows):
    assert unique_columns(pa.table({"x": COUNT[:rows]}), GROUP_ROWS) == []


def test_parts_of_nested_columns_keep_their_dictionaries():
    table = pa.table(
        {
            "x": COUNT,
            "l": [[i % 3] for i in range(N)],
            "s": [{"a": i % 3, "b": None} for i in range(N)],
        }
    )
    data = ParquetFormat().encode(table)
    assert unique_columns(table, N) == ["x"]
    assert [metadata(data).row_group(0).column(j).has_dictionary_page for j in range(4)] == [False, True, True, True]
    assert pq.read_table(pa.BufferReader(data)) == table


# --- codecs ---------------------------------------------------------------------------------------


def codecs(file_format, table):
    footer = metadata(file_format.encode(table))
    return [footer.row_group(0).column(j).compression for j in range(footer.num_columns)]


MIXED = pa.table({"x": RANDOM.random(N), "y": COUNT, "v1": RANDOM.random(N), "l": [[i % 3] for i in range(N)]})


def test_noise_is_not_compressed_much_but_for_the_first_column():
    assert codecs(AdaptiveParquetFormat(), MIXED) == ["ZSTD", "ZSTD", "SNAPPY", "ZSTD"]
    assert codecs(AdaptiveParquetFormat("GZIP"), MIXED) == ["GZIP", "GZIP", "SNAPPY", "GZIP"]
    assert pq.read_table(pa.BufferReader(AdaptiveParquetFormat().encode(MIXED))) == MIXED


@pytest.mark.parametrize("codec", ["ZSTD", "NONE"])
def test_a_chosen_codec_is_that_of_all_columns(codec):
    assert set(codecs(ParquetFormat(codec), MIXED)) == {codec.replace("NONE", "UNCOMPRESSED")}


@pytest.mark.parametrize("column", [COUNT * 1.0, np.round(RANDOM.random(N), 2), RANDOM.integers(0, 2**31, N)])
def test_what_shrinks_is_compressed(column):
    assert codecs(AdaptiveParquetFormat(), pa.table({"x": COUNT, "v1": column})) == ["ZSTD", "ZSTD"]
