"""Types × roles × contents: a column comes back as documented, or is refused before any write.

To write the tables of the page anew: python -m tests.unit.dataset.test_column_types
"""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kartothek_cube import open_store
from kartothek_cube.api.dataset import (
    read_table,
    read_table_arrow,
    store_dataframes_as_dataset,
    update_dataset_from_dataframes,
)
from kartothek_cube.core.arrow.pandas import arrow_array
from kartothek_cube.core.arrow.types import stored_type
from kartothek_cube.core.runtime.options import options
from kartothek_cube.core.snapshots.loader import load_index, load_snapshot
from kartothek_cube.errors import InvalidInput, KartothekCubeError, Unsupported
from tests.support import types_table as truth

PAGE = Path(__file__).parents[3] / "docs" / "types.md"
UUID = "uuid"
ROLES = {"payload": {}, "key": {"partition_on": ["x"]}, "index": {"secondary_indices": ["x"]}}
# An Arrow-backed column of pandas is an Arrow column at once: its payload says enough.
CASES = {
    **{f"Arrow {kind.name} as {role}": (kind, role) for kind in truth.ARROW for role in ROLES},
    **{f"pandas {kind.name} as {role}": (kind, role) for kind in truth.PANDAS for role in ROLES},
    **{f"pandas {kind.name}": (kind, "payload") for kind in truth.BACKED},
}
STORED = {truth.spelled(kind.stored): kind for kind in reversed(truth.ARROW) if kind.stored is not None}


@pytest.fixture(autouse=True)
def _without_threads():
    """Thousands of tiny files: starting threads would be most of the time."""
    with options(threads=1):
        yield


@pytest.fixture
def store():
    return open_store("hmemory://")


def contents(kind, role):
    """What a column may hold."""
    every = {
        "values": list(kind.values),
        "values and nulls": [*kind.values, None],
        "all null": [None, None],
        "no rows": [],
    }
    # A later delivery of the same rows has values only.
    plain = ("values",) if role == "key" or not kind.nullable else ()
    wanted = kind.contents or (*plain, "values and nulls", "all null", "no rows")
    return [every[name] for name in wanted if kind.nullable or None not in every[name]]


def block(kind, values, start=0):
    """Rows with a column of the kind, numbered."""
    column, numbers = kind.make(values), list(range(start, start + len(values)))
    if isinstance(column, pd.Series):
        return pd.DataFrame({"n": pd.Series(numbers, dtype="int64"), "x": column})
    return pa.table({"n": pa.array(numbers, pa.int64()), "x": column})


def stored_column(store):
    table = read_table_arrow(UUID, store).sort_by("n")
    table.validate(full=True)
    return table.column("x")


def plain(values):
    return [v.tolist() if isinstance(v, np.ndarray) else list(v) if isinstance(v, tuple) else v for v in values]


def is_untyped(rows):
    """Whether Arrow cannot tell the type of the column, as of an object column without a value."""
    column = rows["x"]
    found = (arrow_array(column) if isinstance(column, pd.Series) else column).type
    return pa.types.is_null(found.value_type if pa.types.is_dictionary(found) else found)


def takes(kind, role, values, rows):
    """Whether the table says that these rows can be stored."""
    if kind.stored is None or role == "payload":
        return kind.stored is not None
    if role == "index":
        return kind.index and not is_untyped(rows)
    return (kind.key is not None or is_untyped(rows)) and None not in values


@pytest.mark.parametrize("case", CASES)
def test_a_column_comes_back_or_is_refused_by_name(case):
    kind, role = CASES[case]
    for values in contents(kind, role):
        store, rows = open_store("hmemory://"), block(kind, values)
        if takes(kind, role, values, rows):
            check_stored(kind, role, values, rows, store)
        else:
            check_refused(kind, role, rows, store)


def check_refused(kind, role, rows, store):
    with pytest.raises(KartothekCubeError, match=rf"(?i)column.*'x'.*{kind.advice}"):
        store_dataframes_as_dataset(store, UUID, [rows], **ROLES[role])
    assert store.list("", recursive=True).keys == []


def check_stored(kind, role, values, rows, store):
    stored = kind.key if role == "key" else kind.stored
    store_dataframes_as_dataset(store, UUID, [rows], **ROLES[role])
    found = stored_column(store)
    assert found.type == (pa.null() if is_untyped(rows) else stored)
    assert found.to_pylist() == plain(values)

    if stored is None:
        with pytest.raises(KartothekCubeError, match=r"(?i)partition column.*'x'"):
            update_dataset_from_dataframes([block(kind, kind.more)], store, UUID)
        return

    every = [*values, *kind.more]
    update_dataset_from_dataframes([block(kind, kind.more, len(values))], store, UUID)
    if role != "key":
        update_dataset_from_dataframes([pa.table({"n": pa.array([99], pa.int64()), "x": pa.nulls(1)})], store, UUID)
        every.append(None)
    found = stored_column(store)
    assert found.type == stored
    assert found.to_pylist() == plain(every)
    if role != "payload":
        check_found(store, every, role)


def check_found(store, values, role):
    """Each value finds its rows, by index or path."""
    distinct = [v for i, v in enumerate(values) if v is not None and v not in values[:i]]
    if role == "index":
        index, _ = load_index(store, load_snapshot(store, UUID), "x")
        assert sorted(index.values.unique().to_pylist()) == sorted(distinct)
    for value in distinct:
        numbers = [99 if i == len(values) - 1 and role == "index" else i for i, v in enumerate(values) if v == value]
        found = read_table_arrow(UUID, store, columns=["n"], predicates=[[("x", "==", value)]])
        assert sorted(found.column("n").to_pylist()) == numbers, value


# --- pandas ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("stored", truth.FRAMES, ids=truth.spelled)
def test_a_frame_has_the_dtype_of_the_stored_type_whatever_it_holds(stored, store):
    values, dtype, with_nulls, empty = truth.FRAMES[stored]
    assert stored_type(stored) == stored
    cases = [(values, dtype), ([*values, None], with_nulls), ([None, None], with_nulls), ([], empty)]
    for n, (cells, expected) in enumerate(cases):
        store_dataframes_as_dataset(store, f"u{n}", [pa.table({"x": pa.array(cells, stored)})])
        column = read_table(f"u{n}", store)["x"]
        assert str(column.dtype) == expected
        assert column.isna().tolist() == [v is None for v in cells]
        for found, value in zip(column, cells, strict=True):
            assert value is None or same_cell(found, value), (found, value)


def same_cell(found, value):
    if isinstance(found, np.ndarray):
        return [None if pd.isna(v) else v for v in found] == value
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return found == pd.Timestamp(value)
    return found == value


def test_dates_come_as_objects_on_request(store):
    store_dataframes_as_dataset(store, UUID, [pa.table({"x": pa.array([dt.date(2024, 2, 29), None])})])
    column = read_table(UUID, store, dates_as_object=True)["x"]
    assert column.dtype == object
    assert column.tolist() == [dt.date(2024, 2, 29), None]


# --- later updates --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STORED)
def test_a_column_of_nulls_takes_the_first_type_that_comes(name, store):
    kind = STORED[name]
    store_dataframes_as_dataset(store, UUID, [pa.table({"n": pa.array([0], pa.int64()), "x": pa.nulls(1)})])
    update_dataset_from_dataframes([block(kind, kind.values, 1)], store, UUID)
    column = stored_column(store)
    assert column.type == kind.stored
    assert column.to_pylist() == [None, *kind.values]


WIDER = [
    (pa.int8(), [1], pa.int32(), [70_000], pa.int32()),
    (pa.int32(), [70_000], pa.int8(), [1], pa.int32()),
    (pa.uint8(), [1], pa.uint64(), [2**64 - 1], pa.uint64()),
    (pa.float32(), [1.5], pa.float64(), [0.1], pa.float64()),
    (pa.decimal128(3, 2), [Decimal("1.10")], pa.decimal128(5, 1), [Decimal("1234.5")], pa.decimal128(6, 2)),
    (pa.list_(pa.null()), [[]], pa.list_(pa.string()), [["a"]], pa.list_(pa.string())),
    (pa.list_(pa.int8()), [[1]], pa.list_(pa.int64()), [[2**40]], pa.list_(pa.int64())),
    (
        pa.struct([("a", pa.null())]),
        [{"a": None}],
        pa.struct([("a", pa.int8())]),
        [{"a": 1}],
        pa.struct([("a", pa.int8())]),
    ),
    (pa.string(), ["a"], pa.dictionary(pa.int32(), pa.string()), ["b"], pa.string()),
]


@pytest.mark.parametrize(("first", "values", "second", "more", "result"), WIDER, ids=str)
def test_widths_widen_and_old_rows_come_in_the_new_type(first, values, second, more, result, store):
    store_dataframes_as_dataset(store, UUID, [pa.table({"n": [0], "x": pa.array(values, first)})])
    update_dataset_from_dataframes([pa.table({"n": [1], "x": pa.array(more, second)})], store, UUID)
    column = stored_column(store)
    assert column.type == result
    assert column.to_pylist() == [*values, *more]


OTHER = [
    (pa.int64(), pa.float64()),
    (pa.int64(), pa.uint64()),
    (pa.int64(), pa.string()),
    (pa.bool_(), pa.int64()),
    (pa.string(), pa.binary()),
    (pa.date32(), truth.US),
    (truth.US, truth.BERLIN),
    (pa.decimal128(38, 0), pa.decimal128(38, 2)),
    (pa.list_(pa.int64()), pa.int64()),
    (pa.struct([("a", pa.int8())]), pa.struct([("b", pa.int8())])),
]


@pytest.mark.parametrize(("first", "second"), [*OTHER, *(pair[::-1] for pair in OTHER)], ids=str)
def test_another_family_is_refused_and_the_dataset_stays(first, second, store):
    store_dataframes_as_dataset(store, UUID, [pa.table({"x": pa.nulls(1, first)})])
    before = store.list("", recursive=True).keys
    with pytest.raises(
        InvalidInput, match=rf"column 'x' is {re.escape(str(first))} but {re.escape(str(second))} was given"
    ):
        update_dataset_from_dataframes([pa.table({"x": pa.nulls(1, second)})], store, UUID)
    assert store.list("", recursive=True).keys == before


@pytest.mark.parametrize(
    ("stored", "gaps", "cast"),
    [("int64", "float64", "Int64"), ("uint8", "float32", "UInt8"), ("float64", "int64", None), ("int64", "str", None)],
)
def test_the_error_says_how_pandas_casts_whole_numbers_with_gaps(stored, gaps, cast, store):
    frame = pd.DataFrame({"v1": [1]})
    store_dataframes_as_dataset(store, UUID, [frame.astype(stored)])
    with pytest.raises(
        InvalidInput, match=rf"first, in pandas to {cast} if values are missing\.$" if cast else r"first\.$"
    ):
        update_dataset_from_dataframes([frame.astype(gaps)], store, UUID)
    if cast:
        update_dataset_from_dataframes([pd.DataFrame({"v1": [None, 2.0]}).astype(cast)], store, UUID)
        assert len(read_table(UUID, store)) == 3


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (pa.array([1], pa.timestamp("ns")), r"timestamp\[us\].*lose data"),
        (pa.array([[1]], pa.list_(pa.timestamp("ns", "UTC"))), r"lose data"),
        (pa.array([1], pa.time64("ns")), r"time64\[us\].*lose data"),
        (pa.array([300 * 365 * 86_400], pa.duration("s")), r"duration\[ns\].*out of bounds"),
        (pa.array([2**62], pa.timestamp("s")), r"timestamp\[us\].*out of bounds"),
        (pa.array([10**14 + 1], pa.date64()), r"date32.*lose data|date32.*bounds"),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_a_value_that_the_stored_type_cannot_hold_is_refused(column, words, store):
    with pytest.raises(InvalidInput, match=rf"Column 'x' of dataset 'uuid' cannot be stored as .*{words}"):
        store_dataframes_as_dataset(store, UUID, [pa.table({"x": column})])
    assert store.list("", recursive=True).keys == []


def test_nan_is_a_value_in_arrow_and_null_in_pandas_and_in_no_index(store):
    store_dataframes_as_dataset(
        store, UUID, [pa.table({"n": [0, 1, 2], "x": [1.5, float("nan"), None]})], secondary_indices=["x"]
    )
    found = stored_column(store).to_pylist()
    assert np.isnan(found[1])
    assert found[2] is None
    update_dataset_from_dataframes([pd.DataFrame({"n": [3], "x": [float("nan")]})], store, UUID)
    assert stored_column(store).to_pylist()[3] is None
    assert load_index(store, load_snapshot(store, UUID), "x")[0].values.to_pylist() == [1.5]


# --- partition values -----------------------------------------------------------------------------

MOMENT = dt.datetime(2020, 1, 1, 12, 30)
PARTITION_VALUES = {
    "text": (
        pa.string(),
        [
            "",
            "/",
            "a/b",
            "%",
            "%2F",
            "ä",
            "日本",
            "😀",
            " ",
            "=",
            "a=b",
            ".",
            "..",
            "_x",
            "\n",
            "\0",
            "a\\b",
            "'\"*?:",
            "None",
            "nan",
            "x" * 230,
        ],
    ),
    "bytes": (pa.binary(), [b"", b"a", b"a/b", b"%", "ä".encode()]),
    "bool": (pa.bool_(), [True, False]),
    "dates": (pa.date32(), [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(2024, 2, 29), dt.date(9999, 12, 31)]),
    "timestamps": (
        truth.US,
        [
            MOMENT,
            MOMENT.replace(microsecond=500_000),
            MOMENT.replace(microsecond=5),
            dt.datetime(1, 1, 1),
            dt.datetime(1969, 12, 31, 23, 59, 59, 999_999),
            dt.datetime.max,
        ],
    ),
    "int64": (pa.int64(), [0, -1, 2**63 - 1, -(2**63)]),
    "uint64": (pa.uint64(), [0, 2**63, 2**64 - 1]),
    "float64": (pa.float64(), [0.1, 1.0, -0.0, float("inf"), -float("inf"), 1e300, 5e-324, 1e22, 1 / 3]),
    "float32": (pa.float32(), [float(np.float32(0.1)), 1.5]),
}


@pytest.mark.parametrize("name", PARTITION_VALUES)
def test_partition_values_come_back_exactly(name, store):
    kind, values = PARTITION_VALUES[name]
    rows = pa.table({"n": range(len(values)), "x": pa.array(values, kind)})
    store_dataframes_as_dataset(store, UUID, [rows], partition_on=["x"])
    assert len(load_snapshot(store, UUID).partitions) == len(values)
    assert stored_column(store).to_pylist() == values
    for n, value in enumerate(values):
        assert read_table_arrow(UUID, store, columns=["n"], predicates=[[("x", "==", value)]]).to_pydict() == {"n": [n]}


def test_two_zeros_are_one_partition(store):
    store_dataframes_as_dataset(store, UUID, [pa.table({"n": [0, 1], "x": [0.0, -0.0]})], partition_on=["x"])
    assert stored_column(store).to_pylist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("column", "error", "words"),
    [
        (pa.array([1.0, float("nan")]), InvalidInput, r"nulls in the partition columns \['x'\]"),
        (pa.array(["a", None]), InvalidInput, r"nulls in the partition columns \['x'\]"),
        (pa.array(["x" * 300]), InvalidInput, "partition values {'x': 'xxx.*at most 255"),
        (pa.array(["ä" * 100]), InvalidInput, "partition values {'x': 'äää.*at most 255"),
        (pa.array([b"a", b"\xff"]), Unsupported, "Partition column 'x' of dataset 'uuid'.*not UTF-8"),
        (pa.array([10**7], pa.date32()), InvalidInput, "Partition column 'x' of dataset 'uuid'.*years 1 to 9999"),
        (
            pa.array([b"\xff"]).view(pa.string()),
            InvalidInput,
            "Partition column 'x' of dataset 'uuid' has text that is not UTF-8",
        ),
        (pa.array([2**60], truth.US), InvalidInput, "Partition column 'x' of dataset 'uuid'.*years 1 to 9999"),
        (pa.array([-(2**60)], truth.US), InvalidInput, "Partition column 'x' of dataset 'uuid'.*years 1 to 9999"),
    ],
    ids=range(9),
)
def test_a_value_that_no_path_can_name_is_refused(column, error, words, store):
    with pytest.raises(error, match=words):
        store_dataframes_as_dataset(store, UUID, [pa.table({"n": range(len(column)), "x": column})], partition_on=["x"])
    assert store.list("", recursive=True).keys == []


# --- any rows -------------------------------------------------------------------------------------

SCALARS = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-128, 127),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float64(): st.floats(allow_nan=False),
    pa.large_string(): st.text(st.characters(codec="utf-8"), max_size=6),
    pa.binary(): st.text(st.characters(codec="utf-8"), max_size=6).map(str.encode),
    pa.date32(): st.dates(),
    truth.US: st.datetimes(),
}
PAYLOADS = {
    **SCALARS,
    truth.BERLIN: st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1), timezones=st.just(dt.UTC)),
    pa.time64("us"): st.times(),
    pa.duration("us"): st.timedeltas(dt.timedelta(days=-100_000), dt.timedelta(days=100_000)),
    pa.decimal128(9, 3): st.decimals(-(10**5), 10**5, places=3),
    pa.list_(pa.large_string()): st.lists(st.none() | st.text(st.characters(codec="utf-8"), max_size=3), max_size=3),
    pa.struct([("a", pa.int64()), ("b", pa.bool_())]): st.fixed_dictionaries(
        {"a": st.none() | st.integers(-9, 9), "b": st.booleans()}
    ),
}


@st.composite
def datasets(draw):
    """Blocks of rows of one dataset, with a partition column, an indexed one and a payload."""
    kinds = [draw(st.sampled_from(list(choices))) for choices in (SCALARS, SCALARS, PAYLOADS)]

    def rows(start):
        size = draw(st.integers(0, 4))
        cells = [
            draw(st.lists(PAYLOADS[k] if k is kinds[0] else st.none() | PAYLOADS[k], min_size=size, max_size=size))
            for k in (kinds[0],)
        ]
        cells += [draw(st.lists(st.none() | PAYLOADS[k], min_size=size, max_size=size)) for k in kinds[1:]]
        columns = [pa.array(values, kind) for values, kind in zip(cells, kinds, strict=True)]
        return pa.table([pa.array(range(start, start + size), pa.int64()), *columns], names=["n", "p", "i1", "v1"])

    return [rows(100 * block) for block in range(draw(st.integers(1, 3)))]


@given(datasets())
def test_any_rows_come_back(blocks):
    store = open_store("hmemory://")
    store_dataframes_as_dataset(store, UUID, blocks[:1], partition_on=["p"], secondary_indices=["i1"])
    for rows in blocks[1:]:
        update_dataset_from_dataframes([rows], store, UUID)
    given_rows = [row for rows in blocks for row in rows.to_pylist()]
    found = read_table_arrow(UUID, store).sort_by("n").select(["n", "p", "i1", "v1"])
    assert found.to_pylist() == given_rows
    for value in {row["i1"] for row in given_rows} - {None}:
        numbers = (
            read_table_arrow(UUID, store, columns=["n"], predicates=[[("i1", "==", value)]]).column("n").to_pylist()
        )
        assert sorted(numbers) == [row["n"] for row in given_rows if row["i1"] == value]


# --- the page -------------------------------------------------------------------------------------

PART = "<!-- generated: {} -->\n"
END = "<!-- end -->"


def with_tables(page):
    """The page with its generated parts as they should be."""
    for name, text in truth.tables():
        before, start, rest = page.partition(PART.format(name))
        assert start, f"the page has no part {name!r}"
        page = before + start + "\n" + text + "\n" + END + rest.partition(END)[2]
    return page


def test_the_tables_of_the_page_are_what_is_tested():
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_tables(page), "write them anew: python -m tests.unit.dataset.test_column_types"


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
