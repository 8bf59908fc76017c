"""Damaged and hostile objects in a store: an error of the right category, bounds on time and
memory, nothing written, nothing of others touched.
"""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
import tracemalloc

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from kartothek_cube import options
from kartothek_cube.core.dataset.maintain import copy_dataset, delete_dataset, garbage_collect_dataset, rename_dataset
from kartothek_cube.core.dataset.read import read_table, read_table_arrow
from kartothek_cube.core.io.formats import ParquetFormat
from kartothek_cube.core.io.parquet import check_rows, column_positions, column_statistics, open_file
from kartothek_cube.core.metadata.commit_log import COMMITS_KEY, SCHEMA_KEY
from kartothek_cube.core.metadata.document import check_user_metadata, decompress, parse_document, render_document
from kartothek_cube.core.snapshots.loader import load_snapshot, with_indices
from kartothek_cube.core.stores.local import LocalStore, MemoryStore
from kartothek_cube.cube.verbs.cells import delete_cube
from kartothek_cube.cube.verbs.maintain import cleanup_cube
from kartothek_cube.errors import (
    CorruptData,
    CorruptDocument,
    InvalidInput,
    KartothekCubeError,
    KeyNotFound,
    Unsupported,
)
from tests.robustness.fuzz import seeds
from tests.robustness.fuzz.mutators import encode
from tests.support.cubes import CUBE, build_two

NOW = options(grace=dt.timedelta(0), retain=dt.timedelta(0))
DEEP = 100_000


def opened(objects, store=None):
    store = MemoryStore() if store is None else store
    for key, data in objects.items():
        store.put(key, data)
    return store


def contents(store):
    return {key: store.get(key) for key in store.list("", recursive=True).keys}


def damaged(spelling="json", members=None, **objects):
    """The sound store with other members of the document, or other objects."""
    found = {**seeds.store_of(spelling), **objects}
    if members is not None:
        found[seeds.JSON_KEY] = json.dumps({**seeds.document(ours=spelling == "ours"), **members}).encode()
    return opened(found)


def refuses(store, error, match=None, predicates=None):
    """Reading raises this error and writes nothing."""
    before = contents(store)
    with pytest.raises(error, match=match):
        read_table_arrow(seeds.UUID, store, predicates=predicates)
    assert contents(store) == before


@pytest.mark.parametrize("spelling", ["json", "ours", "msgpack"])
def test_the_sound_store_can_be_read(spelling):
    assert read_table_arrow(seeds.UUID, opened(seeds.store_of(spelling))).equals(seeds.rows())


# --- documents ------------------------------------------------------------------------------------


@pytest.mark.parametrize("spelling", ["json", "msgpack"])
def test_a_document_that_is_cut_off_anywhere_is_corrupt(spelling):
    key = seeds.MSGPACK_KEY if spelling == "msgpack" else seeds.JSON_KEY
    data = seeds.store_of(spelling)[key]
    for length in range(len(data)):
        with pytest.raises(CorruptDocument, match=key):
            parse_document(data[:length], key)
    if spelling == "msgpack":
        plain = zstandard.decompress(data)
        for length in range(len(plain)):
            with pytest.raises(CorruptDocument, match=key):
                parse_document(zstandard.compress(plain[:length]), key)


HEAD = b'{"dataset_metadata_version": 4, "dataset_uuid": "uuid", '


@pytest.mark.parametrize("member", ["metadata", "indices", "partitions", "partition_keys", "unknown"])
@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
@pytest.mark.parametrize("is_whole", [True, False])
def test_a_deeply_nested_member_is_corrupt(member, opening, closing, is_whole):
    value = b'{"a":' + opening * DEEP + b"1" + (closing * DEEP + b"}" if is_whole else b"")
    with pytest.raises(CorruptDocument, match=seeds.JSON_KEY):
        parse_document(HEAD + b'"' + member.encode() + b'": ' + value + b"}", seeds.JSON_KEY)


@pytest.mark.parametrize(
    "plain",
    [
        b"\x91" * DEEP + b"\xc0",
        b"\x81\xa1a" * DEEP + b"\xc0",
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xc7\x01\x05\x00",
    ],
)
def test_msgpack_that_is_nested_or_claims_to_be_huge_is_corrupt(plain):
    with pytest.raises(CorruptDocument, match=seeds.MSGPACK_KEY):
        parse_document(zstandard.compress(plain), seeds.MSGPACK_KEY)


def nested(depth):
    value = None
    for _ in range(depth):
        value = [value]
    return value


def test_metadata_that_is_read_can_be_copied_and_rendered():
    document = parse_document(json.dumps({**seeds.document(), "metadata": {"a": nested(98)}}).encode(), seeds.JSON_KEY)
    assert parse_document(render_document(document), seeds.JSON_KEY).user_metadata == {"a": nested(98)}
    assert check_user_metadata({"a": nested(98)}, "uuid") == {"a": nested(98)}


@pytest.mark.parametrize("depth", [101, 300, 900])
def test_metadata_that_could_not_be_copied_are_refused_by_reader_and_writer(depth):
    with pytest.raises(CorruptDocument, match="deep"):
        parse_document(json.dumps({**seeds.document(), "metadata": {"a": nested(depth)}}).encode(), seeds.JSON_KEY)
    with pytest.raises(InvalidInput, match="uuid"):
        check_user_metadata({"a": nested(depth)}, "uuid")


def test_metadata_without_end_are_refused():
    endless = nested(100_000)
    with pytest.raises(InvalidInput, match="uuid"):
        check_user_metadata({"a": endless}, "uuid")
    while endless is not None:  # a nest that deep could not be freed at once
        endless = endless[0]


@pytest.mark.parametrize(
    "value",
    [
        b"NaN",
        b"Infinity",
        b"-Infinity",
        b"1e999",
        b"9" * 5000,
        b'"\\ud800"',
        b'"\xff"',
        b'"a',
        b"tru",
        b"'a'",
        b"01",
        b"+1",
        b".5",
        b"\x00",
    ],
)
@pytest.mark.parametrize("member", ["metadata", "partitions", "dataset_metadata_version"])
def test_values_that_json_does_not_have_are_corrupt(member, value):
    inner = value if member == "dataset_metadata_version" else b'{"a": ' + value + b"}"
    with pytest.raises(CorruptDocument, match=seeds.JSON_KEY):
        parse_document(HEAD + b'"' + member.encode() + b'": ' + inner + b"}", seeds.JSON_KEY)


@pytest.mark.parametrize(
    ("version", "error"),
    [
        (3, Unsupported),
        (5, Unsupported),
        (-1, Unsupported),
        ("4", CorruptDocument),
        (None, CorruptDocument),
        (4.0, CorruptDocument),
        ([], CorruptDocument),
        (True, CorruptDocument),
    ],
)
@pytest.mark.parametrize("spelling", ["json", "msgpack"])
def test_another_version_is_unsupported_and_no_version_corrupt(version, error, spelling):
    members = {**seeds.document(), "dataset_metadata_version": version}
    key, data = (
        (seeds.JSON_KEY, json.dumps(members).encode())
        if spelling == "json"
        else (seeds.MSGPACK_KEY, seeds.packed(members))
    )
    with pytest.raises(error, match=key):
        parse_document(data, key)


@pytest.mark.parametrize(
    "value",
    [
        5,
        "x",
        True,
        1.5,
        [1],
        [[]],
        {"a": 1},
        {"a": None},
        {"a": {"files": 5}},
        {"a": {"files": {"table": 5}}},
        {"a": {"files": {"table": None}}},
    ],
)
@pytest.mark.parametrize("member", ["partitions", "partition_keys", "indices"])
def test_a_member_of_another_type_is_corrupt(member, value):
    value = {"i1": value["a"]} if member == "indices" and isinstance(value, dict) else value
    refuses(damaged(members={member: value}), CorruptDocument, "uuid", predicates=[[("i1", "==", 1), ("t", "==", "a")]])


@pytest.mark.parametrize("uuid", ["other", "", "../uuid", None, 5])
def test_a_document_of_another_uuid_is_corrupt(uuid):
    refuses(damaged(members={"dataset_uuid": uuid}), CorruptDocument, "uuid")


@pytest.mark.parametrize("keys", [["p", "p"], ["..", "p"], ["nope"], ["x" * 10_000], [""]])
def test_absurd_partition_keys_are_corrupt(keys):
    refuses(damaged(members={"partition_keys": keys}), CorruptDocument, "uuid")


def test_of_two_labels_of_one_name_the_last_counts_as_for_every_json_parser():
    first, second = (
        f'"{seeds.LABELS[0]}": {{"files": {{"table": "{seeds.data_key(label)}"}}}}' for label in seeds.LABELS[:2]
    )
    text = HEAD + f'"partitions": {{{first}, {second}}}, "partition_keys": ["p"]}}'.encode()
    partitions = parse_document(text, seeds.JSON_KEY).partitions
    assert partitions.labels.to_pylist() == seeds.LABELS[:1]
    assert partitions.files["table"].to_pylist() == [seeds.data_key(seeds.LABELS[1])]


@pytest.mark.parametrize("length", [1, 7, 8, 9, 200, 2000])
def test_labels_are_told_apart_wherever_they_differ(length):
    for position in range(0, length, max(1, length // 9)):
        labels = ["a" * length, "a" * position + "b" + "a" * (length - position - 1)]
        partitions = {label: {"files": {"table": "uuid/table/x.parquet"}} for label in labels}
        text = json.dumps({**seeds.document(), "partitions": partitions}).encode()
        assert parse_document(text, seeds.JSON_KEY).partitions.labels.to_pylist() == labels


@pytest.mark.parametrize(
    "partitions",
    [
        {5: {"files": {"table": "x"}}},
        {b"a": {"files": {"table": "x"}}},
        {"a": {"files": {6: "x"}}},
        {"a": {"files": {"table": b"x"}}},
    ],
)
def test_labels_and_tables_of_msgpack_are_text(partitions):
    with pytest.raises(CorruptDocument, match=seeds.MSGPACK_KEY):
        parse_document(seeds.packed({**seeds.document(), "partitions": partitions}), seeds.MSGPACK_KEY)


@pytest.mark.parametrize("label", ["", "a\nb", "a\0b", "x" * 10_000_000, "..", "../../etc", 'a"b', "ä"])
def test_any_text_is_a_label(label):
    partitions = {label: {"files": {"table": seeds.data_key(seeds.LABELS[0])}}}
    assert read_table_arrow(seeds.UUID, damaged(members={"partitions": partitions})).num_rows == 4


# --- bombs ----------------------------------------------------------------------------------------


def bomb(megabytes, *, says_its_size):
    packer = zstandard.ZstdCompressor().compressobj(size=megabytes * 2**20 if says_its_size else -1)
    return b"".join(packer.compress(bytes(2**20)) for _ in range(megabytes)) + packer.flush()


@pytest.mark.parametrize("says_its_size", [True, False])
def test_a_bomb_is_refused_within_bounds(says_its_size):
    packed = bomb(600, says_its_size=says_its_size)
    assert len(packed) < 50_000
    tracemalloc.start()
    with pytest.raises(CorruptDocument, match="would unpack to more than"):
        parse_document(packed, seeds.MSGPACK_KEY)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 300 * 2**20


def test_a_frame_that_lies_about_its_size_takes_no_memory():
    for size in (2**40, 2**62):
        frame = bytes.fromhex("28b52ffde0") + size.to_bytes(8, "little") + zstandard.compress(b"x")[6:]
        with pytest.raises(ValueError, match="more than"):
            decompress(frame)


@pytest.mark.parametrize("says_its_size", [True, False])
def test_what_follows_a_frame_or_is_cut_off_is_noticed(says_its_size):
    frame = bomb(1, says_its_size=says_its_size)
    assert decompress(frame) == bytes(2**20)
    for data in (frame[:-1], frame + b"x", frame + frame, b"", frame[:3]):
        with pytest.raises(ValueError, match=r"frame|size|unused"):
            decompress(data)


def test_large_regular_documents_are_no_bombs():
    labels = [f"part-{n:08d}" for n in range(400_000)]
    members = {
        **seeds.document(),
        "partitions": {label: {"files": {"table": seeds.data_key(label)}} for label in labels},
        "partition_keys": [],
    }
    data = zstandard.compress(msgspec.msgpack.encode(members))
    assert parse_document(data, seeds.MSGPACK_KEY).partitions.labels.to_pylist() == labels


@pytest.mark.parametrize(
    "entry",
    [
        "[" * DEEP,
        '{"a":' * DEEP,
        "null",
        '{"table": 5}',
        '{"table": "%%%"}',
        '{"table": "AAAA"}',
        '{"table": "KLUv/Q=="}',
        "x" * 1_000_000,
    ],
)
def test_a_damaged_schema_inside_the_document_is_corrupt(entry):
    store = damaged("ours")
    members = json.loads(store.get(seeds.JSON_KEY))
    members["metadata"][SCHEMA_KEY] = entry
    store.put(seeds.JSON_KEY, json.dumps(members).encode())
    refuses(store, CorruptDocument, "uuid")


@pytest.mark.parametrize(
    "entry",
    [
        "[" * DEEP,
        '{"a":' * DEEP,
        "null",
        '[["a"]]',
        5,
        [[1]],
        '[["a", null, "x", "tomorrow"]]',
    ],
)
def test_with_a_damaged_chain_the_schema_file_rules(entry):
    store = damaged("ours")
    members = json.loads(store.get(seeds.JSON_KEY))
    members["metadata"] |= {COMMITS_KEY: entry, SCHEMA_KEY: "nonsense"}
    store.put(seeds.JSON_KEY, json.dumps(members).encode())
    assert read_table_arrow(seeds.UUID, store).equals(seeds.rows())


# --- keys that a document names -------------------------------------------------------------------

ABSURD_KEYS = [
    "../secret.parquet",
    "/etc/passwd.parquet",
    "uuid/../../x.parquet",
    "uuid//x.parquet",
    "uuid\\x.parquet",
    "uuid/a\nb.parquet",
    "x" * 300 + ".parquet",
    "uuid/a\0.parquet",
]


@pytest.mark.parametrize("key", ABSURD_KEYS)
@pytest.mark.parametrize("folder", [True, False])
def test_keys_that_leave_the_store_are_the_documents_fault(key, folder, tmp_path):
    store = LocalStore(tmp_path / "root") if folder else MemoryStore()
    (tmp_path / "secret.parquet").write_bytes(seeds.store_of("json")[seeds.data_key(seeds.LABELS[0])])
    for members in ({"partitions": {"a": {"files": {"table": key}}}, "partition_keys": []}, {"indices": {"i1": key}}):
        opened({**seeds.store_of("json"), seeds.JSON_KEY: json.dumps({**seeds.document(), **members}).encode()}, store)
        before = contents(store)
        with pytest.raises(CorruptDocument, match=r"uuid.*names a key"):
            read_table_arrow(seeds.UUID, store, predicates=[[("i1", "==", 1)]] if "indices" in members else None)
        for verb in (
            lambda: delete_dataset(seeds.UUID, store),
            lambda: copy_dataset(seeds.UUID, store, "copy"),
            lambda: rename_dataset(seeds.UUID, store, "new"),
        ):
            with pytest.raises(KartothekCubeError):
                verb()
        assert contents(store) == before


@pytest.mark.parametrize("table", ["..", "../other", "a\nb", "x" * 300])
def test_tables_that_leave_the_dataset_are_the_documents_fault(table):
    refuses(
        damaged(members={"partitions": {"a": {"files": {table: seeds.data_key(seeds.LABELS[0])}}}}),
        CorruptDocument,
        "names a key",
    )


def naming_others():
    """A dataset whose document names objects of another one."""
    partitions = {
        f"p={n}/x": {"files": {"table": key}}
        for n, key in enumerate(
            ["other/table/x.parquet", "other.by-dataset-metadata.json", seeds.data_key(seeds.LABELS[0])]
        )
    }
    return damaged(
        members={
            "partitions": partitions,
            "partition_keys": [],
            "indices": {"i1": "other/table/x.parquet", "t": "other.by-dataset-metadata.json"},
        }
    )


VERBS = {
    "delete": lambda store: delete_dataset(seeds.UUID, store),
    "collect garbage": lambda store: garbage_collect_dataset(seeds.UUID, store, options=NOW),
    "copy": lambda store: copy_dataset(seeds.UUID, store, "copy"),
    "rename": lambda store: rename_dataset(seeds.UUID, store, "new"),
}


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_what_belongs_to_another_dataset_stays_whoever_names_it(verb):
    store = naming_others()
    before = {key: data for key, data in contents(store).items() if key.startswith("other")}
    assert len(before) == 2
    verb(store)
    assert {key: data for key, data in contents(store).items() if key.startswith("other")} == before


@pytest.mark.parametrize(
    "verb",
    [lambda store: cleanup_cube(CUBE, store, options=NOW), lambda store: delete_cube(CUBE, store)],
    ids=["cleanup", "delete"],
)
def test_what_belongs_to_another_dataset_stays_whichever_cube_names_it(verb):
    store = MemoryStore()
    build_two(store)
    others = {key: data for key, data in seeds.store_of("json").items() if key.startswith("other")}
    opened(others, store)
    key = f"{CUBE.uuid_prefix}++e.by-dataset-metadata.json"
    members = json.loads(store.get(key))
    for label, name in zip(sorted(members["partitions"]), others, strict=False):
        members["partitions"][label]["files"]["table"] = name
    store.put(key, json.dumps(members).encode())
    verb(store)
    assert {k: data for k, data in contents(store).items() if k.startswith("other")} == others


# --- schema files ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema([("p", pa.null()), ("x", pa.int64())]),
        pa.schema([("x", pa.int64()), ("x", pa.string()), ("p", pa.int64())]),
        pa.schema([("x", pa.int64())]),
    ],
)
def test_a_schema_file_that_contradicts_the_dataset_is_corrupt(schema):
    refuses(damaged(**{seeds.SCHEMA_FILE: encode(schema.empty_table())}), CorruptDocument, "uuid")


def test_a_schema_file_with_a_name_that_is_no_text_is_corrupt():
    data = seeds.store_of("json")[seeds.SCHEMA_FILE]
    refuses(
        damaged(**{seeds.SCHEMA_FILE: encode(pa.table({"zzzz": [1]})).replace(b"zzzz", b"\xff\xff\xff\xff")}),
        CorruptDocument,
        "_common_metadata",
    )
    for length in (0, 3, 4, 8, 12, len(data) - 1):
        refuses(damaged(**{seeds.SCHEMA_FILE: data[:length]}), CorruptDocument, "_common_metadata")


# --- index files ----------------------------------------------------------------------------------

LABEL_LISTS = pa.array([[*seeds.LABELS, "nope", "../x", "", None]] * 4, type=pa.list_(pa.string()))
VALUES = pa.array([0, 1, 2, 3])


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"i1": VALUES, "partition": LABEL_LISTS}),
        pa.table({"i1": pa.array([None, 1, 1, 2]), "partition": LABEL_LISTS}),
        pa.table({"i1": VALUES.cast(pa.float64()), "partition": LABEL_LISTS}),
        pa.table({"more": VALUES, "partition": LABEL_LISTS, "i1": VALUES}),
        pa.table({"i1": VALUES, "partition": pa.array([None, *LABEL_LISTS.to_pylist()[1:]], type=LABEL_LISTS.type)}),
    ],
)
def test_an_index_with_strange_entries_changes_no_answer(table):
    store = damaged(**{seeds.INDEX_KEY: encode(table)})
    assert read_table_arrow(seeds.UUID, store, predicates=[[("i1", "==", 1)]])["x"].to_pylist() == [3, 4, 5]


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"i1": VALUES}),
        pa.table({"i2": VALUES, "partition": LABEL_LISTS}),
        pa.table({"i1": ["a"] * 4, "partition": LABEL_LISTS}),
        pa.table({"i1": VALUES, "partition": [*seeds.LABELS, "a"]}),
        pa.table({"i1": VALUES, "partition": [[1], [2], [3], [4]]}).set_column(
            1, "partition", pa.array([[[1]], [[2]], [[3]], [[4]]])
        ),
        pa.table({"i1": VALUES, "partition": pa.array([{"a": 1}] * 4)}),
        pa.table({"i1": LABEL_LISTS, "partition": LABEL_LISTS}),
        pa.table([VALUES, LABEL_LISTS, LABEL_LISTS], names=["i1", "partition", "partition"]),
    ],
)
def test_an_index_of_other_columns_or_types_is_corrupt(table):
    refuses(damaged(**{seeds.INDEX_KEY: encode(table)}), CorruptData, "uuid", predicates=[[("i1", "==", 1)]])


def test_an_index_that_the_document_calls_null_is_corrupt():
    store = damaged(members={"indices": {"i1": None}})
    with pytest.raises(CorruptDocument, match="i1"):
        with_indices(store, load_snapshot(store, seeds.UUID), ["i1"])


# --- data files -----------------------------------------------------------------------------------

DATA_KEY = seeds.data_key(seeds.LABELS[0])
TABLE = pq.read_table(pa.BufferReader(seeds.store_of("json")[DATA_KEY]))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PAR1",
        b"PAR1PAR1",
        b"PAR1" + b"\xff\xff\xff\x7f" + b"PAR1",
        b"PARE" + bytes(100) + b"PARE",
        b"x" * 1000,
        encode(TABLE)[:-1],
        encode(TABLE)[1:],
        encode(TABLE.set_column(TABLE.column_names.index("x"), "x", pa.array(["a"] * 4))),
        encode(TABLE.set_column(TABLE.column_names.index("x"), "x", pa.array([[1]] * 4))),
        encode(TABLE.set_column(TABLE.column_names.index("l"), "l", pa.array([{"a": 1}] * 4))),
        encode(TABLE.append_column("x", TABLE["x"])),
    ],
)
@pytest.mark.parametrize("folder", [True, False])
def test_a_data_file_that_is_none_or_has_other_types_is_corrupt(data, folder, tmp_path):
    store = opened({**seeds.store_of("json"), DATA_KEY: data}, LocalStore(tmp_path) if folder else None)
    refuses(store, CorruptData, DATA_KEY)


def test_a_data_file_that_is_missing_is_named():
    store = damaged()
    store.delete(DATA_KEY)
    refuses(store, KeyNotFound, DATA_KEY)


def test_rows_in_any_order_and_outside_their_index_entries_are_rows():
    store = damaged(**{DATA_KEY: encode(TABLE.take([3, 1, 2, 0]).append_column("more", pa.array([1] * 4)))})
    assert read_table_arrow(seeds.UUID, store)["x"].to_pylist()[:4] == [3, 1, 2, 0]
    assert read_table(seeds.UUID, store, predicates=[[("x", "<", 2)]])["x"].to_list() == [1, 0]


def test_a_changed_bit_in_a_page_is_noticed():
    data = ParquetFormat(compression="NONE").encode(TABLE).to_pybytes()
    chunks = pq.read_metadata(pa.BufferReader(data)).row_group(0)
    for j in range(chunks.num_columns):
        chunk = chunks.column(j)
        changed = bytearray(data)
        changed[(chunk.dictionary_page_offset or chunk.data_page_offset) + chunk.total_compressed_size - 1] ^= 1
        refuses(damaged(**{DATA_KEY: bytes(changed)}), CorruptData, DATA_KEY)


class _Group:
    def __init__(self, rows):
        self.num_rows = rows


class _Footer:
    def __init__(self, total, *groups):
        self.num_rows, self.groups, self.num_row_groups = total, groups, len(groups)

    def row_group(self, g):
        return _Group(self.groups[g])


@pytest.mark.parametrize(
    "footer",
    [
        _Footer(5, 2, 2),
        _Footer(-1, -1),
        _Footer(1, 3, -2),
        _Footer(2**62, 2**62),
        _Footer(2**40, 2**39, 2**39),
        _Footer(3),
    ],
)
def test_numbers_of_rows_that_lie_are_refused(footer):
    with pytest.raises(pa.ArrowInvalid, match="rows"):
        check_rows(footer, 1000)


@pytest.mark.parametrize("footer", [_Footer(0), _Footer(0, 0), _Footer(5, 2, 3), _Footer(2**26, 2**26)])
def test_numbers_of_rows_that_may_be_true_are_not(footer):
    check_rows(footer, 1000)


# On these bits of the footer Arrow's accessors end the process: a guard that fails shows as an
# abort, so that it runs in a process of its own.
GUARDED = """
import os
import pyarrow as pa, pyarrow.parquet as pq
from kartothek_cube.core.io.reader import file_stats
from kartothek_cube.core.io.reader import FileRequest, open_rows, read_rows
from kartothek_cube.core.snapshots.statistics import row_group_table
from kartothek_cube.core.expressions.predicates import parse_predicates
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import CorruptData

table = pa.table({"x": [1, 2, 3], "t": ["a", "b", None]})
sink = pa.BufferOutputStream()
pq.write_table(table, sink)
data = sink.getvalue().to_pybytes()
start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
request = FileRequest("uuid", table.schema, ("x", "t"), parse_predicates([[("x", ">", 0), ("t", "!=", "z")]]))
refused = 0
for at in range(start, len(data) - 8):
    for bit in range(8):
        changed = bytearray(data)
        changed[at] ^= 1 << bit
        store = MemoryStore()
        store.put("f.parquet", bytes(changed))
        reads = [
            lambda: read_rows(store, "f.parquet", request),
            lambda: list(open_rows(store, "f.parquet", request, 10)[1]),
            lambda: row_group_table(store, "uuid", [("a", "f.parquet")]),
        ]
        if bit in (0, 6):  # a little more or much more than it was
            reads.append(lambda: file_stats(store, "uuid", "f.parquet"))
        for read in reads:
            try:
                read()
            except CorruptData:
                refused += 1
print(refused, flush=True)
os._exit(0)  # threads of pyarrow 18 that still hold bytes of a refused file abort an interpreter that ends
"""


def test_no_bit_of_a_footer_ends_the_process():
    done = subprocess.run([sys.executable, "-c", GUARDED], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 1000


def test_sound_chunks_are_found_whatever_their_names(tmp_path):
    table = pa.table({"a": [1, 2], "a.b": [3, 4], "l": [[1], [2]], "s": [{"x": 1}, {"x": 2}], "": [5, 6]})
    store = opened({"f.parquet": encode(table, row_group_size=1)}, LocalStore(tmp_path))
    with open_file(store, "f.parquet", None) as source:
        assert [[c.path_in_schema for c in group] for group in source.chunks([0, 1], {"a"})] == [["a"]] * 2
        assert [[c.path_in_schema for c in group] for group in source.chunks([1], {"l", "s", "nope"})] == [
            ["l.list.element", "s.x"]
        ]
        assert source.chunks([], {"a"}) == []
        assert source.chunks([0, 1], set()) == [[], []]
        assert column_statistics(source.chunks([1], {"a"})[0][0], source.metadata.schema.column(0)) == (2, 2, False)

    with pytest.raises(pa.ArrowInvalid, match="3 columns where it has 5"):
        column_positions(source.metadata, table.schema.remove(4).remove(3))


# --- symbolic links -------------------------------------------------------------------------------


@pytest.fixture
def linked(tmp_path):
    """A store with a folder that leads out of it, and one that leads to another dataset of it."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "x.parquet").write_bytes(b"precious")
    store = LocalStore(tmp_path / "root")
    store.put("uuid/table/a.parquet", b"1")
    store.put("other/table/x.parquet", b"2")
    (tmp_path / "root" / "uuid" / "out").symlink_to(tmp_path / "outside")
    (tmp_path / "root" / "uuid" / "alias").symlink_to(tmp_path / "root" / "other")
    return store


def test_nothing_is_listed_behind_a_linked_folder(linked):
    assert linked.list("", recursive=True).keys == ["other/table/x.parquet", "uuid/table/a.parquet"]
    assert linked.list("uuid/").prefixes == ["uuid/table/"]
    assert linked.list("uuid/out/").keys == linked.list("uuid/alias/", recursive=True).keys == []


def test_behind_a_linked_folder_nothing_is_written_or_deleted(linked, tmp_path):
    for key in ("uuid/out/x.parquet", "uuid/alias/table/x.parquet", "uuid/out/new/y"):
        for write in (
            lambda key=key: linked.put(key, b"3"),
            lambda key=key: linked.put_if(key, b"3", None),
            lambda key=key: linked.put_file(key, __file__),
            lambda key=key: linked.copy("uuid/table/a.parquet", key),
            lambda key=key: linked.delete(key),
        ):
            with pytest.raises(InvalidInput, match="symbolic link"):
                write()
    assert (tmp_path / "outside" / "x.parquet").read_bytes() == b"precious"
    assert [p.name for p in (tmp_path / "outside").iterdir()] == ["x.parquet"]
    assert linked.get("other/table/x.parquet") == b"2"


def test_a_linked_folder_can_be_read_through(linked):
    assert linked.get("uuid/out/x.parquet") == b"precious"
    assert linked.get("uuid/alias/table/x.parquet") == b"2"


def test_a_link_is_deleted_and_not_what_it_leads_to(linked, tmp_path):
    (tmp_path / "root" / "link").symlink_to(tmp_path / "outside" / "x.parquet")
    with pytest.raises(InvalidInput, match="leads out"):
        linked.put_if("link", b"3", linked.get_versioned("uuid/table/a.parquet")[1])
    linked.delete("link")
    assert not (tmp_path / "root" / "link").is_symlink()
    assert (tmp_path / "outside" / "x.parquet").read_bytes() == b"precious"


def test_the_store_itself_may_be_a_link(linked, tmp_path):
    (tmp_path / "there").symlink_to(tmp_path / "root")
    store = LocalStore(tmp_path / "there")
    store.put("uuid/table/b.parquet", b"4")
    assert linked.get("uuid/table/b.parquet") == b"4"
    store.delete("uuid/table/b.parquet")
    assert store.list("uuid/", recursive=True).keys == ["uuid/table/a.parquet"]
