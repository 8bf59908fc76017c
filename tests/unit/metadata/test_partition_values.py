from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kartothek_cube.core.metadata.document import partition_table, partition_text, partition_type
from kartothek_cube.core.metadata.naming import data_key, label_of
from kartothek_cube.core.write.prepare import split_rows
from kartothek_cube.errors import CorruptDocument, InvalidInput, Unsupported

pytestmark = pytest.mark.usefixtures("fast_paths")

US = pa.timestamp("us")

SAMPLES = [
    (pa.bool_(), [False, True], ["False", "True"]),
    (pa.int8(), [-2, 0, 127], ["-2", "0", "127"]),
    (pa.int64(), [-(2**63), 2**63 - 1], ["-9223372036854775808", "9223372036854775807"]),
    (pa.uint64(), [9223372036854775809, 2**64 - 1], ["9223372036854775809", "18446744073709551615"]),
    (
        pa.float64(),
        [1.1, 2.0, float("inf"), -float("inf"), 1e300, 5e-324, -1.5],
        ["1.1", "2.0", "inf", "-inf", "1e%2B300", "5e-324", "-1.5"],
    ),
    (
        pa.string(),
        ["", "a/b", "%", "%2F", "x y=z", "München", "😀", "a/b/c=d"],
        ["", "a%2Fb", "%25", "%252F", "x%20y%3Dz", "M%C3%BCnchen", "%F0%9F%98%80", None],
    ),
    (pa.binary(), [b"", b"a/b", "ä".encode()], ["", "a%2Fb", "%C3%A4"]),
    (
        pa.date32(),
        [dt.date(2020, 1, 1), dt.date(9999, 12, 31), dt.date(1, 1, 1)],
        ["2020-01-01", "9999-12-31", "0001-01-01"],
    ),
    (
        US,
        [dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 1, 1, 2, 3, 4), dt.datetime(2020, 1, 1, 1, 2, 3, 500_000)],
        ["2020-01-01%2000%3A00%3A00", "2020-01-01%2001%3A02%3A03.000004", "2020-01-01%2001%3A02%3A03.500000"],
    ),
]


def decode(keys, *fields):
    schema = pa.schema(list(fields))
    return partition_table(pa.array(keys, type=pa.string()), schema.names, schema, "'uuid'")


def there_and_back(values, kind):
    keys = [data_key("uuid", "table", label_of([("p", partition_text(v, kind))], "f")) for v in values]
    return keys, decode(keys, ("p", kind)).column("p")


@pytest.mark.parametrize(("kind", "values", "texts"), SAMPLES, ids=[str(s[0]) for s in SAMPLES])
def test_values_of_every_type_come_back(kind, values, texts):
    keys, column = there_and_back(values, kind)
    assert column.type == partition_type(kind)
    assert column.to_pylist() == values
    for key, text in zip(keys, texts, strict=True):
        assert text is None or key == f"uuid/table/p={text}/f.parquet"


def test_float32_is_widened_first():
    value = pa.array([1.1], pa.float32())[0].as_py()
    keys, column = there_and_back([value], pa.float32())
    assert keys == ["uuid/table/p=1.100000023841858/f.parquet"]
    assert column.type == pa.float64()


@pytest.mark.parametrize(
    ("kind", "strategy"),
    [
        (pa.string(), st.text()),
        (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
        (pa.uint64(), st.integers(0, 2**64 - 1)),
        (pa.float64(), st.floats(allow_nan=False)),
        (US, st.datetimes()),
        (pa.date32(), st.dates()),
        (pa.bool_(), st.booleans()),
    ],
    ids=str,
)
def test_random_values_come_back(kind, strategy):
    @given(st.lists(strategy, min_size=1, max_size=4))
    def check(values):
        assert there_and_back(values, kind)[1].to_pylist() == values

    check()


def test_several_columns_of_several_types():
    keys = ["u/t/q=b/p=1/x.parquet", "u/t/q=%C3%A4%2F/p=-2/y.parquet"]
    assert decode(keys, ("q", pa.string()), ("p", pa.int8())).to_pydict() == {"q": ["b", "ä/"], "p": [1, -2]}
    assert decode(keys, ("q", pa.string()), ("p", pa.int8())).schema == pa.schema(
        [("q", pa.string()), ("p", pa.int64())]
    )


def test_column_names_are_quoted_too():
    assert decode(["q+1/table/col%20a%3D%C3%A4=%25/f"], ("col a=ä", pa.string())).to_pydict() == {"col a=ä": ["%"]}


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()])
def test_values_with_a_raw_slash_of_old_writers_are_read_whole(kind):
    keys = ["u/t/p=a/b/x.parquet", "u/t/p=c/x.parquet", "u/t/p=/d//e/x.parquet", "u/t/p=f/g=h/x.parquet"]
    values = [v.encode() if kind == pa.binary() else v for v in ("a/b", "c", "/d//e", "f/g=h")]
    assert decode(keys, ("p", kind)).column("p").to_pylist() == values


def test_raw_slashes_before_another_column():
    keys = [
        "u/t/p=x%20y/z/q=2020-01-01%2000%3A00%3A00/f.parquet",
        "u/t/p=a/q=2020-01-02%2001%3A00%3A00.000001/f.parquet",
    ]
    table = decode(keys, ("p", pa.string()), ("q", US))
    assert table.column("p").to_pylist() == ["x y/z", "a"]
    assert table.column("q").to_pylist() == [dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 2, 1, 0, 0, 1)]


def test_folders_that_say_nothing_are_passed_over():
    keys = ["u/t/y=1/p=2/f", "u/t/other/p=3/deep/q=x/f", "u/t/p=4/q=x/f"]
    assert decode(keys[1:], ("p", pa.int64()), ("q", pa.string())).to_pylist() == [
        {"p": 3, "q": "x"},
        {"p": 4, "q": "x"},
    ]
    assert decode(keys[:1], ("p", pa.int64())).to_pylist() == [{"p": 2}]


@pytest.mark.parametrize("text", ["true", "TRUE", "True"])
def test_booleans_in_any_case(text):
    assert decode([f"u/t/p={text}/f"], ("p", pa.bool_())).column("p").to_pylist() == [True]


def test_moment_with_an_offset_is_read_in_utc():
    table = decode(["u/t/p=2020-01-01%2000%3A00%3A00%2B01%3A00/f"], ("p", pa.timestamp("us", tz="Europe/Berlin")))
    assert table.column("p").cast(US).to_pylist() == [dt.datetime(2019, 12, 31, 23)]


def test_decimals_can_be_read():
    assert decode(["u/t/p=1.10/f"], ("p", pa.decimal128(4, 2))).column("p").to_pylist() == [Decimal("1.10")]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("x", pa.int64()),
        ("1.5", pa.int64()),
        ("-1", pa.uint64()),
        ("x", pa.float64()),
        ("yes", pa.bool_()),
        ("2020-13-01", pa.date32()),
        ("x", US),
        ("%FF", pa.string()),
        ("%FF", pa.binary()),
        ("0%20days", pa.duration("us")),
    ],
)
def test_value_that_does_not_fit_names_dataset_and_column(text, kind):
    with pytest.raises(CorruptDocument, match=r"'p'.*'uuid'|'uuid'.*'p'"):
        decode([f"u/t/p={text}/f"], ("p", kind))


def test_key_without_the_partition_column_is_named():
    with pytest.raises(CorruptDocument, match=r"'u/t/f' of dataset 'uuid'.*\['p'\]"):
        decode(["u/t/f"], ("p", pa.int64()))


def test_no_partition_columns_give_rows_without_columns():
    table = decode(["u/t/f", "u/t/g"])
    assert (table.num_rows, table.num_columns) == (2, 0)


@pytest.mark.parametrize(
    "kind", [pa.bool_(), pa.int64(), pa.float64(), pa.timestamp("us"), pa.date32(), pa.string(), pa.null()]
)
def test_no_partitions_have_no_values(kind):
    found = partition_table(pa.array([], type=pa.string()), ["p"], pa.schema([("p", kind)]), "w")
    assert (found.num_rows, found.column("p").to_pylist()) == (0, [])


def test_partition_without_a_file_has_no_values():
    assert decode(["u/t/p=1/f", None], ("p", pa.int64())).column("p").to_pylist() == [1, None]
    assert decode(["u/t/p=a/f", None], ("p", pa.string())).column("p").to_pylist() == ["a", None]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.timestamp("us", tz="UTC"), dt.datetime(2020, 1, 1, tzinfo=dt.UTC)),
        (pa.decimal128(4, 2), Decimal("1.10")),
        (pa.time64("us"), dt.time(1)),
        (pa.duration("us"), dt.timedelta(1)),
        (pa.list_(pa.int64()), [1]),
        (pa.binary(), b"\xff"),
    ],
    ids=str,
)
def test_types_that_cannot_be_partition_columns(kind, value):
    with pytest.raises(Unsupported):
        partition_text(value, kind)


# --- splitting rows -------------------------------------------------------------------------------


def test_rows_are_split_by_value_and_keep_their_order():
    table = pa.table({"v1": [1, 2, 3, 4], "p": ["b", "a", "b", "a"]})
    parts = split_rows(table, ["p"], "base", "uuid")
    assert [(p.label, dict(p.values), p.table.to_pydict()) for p in parts] == [
        ("p=a/base", {"p": "a"}, {"v1": [2, 4]}),
        ("p=b/base", {"p": "b"}, {"v1": [1, 3]}),
    ]


def test_one_part_without_partition_columns_and_none_without_rows():
    table = pa.table({"v1": [1]})
    assert [(p.label, p.table) for p in split_rows(table, [], "base", "uuid")] == [("base", table)]
    assert (
        split_rows(pa.table({"v1": pa.array([], pa.int64()), "p": pa.array([], pa.int64())}), ["p"], "base", "uuid")
        == []
    )


def test_payload_is_needed():
    with pytest.raises(InvalidInput, match="No data left to save"):
        split_rows(pa.table({"p": [1]}), ["p"], "base", "uuid")


@pytest.mark.parametrize("values", [[1, None], [1.0, float("nan")], ["a", None]])
def test_null_cannot_be_a_partition_value(values):
    with pytest.raises(InvalidInput, match=r"null.*'p'|'p'.*null"):
        split_rows(pa.table({"p": values, "v1": [1, 2]}), ["p"], "base", "uuid")
