from __future__ import annotations

import json

import pandas as pd
import pytest

from kartothek_cube import open_store
from kartothek_cube.core.dataset.maintain import delete_dataset
from kartothek_cube.core.dataset.read import read_table
from kartothek_cube.core.dataset.write import store_dataframes_as_dataset
from kartothek_cube.core.kartothek.dataset_metadata import DatasetFactory
from kartothek_cube.core.metadata.document import parse_document, render_document
from kartothek_cube.core.metadata.naming import document_key, schema_key
from kartothek_cube.core.snapshots.loader import find_snapshot
from kartothek_cube.core.stores.contract import ReadOnlyView
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import CorruptDocument, DatasetNotFound, InvalidInput, ReadOnlyStore
from kartothek_cube.testing.stores import CountingStore, FaultyStore, SimulatedCrash

UUID = "uuid"
DOCUMENT, TWIN = document_key(UUID), document_key(UUID, msgpack=True)
ROWS = pd.DataFrame({"x": [1, 2, 3], "p": ["a", "a", "b"], "i1": [7, 8, 9]})


@pytest.fixture
def store():
    return MemoryStore()


def build(store, data=ROWS, uuid=UUID, **more):
    return store_dataframes_as_dataset(
        store, uuid, [data], **{"partition_on": ["p"], "secondary_indices": ["i1"], "overwrite": True, **more}
    )


def keys(store):
    return set(store.list(recursive=True).keys)


def edit(store, uuid=UUID, **members):
    """What a writer does that knows no chain; a member that is None goes."""
    document = {**json.loads(store.get(document_key(uuid))), **members}
    store.put(document_key(uuid), json.dumps({k: v for k, v in document.items() if v is not None}).encode())


def add_twin(store):
    store.put(TWIN, render_document(parse_document(store.get(DOCUMENT), DOCUMENT), msgpack=True))


# --- everything goes ------------------------------------------------------------------------------


def plain(store):
    build(store)


def packed(store):
    build(store, metadata_storage_format="msgpack")


def with_a_twin(store):
    build(store)
    add_twin(store)
    build(store, metadata={"rev": 2})
    add_twin(store)


def with_a_damaged_twin(store):
    build(store)
    store.put(TWIN, b"zstd?")


def with_garbage(store):
    for table in ("old", "table"):
        build(store, {table: ROWS})
    for key in ("table/p=a/left.parquet", "indices/i1/left.by-dataset-index.parquet", "old/left.csv"):
        store.put(f"{UUID}/{key}", b"")


def with_history_and_marks(store):
    for n in range(3):
        build(store, metadata={"rev": n})
    store.put(f"{UUID}/_gc/1.json", b'{"time": "2024-01-01T00:00:00Z", "keys": []}')
    store.put(f"{UUID}/_history/damaged.json.zst", b"?")


def empty(store):
    build(store, ROWS[:0])


def empty_of_another_writer(store):
    build(store, ROWS[:0])
    edit(store, metadata={})


def two_tables(store):
    build(store, {"one": ROWS, "two": ROWS[["p", "x"]]})


def implicit(store):
    build(store)
    edit(store, partitions=None, metadata={})
    store.put(f"{UUID}/more/p=a/x.parquet", b"")


def with_a_damaged_schema(store):
    build(store)
    edit(store, metadata={})
    store.put(schema_key(UUID), b"{")


def without_a_schema(store):
    build(store)
    edit(store, metadata={})
    store.delete(schema_key(UUID))


def with_an_old_index(store):
    build(store)
    (key,) = (k for k in keys(store) if "/indices/" in k)
    old = f"{UUID}.i1.by-dataset-index.parquet"
    store.put(old, store.get(key))
    store.delete(key)
    edit(store, indices={"i1": old})


def with_an_embedded_index(store):
    build(store)
    edit(store, indices={"i1": {"7": ["label"]}}, metadata={})


STATES = [
    *(
        plain,
        packed,
        with_a_twin,
        with_a_damaged_twin,
        with_garbage,
        empty,
        empty_of_another_writer,
        two_tables,
        implicit,
    ),
    *(with_a_damaged_schema, without_a_schema, with_an_old_index, with_an_embedded_index),
    with_history_and_marks,
]


@pytest.mark.parametrize("state", STATES)
def test_nothing_is_left(store, state):  # K06, K07
    state(store)
    assert delete_dataset(UUID, store) is None
    assert keys(store) == set()
    assert find_snapshot(store, UUID) is None


@pytest.mark.parametrize(
    "state",
    [plain, packed, with_a_twin, with_garbage, empty_of_another_writer, two_tables, implicit, with_an_old_index],
)
@pytest.mark.parametrize("fault", ["crash", "crash_after"])
def test_after_a_crash_it_can_be_run_again(state, fault):
    whole = MemoryStore()
    state(whole)
    total = len(keys(whole)) + 3
    crashes = 0
    for nth in range(1, total):
        store = MemoryStore()
        state(store)
        faulty = FaultyStore(
            store, lambda call, nth=nth: fault if (call.operation, call.nth) == ("delete", nth) else None
        )
        try:
            delete_dataset(UUID, faulty)
        except SimulatedCrash:
            crashes += 1
        if find_snapshot_or_document(store):
            delete_dataset(UUID, store)
        assert keys(store) == set()
    assert crashes >= len(keys(whole))


def find_snapshot_or_document(store):
    return store.contains(DOCUMENT) or store.contains(TWIN)


def test_the_order_is_garbage_indices_data_schemas_documents(store):  # K05
    with_a_twin(store)
    counting = CountingStore(store)
    delete_dataset(UUID, counting)
    kinds = [kind(key) for key in counting.touched("delete")]
    assert kinds[-2:] == [TWIN, DOCUMENT]
    # Those of the twin, which is stale, count as named.
    assert list(dict.fromkeys(kinds)) == ["history", "index", "data", "schema", TWIN, DOCUMENT]


def kind(key):
    if key.endswith("_common_metadata"):
        return "schema"
    if "/_history/" in key:
        return "history"
    return "index" if "/indices/" in key else "data" if key.endswith(".parquet") else key


def test_garbage_goes_before_what_the_document_names(store):
    build(store)
    named = keys(store)
    store.put(f"{UUID}/table/p=a/left.parquet", b"")
    counting = CountingStore(store)
    delete_dataset(UUID, counting)
    order = counting.touched("delete")
    first = next(n for n, key in enumerate(order) if key in named and "/_history/" not in key)
    assert order.index(f"{UUID}/table/p=a/left.parquet") < first


def test_only_documents_are_read(store):
    build(store)
    counting = CountingStore(store)
    delete_dataset(UUID, counting)
    assert set(counting.touched("get", "get_versioned", "tail", "ranges", "local_path")) == {DOCUMENT, TWIN}


def test_temporary_files_go_too(tmp_path):
    store = open_store(tmp_path)
    build(store)
    (tmp_path / f"{UUID}/table/_common_metadata.0123456789abcdef~").write_bytes(b"half")
    delete_dataset(UUID, store)
    assert list(tmp_path.rglob("*")) == []


# --- nothing else goes ----------------------------------------------------------------------------


@pytest.mark.parametrize("key", [f"{UUID}/x", f"{UUID}.x", f"{UUID}/unknown/left.parquet", "x"])
def test_other_keys_stay(store, key):
    build(store)
    store.put(key, b"")
    delete_dataset(UUID, store)
    assert keys(store) == {key}


@pytest.mark.parametrize("other", [f"{UUID}_ext", f"{UUID}+ext", f"{UUID}++seed", UUID[:-1]])
def test_other_datasets_stay(store, other):
    build(store, uuid=other)
    before = keys(store)
    build(store)
    delete_dataset(UUID, store)
    assert keys(store) == before
    assert len(read_table(other, store)) == 3


def test_files_elsewhere_go_unless_they_are_another_datasets(store, caplog):
    build(store, uuid="other")
    (foreign,) = (k for k in keys(store) if "/p=b/" in k)
    (index,) = (k for k in keys(store) if "/indices/" in k)
    before = keys(store)
    build(store)
    store.put("imports.v2/p=c/x.parquet", b"")
    store.put("imports.i1.by-dataset-index.parquet", b"")
    partitions = json.loads(store.get(DOCUMENT))["partitions"]
    more = {"p=b/foreign": foreign, "p=c/x": "imports.v2/p=c/x.parquet", "p=d/x": document_key("other")}
    edit(
        store,
        partitions={**partitions, **{label: {"files": {"table": key}} for label, key in more.items()}},
        indices={"i1": index, "x": "imports.i1.by-dataset-index.parquet"},
        metadata={},
    )
    delete_dataset(UUID, store)
    assert keys(store) == before
    assert len(read_table("other", store)) == 3
    assert foreign in "\n".join(caplog.messages)
    assert "3 files of other datasets" in "\n".join(caplog.messages)


def test_a_document_that_names_itself_goes_last(store):
    build(store)
    edit(store, partitions={"x": {"files": {"table": DOCUMENT}}}, metadata={})
    counting = CountingStore(store)
    delete_dataset(UUID, counting)
    assert counting.touched("delete").count(DOCUMENT) == 1
    assert counting.touched("delete")[-1] == DOCUMENT


# --- refusals -------------------------------------------------------------------------------------


def test_a_missing_dataset_is_named(store):
    with pytest.raises(
        DatasetNotFound, match=r"uuid\.by-dataset-metadata\.json and uuid\.by-dataset-metadata\.msgpack"
    ):
        delete_dataset(UUID, store)


def test_a_dataset_whose_document_is_damaged_stays(store):
    build(store)
    add_twin(store)
    store.put(DOCUMENT, b"{")
    before = keys(store)
    with pytest.raises(CorruptDocument, match=DOCUMENT):
        delete_dataset(UUID, store)
    assert keys(store) == before


def test_a_store_for_reading_only_is_refused(store):
    build(store)
    before = keys(store)
    with pytest.raises(ReadOnlyStore):
        delete_dataset(UUID, ReadOnlyView(store))
    assert keys(store) == before


def test_a_factory_names_the_dataset_and_forgets_it(store):  # K08
    build(store)
    factory = DatasetFactory(UUID, lambda: store)
    _ = factory.snapshot
    delete_dataset(factory=factory)
    assert keys(store) == set()
    with pytest.raises(DatasetNotFound):
        _ = factory.snapshot


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"dataset_uuid": UUID},
        {"dataset_uuid": UUID, "store": MemoryStore(), "factory": DatasetFactory(UUID, MemoryStore)},
    ],
)
def test_a_dataset_has_to_be_named(arguments):  # A05
    with pytest.raises(InvalidInput, match="factory"):
        delete_dataset(**arguments)
