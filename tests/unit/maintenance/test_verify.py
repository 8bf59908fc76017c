from __future__ import annotations

import json

import pandas as pd
import pyarrow as pa
import pytest

from kartothek_cube import open_store, options
from kartothek_cube.api.dataset import (
    DatasetFactory,
    build_dataset_indices,
    commit_dataset,
    convert_metadata_format,
    copy_dataset,
    create_empty_dataset_header,
    garbage_collect_dataset,
    make_meta,
    rename_dataset,
    store_dataframes_as_dataset,
    update_dataset_from_dataframes,
    verify_dataset,
    write_single_partition,
)
from kartothek_cube.api.serialization import CsvSerializer
from kartothek_cube.core.metadata.commit_log import COMMITS_KEY, MOVING_KEY, SCHEMA_KEY
from kartothek_cube.core.metadata.naming import document_key, schema_key
from kartothek_cube.core.metadata.snapshot import common_metadata_bytes
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import DatasetNotFound, InvalidInput, InvalidType
from kartothek_cube.testing.stores import CountingStore, FaultyStore, InjectedFault
from tests.support.damage import (
    ROWS,
    UUID,
    data_keys,
    document,
    edit,
    edit_foreign,
    found,
    index_file,
    put_table,
    read,
    verify,
    write,
)

DEEP = pytest.mark.parametrize("deep", [False, True])


HEADER = {"table": make_meta(pd.DataFrame({"p": [1], "v1": [1.5]}), "x", ["p"])}


@pytest.fixture
def store():
    return MemoryStore()


# --- healthy ones ---------------------------------------------------------------------------------


def with_updates(store):
    write(store)
    update_dataset_from_dataframes([ROWS], store, UUID)
    update_dataset_from_dataframes([ROWS], store, UUID, delete_scope=[{"p": "a"}])
    build_dataset_indices(store, UUID, ["x"])
    garbage_collect_dataset(UUID, store)


def with_tables(store):
    tables = [
        ("prices", pd.DataFrame({"p": [1, 2], "v1": [1.5, 2.5]})),
        ("names", pd.DataFrame({"p": [1, 3], "v2": ["one", "three"]})),
    ]
    store_dataframes_as_dataset(store, UUID, [{"data": tables}], partition_on=["p"], secondary_indices=["v2"])


def with_nulls(store):
    write(store, pa.table({"p": ["a", "b"], "i1": pa.array([None, 1]), "v1": pa.array([None, float("nan")])}))


def with_csv(store):
    store_dataframes_as_dataset(
        store, UUID, [ROWS], df_serializer=CsvSerializer(), partition_on=["p"], secondary_indices=["i1"]
    )


def renamed(store):
    store_dataframes_as_dataset(store, "first", [ROWS], partition_on=["p"])
    copy_dataset("first", store, "second")
    rename_dataset("second", store, UUID)


def committed(store):
    create_empty_dataset_header(store, UUID, HEADER, partition_on=["p"])
    staged = write_single_partition(store, UUID, pd.DataFrame({"p": [1, 2], "v1": [1.5, 2.5]}), partition_on=["p"])
    commit_dataset(store, UUID, [staged])


def with_columns_added(store):
    write(store)
    more = ROWS.append_column("v2", pa.array(["r", "s", "t"]))
    update_dataset_from_dataframes([more], store, UUID, add_columns=True)


HEALTHY = {
    "unpartitioned": lambda store: write(store, on=[]),
    "several partition columns": lambda store: write(store, on=["p", "x"]),
    "in msgpack": lambda store: write(store, metadata_storage_format="msgpack"),
    "without rows": lambda store: write(store, ROWS.slice(0, 0)),
    "slashes in values": lambda store: write(store, pa.table({"p": ["a/b", "ä %"], "i1": ["1/2", ""]})),
    "floats as index": lambda store: write(store, pa.table({"p": [0.5, 1e300], "i1": [-0.0, 0.0]})),
    "zoned index": lambda store: write(
        store, pa.table({"p": [1, 2], "i1": pa.array([1, 2], pa.timestamp("us", "Europe/Berlin"))})
    ),
    "updates": with_updates,
    "several tables": with_tables,
    "nulls": with_nulls,
    "renamed": renamed,
    "committed by receipts": committed,
    "CSV": with_csv,
    "columns added": with_columns_added,
}


# Of the datasets above; what is healthy may still be remarkable.
REMARKS = {
    *("garbage", "kept-for-snapshots", "msgpack", "several-tables", "zoned-timestamp", "null-column"),
    *("index-coverage", "null-in-index-column", "lacking-column", "some-tables"),
}


@DEEP
@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_dataset_is_clean(store, name, deep):
    HEALTHY[name](store)
    report = verify(store, deep=deep)
    assert report.clean, report
    assert {f.check for f in report.findings} <= REMARKS


def test_a_plain_dataset_has_no_finding_at_all(store):
    write(store)
    assert found(store, deep=True) == []


def test_counts_say_what_was_looked_at(store):
    write(store)
    counts = verify(store, deep=True).counts
    sizes = {e.key: e.size for e in store.list("", recursive=True).entries}
    assert (counts.datasets, counts.partitions, counts.files, counts.rows) == (1, 2, 2, 3)
    assert counts.bytes == sum(sizes[key] for key in data_keys(store))
    assert verify(store).counts.rows is None


def test_without_deep_no_data_file_is_read_and_the_folder_is_listed_once(store):
    write(store)
    counting = CountingStore(store)
    verify(counting)
    assert counting.counts["list"] == 1
    assert not set(counting.touched()) & set(data_keys(store))


def test_nothing_is_written(store):
    write(store)
    before = {key: store.get(key) for key in store.list(recursive=True).keys}
    verify(store, deep=True)
    assert {key: store.get(key) for key in store.list(recursive=True).keys} == before


def test_a_factory_will_do(store):
    write(store)
    assert verify_dataset(factory=DatasetFactory(UUID, lambda: store)).clean


# --- errors that are raised -----------------------------------------------------------------------


def test_a_missing_dataset_is_an_error(store):
    with pytest.raises(DatasetNotFound, match=r"uuid\.by-dataset-metadata\.json"):
        verify(store)


def test_wrong_arguments_are_errors(store):
    with pytest.raises(InvalidInput):
        verify_dataset(UUID)
    with pytest.raises(InvalidType, match="deep"):
        verify_dataset(UUID, store, "yes")
    with pytest.raises(InvalidType):
        verify_dataset(UUID, store, options={"threads": 1})


@DEEP
def test_a_store_that_cannot_be_read_is_an_error_and_no_damage(store, deep):
    write(store)
    broken = FaultyStore(
        store, lambda call: "before" if call.operation == "list" or call.key.endswith(".parquet") else None
    )
    with pytest.raises(InjectedFault):
        verify(broken, deep=deep)


# --- documents ------------------------------------------------------------------------------------


@DEEP
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b'{"dataset_metadata_version": 4}',
        b"null",
        b'{"dataset_metadata_version": 4, "dataset_uuid": "uuid", "partitions": 1}',
    ],
)
def test_a_document_that_cannot_be_read_is_found(store, data, deep):
    write(store)
    store.put(document_key(UUID), data)
    assert found(store, deep=deep) == [("error", "document-unreadable")]
    assert verify(store).findings[0].key == document_key(UUID)


def test_a_document_of_another_version_is_found(store):
    write(store)
    store.put(document_key(UUID), b'{"dataset_metadata_version": 5, "dataset_uuid": "uuid"}')
    assert found(store) == [("error", "document-version")]


def test_a_damaged_json_document_beside_a_healthy_one_is_found(store):
    write(store, metadata_storage_format="msgpack")
    store.put(document_key(UUID), b"{")
    assert found(store) == [("error", "document-unreadable"), ("warning", "two-documents")]


def test_a_document_of_another_dataset_is_found(store):
    write(store)
    edit(store, lambda d: d.update(dataset_uuid="other"))
    assert found(store) == [("error", "document-uuid")]


def test_two_documents_are_found(store):
    write(store)
    twin = MemoryStore()
    write(twin, metadata_storage_format="msgpack")
    key = document_key(UUID, msgpack=True)
    store.put(key, twin.get(key))
    assert found(store) == [("warning", "two-documents")]
    convert_metadata_format(UUID, store, "json")
    assert found(store) == []


def test_an_unfinished_move_is_found(store):
    write(store)
    edit(store, lambda d: d["metadata"].update({MOVING_KEY: "uuid.by-dataset-metadata.msgpack.zstd 1"}))
    assert found(store) == [("warning", "moving")]


@pytest.mark.parametrize("chain", ["nonsense", "[]", '[["b", "lost", "0"]'])
def test_a_chain_that_cannot_be_read_is_found(store, chain):
    write(store)
    edit_foreign(store, lambda d: d["metadata"].update({COMMITS_KEY: chain}))
    assert ("warning", "commit-chain") in found(store)


def test_a_chain_that_is_not_linked_is_found(store):
    write(store)
    update_dataset_from_dataframes([ROWS], store, UUID)

    def unlink(content):
        chain = json.loads(content["metadata"][COMMITS_KEY])
        chain[-1][1] = "somebody else"
        content["metadata"][COMMITS_KEY] = json.dumps(chain)

    edit(store, unlink)
    assert ("warning", "commit-chain") in found(store)


def test_a_foreign_writer_who_came_last_is_found(store):
    write(store, index=[])
    edit_foreign(store, lambda d: d["partitions"].pop(next(iter(d["partitions"]))))
    assert found(store) == [("warning", "foreign-commit"), ("info", "garbage")]
    with pytest.warns(UserWarning, match="without commit ids"):
        update_dataset_from_dataframes([ROWS], store, UUID)
    assert ("warning", "foreign-commit") not in found(store)


# --- schemas --------------------------------------------------------------------------------------


def test_a_missing_schema_file_is_a_warning_while_the_document_has_the_types(store):
    write(store)
    store.delete(schema_key(UUID))
    assert found(store) == [("warning", "schema-file-missing")]
    update_dataset_from_dataframes([ROWS], store, UUID)
    assert verify(store).clean


def test_a_missing_schema_file_is_an_error_where_nothing_else_has_the_types(store):
    write(store, index=[])
    edit_foreign(store, lambda d: [d["metadata"].pop(key) for key in (COMMITS_KEY, SCHEMA_KEY)])
    store.delete(schema_key(UUID))
    assert found(store, deep=True) == [("error", "schema-file-missing"), ("info", "foreign-dataset")]


def test_a_schema_file_that_cannot_be_read_is_found(store):
    write(store)
    store.put(schema_key(UUID), b"nonsense")
    assert found(store) == [("warning", "schema-file-unreadable")]


def test_a_schema_inside_the_document_that_cannot_be_read_is_found(store):
    write(store)
    edit(store, lambda d: d["metadata"].update({SCHEMA_KEY: "{}x"}))
    assert found(store) == [("error", "embedded-schema")]


@pytest.mark.parametrize(
    ("fields", "column"),
    [
        ({"p": "string", "i1": "int64", "v1": "string", "x": "int64"}, "v1"),
        ({"p": "string", "i1": "int64", "v1": "null", "x": "int64"}, "v1"),
        ({"p": "string", "i1": "int64", "x": "int64"}, "v1"),
    ],
)
def test_a_schema_file_that_differs_from_the_document_is_found(store, fields, column):
    write(store)
    types = {"string": pa.string(), "int64": pa.int64(), "null": pa.null()}
    store.put(
        schema_key(UUID), common_metadata_bytes(pa.schema([(name, types[kind]) for name, kind in fields.items()]))
    )
    assert found(store) == [("warning", "schema-drift")]
    assert verify(store).findings[0].column == column


def test_a_schema_file_in_the_spelling_of_plateau_is_found(store):
    write(store)
    schema = pa.schema([("p", pa.large_string()), ("i1", pa.int64()), ("v1", pa.float64()), ("x", pa.int64())])
    put_table(store, schema_key(UUID), schema.with_metadata({"pandas": "{}"}).empty_table())
    assert found(store) == [("info", "schema-spelling")]


def test_a_schema_file_without_pandas_metadata_is_found(store):
    write(store)
    put_table(
        store,
        schema_key(UUID),
        pa.schema([("p", pa.string()), ("i1", pa.int64()), ("v1", pa.float64()), ("x", pa.int64())]).empty_table(),
    )
    assert found(store) == [("info", "schema-without-pandas")]


def test_partition_columns_that_the_schema_lacks_are_found(store):
    write(store)
    edit(store, lambda d: d.update(partition_keys=["p", "q"]))
    assert found(store, deep=True) == [("error", "partition-columns")]


# --- files ----------------------------------------------------------------------------------------


def rename_key(store, key):
    """Let the document name another key for the first file."""
    edit(store, lambda d: next(iter(d["partitions"].values()))["files"].update(table=key))


@DEEP
def test_a_missing_file_is_found(store, deep):
    write(store)
    key = data_keys(store)[1]
    store.delete(key)
    (finding,) = verify(store, deep=deep).findings
    assert (finding.severity, finding.check, finding.key) == ("error", "missing-file", key)
    assert finding.label == list(document(store)["partitions"])[1]


def test_of_many_missing_files_the_first_are_named(store):
    write(store, pa.table({"p": range(50), "i1": range(50)}))
    for key in data_keys(store):
        store.delete(key)
    findings = verify(store).findings
    assert (len(findings), sum(f.count for f in findings)) == (20, 50)
    assert "30 more" in findings[-1].message


@DEEP
@pytest.mark.parametrize(
    "key",
    [
        "../../etc/passwd.parquet",
        "/etc/passwd",
        "uuid/../other/table/p=a/x.parquet",
        "uuid/table/p=a//x.parquet",
        "uuid/table/p=a/ä.parquet",
        "",
    ],
)
def test_a_key_that_leads_elsewhere_is_found_and_not_opened(store, key, deep):
    write(store)
    rename_key(store, key)
    report = verify(store, deep=deep)
    assert [(f.severity, f.key) for f in report.of("invalid-key")] == [("error", key)]


@DEEP
def test_a_file_of_another_dataset_is_found(store, deep):
    write(store)
    store_dataframes_as_dataset(store, "other", [ROWS], partition_on=["p"])
    rename_key(store, data_keys(store, "other")[0])
    assert found(store, deep=deep) == [("warning", "foreign-file"), ("info", "garbage")]


def test_a_missing_file_of_another_dataset_is_found(store):
    write(store)
    rename_key(store, "other/table/p=a/x.parquet")
    assert found(store) == [("error", "missing-file"), ("warning", "foreign-file"), ("info", "garbage")]


def test_a_file_of_an_unknown_format_is_found(store):
    write(store)
    store.put("uuid/table/p=a/x.orc", b"1")
    rename_key(store, "uuid/table/p=a/x.orc")
    assert found(store, deep=True) == [("error", "file-format"), ("info", "garbage")]


def test_a_file_that_two_labels_name_is_found(store):
    write(store, index=[])
    edit(store, lambda d: d["partitions"].update({"p=b/again": {"files": {"table": data_keys(store)[1]}}}))
    (finding,) = verify(store, deep=True).findings
    assert (finding.severity, finding.check, finding.key) == ("error", "shared-file", data_keys(store)[1])


def test_garbage_is_counted(store):
    write(store)
    store.put("uuid/table/p=a/forgotten.parquet", b"12345")
    (finding,) = verify(store).findings
    assert (finding.severity, finding.check, finding.count, finding.key) == (
        "info",
        "garbage",
        1,
        "uuid/table/p=a/forgotten.parquet",
    )
    assert "5 bytes" in finding.message


def test_files_of_nobody_are_counted(store):
    write(store)
    store.put("uuid/readme.txt", b"12345")
    assert found(store) == [("info", "unknown-files")]


def test_history_and_marks_are_no_unknown_files(store):
    write(store)
    store.put("uuid/_gc/1.json", b"{}")
    assert found(store) == []


def test_a_history_entry_that_cannot_be_read_is_found(store):
    write(store)
    store.put("uuid/_history/0.json.zst", b"nonsense")
    assert found(store) == [("warning", "history-unreadable")]


# --- labels ---------------------------------------------------------------------------------------


def relabel(store, label):
    """Give the first partition another label."""

    def change(content):
        first, *others = content["partitions"].items()
        content["partitions"] = dict([(label, first[1]), *others])

    edit(store, change)


def test_a_label_that_contradicts_its_path_is_found(store):
    write(store, index=[])
    relabel(store, "p=z/1")
    (finding,) = verify(store, deep=True).findings
    assert (finding.severity, finding.check, finding.column, finding.label) == ("warning", "label-path", "p", "p=z/1")


@pytest.mark.parametrize("label", ["", "p=a/", "p=a/../x", "p=a/x\ny", "x" * 300])
def test_an_absurd_label_is_found(store, label):
    write(store, index=[])
    relabel(store, label)
    assert found(store) == [("warning", "absurd-label")]


def test_a_label_of_another_form_is_right(store):
    write(store, index=[])
    relabel(store, "first")
    assert found(store, deep=True) == []


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([1, 2], "one"),
        ([True, False], "maybe"),
        ([1.5, 2.5], "x"),
        (pa.array([1, 2], pa.timestamp("us")), "noon"),
        (["a", "b"], "%FF"),
    ],
)
def test_a_partition_value_that_cannot_be_decoded_is_found(store, values, text):
    write(store, pa.table({"p": values, "v1": [1, 2]}), index=[])
    rename_key(store, f"uuid/table/p={text}/x.parquet")
    report = verify(store, deep=True)
    assert [(f.check, f.key) for f in report.errors] == [
        ("missing-file", f"uuid/table/p={text}/x.parquet"),
        ("partition-value", f"uuid/table/p={text}/x.parquet"),
    ]


def test_partitions_without_files_are_found(store):
    write(store, index=[])
    edit(store, lambda d: d["partitions"].update({"p=c/1": {"files": {}}}))
    assert ("info", "no-file") in found(store)


def test_partitions_without_a_file_of_each_table_are_found(store):
    with_tables(store)
    edit(store, lambda d: next(iter(d["partitions"].values()))["files"].pop("names"))
    assert ("info", "some-tables") in found(store)


@pytest.mark.parametrize("table", ["indices", "_history"])
def test_a_table_of_a_reserved_name_is_found(store, table):
    write(store, index=[])
    edit_foreign(
        store,
        lambda d: d.update(
            partitions={label: {"files": {table: e["files"]["table"]}} for label, e in d["partitions"].items()}
        ),
    )
    assert ("warning", "table-name") in found(store)


# --- indices --------------------------------------------------------------------------------------


def edit_index(store, change):
    put_table(store, index_file(store), change(read(store, index_file(store))))


def entries(*pairs):
    """An index file of these values and labels."""
    return pa.table(
        {
            "i1": pa.array([v for v, _ in pairs]),
            "partition": pa.array([labels for _, labels in pairs], pa.list_(pa.string())),
        }
    )


def test_a_missing_index_file_is_found_and_mended_as_it_says(store):
    write(store)
    store.delete(index_file(store))
    (finding,) = verify(store, deep=True).findings
    assert (finding.severity, finding.check, finding.column) == ("error", "missing-index", "i1")
    eval(finding.mend, {"build_dataset_indices": build_dataset_indices, "store": store})
    assert verify(store, deep=True).clean


@pytest.mark.parametrize("table", [b"nonsense", pa.table({"i1": [1]}), pa.table({"i1": [10], "partition": [1]})])
def test_an_index_file_that_cannot_be_read_is_found(store, table):
    write(store)
    store.put(index_file(store), table) if isinstance(table, bytes) else put_table(store, index_file(store), table)
    assert found(store, deep=True) == [("error", "index-unreadable")]


def test_an_index_of_another_type_is_found(store):
    write(store)
    edit_index(store, lambda t: t.set_column(0, "i1", t.column("i1").cast(pa.string())))
    assert found(store, deep=True) == [("error", "index-type")]


def test_an_index_in_the_spelling_of_plateau_is_right(store):
    write(store, pa.table({"p": ["a", "b"], "i1": ["r", "s"]}))
    edit_index(
        store, lambda t: t.cast(pa.schema([("i1", pa.large_string()), ("partition", pa.large_list(pa.large_string()))]))
    )
    assert found(store, deep=True) == []


def test_an_index_on_a_column_that_the_schema_lacks_is_found(store):
    write(store)
    edit(store, lambda d: d["indices"].update(z=d["indices"].pop("i1")))
    assert found(store) == [("error", "index-column")]


def test_an_index_on_a_partition_column_is_found(store):
    write(store)
    edit(store, lambda d: d["indices"].update(p="uuid/indices/p/1.by-dataset-index.parquet"))
    rows = [(label[2], [label]) for label in document(store)["partitions"]]
    put_table(store, "uuid/indices/p/1.by-dataset-index.parquet", entries(*rows).rename_columns(["p", "partition"]))
    assert found(store) == [("warning", "index-on-partition-column")]


def test_an_entry_of_a_label_that_is_not_there_is_found(store):
    write(store)
    edit_index(store, lambda t: pa.concat_tables([t, entries((40, ["p=c/gone"])).cast(t.schema)]))
    (finding,) = verify(store, deep=True).findings
    assert (finding.severity, finding.check, finding.label) == ("error", "index-label", "p=c/gone")


def test_partitions_that_an_index_does_not_name_are_remarked(store):
    write(store)
    edit_index(store, lambda t: t.slice(0, 2))
    assert found(store) == [("info", "index-coverage")]


def test_partitions_that_an_index_of_another_writer_does_not_name_are_a_warning(store):
    write(store)
    edit_index(store, lambda t: t.slice(0, 2))
    edit_foreign(store, lambda d: [d["metadata"].pop(key) for key in (COMMITS_KEY, SCHEMA_KEY)])
    assert found(store) == [("warning", "index-coverage"), ("info", "foreign-dataset")]


def test_values_that_an_index_does_not_know_are_found(store):
    write(store)
    edit_index(store, lambda t: t.slice(1))
    (finding,) = verify(store, deep=True).findings
    assert (finding.severity, finding.check, finding.column) == ("error", "index-values", "i1")
    assert "(10)" in finding.message


def test_a_partition_that_an_index_forgot_is_found(store):
    write(store)
    edit_index(store, lambda t: t.slice(0, 2))
    assert found(store, deep=True) == [("error", "index-values")]


def test_entries_without_a_row_are_found(store):
    write(store)
    label = next(iter(document(store)["partitions"]))
    edit_index(store, lambda t: pa.concat_tables([t, entries((40, [label])).cast(t.schema)]))
    (finding,) = verify(store, deep=True).findings
    assert (finding.severity, finding.check, finding.label) == ("warning", "index-surplus", label)


def test_an_embedded_index_is_remarked(store):
    write(store)
    values = {str(v): [label] for v, label in zip([10, 30], document(store)["partitions"], strict=True)}
    edit(store, lambda d: d["indices"].update(i1={"20": values["10"], **values}))
    assert found(store, deep=True) == [("info", "embedded-index"), ("info", "garbage")]


def test_an_embedded_index_of_nonsense_is_found(store):
    write(store)
    edit(store, lambda d: d["indices"].update(i1={"ten": [1]}))
    assert ("error", "index-unreadable") in found(store)


# --- for movers -----------------------------------------------------------------------------------

MOVERS = {
    "boolean-partition": (pa.table({"p": [True, False], "v1": [1, 2]}), "p"),
    "bytes-partition": (pa.table({"p": [b"a", b"b"], "v1": [1, 2]}), "p"),
    "date-column": (pa.table({"p": [1], "v1": pa.array([1], pa.date32())}), "v1"),
    "zoned-timestamp": (pa.table({"p": [1], "v1": pa.array([1], pa.timestamp("us", "UTC"))}), "v1"),
    "null-column": (pa.table({"p": [1], "v1": pa.nulls(1)}), "v1"),
}


@pytest.mark.parametrize("check", MOVERS)
def test_what_reads_differently_in_kartothek_is_remarked(store, check):
    rows, column = MOVERS[check]
    write(store, rows, index=[])
    (finding,) = verify(store, deep=True).findings
    assert (finding.severity, finding.check, finding.column) == ("info", check, column)
    assert 'docs, page "' in finding.message


def test_a_bare_slash_in_a_partition_value_is_remarked(store):
    write(store, pa.table({"p": ["a/b", "c"], "v1": [1, 2]}), index=[])
    assert found(store) == []
    old = data_keys(store)[0]
    new = old.replace("%2F", "/")
    store.put(new, store.get(old))
    store.delete(old)
    rename_key(store, new)
    assert found(store, deep=True) == [("info", "slash-in-value")]


def test_other_units_of_times_are_remarked(store):
    write(store, pa.table({"p": [1], "v1": pa.array([1], pa.duration("ns"))}), index=[])
    put_table(
        store,
        schema_key(UUID),
        pa.schema([("p", pa.int64()), ("v1", pa.time32("ms"))]).with_metadata({"pandas": "{}"}).empty_table(),
    )
    assert ("info", "time-unit") in found(store)


def test_a_header_is_remarked(store):
    create_empty_dataset_header(store, UUID, HEADER, partition_on=["p"])
    write_single_partition(store, UUID, pd.DataFrame({"p": [1, 2], "v1": [1.5, 2.5]}), partition_on=["p"])
    report = verify(store, deep=True)
    assert report.clean
    assert ("info", "implicit") in found(store)
    assert report.counts.partitions == 2


def test_files_at_different_depths_of_a_header_are_found(store):
    test_a_header_is_remarked(store)
    store.put("uuid/table/p=1/q=2/x.parquet", b"")
    assert ("error", "implicit-files") in found(store)


# --- a store that changes meanwhile ---------------------------------------------------------------


class Meanwhile(CountingStore):
    """Somebody replaces the dataset right before its folder is listed for the first time."""

    def __init__(self, inner):
        super().__init__(inner)
        self._base = inner

    def list(self, prefix="", recursive=False):
        if self.counts["list"] == 0:
            for key in data_keys(self._base):
                self._base.delete(key)
            write(self._base, overwrite=True)
        return super().list(prefix, recursive)


def test_a_change_meanwhile_is_no_damage(store):
    write(store)
    assert verify(Meanwhile(store)).ok


def test_options_hold(store):
    write(store)
    seen = []
    verify_dataset(UUID, store, True, options=options(progress=lambda event: seen.append(event.phase), threads=1))
    assert set(seen) == {"verify"}


def test_every_kind_of_store_is_taken(tmp_path):
    url = f"hfs://{tmp_path}"
    write(open_store(url))
    for given in (url, lambda: open_store(url), open_store(url)):
        assert verify_dataset(UUID, given, deep=True).clean
