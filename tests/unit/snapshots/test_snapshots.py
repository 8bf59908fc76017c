from __future__ import annotations

import json

import pyarrow as pa
import pytest

from kartothek_cube.core.commit.commit import commit_change
from kartothek_cube.core.dataset.read import read_table_arrow
from kartothek_cube.core.metadata.document import parse_document, render_document
from kartothek_cube.core.metadata.naming import document_key, schema_key
from kartothek_cube.core.metadata.snapshot import common_metadata_bytes
from kartothek_cube.core.snapshots.loader import find_snapshot, load_index, load_snapshot, with_indices
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import CorruptDocument, DatasetNotFound, InvalidInput, KeyNotFound, Unsupported
from kartothek_cube.testing.stores import CountingStore
from tests.support.commits import UUID, labels, make_change, write

DOCUMENT = document_key(UUID)
SCHEMA = pa.schema([("p", pa.int64()), ("x", pa.int64())])


@pytest.fixture
def store():
    return CountingStore(MemoryStore())


def put(store, document, uuid=UUID):
    store.put(document_key(uuid), json.dumps(document).encode())


def put_files(store, schema=SCHEMA, table="table", **files):
    """Files written by somebody else: each a list of x below a path."""
    from kartothek_cube.core.io.formats import ParquetFormat

    for path, x in files.items():
        store.put(f"{UUID}/{table}/{path}", memoryview(ParquetFormat().encode(pa.table({"x": x}))))
    store.put(schema_key(UUID, table), common_metadata_bytes(schema))


def document(**members):
    return {"dataset_metadata_version": 4, "dataset_uuid": UUID, **members}


def partition(path, table="table"):
    return {"files": {table: f"{UUID}/{table}/{path}"}}


# --- the cache ------------------------------------------------------------------------------------


def test_the_second_load_is_one_cheap_check(store):
    write(store.inner, {"x": [1], "v1": [1]}, index=["x"])
    first = load_snapshot(store, UUID)
    store.reset()
    assert load_snapshot(store, UUID) is first
    assert store.counts == {"changed": 1}


def test_a_json_document_beside_a_cached_msgpack_one_counts(store):
    """As kartothek leaves them: it updates a msgpack document by writing a JSON one."""
    first = write(store.inner, {"x": [1], "v1": [1]}, msgpack=True)
    assert load_snapshot(store, UUID).key == document_key(UUID, msgpack=True)
    store.put(DOCUMENT, render_document(first.document))
    assert load_snapshot(store, UUID).key == DOCUMENT
    landed = commit_change(store, make_change(store, {"x": [2], "v1": [2]}), first)
    assert (landed.key, len(landed.partitions)) == (DOCUMENT, 2)


def test_a_cold_load_reads_one_document(store):
    for i in range(3):
        write(store.inner, {"x": [i], "p": [i]}, on=["p"])
    uncached = CountingStore(copy_of(store.inner))
    load_snapshot(uncached, UUID)
    assert uncached.calls[0].key == DOCUMENT
    assert uncached.counts == {"get_versioned": 1}


def test_a_cold_load_of_a_foreign_dataset_reads_the_schema_file_too(store):
    put_files(store, **{"p=1/a.parquet": [1]})
    put(store, document(partitions={"p=1/a": partition("p=1/a.parquet")}, partition_keys=["p"]))
    store.reset()
    load_snapshot(store, UUID)
    assert store.touched() == [DOCUMENT, schema_key(UUID)]
    store.reset()
    load_snapshot(store, UUID)
    assert store.counts == {"changed": 1}


def copy_of(store):
    other = MemoryStore()
    for key in store.list(recursive=True).keys:
        other.put(key, store.get(key))
    return other


def test_a_read_is_the_check_and_one_plan_a_file(store):
    for i in range(4):
        write(store.inner, {"x": [i], "p": [i], "v1": ["a" * 10]}, on=["p"], index=["x"])
    load_snapshot(store, UUID)
    store.reset()
    read_table_arrow(UUID, store, predicates=[[("p", "in", [1, 3])]])
    assert store.counts == {"changed": 1, "local_path": 2, "tail": 2}
    store.reset()
    read_table_arrow(UUID, store, predicates=[[("x", "==", 2)]])
    assert store.counts["changed"] == 1
    assert store.counts["list"] == 0
    assert len([key for key in store.touched("tail") if "/table/" in key]) == 1


def test_changed_documents_are_seen(store):
    write(store, {"x": [1]}, label="a")
    first = load_snapshot(store, UUID)
    document_now = json.loads(store.inner.get(DOCUMENT))
    document_now["metadata"]["by hand"] = 1
    store.inner.put(DOCUMENT, json.dumps(document_now).encode())
    assert load_snapshot(store, UUID).document.user_metadata["by hand"] == 1
    assert "by hand" not in first.document.user_metadata
    store.inner.delete(DOCUMENT)
    assert find_snapshot(store, UUID) is None


def test_stores_do_not_share_their_snapshots():
    left, right = MemoryStore(), MemoryStore()
    write(left, {"x": [1]}, label="left")
    write(right, {"x": [1]}, label="right")
    assert labels(load_snapshot(left, UUID)) == ["left"]
    assert labels(load_snapshot(right, UUID)) == ["right"]


def test_an_index_is_read_once(store):
    write(store.inner, {"x": [1], "v1": [1]}, index=["x"])
    cold = CountingStore(copy_of(store.inner))
    snapshot = with_indices(cold, load_snapshot(cold, UUID), ["x"])
    cold.reset()
    assert with_indices(cold, snapshot, ["x"]) is snapshot
    assert load_index(cold, load_snapshot(cold, UUID), "x")[0] is snapshot.indices["x"]
    assert cold.counts == {"changed": 1}


# --- documents ------------------------------------------------------------------------------------


def test_missing_dataset_names_both_documents(store):
    with pytest.raises(
        DatasetNotFound, match=r"uuid\.by-dataset-metadata\.json and uuid\.by-dataset-metadata\.msgpack\.zstd"
    ):
        load_snapshot(store, UUID)
    assert find_snapshot(store, UUID) is None


def test_json_wins_over_msgpack(store):
    put(store, document(partitions={}, metadata={"from": "json"}))
    packed = parse_document(json.dumps(document(partitions={}, metadata={"from": "msgpack"})).encode(), DOCUMENT)
    store.put(document_key(UUID, msgpack=True), render_document(packed, msgpack=True))
    assert load_snapshot(store, UUID).document.user_metadata == {"from": "json"}
    store.delete(DOCUMENT)
    assert load_snapshot(store, UUID).document.user_metadata == {"from": "msgpack"}


def test_document_of_another_dataset_is_refused(store):
    put(store, {**document(partitions={}), "dataset_uuid": "other"})
    with pytest.raises(CorruptDocument, match=r"uuid\.by-dataset-metadata\.json.*'other'.*'uuid'"):
        load_snapshot(store, UUID)


def test_torn_document_is_read_again_before_it_counts_as_corrupt():
    class Torn(CountingStore):
        torn = 2

        def around(self, operation, key, action):
            result = super().around(operation, key, action)
            if operation == "get_versioned" and key == DOCUMENT and self.torn:
                self.torn -= 1
                return result[0][:20], result[1]
            return result

    memory = MemoryStore()
    put(memory, document(partitions={}))
    assert len(load_snapshot(Torn(memory), UUID).partitions) == 0
    memory.put(DOCUMENT, b'{"dataset')
    store = CountingStore(memory)
    with pytest.raises(CorruptDocument, match=DOCUMENT):
        load_snapshot(store, UUID)
    assert store.counts["get_versioned"] == 3


def test_another_version_is_named(store):
    put(store, {**document(), "dataset_metadata_version": 3})
    with pytest.raises(Unsupported, match=DOCUMENT):
        load_snapshot(store, UUID)


def test_missing_schema_file_is_named(store):
    put(store, document(partitions={"a": partition("a.parquet")}))
    with pytest.raises(KeyNotFound, match=f"{UUID}/table/_common_metadata"):
        load_snapshot(store, UUID)


# --- what a reader tolerates ----------------------------------------------------------------------


@pytest.mark.parametrize("members", [{}, {"partition_keys": None}], ids=["missing", "null"])
def test_partition_keys_are_inferred_from_the_first_path(store, members):
    put_files(store, pa.schema([("q", pa.string()), *SCHEMA]), **{"q=a/p=1/f.parquet": [7], "q=b/p=2/f.parquet": [8]})
    put(
        store,
        document(
            partitions={f"q={q}/p={p}/f": partition(f"q={q}/p={p}/f.parquet") for q, p in (("a", 1), ("b", 2))},
            **members,
        ),
    )
    assert load_snapshot(store, UUID).partition_keys == ("q", "p")
    assert read_table_arrow(UUID, store, predicates=[[("p", "==", 2)]]).to_pydict() == {"q": ["b"], "p": [2], "x": [8]}


def test_no_partition_keys_where_the_paths_have_none(store):
    put_files(store, pa.schema([("x", pa.int64())]), **{"f.parquet": [7]})
    put(store, document(partitions={"f": partition("f.parquet")}))
    assert load_snapshot(store, UUID).partition_keys == ()
    assert read_table_arrow(UUID, store).to_pydict() == {"x": [7]}


def test_partition_keys_that_the_schema_lacks_are_named(store):
    put_files(store, pa.schema([("x", pa.int64())]), **{"p=1/f.parquet": [7]})
    put(store, document(partitions={"p=1/f": partition("p=1/f.parquet")}, partition_keys=["p"]))
    with pytest.raises(CorruptDocument, match=r"uuid.*\bp\b"):
        load_snapshot(store, UUID)


def test_empty_explicit_dataset_finds_its_schema(store):
    put_files(store)
    put(store, document(partitions={}, partition_keys=["p"]))
    snapshot = load_snapshot(store, UUID)
    assert (snapshot.tables, snapshot.schema, snapshot.values.schema) == (
        ("table",),
        SCHEMA,
        pa.schema([("p", pa.int64())]),
    )
    assert read_table_arrow(UUID, store, predicates=[[("p", "==", 1)]]).schema == SCHEMA


def test_partition_without_files_is_passed_over(store):
    put_files(store, **{"p=1/f.parquet": [7]})
    put(store, document(partitions={"p=1/f": partition("p=1/f.parquet"), "p=2/f": {"files": {}}}, partition_keys=["p"]))
    assert labels(load_snapshot(store, UUID)) == ["p=1/f", "p=2/f"]
    assert read_table_arrow(UUID, store).to_pydict() == {"p": [1], "x": [7]}
    assert read_table_arrow(UUID, store, predicates=[[("p", "!=", 7)]]).to_pydict() == {"p": [1], "x": [7]}


def test_tables_that_only_some_partitions_have(store):
    put_files(store, table="facts", **{"p=1/f.parquet": [7]})
    put_files(store, table="names", **{"p=2/f.parquet": [8], "p=1/f.parquet": [9]})
    parts = {
        "p=1/f": {
            "files": {**partition("p=1/f.parquet", "facts")["files"], **partition("p=1/f.parquet", "names")["files"]}
        },
        "p=2/f": partition("p=2/f.parquet", "names"),
    }
    put(store, document(partitions=parts, partition_keys=["p"]))
    assert load_snapshot(store, UUID).values.to_pydict() == {"p": [1, 2]}
    assert read_table_arrow(UUID, store, table="facts").to_pydict() == {"p": [1], "x": [7]}
    assert read_table_arrow(UUID, store, table="names", predicates=[[("p", "==", 2)]]).to_pydict() == {
        "p": [2],
        "x": [8],
    }


# --- implicit datasets ----------------------------------------------------------------------------


def implicit(store, **files):
    put_files(store, **files)
    put(store, document(partition_keys=["p"]))


def test_partitions_of_an_implicit_dataset_are_listed(store):
    implicit(store, **{"p=1/b.parquet": [1], "p=2/a.parquet": [2]})
    for key in ("x.json", "table/p=1/note", "indices/x/2000.by-dataset-index.parquet", "table/p=1/b.csv"):
        store.put(f"{UUID}/{key}", b"not read")
    store.put(f"{UUID}.x.by-dataset-index.parquet", b"not read")
    store.put(f"{UUID}_ext/table/p=9/f.parquet", b"not read")
    snapshot = load_snapshot(store, UUID)
    assert labels(snapshot) == ["p=1/b", "p=2/a"]
    assert snapshot.document.partitions is None
    assert snapshot.tables == ("table",)
    assert read_table_arrow(UUID, store).to_pydict() == {"p": [1, 2], "x": [1, 2]}


def test_new_files_of_an_implicit_dataset_are_seen(store):
    implicit(store, **{"p=1/a.parquet": [1]})
    assert labels(load_snapshot(store, UUID)) == ["p=1/a"]
    put_files(store, **{"p=2/a.parquet": [2]})
    assert labels(load_snapshot(store, UUID)) == ["p=1/a", "p=2/a"]


def test_files_at_different_depths_are_refused(store):
    implicit(store, **{"p=1/a.parquet": [1], "p=1/q=2/a.parquet": [1]})
    with pytest.raises(CorruptDocument, match=r"'uuid'.*\[1, 2\]"):
        load_snapshot(store, UUID)


def test_path_that_is_no_text_is_named(store):
    implicit(store, **{"p=%FF/a.parquet": [1]})
    with pytest.raises(CorruptDocument, match=UUID):
        load_snapshot(store, UUID)


def test_header_without_files(store):
    implicit(store)
    assert len(load_snapshot(store, UUID).partitions) == 0
    assert read_table_arrow(UUID, store).schema == SCHEMA


def test_a_commit_makes_it_explicit(store):
    implicit(store, **{"p=1/a.parquet": [1]})
    snapshot = write(store, {"p": [2], "x": [5]}, on=["p"], label="b")
    assert labels(snapshot) == ["p=1/a", "p=2/b"]
    assert list(json.loads(store.get(DOCUMENT))["partitions"]) == ["p=1/a", "p=2/b"]
    assert read_table_arrow(UUID, store).to_pydict() == {"p": [1, 2], "x": [1, 5]}


# --- indices --------------------------------------------------------------------------------------


def test_index_that_does_not_exist_is_named(store):
    snapshot = write(store, {"x": [1], "v1": [1]}, index=["x"])
    with pytest.raises(InvalidInput, match=r"no secondary index on 'v1', only on \['x'\]"):
        load_index(store, snapshot, "v1")


def test_missing_index_file_is_named(store):
    snapshot = write(store.inner, {"x": [1], "v1": [1]}, index=["x"])
    cold = copy_of(store.inner)
    key = snapshot.document.indices["x"]
    cold.delete(key)
    with pytest.raises(KeyNotFound, match=key.replace("%", ".")):
        load_index(cold, load_snapshot(cold, UUID), "x")


def test_properties_of_a_snapshot(store):
    write(store, {"x": [1], "p": ["a"], "v1": [1]}, on=["p"], index=["x"])
    snapshot = load_snapshot(store, UUID)
    assert snapshot.secondary_columns == {"x"}
    assert snapshot.indexed_columns == {"x", "p"}
    assert snapshot.tables == ("table",)
    assert len(snapshot.files) == 1
