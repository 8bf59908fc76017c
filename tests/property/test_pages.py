"""Rows that are read by pages are those of a plain read: of random tables, by random predicates."""

from __future__ import annotations

import datetime as dt
import io
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kartothek_cube.core.expressions.predicates import Clause, filter_table, matching_rows
from kartothek_cube.core.io import parquet, parquet_rows
from kartothek_cube.core.io.parquet_rows import read_matching_files, read_parquet_inside
from kartothek_cube.core.runtime.options import uses_fast_paths
from kartothek_cube.core.stores.local import MemoryStore

pytestmark = pytest.mark.skipif(not uses_fast_paths(), reason="the fast paths are off")

HAS_PAGES = int(pa.__version__.split(".")[0]) >= 23
CODECS = ["NONE", "SNAPPY", "ZSTD", "GZIP", "LZ4", "BROTLI"]
DAY, MOMENT = dt.date(2024, 2, 29), dt.datetime(2024, 2, 29, 12)


def numbers(random, n):
    """A number for each row, by which all columns are made: ascending, random, or of few values."""
    kind = random.integers(3)
    if kind == 0:
        return np.sort(random.integers(0, max(2, n // 3), n))
    return random.integers(0, (10**6, 5)[kind - 1], n)


COLUMNS = {
    "int64": lambda x: pa.array(x - 3),
    "int8": lambda x: pa.array((x % 200 - 100).astype(np.int8)),
    "uint16": lambda x: pa.array((x % 65_536).astype(np.uint16)),
    "uint32": lambda x: pa.array((x + 2**32 - 10**6).astype(np.uint32)),
    "uint64": lambda x: pa.array(x.astype(np.uint64) + np.uint64(2**63)),
    "float64": lambda x: pa.array(np.where(x % 7 == 3, -0.0, x * 0.25)),
    "NaN": lambda x: pa.array(np.where(x % 5 == 1, np.nan, x - 2.0)),
    "float32": lambda x: pa.array((x % 1000).astype(np.float32)),
    "text": lambda x: pa.array([f"ä{v:07d}" for v in x.tolist()]),
    "long": lambda x: pa.array([f"{v:07d}" * (1 + v % 300) for v in x.tolist()]),
    "dictionary": lambda x: pa.array([f"{v % 9}" for v in x.tolist()]),  # written as a dictionary of Arrow
    "binary": lambda x: pa.array([bytes([v % 256]) * (v % 5) for v in x.tolist()], pa.binary()),
    "bool": lambda x: pa.array(x % 2 == 0),
    "date": lambda x: pa.array((x % 20_000).astype(np.int32), pa.date32()),
    "moment": lambda x: pa.array(x * 10**6, pa.timestamp("us")),
    "utc": lambda x: pa.array(x, pa.timestamp("ms", "UTC")),
    "time": lambda x: pa.array(x, pa.time64("us")),
    "decimal": lambda x: pa.array([Decimal(v - 5) / 100 for v in x.tolist()], pa.decimal128(9, 2)),
    "wide decimal": lambda x: pa.array([Decimal(v - 5) * 10**14 for v in x.tolist()], pa.decimal128(38, 2)),
    "list": lambda x: pa.array([[v] * (v % 3) for v in x.tolist()]),
    "struct": lambda x: pa.array([{"y": v} for v in x.tolist()]),
}
UNORDERED = {"list", "struct"}


def column(random, kind, n):
    array = COLUMNS[kind](numbers(random, n))
    share = random.choice([0, 0, 0.1, 0.9])
    if not share:
        return array
    nulls = random.random(n) < share
    # Whole pages of nulls have no bounds.
    nulls[: n // 4] |= random.random() < 0.3
    return pa.array(
        [None if null else v for v, null in zip(array.to_pylist(), nulls.tolist(), strict=True)], array.type
    )


@st.composite
def tables(draw):
    """A random number generator, and columns of several kinds."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    names = draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=2, max_size=5, unique=True))
    if not set(names) - UNORDERED:
        names.append("int64")
    return random, names


def written(random, table):
    """A file of the table in a random layout."""
    options = {
        "compression": str(random.choice(CODECS)),
        "data_page_version": str(random.choice(["1.0", "2.0"])),
        "use_dictionary": bool(random.integers(2)),
        "write_page_checksum": bool(random.integers(2)),
        "row_group_size": int(random.choice([50, 300, 5_000])),
        "dictionary_pagesize_limit": int(random.choice([64, 2**20])),
        "data_page_size": int(random.choice([200, 2**20])),
        "write_batch_size": int(random.choice([7, 1024])),
    }
    if HAS_PAGES:
        options["max_rows_per_page"] = int(random.choice([3, 20, 100]))
    names, sink = table.column_names, io.BytesIO()
    if "dictionary" in names:
        encoded = table.column("dictionary").dictionary_encode()
        table = table.set_column(names.index("dictionary"), "dictionary", encoded)
    pq.write_table(table, sink, write_page_index=True, version="2.6", **options)
    return sink.getvalue()


def predicates(random, table, names):
    """One or two conjunctions with constants that are in the table, or close to them."""

    def clause():
        name = str(random.choice(names))
        values = [v for v in table.column(name).unique().to_pylist() if repr(v) not in {"None", "nan"}] or [None]
        value = values[random.integers(len(values))]
        op = "==" if value is None else str(random.choice(["==", "!=", "<", "<=", ">", ">=", "in", "=="]))
        few = [values[i] for i in random.integers(0, len(values), 3).tolist()]
        return Clause(name, op, few if op == "in" else value)

    return tuple(tuple(clause() for _ in range(random.integers(1, 3))) for _ in range(random.integers(1, 3)))


@pytest.fixture(scope="module", autouse=True)
def every_size():
    """Small files are read by pages, too, in several batches, and both in one pass and in two."""
    patch = pytest.MonkeyPatch()
    patch.setattr(parquet, "_PAGED_ROWS", 1)
    patch.setattr(parquet_rows, "_ROWS_OF_PAGES", 150)
    patch.setattr(parquet_rows, "_FEW_PAGES", 1)
    yield
    patch.undo()


class Reads:
    """How many files were read by pages."""

    def __init__(self):
        self.files = 0


@pytest.fixture(scope="module", autouse=True)
def by_pages(every_size):
    """Most reads are by pages: the test would see nothing otherwise."""
    reads, read, patch = Reads(), parquet_rows._read_pages, pytest.MonkeyPatch()

    def counted(pages, *arguments):
        found = read(pages, *arguments)
        reads.files += 0 if found is None else len(pages.files)
        return found

    patch.setattr(parquet_rows, "_read_pages", counted)
    yield reads
    patch.undo()
    assert reads.files > 4


@given(tables())
def test_rows_are_those_of_a_plain_read(drawn):
    random, names = drawn
    store, expected, counts, keys = MemoryStore(), [], [], []
    schema = pa.schema([(name, COLUMNS[name](np.ones(1, dtype=np.int64)).type) for name in names])
    whole = [
        pa.table({name: column(random, name, n) for name in names}, schema=schema)
        for n in random.integers(1, 800, random.integers(1, 4)).tolist()
    ]
    ordered = [name for name in names if name not in UNORDERED]
    wanted = predicates(random, pa.concat_tables(whole), ordered)
    columns = [str(c) for c in random.permutation(names)[: random.integers(1, len(names) + 1)]]
    layout = np.random.default_rng(random.integers(2**32))
    state = layout.bit_generator.state
    for i, table in enumerate(whole):
        if random.random() < 0.7:  # files of one layout are read together
            layout.bit_generator.state = state
        keys.append(f"uuid/table/{i}.parquet")
        store.put(keys[-1], written(layout, table))
        found = filter_table(table, matching_rows(table, wanted))
        expected.append(found.select(columns))
        counts.append(found.num_rows)
    read = list(read_matching_files(store, keys, "uuid", columns, schema, wanted))
    assert [n for _, some in read for n in some] == counts
    same(pa.concat_tables([table for table, _ in read]), pa.concat_tables(expected))
    alone, rows = read_parquet_inside(store, keys[0], "uuid", columns, schema, wanted)
    assert rows == counts[0]
    same(alone, expected[0])


def same(found, expected):
    """Values of equal types, of which NaN equals itself."""
    assert found.schema.equals(expected.schema)
    assert repr(found.to_pydict()) == repr(expected.to_pydict())
