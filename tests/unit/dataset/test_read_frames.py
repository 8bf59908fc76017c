from __future__ import annotations

import datetime as dt
import gc
import json
import tempfile

import pandas as pd
import pyarrow as pa
import pytest

from kartothek_cube.api.dataset import store_dataframes_as_dataset
from kartothek_cube.core.dataset.read import (
    read_dataset_as_dataframes,
    read_dataset_as_dataframes__iterator,
    read_table,
)
from kartothek_cube.core.io.formats import ParquetFormat
from kartothek_cube.core.kartothek.dataset_metadata import DatasetFactory
from kartothek_cube.core.metadata.naming import schema_key
from kartothek_cube.core.metadata.snapshot import common_metadata_bytes
from kartothek_cube.core.runtime.options import options
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import DatasetNotFound, InvalidInput, InvalidRequest, InvalidType, KeyNotFound, UnknownColumn
from kartothek_cube.testing.stores import CountingStore
from tests.caches import forget
from tests.support.commits import UUID, write

ROWS = {
    "x": [1, 2, 3, 4],
    "p": [2, 2, 1, 1],
    "i1": ["b", "a", "a", None],
    "d": pa.array([dt.date(2020, 1, day) for day in (1, 2, 3, 4)]),
    "c": ["u", "v", "w", "u"],
}
COLUMNS = ["p", "c", "d", "i1", "x"]


def listed(*args, **kwargs):
    return list(read_dataset_as_dataframes__iterator(*args, **kwargs))


@pytest.fixture(params=[read_dataset_as_dataframes, listed], ids=["list", "iterator"])
def reader(request):
    return request.param


@pytest.fixture
def store():
    memory = MemoryStore()
    write(memory, ROWS, on=["p"], index=["i1", "d"], label="one")
    return memory


def data_files(counting):
    return [call.key for call in counting.calls if "/table/p=" in call.key]


def xs(entries, table="table"):
    return [frames[table]["x"].tolist() for frames in entries]


# --- partition by partition -----------------------------------------------------------------------


# F02, F32, F33
def test_one_entry_for_each_partition_with_columns_in_the_order_of_the_schema(reader, store):
    entries = reader(UUID, store)
    assert [list(frames) for frames in entries] == [["table"], ["table"]]
    assert [list(frames["table"].columns) for frames in entries] == [COLUMNS, COLUMNS]
    assert xs(entries) == [[3, 4], [1, 2]]
    assert [list(frames["table"].index) for frames in entries] == [[0, 1], [0, 1]]


def test_all_entries_together_are_the_table(reader, store):
    whole = read_table(UUID, store, dates_as_object=True)
    entries = reader(UUID, store, dates_as_object=True)
    pd.testing.assert_frame_equal(pd.concat([frames["table"] for frames in entries], ignore_index=True), whole)


# F03, F04
@pytest.mark.parametrize("columns", [["x", "p"], ["c"], ["p"], []])
@pytest.mark.parametrize(("by", "rows"), [(None, [2, 2]), (["i1"], [2, 1]), ([], [4])], ids=["alone", "i1", "together"])
def test_columns_in_the_order_asked_for(reader, store, columns, by, rows):
    entries = reader(UUID, store, columns={"table": columns}, dispatch_by=by)
    assert [list(frames["table"].columns) for frames in entries] == [columns] * len(entries)
    assert [len(frames["table"]) for frames in entries] == rows


# F14: the types are those of the dataset, not of the file
def test_types_are_those_of_the_dataset(reader):
    store = MemoryStore()
    write(store, {"x": pa.array([1], pa.int8()), "y": pa.nulls(1), "f": pa.array([1], pa.float32())}, label="a")
    write(store, {"x": pa.array([300], pa.int16()), "y": ["t"], "f": pa.array([1], pa.float32())}, label="b")
    first, second = (frames["table"] for frames in reader(UUID, store))
    assert first.dtypes.to_dict() == second.dtypes.to_dict()
    assert [str(first[c].dtype) for c in "fx"] == ["float32", "int16"]
    assert first["y"].isna().all()  # F16


# F20, F21
def test_what_a_file_has_beyond_the_schema_is_left_out(reader, store):
    rows = {"x": [1, 2], "p": [7, 7], "more": [1, 1], "c": ["u", "v"], "i1": ["b", "a"]}
    store.put(f"{UUID}/table/p=2/one.parquet", memoryview(ParquetFormat().encode(pa.table(rows))))
    frame = reader(UUID, store)[1]["table"]
    assert list(frame.columns) == COLUMNS
    assert frame["p"].tolist() == [2, 2]
    assert frame["d"].isna().all()


# F17, F18
@pytest.mark.parametrize("by", [None, [], ["p"], ["i1"], ["d"]])
def test_dates_are_objects_where_that_is_asked_for(reader, store, by):
    for frames in reader(UUID, store, dispatch_by=by, dates_as_object=True):
        assert {type(value) for value in frames["table"]["d"]} == {dt.date}
    for frames in reader(UUID, store, dispatch_by=by):
        assert frames["table"]["d"].dtype.kind == "M"


# F22
def test_categoricals(reader, store):
    [frames] = reader(UUID, store, categoricals={"table": ["c", "p"]}, dispatch_by=[])
    assert list(frames["table"]["c"].cat.categories) == ["w", "u", "v"]
    assert frames["table"]["p"].tolist() == [1, 1, 2, 2]
    for frames in reader(UUID, store, categoricals={"table": ["c"]}):
        assert isinstance(frames["table"]["c"].dtype, pd.CategoricalDtype)
    for frames in reader(UUID, store, categoricals={"table": ["c"]}, dispatch_by="i1"):
        assert isinstance(frames["table"]["c"].dtype, pd.CategoricalDtype)


def test_a_partition_without_matching_rows_is_an_empty_frame(reader, store):
    entries = reader(UUID, store, predicates=[[("x", ">", 3)]])
    assert xs(entries) == [[4], []]
    assert entries[1]["table"].dtypes.to_dict() == reader(UUID, store)[1]["table"].dtypes.to_dict()


def test_a_partition_that_an_index_excludes_is_no_entry(reader, store):
    assert xs(reader(UUID, store, predicates=[[("p", "==", 2)]])) == [[1, 2]]
    assert xs(reader(UUID, store, predicates=[[("i1", "==", "b")]])) == [[1]]
    assert reader(UUID, store, predicates=[[("p", "==", 3)]]) == []


# Nulls of a column lose nothing where the column is in the predicates only.
def test_nulls_in_columns_of_predicates_lose_nothing(reader, store):
    write(
        store, {**ROWS, "x": [11, 12, 13, 14], "i1": pa.nulls(4, pa.string())}, on=["p"], index=["i1", "d"], label="two"
    )
    found = sorted(
        x for part in xs(reader(UUID, store, predicates=[[("i1", "==", "a")], [("x", ">", 13)]])) for x in part
    )
    assert found == [2, 3, 14]
    assert sorted(x for part in xs(reader(UUID, store, predicates=[[("i1", "!=", "a")]])) for x in part) == [
        1,
        4,
        11,
        12,
        13,
        14,
    ]
    assert sorted(
        x for part in xs(reader(UUID, store, predicates=[[("i1", "==", None)]], dispatch_by="p")) for x in part
    ) == [4, 11, 12, 13, 14]


# F26
@pytest.mark.parametrize("by", [None, "p", "i1"])
def test_the_label_filter_is_asked_once_for_each_label_that_is_left(reader, store, by):
    asked = []
    entries = reader(
        UUID,
        store,
        label_filter=lambda label: bool(asked.append(label)) or "p=1" in label,
        dispatch_by=by,
        predicates=[[("p", "<", 9)]],
    )
    assert xs(entries) == ([[3]] if by == "i1" else [[3, 4]])
    assert asked == ["p=1/one", "p=2/one"]


def test_the_pushdown_argument_changes_nothing(reader, store):
    for pushdown in (True, False):
        entries = reader(
            UUID, store, columns={"table": ["x"]}, predicates=[[("c", "==", "u")]], predicate_pushdown_to_io=pushdown
        )
        assert xs(entries) == [[4], [1]]


# --- groups ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("by", "predicates", "expected"),
    [
        ("p", None, [[3, 4], [1, 2]]),  # G01, G02
        (["i1"], None, [[3, 2], [1]]),  # G06, G07
        (("p", "i1"), None, [[3], [2], [1]]),  # G08
        (["i1", "p"], None, [[3], [2], [1]]),  # G09
        (["d"], None, [[1], [2], [3], [4]]),
        ([], None, [[3, 4, 1, 2]]),  # G03
        (["i1"], [[("x", ">", 2)]], [[3], []]),  # G10
        (["i1"], [[("i1", "in", ["b", "z"])]], [[1]]),  # G10
        (["p"], [[("p", "==", 9)]], []),  # G11
        (["i1"], [[("i1", "==", "z")]], []),  # G11
    ],
    ids=range(10),
)
def test_groups(reader, store, by, predicates, expected):
    assert xs(reader(UUID, store, dispatch_by=by, predicates=predicates)) == expected


# G04: grouped by nothing, everything is one group, also when it is nothing
def test_one_group_of_everything_is_there_without_rows(reader, store):
    [frames] = reader(UUID, store, dispatch_by=[], predicates=[[("p", "==", 9)]], categoricals={"table": ["c"]})
    assert list(frames["table"].columns) == COLUMNS
    assert len(frames["table"]) == 0
    assert str(frames["table"]["x"].dtype) == "int64"


# F27
@pytest.mark.parametrize("on", [["p"], ["p", "c"], []])
def test_partitions_are_put_together_by_their_keys(reader, on):
    store = MemoryStore()
    for label in "ab":
        write(store, ROWS, on=on, label=label)
    together, dispatched = (
        reader(UUID, store, concat_partitions_on_primary_index=True),
        reader(UUID, store, dispatch_by=on),
    )
    assert len(together) == {0: 1, 1: 2, 2: 4}[len(on)]
    for left, right in zip(together, dispatched, strict=True):
        pd.testing.assert_frame_equal(left["table"], right["table"])


def test_the_list_reads_a_file_once_however_many_groups_need_it(store):
    counting = CountingStore(store)
    assert xs(read_dataset_as_dataframes(UUID, counting, dispatch_by=["d"])) == [[1], [2], [3], [4]]
    once = sorted(data_files(counting))
    counting.calls.clear()
    assert len(read_dataset_as_dataframes(UUID, counting)) == 2
    assert sorted(data_files(counting)) == once


def test_list_and_iterator_agree(store):
    write(store, {**ROWS, "x": [11, 12, 13, 14], "i1": ["c", None, "a", "a"]}, on=["p"], index=["i1", "d"], label="two")
    for by in (["i1"], ["i1", "p"], ["d", "i1"], ["p"]):
        for predicates in (None, [[("x", ">", 3)]], [[("i1", "!=", "a")], [("x", "==", 2)]]):
            left = read_dataset_as_dataframes(
                UUID, store, dispatch_by=by, predicates=predicates, categoricals={"table": ["c"]}
            )
            right = listed(UUID, store, dispatch_by=by, predicates=predicates, categoricals={"table": ["c"]})
            assert len(left) == len(right) > 0
            for one, other in zip(left, right, strict=True):
                pd.testing.assert_frame_equal(one["table"], other["table"])


# --- the iterator over groups that share files ----------------------------------------------------


@pytest.fixture
def shared(folder):
    """Every value of i1 is in every partition, so that loading groups alone would read each file
    five times.
    """
    n, memory = 200, MemoryStore()
    rows = {
        "x": list(range(n)),
        "p": [x % 4 for x in range(n)],
        "i1": [f"k{x // 4 % 5}" for x in range(n)],
        "c": ["uvw"[x % 3] for x in range(n)],
    }
    write(memory, rows, on=["p"], index=["i1"], label="one")
    return CountingStore(memory)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def opened(counting):
    """Files are opened with their footer, and rows are read afterwards."""
    return sorted(call.key for call in counting.calls if call.operation == "tail" and "/table/p=" in call.key)


@pytest.mark.parametrize("limit", [1, 2000, 2**28])
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"categoricals": {"table": ["c"]}},
        {"columns": {"table": ["x"]}},
        {"columns": {"table": []}},
        {"predicates": [[("x", ">", 90), ("i1", "!=", "k1")]]},
    ],
    ids=str,
)
def test_files_that_groups_share_are_opened_once_however_little_memory_there_is(shared, arguments, limit):
    expected = read_dataset_as_dataframes(UUID, shared, dispatch_by="i1", **arguments)
    shared.calls.clear()
    found = listed(UUID, shared, dispatch_by="i1", options=options(bytes_in_flight=limit), **arguments)
    assert opened(shared) == [f"{UUID}/table/p={p}/one.parquet" for p in range(4)]
    assert len(found) == len(expected) == (4 if "predicates" in arguments else 5)
    for one, other in zip(found, expected, strict=True):
        pd.testing.assert_frame_equal(one["table"], other["table"])


def test_rows_that_wait_on_disk_leave_nothing_behind(shared, folder):
    little = options(bytes_in_flight=1)
    entries = read_dataset_as_dataframes__iterator(UUID, shared, dispatch_by="i1", options=little)
    assert list(folder.iterdir()) == opened(shared) == []
    next(entries)
    assert list(folder.rglob("*.arrow"))
    entries.close()
    assert list(folder.iterdir()) == []
    entries = read_dataset_as_dataframes__iterator(UUID, shared, dispatch_by="i1", options=little)
    next(entries)
    del entries
    gc.collect()
    assert list(folder.iterdir()) == []
    assert len(listed(UUID, shared, dispatch_by="i1", options=little)) == 5
    assert list(folder.iterdir()) == []


def test_with_enough_memory_nothing_goes_to_disk(shared, folder):
    entries = read_dataset_as_dataframes__iterator(UUID, shared, dispatch_by="i1")
    next(entries)
    assert list(folder.iterdir()) == []
    entries.close()
    assert len(read_dataset_as_dataframes(UUID, shared, dispatch_by="i1", options=options(bytes_in_flight=1))) == 5
    assert list(folder.iterdir()) == []


def test_an_error_while_files_are_read_leaves_nothing_behind(shared, folder):
    shared.delete(f"{UUID}/table/p=3/one.parquet")
    entries = read_dataset_as_dataframes__iterator(
        UUID, shared, dispatch_by="i1", options=options(bytes_in_flight=1, threads=1)
    )
    with pytest.raises(KeyNotFound, match="p=3/one"):
        next(entries)
    gc.collect()
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("limit", [1, 2**28])
def test_groups_of_several_tables_that_share_files(reader, folder, limit):
    store = CountingStore(MemoryStore())
    rows = pd.DataFrame({"x": range(20), "i1": [x % 5 for x in range(20)]})
    store_dataframes_as_dataset(
        store,
        UUID,
        [{"table": rows, "names": pd.DataFrame({"i1": [1, 9, 4, 1], "n": list("klmo")})}],
        secondary_indices=["i1"],
    )
    store.calls.clear()
    entries = reader(UUID, store, dispatch_by="i1", columns={"names": ["n"]}, options=options(bytes_in_flight=limit))
    assert xs(entries) == [[0, 5, 10, 15], [1, 6, 11, 16], [2, 7, 12, 17], [3, 8, 13, 18], [4, 9, 14, 19], []]
    assert [frames["names"]["n"].tolist() for frames in entries] == [[], ["k", "o"], [], [], ["m"], ["l"]]
    assert (
        len(
            [
                call
                for call in store.calls
                if call.operation == "tail" and call.key.endswith(".parquet") and "/indices/" not in call.key
            ]
        )
        == 2
    )


def test_groups_that_share_few_files_come_before_all_files_are_read(store):
    counting = CountingStore(store)
    entries = read_dataset_as_dataframes__iterator(UUID, counting, dispatch_by="p", options=options(threads=1))
    assert next(entries)["table"]["x"].tolist() == [3, 4]
    assert opened(counting) == [f"{UUID}/table/p=1/one.parquet"]


# --- the iterator ---------------------------------------------------------------------------------


# F29: the call refuses, not the first step
def test_the_iterator_is_checked_by_the_call_and_reads_nothing_before_the_first_step(store):
    counting = CountingStore(store)
    entries = read_dataset_as_dataframes__iterator(UUID, counting)
    assert data_files(counting) == []
    assert next(entries)["table"]["x"].tolist() == [3, 4]
    entries.close()
    with pytest.raises(DatasetNotFound):
        read_dataset_as_dataframes__iterator("other", counting)


def test_with_little_memory_one_entry_is_in_flight(store):
    counting = CountingStore(store)
    entries = read_dataset_as_dataframes__iterator(UUID, counting, options=options(threads=4, bytes_in_flight=1))
    next(entries)
    assert len(set(data_files(counting))) == 1
    next(entries)
    assert len(set(data_files(counting))) == 2


# F30
def test_a_missing_file_is_an_error_when_its_partition_is_loaded(store):
    store.delete(f"{UUID}/table/p=2/one.parquet")
    entries = read_dataset_as_dataframes__iterator(UUID, store, options=options(threads=1))
    assert next(entries)["table"]["x"].tolist() == [3, 4]
    with pytest.raises(KeyNotFound, match="p=2/one"):
        next(entries)
    with pytest.raises(KeyNotFound, match="p=2/one"):
        read_dataset_as_dataframes(UUID, store)


# F31
def test_a_missing_index_file_matters_only_where_it_is_used(reader, store):
    for entry in store.list(f"{UUID}/indices/i1/", recursive=True).entries:
        store.delete(entry.key)
    forget(store)
    assert xs(reader(UUID, store, dispatch_by="p")) == [[3, 4], [1, 2]]
    for arguments in ({"dispatch_by": "i1"}, {"predicates": [[("i1", "==", "a")]]}):
        with pytest.raises(KeyNotFound, match="indices/i1"):
            reader(UUID, store, **arguments)


# --- several tables -------------------------------------------------------------------------------


def add_table(store, files):
    """Add a second table as kartothek writes it, in the partitions of ``files`` only."""
    document = json.loads(store.get(f"{UUID}.by-dataset-metadata.json"))
    for label, rows in files.items():
        key = f"{UUID}/names/{label}.parquet"
        store.put(key, memoryview(ParquetFormat().encode(pa.table(rows))))
        document["partitions"][label]["files"]["names"] = key
    schema = pa.schema([("p", pa.int64()), ("x", pa.int64()), ("n", pa.string())])
    store.put(schema_key(UUID, "names"), common_metadata_bytes(schema))
    store.put(f"{UUID}.by-dataset-metadata.json", json.dumps(document).encode())
    return store


@pytest.fixture
def two_tables(store):
    return add_table(store, {"p=1/one": {"x": [30, 40], "n": ["k", "l"]}, "p=2/one": {"x": [10], "n": ["m"]}})


def test_every_table_of_a_partition_is_loaded(reader, two_tables):
    entries = reader(UUID, two_tables)
    assert [sorted(frames) for frames in entries] == [["names", "table"]] * 2
    assert (xs(entries), xs(entries, "names")) == ([[3, 4], [1, 2]], [[30, 40], [10]])
    assert list(entries[0]["names"].columns) == ["p", "n", "x"]
    assert entries[0]["names"]["p"].tolist() == [1, 1]


def test_some_tables_with_some_columns(reader, two_tables):
    entries = reader(
        UUID, two_tables, tables=["names"], columns={"names": ["n"], "table": ["x"]}, predicates=[[("n", "!=", "k")]]
    )
    assert [{t: f.to_dict("list") for t, f in frames.items()} for frames in entries] == [
        {"names": {"n": ["l"]}},
        {"names": {"n": ["m"]}},
    ]
    assert [list(frames["names"].columns) for frames in reader(UUID, two_tables, columns={"table": ["x"]})] == [
        ["p", "n", "x"]
    ] * 2


# F06
def test_a_list_is_for_the_only_table(reader, store):
    for given in (["x", "c"], {"table": ["x", "c"]}):
        [frames] = reader(UUID, store, columns=given, categoricals=given, dispatch_by=[])
        assert list(frames["table"].columns) == ["x", "c"]
        assert {str(dtype) for dtype in frames["table"].dtypes} == {"category"}
    [frames] = reader(UUID, store, columns=[], dispatch_by=[])
    assert frames["table"].shape[1] == 0


def test_the_only_table_may_have_any_name(reader):
    store = MemoryStore()
    store_dataframes_as_dataset(store, UUID, [{"sales": pd.DataFrame({"x": [1], "v1": ["a"]})}])
    [frames] = reader(UUID, store, columns=["x"], categoricals=["x"])
    assert frames["sales"].dtypes.astype(str).to_dict() == {"x": "category"}


# F06
@pytest.mark.parametrize("argument", ["columns", "categoricals"])
def test_a_list_for_several_tables_is_refused(reader, two_tables, argument):
    for tables in (None, ["names"]):
        with pytest.raises(InvalidInput, match=rf"{argument}=\['x'\]. Give a dict of tables.*\['table', 'names'\]"):
            reader(UUID, two_tables, tables=tables, **{argument: ["x"]})


# F10
def test_unknown_tables_are_passed_over(reader, two_tables):
    assert reader(UUID, two_tables, tables=["other"]) == [{}, {}]
    assert [list(frames) for frames in reader(UUID, two_tables, tables=["other", "names"])] == [["names"]] * 2


# F35
def test_a_predicate_on_a_column_of_one_table_is_refused_before_anything_is_read(reader, two_tables):
    counting = CountingStore(two_tables)
    with pytest.raises(UnknownColumn, match="table names' does not have: c") as raised:
        reader(UUID, counting, predicates=[[("c", "==", "u")]])
    assert isinstance(raised.value, KeyError)
    assert data_files(counting) == []
    assert xs(reader(UUID, two_tables, predicates=[[("c", "==", "u")]], tables="table")) == [[4], [1]]
    assert xs(reader(UUID, two_tables, predicates=[[("x", "<", 20), ("p", "==", 2)]]), "names") == [[10]]


def test_groups_of_several_tables(reader, two_tables):
    entries = reader(UUID, two_tables, dispatch_by="p")
    assert (xs(entries), xs(entries, "names")) == ([[3, 4], [1, 2]], [[30, 40], [10]])
    [everything] = reader(UUID, two_tables, dispatch_by=[])
    assert everything["names"]["n"].tolist() == ["k", "l", "m"]
    with pytest.raises(UnknownColumn, match=r"'names'.*lacks \['i1'\]"):
        reader(UUID, two_tables, dispatch_by="i1")
    assert xs(reader(UUID, two_tables, dispatch_by="i1", tables=["table"])) == [[3, 2], [1]]


# F36
def test_a_partition_may_lack_a_table(reader, store):
    add_table(store, {"p=2/one": {"x": [10], "n": ["m"]}})
    entries = reader(UUID, store)
    assert [sorted(frames) for frames in entries] == [["table"], ["names", "table"]]
    assert [list(frames) for frames in reader(UUID, store, tables=["names"])] == [[], ["names"]]
    assert [list(frames) for frames in reader(UUID, store, tables=["names"], dispatch_by="p")] == [[], ["names"]]
    [everything] = reader(UUID, store, dispatch_by=[])
    assert everything["names"]["x"].tolist() == [10]
    assert read_table(UUID, store, table="names")["x"].tolist() == [10]


# --- factory and refusals -------------------------------------------------------------------------


def test_a_factory_is_used_in_place(reader, store):
    factory = DatasetFactory(UUID, lambda: store)
    assert xs(reader(factory=factory, dispatch_by="i1")) == [[3, 2], [1]]
    write(store, {**ROWS, "x": [11, 12, 13, 14]}, on=["p"], index=["i1", "d"], label="two")
    assert xs(reader(factory=factory, dispatch_by="i1")) == [[3, 2], [1]]
    assert xs(reader(UUID, store, dispatch_by="i1")) == [[3, 2, 13, 12], [1, 11]]


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"columns": ("x",)}, InvalidInput, r"invalid table\(s\): columns=\('x',\).*a list of columns.*\['table'\]"),
        ({"columns": {"other": ["x"]}}, InvalidInput, r"invalid table\(s\): columns=\['other'\]"),
        ({"columns": pd.DataFrame({"x": [1]})}, InvalidInput, r"invalid table\(s\)"),
        ({"columns": "x"}, InvalidInput, r"invalid table\(s\)"),
        ({"columns": ["x", "x"]}, InvalidInput, "twice"),
        ({"dates_as_object": "no"}, InvalidType, "dates_as_object"),
        ({"concat_partitions_on_primary_index": None}, InvalidType, "concat_partitions_on_primary_index"),
        ({"columns": {"table": "x"}}, InvalidType, "columns"),
        ({"columns": {"table": ["x", "x"]}}, InvalidInput, "twice"),  # F07
        ({"columns": {"table": ["z"]}}, UnknownColumn, "cannot be found in stored dataframe: z"),  # F08
        ({"categoricals": "c"}, InvalidInput, "categoricals"),
        ({"categoricals": ["z"]}, UnknownColumn, "'z'"),
        ({"categoricals": {"table": ["z"]}}, UnknownColumn, "'z'"),  # F25
        ({"dispatch_by": ["x"]}, InvalidRequest, "Dispatch columns must be indexed"),  # G05
        ({"dispatch_by": {"p"}}, InvalidInput, "dispatch_by"),
        (
            {"dispatch_by": ["p"], "concat_partitions_on_primary_index": True},
            InvalidInput,
            "Both `dispatch_by` and `concat_partitions",
        ),  # F28
        ({"predicates": []}, InvalidInput, "Empty predicates"),
        ({"predicates": [[("z", "==", 1)]]}, UnknownColumn, "z"),
        ({"predicates": [[("x", "==", "1")]]}, InvalidType, "x"),
        ({"label_filter": "one"}, InvalidType, "label_filter"),
        ({"factory": object()}, InvalidInput, "factory"),
        ({"store": None}, InvalidInput, "store"),  # A04
        ({"dataset_uuid": "other"}, DatasetNotFound, "other"),
    ],
    ids=range(23),
)
def test_bad_arguments_are_refused_before_a_file_is_read(store, arguments, error, text):
    counting = CountingStore(store)
    given = {"dataset_uuid": UUID, "store": counting, **arguments}
    with pytest.raises(error, match=text):
        read_dataset_as_dataframes(**given)
    with pytest.raises(error, match=text):
        read_dataset_as_dataframes__iterator(**given)
    assert data_files(counting) == []


@pytest.mark.parametrize("builtin", [RuntimeError, ValueError])
def test_old_handlers_keep_working(store, builtin):
    with pytest.raises(builtin, match="Dispatch columns must be indexed"):
        read_dataset_as_dataframes(UUID, store, dispatch_by="x")
