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
    choose_encodings,
    is_sorted,
    leaf_paths,
    page_options,
    row_group_rows,
)
from kartothek_cube.core.io.page_index import PageIndex, Unfit
from kartothek_cube.core.io.reader import ClusteredFormat, Clustering

HAS_PAGES = int(pa.__version__.split(".")[0]) >= 23
needs_pages = pytest.mark.skipif(not HAS_PAGES, reason="this pyarrow cannot bound the rows of a page")

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


def has_index(data):
    return metadata(data).row_group(0).column(0).has_offset_index


def rows_of_pages(data):
    """The rows of the pages of the first column."""
    size = metadata(data).serialized_size
    begin = len(data) - 8 - size
    content = bytes(data)
    try:
        index = PageIndex(content[begin:-8], begin, pa.schema([]), {})
    except Unfit:
        return []
    index.provide(content[index.begin : begin])
    return np.diff(index.pages([0])[0].rows).tolist()


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
def test_sorted_files_have_pages(column):
    table = pa.table({"x": SHUFFLED, "y": column})
    data = ParquetFormat().encode(table)
    assert is_sorted(table)
    assert groups(data) == ([N] if HAS_PAGES else [32_768] * 4)
    assert has_index(data) == HAS_PAGES
    assert rows_of_pages(data)[:3] == ([2_048] * 3 if HAS_PAGES else [])


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
    data = ParquetFormat().encode(table)
    assert row_group_rows(table) == GROUP_ROWS
    assert groups(data) == [N]
    assert not has_index(data)


@pytest.mark.skipif(HAS_PAGES, reason="pages take the place of small row groups")
@pytest.mark.parametrize(("columns", "rows"), [(8, 32_768), (9, 65_536), (32, 65_536), (33, 131_072)])
def test_wide_files_have_larger_row_groups(columns, rows):
    table = pa.table({f"x{i}": COUNT for i in range(columns)})
    assert row_group_rows(table) == rows


@pytest.mark.parametrize(
    ("columns", "codecs", "rows"),
    [
        (1, {"NONE", "SNAPPY"}, 2_048),
        (8, {"LZ4"}, 2_048),
        (9, {"SNAPPY"}, 8_192),
        (8, {"NONE", "ZSTD"}, 8_192),
        (9, {"ZSTD"}, 16_384),
        (100, {"SNAPPY"}, 16_384),  # 3,200 pages of 8,192 rows would be too many
        (1_000, {"SNAPPY"}, 131_072),
    ],
)
def test_pages_are_larger_for_strong_codecs_and_for_many_columns(columns, codecs, rows):
    assert page_options(262_144, columns, codecs)["max_rows_per_page"] == rows


@needs_pages
def test_a_column_with_nan_has_no_bounds_of_pages():
    values = COUNT * 0.5
    values[7] = np.nan
    data = ParquetFormat().encode(pa.table({"x": COUNT, "y": values}))
    group = metadata(data).row_group(0)
    assert [group.column(j).has_column_index for j in (0, 1)] == [True, False]
    assert [group.column(j).has_offset_index for j in (0, 1)] == [True, True]


@needs_pages
def test_rows_in_z_order_have_pages():
    table = pa.table({"x": SHUFFLED, "y": SHUFFLED[::-1]})
    assert not is_sorted(table)
    clustered = ClusteredFormat(ParquetFormat(), Clustering(("x", "y"), is_zorder=True), "id")
    assert has_index(clustered.encode(table))


def test_a_smaller_file_is_one_row_group():
    table = pa.table({"x": COUNT}).slice(0, N - 1)
    assert groups(ParquetFormat().encode(table)) == groups(streamed(table, 10_000, ParquetFormat())) == [N - 1]


@pytest.mark.parametrize("size", [10_000, N, 3 * N])
def test_the_first_rows_of_a_stream_choose(size):
    numbers = np.arange(3 * N)
    table = pa.table({"x": numbers, "y": numbers % 3})
    data = streamed(table, size, ParquetFormat())
    assert groups(data) == ([N] * 3 if HAS_PAGES else [32_768] * 12)
    assert has_index(data) == HAS_PAGES
    assert pq.read_table(pa.BufferReader(data)) == table
    assert groups(streamed(table.select(["y"]), size, ParquetFormat())) == [3 * N]


def test_the_user_knows_better():
    assert groups(ParquetFormat(chunk_size=100_000).encode(pa.table({"x": COUNT}))) == [100_000, N - 100_000]


# --- encodings ------------------------------------------------------------------------------------

DICTIONARY, DELTA, PLAIN = "RLE_DICTIONARY", "DELTA_BINARY_PACKED", "PLAIN"
NAMES = np.array([f"article {i:06d}" for i in range(N)])


@pytest.mark.parametrize(
    ("column", "encoding", "codec"),
    [
        (COUNT // 4, DELTA, "SNAPPY"),
        (COUNT // 100, DELTA, "SNAPPY"),
        (COUNT // 10_000, DICTIONARY, "SNAPPY"),  # a few long runs
        (COUNT % 99, DICTIONARY, "SNAPPY"),  # a pattern
        (RANDOM.integers(0, 50, N), DICTIONARY, None),
        (RANDOM.integers(0, 1_000, N), DICTIONARY, None),
        (RANDOM.integers(0, 50, N).astype(np.int8), DICTIONARY, None),
        (RANDOM.integers(0, 10**6, N), DELTA, None),
        (RANDOM.integers(0, 10**6, N).astype(np.uint32), DELTA, None),
        (SHUFFLED, DELTA, None),
        (RANDOM.integers(-(2**62), 2**62, N), PLAIN, None),
        (pa.array(RANDOM.integers(0, 10**6, N), mask=COUNT % 3 == 0), DELTA, None),
        (pa.array(RANDOM.integers(0, 2**44, N), pa.timestamp("us")), DELTA, None),
        (pa.array(18_000 + RANDOM.integers(0, 900, N).astype(np.int32), pa.date32()), DICTIONARY, None),
        (RANDOM.random(N), PLAIN, None),
        (np.round(RANDOM.random(N) * 100, 2), DICTIONARY, "SNAPPY"),
        (np.round(RANDOM.random(N) * 10_000, 2), PLAIN, "ZSTD"),
        (np.zeros(N), DICTIONARY, None),
        (COUNT * 1.0, PLAIN, "ZSTD"),
        (NAMES[COUNT % 97], DICTIONARY, "SNAPPY"),
        (NAMES[RANDOM.integers(0, 97, N)], DICTIONARY, None),
        (NAMES[RANDOM.integers(0, 20_000, N)], DICTIONARY, "SNAPPY"),
        (NAMES[SHUFFLED], PLAIN, "ZSTD"),
        (NAMES, PLAIN, "ZSTD"),
        (pa.array(NAMES).cast(pa.binary()), PLAIN, "ZSTD"),
        (RANDOM.random(N) < 0.5, PLAIN, None),
        (COUNT < N // 2, PLAIN, "SNAPPY"),  # a small chunk
    ],
)
def test_a_column_is_encoded_by_what_it_has(column, encoding, codec):
    table = pa.table({"x": column})
    (found,) = choose_encodings(table, N, "SNAPPY", "ZSTD").values()
    assert (found.name, found.shrinks) == (encoding, codec is not None)
    for data in (AdaptiveParquetFormat().encode(table), streamed(table, 50_000, AdaptiveParquetFormat())):
        assert pq.read_table(pa.BufferReader(data)) == table
        chunk = metadata(data).row_group(0).column(0)
        assert chunk.has_dictionary_page == (encoding == DICTIONARY)
        assert encoding in (*chunk.encodings, DICTIONARY if chunk.has_dictionary_page else None)
    assert codecs(AdaptiveParquetFormat(), table) == [codec or "UNCOMPRESSED"]


def test_the_size_of_row_groups_counts():
    """Of 40,000 values many repeat in a million rows, and few in 50,000."""
    table = pa.table({"x": np.sqrt(RANDOM.integers(0, 40_000, 2**20))})
    found = [choose_encodings(table, rows, "SNAPPY", "ZSTD")["x"].name for rows in (2**20, 50_000)]
    assert found == [DICTIONARY, PLAIN]


@pytest.mark.parametrize("rows", [0, 1, 16_383])
def test_small_files_are_not_looked_at(rows):
    assert choose_encodings(pa.table({"x": COUNT[:rows]}), GROUP_ROWS, "SNAPPY", "ZSTD") == {}


@pytest.mark.parametrize("column", [pa.nulls(N), pa.nulls(N, pa.int64()), pa.nulls(N, pa.string()), [[1]] * N])
def test_columns_without_a_sample(column):
    table = pa.table({"x": column, "y": COUNT})
    assert choose_encodings(table, N, "SNAPPY", "ZSTD").keys() == {"y"}
    assert pq.read_table(pa.BufferReader(ParquetFormat().encode(table))) == table


def test_parts_of_nested_columns_keep_their_dictionaries():
    table = pa.table(
        {
            "x": COUNT,
            "l": [[i % 3] for i in range(N)],
            "s": [{"a": i % 3, "b": None} for i in range(N)],
        }
    )
    data = ParquetFormat().encode(table)
    assert choose_encodings(table, N, "SNAPPY", "SNAPPY").keys() == {"x"}
    assert [metadata(data).row_group(0).column(j).has_dictionary_page for j in range(4)] == [False, True, True, True]
    assert pq.read_table(pa.BufferReader(data)) == table


# --- codecs ---------------------------------------------------------------------------------------


def codecs(file_format, table):
    footer = metadata(file_format.encode(table))
    return [footer.row_group(0).column(j).compression for j in range(footer.num_columns)]


# Noise, a sorted key, what only a strong codec shrinks, and a nested column.
MIXED = pa.table(
    {"x": RANDOM.random(N), "y": COUNT, "v1": np.round(RANDOM.random(N) * 1e6), "l": [[i % 3] for i in range(N)]}
)


def test_a_codec_is_used_where_it_shrinks():
    assert codecs(AdaptiveParquetFormat(), MIXED) == ["UNCOMPRESSED", "SNAPPY", "ZSTD", "ZSTD"]
    assert pq.read_table(pa.BufferReader(AdaptiveParquetFormat().encode(MIXED))) == MIXED


@pytest.mark.parametrize("codec", ["ZSTD", "GZIP", "snappy"])
def test_a_named_codec_is_that_of_all_columns_that_it_shrinks(codec):
    name = codec.upper()
    assert codecs(ParquetFormat(codec), MIXED) == ["UNCOMPRESSED", name, name, name]


def test_no_codec_at_all():
    assert set(codecs(ParquetFormat("NONE"), MIXED)) == {"UNCOMPRESSED"}
    data = ParquetFormat("NONE").encode(MIXED)
    assert "DELTA_BINARY_PACKED" in metadata(data).row_group(0).column(1).encodings


@pytest.mark.parametrize(
    "column",
    [
        pa.array(RANDOM.random(N).astype(np.float16)),
        pa.array(np.where(COUNT % 2, 2**63 - 1, -(2**63))),
        pa.array(RANDOM.integers(0, 2**64 - 1, N, dtype=np.uint64)),
        pa.array(RANDOM.integers(0, 86_000, N), pa.time64("us")),
        pa.array(RANDOM.integers(0, 900, N) * 86_400_000, pa.date64()),
        pa.array([b"%d" % (i % 9) for i in range(N)], pa.binary(1)),
        pa.array([""] * N),
        pa.array([None if i % 500 else i for i in range(N)]),
        pa.array(np.full(N, np.nan)),
        pa.array([f"{i % 7}" for i in range(N)], pa.large_string()),
    ],
    ids=lambda column: str(column.type),
)
def test_every_type_comes_back(column):
    rows = pa.chunked_array([column.slice(3, 9_000), column.slice(9_003, 11_000)], column.type)
    table = pa.table({"a.b": rows, "a": rows, "b": COUNT[:20_000]})
    for file_format in (AdaptiveParquetFormat(), ParquetFormat(), ParquetFormat("NONE")):
        found = pq.read_table(pa.BufferReader(file_format.encode(table)))
        for name in table.column_names:
            assert str(found[name].to_pylist()) == str(table[name].to_pylist())


# --- what a sample cannot know --------------------------------------------------------------------


def test_a_column_with_the_path_of_a_part_of_another_one():
    table = pa.table({"a": [{"b": str(i)} for i in range(20_000)], "a.b": COUNT[:20_000] // 7})
    assert pq.read_table(pa.BufferReader(ParquetFormat().encode(table))).equals(table)


def test_few_values_among_nulls(recwarn):
    rows = pa.array(COUNT[:20_000] % 5, mask=COUNT[:20_000] % 5 > 0)
    assert choose_encodings(pa.table({"x": rows}), 20_000, "SNAPPY", "ZSTD") == {}
    assert not recwarn.list


def test_the_whole_file_is_looked_at():
    """The first row group of a sorted file is like no other."""
    table = pa.table({"x": np.arange(2 * N), "t": [""] * N + [*NAMES]})
    assert is_sorted(table)
    assert codecs(AdaptiveParquetFormat(), table) == ["SNAPPY", "ZSTD"]


def test_later_texts_of_a_stream_are_compressed():
    table = pa.table({"t": [f"{i % 3}" for i in RANDOM.integers(0, 3, N)] + [*NAMES]})
    footer = metadata(streamed(table, N, ParquetFormat(chunk_size=N)))
    assert [footer.row_group(g).column(0).compression for g in (0, 1)] == ["SNAPPY", "SNAPPY"]


def test_dictionaries_of_arrow_that_cannot_be_joined():
    chunks = [pa.array([f"{k} {i % 100}" for i in range(10_000)]).dictionary_encode() for k in (1, 2)]
    small = pa.chunked_array([chunk.cast(pa.dictionary(pa.int8(), pa.string())) for chunk in chunks])
    assert choose_encodings(pa.table({"x": small}), 20_000, "SNAPPY", "ZSTD") == {}


def test_a_codec_in_small_letters():
    assert codecs(AdaptiveParquetFormat("zstd"), MIXED) == codecs(AdaptiveParquetFormat(), MIXED)
    assert set(codecs(AdaptiveParquetFormat("none"), MIXED)) == {"UNCOMPRESSED", "SNAPPY"}


def test_a_tensor_has_the_path_of_its_values():
    tensor = pa.fixed_shape_tensor(pa.int32(), [2])
    values = pa.ExtensionArray.from_storage(tensor, pa.array([[1, 2]] * 20_000, pa.list_(pa.int32(), 2)))
    assert leaf_paths(pa.schema([("e", tensor)])) == ["e.list.item"]
    assert codecs(ParquetFormat(), pa.table({"x": COUNT[:20_000], "e": values})) == ["SNAPPY", "SNAPPY"]
