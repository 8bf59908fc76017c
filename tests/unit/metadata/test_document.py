from __future__ import annotations

import json
from unittest import mock

import msgspec
import pyarrow as pa
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from kartothek_cube.core.metadata import document as fast_parser
from kartothek_cube.core.metadata.document import (
    Document,
    PartitionColumns,
    check_user_metadata,
    cut_json,
    cut_msgpack,
    decode_partitions,
    encoded_pieces,
    from_mapping,
    parse_document,
    render_document,
    to_mapping,
)
from kartothek_cube.errors import CorruptDocument, InvalidInput, InvalidType, Unsupported

pytestmark = pytest.mark.usefixtures("fast_paths")

KEY = "uuid.by-dataset-metadata.json"
PACKED = "uuid.by-dataset-metadata.msgpack.zstd"
MINIMAL = {"dataset_metadata_version": 4, "dataset_uuid": "uuid"}

# The worked examples of kartothek 5.3, byte for byte.
PARTITIONED = (
    b'{"dataset_metadata_version": 4, "dataset_uuid": "ds", '
    b'"indices": {"L": "ds/indices/L/2000-01-01T01%3A01%3A01.000001.by-dataset-index.parquet"}, '
    b'"metadata": {"creation_time": "2000-01-01T01:01:01.000001", "owner": "me"}, '
    b'"partitions": {"P=1/00000000000000000000000000000001": {"files": '
    b'{"table": "ds/table/P=1/00000000000000000000000000000001.parquet"}}, '
    b'"P=2/00000000000000000000000000000001": {"files": {"table": '
    b'"ds/table/P=2/00000000000000000000000000000001.parquet"}}}, "partition_keys": ["P"]}'
)
HEADER = (
    b'{"dataset_metadata_version": 4, "dataset_uuid": "impl", '
    b'"metadata": {"creation_time": "2021-03-04T05:06:07.000002", "team": "x"}, '
    b'"partition_keys": ["day"]}'
)
TWO_TABLES = (
    b'{"dataset_metadata_version": 4, "dataset_uuid": "impl", '
    b'"metadata": {"creation_time": "2021-03-04T05:06:07.000002", "team": "x"}, "partitions": '
    b'{"day=2020-01-01/00000000000000000000000000000002": {"files": '
    b'{"facts": "impl/facts/day=2020-01-01/00000000000000000000000000000002.parquet", '
    b'"names": "impl/names/day=2020-01-01/00000000000000000000000000000002.parquet"}}, '
    b'"day=2020-01-02/00000000000000000000000000000002": {"files": '
    b'{"facts": "impl/facts/day=2020-01-02/00000000000000000000000000000002.parquet", "names": '
    b'"impl/names/day=2020-01-02/00000000000000000000000000000002.parquet"}}}, "partition_keys": ["day"]}'
)
ALL_TYPES = bytes.fromhex(
    "85b8646174617365745f6d657461646174615f76657273696f6e04ac646174617365745f75756964a57479706573a86d6574616461746182"
    "ad6372656174696f6e5f74696d65ba323032312d30332d30345430353a30363a30372e303030303031a16181a1629401cb40040000000000"
    "00c0c3aa706172746974696f6e7381d920303030303030303030303030303030303030303030303030303030303030303181a566696c6573"
    "81a57461626c65d93474797065732f7461626c652f30303030303030303030303030303030303030303030303030303030303030312e7061"
    "7271756574ae706172746974696f6e5f6b65797390"
)


@pytest.mark.parametrize("data", [PARTITIONED, HEADER, TWO_TABLES])
def test_documents_of_kartothek_are_rendered_byte_for_byte(data):
    assert render_document(parse_document(data, KEY)) == data


def test_members_of_the_worked_example():
    document = parse_document(PARTITIONED, KEY)
    assert len(PARTITIONED) == 498
    assert (document.uuid, document.partition_keys) == ("ds", ("P",))
    assert document.indices == {"L": "ds/indices/L/2000-01-01T01%3A01%3A01.000001.by-dataset-index.parquet"}
    assert document.metadata == {"creation_time": "2000-01-01T01:01:01.000001", "owner": "me"}
    assert document.partitions.labels.to_pylist() == [f"P={p}/00000000000000000000000000000001" for p in (1, 2)]
    assert document.partitions.files["table"].to_pylist() == [
        f"ds/table/P={p}/00000000000000000000000000000001.parquet" for p in (1, 2)
    ]


def test_msgpack_document_of_kartothek_is_rendered_byte_for_byte():
    document = parse_document(zstandard.compress(ALL_TYPES), PACKED)
    assert document.metadata == {"creation_time": "2021-03-04T05:06:07.000001", "a": {"b": [1, 2.5, None, True]}}
    rendered = render_document(document, msgpack=True)
    assert zstandard.decompress(rendered) == ALL_TYPES
    assert rendered[:4] == bytes.fromhex("28b52ffd")
    # The content size stands in the frame's header, as kartothek needs it.
    assert zstandard.frame_content_size(rendered) == len(ALL_TYPES)


def test_minimal_msgpack_vector():
    data = bytes.fromhex(
        "28b52ffd202a350100f082b8646174617365745f6d6574615f76657273696f6e04ac75756964a17502003d09795094"
    )
    assert parse_document(data, PACKED) == Document("u", {}, None, {}, None)


# --- what a reader tolerates ----------------------------------------------------------------------


def parse(**members):
    return parse_document(json.dumps({**MINIMAL, **members}).encode(), KEY)


def test_only_version_and_uuid_are_mandatory():
    assert parse() == Document("uuid", {}, None, {}, None)


def test_empty_partitions_are_explicit():
    assert len(parse(partitions={}).partitions) == 0
    assert parse(partitions={}).partitions is not None


def test_partition_keys_that_are_missing_or_null_are_left_to_the_paths():
    assert parse(partition_keys=[]).partition_keys == ()
    assert parse(partition_keys=None).partition_keys is None
    assert parse().partition_keys is None


def test_nulls_are_like_missing_members():
    assert parse(metadata=None, indices=None) == parse()


def test_unknown_members_are_passed_over():
    entry = {"files": {"table": "uuid/table/a"}, "metadata": {"x": [1]}}
    assert to_mapping(parse(tables=["x"], partitions={"a": entry}).partitions) == {
        "a": {"files": {"table": "uuid/table/a"}}
    }


def test_embedded_indices_are_kept():
    assert parse(indices={"x": {"1": ["a"]}}).indices == {"x": {"1": ["a"]}}


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("separators", [None, (",", ":"), (" ,  ", " : ")])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_any_spelling_of_json_is_read(indent, separators, ascii_only):
    text = json.dumps(
        {**json.loads(PARTITIONED), "metadata": {"ä": "ß"}},
        indent=indent,
        separators=separators,
        ensure_ascii=ascii_only,
    )
    document = parse_document(text.encode(), KEY)
    assert document.partitions == parse_document(PARTITIONED, KEY).partitions
    assert document.metadata == {"ä": "ß"}


def test_members_come_in_any_order():
    text = json.dumps(dict(reversed(json.loads(PARTITIONED).items())))
    assert render_document(parse_document(text.encode(), KEY)) == PARTITIONED


def test_labels_and_metadata_may_look_like_members():
    document = Document(
        "uuid",
        {', "partition_keys": ': {"partitions": {"files": {}}, "partition_keys": [', "partition_keys": ']}},
        ("partition_keys", ', "partition_keys": '),
        {},
        from_mapping({'"}}, "': {"files": {"table": '": {"files": {"'}}}, "w"),
    )
    assert parse_document(render_document(document), KEY) == document
    assert parse_document(render_document(document, msgpack=True), PACKED) == document


# --- what a reader refuses ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "error", "text"),
    [
        (b"", CorruptDocument, "cannot be parsed"),
        (PARTITIONED[:-1], CorruptDocument, "cannot be parsed"),
        (b"[]", CorruptDocument, "cannot be parsed"),
        (b'"x"', CorruptDocument, "cannot be parsed"),
        (b"\xff\xfe", CorruptDocument, "cannot be parsed"),
        (b"[" * 100_000, CorruptDocument, "cannot be parsed"),
        (b"{}", CorruptDocument, "dataset_metadata_version"),
        (b'{"dataset_metadata_version": "4", "dataset_uuid": "u"}', CorruptDocument, "dataset_metadata_version"),
        (b'{"dataset_metadata_version": true, "dataset_uuid": "u"}', CorruptDocument, "dataset_metadata_version"),
        (b'{"dataset_metadata_version": 4}', CorruptDocument, "dataset_uuid"),
        (b'{"dataset_metadata_version": 4, "dataset_uuid": 1}', CorruptDocument, "dataset_uuid"),
        (
            b'{"dataset_metadata_version": 3, "dataset_uuid": "u"}',
            Unsupported,
            "Minimal supported metadata version is 4",
        ),
        (b'{"dataset_metadata_version": 5, "dataset_uuid": "u"}', Unsupported, "Future metadata version `5`"),
        # Another version may look otherwise throughout: the version is what there is to say.
        (b'{"dataset_metadata_version": 3, "dataset_uuid": "u", "partitions": {"a": "b"}}', Unsupported, "Minimal"),
        (b'{"dataset_metadata_version": 5, "dataset_uuid": "u", "partitions": ["a"]}', Unsupported, "Future"),
    ],
    ids=range(15),
)
def test_refused_documents_are_named(data, error, text):
    with pytest.raises(error, match=text) as raised:
        parse_document(data, KEY)
    assert KEY in str(raised.value)


@pytest.mark.parametrize(
    "partitions",
    [
        [],
        "x",
        1,
        {"a": "external"},
        {"a": {}},
        {"a": {"files": []}},
        {"a": {"files": {"table": 1}}},
        {"a": None},
        {"a": {"files": {"table": None}}},
    ],
    ids=str,
)
@pytest.mark.parametrize("packed", [False, True])
def test_refused_partitions_are_named(partitions, packed):
    members = {**MINIMAL, "partitions": partitions}
    data = zstandard.compress(msgspec.msgpack.encode(members)) if packed else json.dumps(members).encode()
    key = PACKED if packed else KEY
    with pytest.raises(CorruptDocument, match=key.replace(".", r"\.")):
        parse_document(data, key)


@pytest.mark.parametrize("name", ["metadata", "indices", "partition_keys"])
def test_members_of_another_type_are_refused(name):
    with pytest.raises(CorruptDocument, match=name):
        parse(**{name: 1})


@pytest.mark.parametrize("label", [b"\xff", b"\\ud800"])
def test_labels_that_are_no_text_are_refused(label):
    data = PARTITIONED.replace(b"P=1/", label)
    with pytest.raises(CorruptDocument, match=KEY):
        parse_document(data, KEY)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"abc",
        zstandard.compress(b""),
        zstandard.compress(b"\xc1"),
        *(zstandard.compress(msgspec.msgpack.encode(v)) for v in ([], 1, "x", b"y", {1: 2})),
    ],
)
def test_damaged_msgpack_documents_are_named(data):
    with pytest.raises(CorruptDocument, match="msgpack"):
        parse_document(data, PACKED)


# --- partitions -----------------------------------------------------------------------------------

tricky = st.text(st.sampled_from('"\\/{}:, ä\u2028\x01=%😀filestable'), max_size=12) | st.text(max_size=5)
layouts = st.dictionaries(tricky, tricky, max_size=5)


def columns(mapping, table="table"):
    return from_mapping({label: {"files": {table: key}} for label, key in mapping.items()}, "w")


unescaped = st.characters(exclude_characters='"\\', exclude_categories=["Cs", "Cc"])
plain = st.text(st.sampled_from("{}:, /=%filestable\u2028ä😀\x81\xa5"), max_size=9) | st.text(unescaped, max_size=40)
tables = st.lists(plain, min_size=1, max_size=3, unique=True)


@st.composite
def regular(draw):
    names = draw(tables)
    return {
        label: {"files": {name: draw(plain) for name in names}}
        for label in draw(st.lists(plain, min_size=1, max_size=4, unique=True))
    }


@given(regular(), st.booleans(), st.sampled_from([None, 0, 2]), st.sampled_from([None, (",", ":"), (" , ", " : ")]))
def test_what_is_regular_is_cut_in_any_spelling(mapping, ascii_only, indent, separators):
    raw = json.dumps(mapping, ensure_ascii=ascii_only, indent=indent, separators=separators).encode()
    assert (cut_json(raw) is None) == (b"\\" in raw)
    assert to_mapping(decode_partitions(raw, "w")) == mapping


@given(regular())
def test_what_is_regular_is_cut_out_of_msgpack(mapping):
    raw = msgspec.msgpack.encode(mapping)
    cut = cut_msgpack(raw)
    assert cut is None or to_mapping(PartitionColumns(*cut)) == mapping
    assert cut is not None or b"\x81\xa5f" in raw.replace(b"\x81\xa5files", b"")
    assert to_mapping(decode_partitions(raw, "w", msgpack=True)) == mapping


@given(layouts, tricky, st.booleans(), st.booleans())
def test_the_cut_and_a_parser_agree(layout, table, ascii_only, compact):
    mapping = {label: {"files": {table: key}} for label, key in layout.items()}
    raw = json.dumps(mapping, ensure_ascii=ascii_only, separators=(",", ":") if compact else None).encode()
    assert to_mapping(decode_partitions(raw, "w")) == mapping
    assert to_mapping(decode_partitions(msgspec.msgpack.encode(mapping), "w", msgpack=True)) == mapping


ENTRY = {"files": {"t": "k"}}


@pytest.mark.parametrize(
    "mapping",
    [
        {"a": ENTRY, "b": {"files": {"u": "k"}}},
        {"a": ENTRY, "b": {"files": {"t": "k", "u": "k"}}},
        {"a": {"files": {"t": "k", "u": "k"}}, "b": {"files": {"u": "k", "t": "k"}}},
        {"a": ENTRY, "b": {"files": {}}},
        {"a": ENTRY, "b": {**ENTRY, "more": 1}},
        {"a": {"more": ["x", "y"], **ENTRY}},
        {},
    ],
)
def test_other_forms_are_left_to_a_parser(mapping):
    raw, packed = json.dumps(mapping).encode(), msgspec.msgpack.encode(mapping)
    assert (cut_json(raw), cut_msgpack(packed)) == (None, None)
    expected = {label: {"files": entry["files"]} for label, entry in mapping.items()}
    assert (
        to_mapping(decode_partitions(raw, "w")) == to_mapping(decode_partitions(packed, "w", msgpack=True)) == expected
    )


@pytest.mark.parametrize("files", [["t"], [["t"]], [{}], "t", 1, None, {"t": ["k"]}, {"t": None}])
def test_files_of_another_form_are_an_error(files):
    mapping = {"a": {"files": files}, "b": {"files": files}}
    for msgpack, raw in ((False, json.dumps(mapping).encode()), (True, msgspec.msgpack.encode(mapping))):
        with pytest.raises(CorruptDocument, match="names no files"):
            decode_partitions(raw, "w", msgpack=msgpack)


@pytest.mark.parametrize("character", ["\x00", "\n", "\x1f"])
@pytest.mark.parametrize("entry", [b'"a%s": {"files": {"t": "k"}}', b'"a": {"files": {"t": "k%s"}}'])
def test_what_json_wants_escaped_is_left_to_the_parser(entry, character):
    raw = b"{%s}" % entry.replace(b"%s", character.encode())
    assert cut_json(raw) is None
    with pytest.raises(CorruptDocument, match="cannot be parsed"):
        decode_partitions(raw, "w")


@pytest.mark.parametrize(
    "raw",
    [b'{"a": {"files": {"t": "1"}}, "a": {"files": {"t": "2"}}}', b"\x82" + 2 * b"\xa1a\x81\xa5files\x81\xa1t\xa12"],
)
def test_of_two_entries_of_one_label_the_last_counts(raw):
    assert to_mapping(decode_partitions(raw, "w", msgpack=raw[0] == 0x82)) == {"a": {"files": {"t": "2"}}}


@given(st.binary(max_size=20), st.integers(0, 60))
def test_damage_is_an_error_and_never_another_label(junk, at):
    mapping = {
        "P=1/a": {"files": {"table": "u/table/P=1/a.parquet"}},
        "P=2/a": {"files": {"table": "u/table/P=2/a.parquet"}},
    }
    for msgpack, raw in ((False, json.dumps(mapping).encode()), (True, msgspec.msgpack.encode(mapping))):
        damaged = raw[:at] + junk + raw[at + len(junk) :]
        try:
            expected = from_mapping((msgspec.msgpack if msgpack else msgspec.json).decode(damaged), "w")
        except (msgspec.DecodeError, ValueError, TypeError, CorruptDocument):
            continue
        assert to_mapping(decode_partitions(damaged, "w", msgpack=msgpack)) == to_mapping(expected)


@given(layouts, tricky, st.sampled_from([0, fast_parser._MANY]))
def test_encoded_partitions_are_what_json_would_write(layout, table, many):
    found = columns(layout, table)
    with mock.patch.object(fast_parser, "_MANY", many):
        assert b"".join(encoded_pieces(found)) == json.dumps(to_mapping(found)).encode()
    assert decode_partitions(b"".join(encoded_pieces(found)), "w") == found


@given(st.dictionaries(tricky, st.dictionaries(st.sampled_from(["a", "b", "c"]), tricky, max_size=3), max_size=4))
def test_ragged_tables_come_back(files):
    mapping = {label: {"files": dict(sorted(f.items()))} for label, f in files.items()}
    assert to_mapping(decode_partitions(json.dumps(mapping).encode(), "w")) == mapping
    found = from_mapping(mapping, "w")
    assert to_mapping(decode_partitions(b"".join(encoded_pieces(found)), "w")) == mapping


def test_a_hundred_thousand_labels():
    mapping = {f"P={i}/{i:032x}": {"files": {"table": f"ds/table/P={i}/{i:032x}.parquet"}} for i in range(100_000)}
    raw = json.dumps(mapping).encode()
    found = decode_partitions(raw, "w")
    assert cut_json(raw) is not None
    assert found.labels.to_pylist() == list(mapping)
    assert found.files["table"].to_pylist() == [entry["files"]["table"] for entry in mapping.values()]
    assert b"".join(encoded_pieces(found)) == raw


def test_partitions_are_taken_by_position():
    found = columns({"a": "1", "b": "2", "c": "3"}).take([2, 0])
    assert to_mapping(found) == {"c": {"files": {"table": "3"}}, "a": {"files": {"table": "1"}}}
    assert len(found.take([])) == 0


def test_partitions_from_arrow_need_not_be_contiguous():
    labels = pa.array(["x", "a", "b"])[1:]
    found = PartitionColumns(labels, {"table": pa.array(["x", "1", "2"])[1:]})
    assert b"".join(encoded_pieces(found)) == json.dumps(to_mapping(found)).encode()


# --- user metadata --------------------------------------------------------------------------------


def test_own_entries_are_hidden():
    assert Document("uuid", {"a": 1, "kartothek_cube.commits": "[]"}).user_metadata == {"a": 1}


def test_who_changes_user_metadata_changes_a_copy():
    document = Document("uuid", {"a": {"b": [1]}})
    document.user_metadata["a"]["b"].append(2)
    assert document.user_metadata == {"a": {"b": [1]}}


def test_user_metadata_comes_back_as_from_json():
    assert check_user_metadata({"a": (1, 2.5, None, True), 1: {"b": "ä"}}, "there") == {
        "a": [1, 2.5, None, True],
        "1": {"b": "ä"},
    }


@pytest.mark.parametrize(
    ("metadata", "error"),
    [
        ({"a": pytest}, InvalidType),
        ({"a": {1, 2}}, InvalidType),
        ({"a": b"x"}, InvalidType),
        ({(1, 2): 1}, InvalidType),
        ({"a": float("nan")}, InvalidInput),
        ({"a": [float("inf")]}, InvalidInput),
        ({"kartothek_cube.commits": "x"}, InvalidInput),
        ({"kartothek_cube.mine": 1}, InvalidInput),
        ([], InvalidType),
        ("a", InvalidType),
    ],
    ids=range(10),
)
def test_metadata_that_json_cannot_hold_or_that_is_ours_is_refused(metadata, error):
    with pytest.raises(error, match="metadata of dataset 'uuid'"):
        check_user_metadata(metadata, "dataset 'uuid'")
