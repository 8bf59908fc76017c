"""`SchemaWrapper`, and making, ordering, comparing, reading and writing of schemas."""

from __future__ import annotations

import copy
import datetime as dt
import decimal
import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from kartothek_cube.core.kartothek.schema_wrapper import (
    SchemaWrapper,
    empty_dataframe_from_schema,
    make_meta,
    normalize_column_order,
    normalize_type,
    read_schema_metadata,
    store_schema_metadata,
    validate_compatible,
    validate_shared_columns,
)
from kartothek_cube.core.metadata.naming import schema_key
from kartothek_cube.core.stores.open import open_store
from kartothek_cube.errors import CorruptDocument, InvalidInput, InvalidType, KeyNotFound, UnknownColumn, Unsupported

SCHEMA = pa.schema({"x": pa.int64(), "y": pa.string()})
FRAME = pd.DataFrame({"y": ["a"], "x": np.array([1], np.int8), "p": [1], "v1": np.array([0.5], np.float32)})
NORMAL = pa.schema({"p": pa.int64(), "v1": pa.float64(), "x": pa.int64(), "y": pa.string()})


# --- the class ------------------------------------------------------------------------------------


def test_a_wrapper_passes_on_to_the_arrow_schema():
    schema = SchemaWrapper(SCHEMA, "here")
    assert (schema.names, schema.types, schema.field("x"), schema.get_field_index("y")) == (
        ["x", "y"],
        [pa.int64(), pa.string()],
        SCHEMA.field("x"),
        1,
    )
    assert (schema.metadata, schema.pandas_metadata, len(schema), [f.name for f in schema], schema[0].name) == (
        None,
        None,
        2,
        ["x", "y"],
        "x",
    )
    assert schema.internal() is SCHEMA
    assert repr(schema) == "x: int64\ny: string"
    assert pa.schema(schema) == SCHEMA
    with pytest.raises(AttributeError, match="nothing"):
        _ = schema.nothing


@pytest.mark.parametrize(("origin", "expected"), [("a", {"a"}), ({"a", "b"}, {"a", "b"}), (["a"], {"a"})])
def test_origins_are_a_set(origin, expected):
    assert SchemaWrapper(SCHEMA, origin).origin == SchemaWrapper(SCHEMA, "z").with_origin(origin).origin == expected


@pytest.mark.parametrize(("schema", "origin"), [(SCHEMA, 1), (SCHEMA, {1}), (SCHEMA, None), ({"x": "int64"}, "a")])
def test_other_arguments_are_refused(schema, origin):
    with pytest.raises(InvalidType):
        SchemaWrapper(schema, origin)


def test_metadata_and_origin_make_no_difference():
    plain, described = SchemaWrapper(SCHEMA, "a"), SchemaWrapper(SCHEMA.with_metadata({"k": "v"}), "b")
    assert plain == described == SCHEMA == plain
    assert hash(plain) == hash(described)
    assert plain.equals(described)
    assert not plain.equals(described, check_metadata=True)
    assert plain != SchemaWrapper(pa.schema({"x": pa.int64()}), "a")
    assert plain != 1


def test_a_wrapper_is_changed_by_making_another():
    schema = SchemaWrapper(SCHEMA.with_metadata({"k": "v"}), {"a", "b"})
    assert (schema.remove(0).names, schema.set(0, pa.field("z", pa.int64())).names) == (["y"], ["z", "y"])
    assert (schema.remove_metadata().metadata, schema.remove_metadata().origin) == (
        None,
        {"a__no_metadata", "b__no_metadata"},
    )
    assert (schema.names, schema.origin, schema.remove(0).origin) == (["x", "y"], {"a", "b"}, {"a", "b"})


@pytest.mark.parametrize("copied", [lambda s: pickle.loads(pickle.dumps(s)), copy.copy, copy.deepcopy])
def test_a_wrapper_travels(copied):
    schema = SchemaWrapper(SCHEMA, {"a"})
    assert (copied(schema), copied(schema).origin) == (schema, {"a"})


# --- making ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        FRAME,
        pa.Table.from_pandas(FRAME),
        pa.Schema.from_pandas(FRAME),
        pa.schema(pa.Schema.from_pandas(FRAME)).remove_metadata(),
        SchemaWrapper(pa.Schema.from_pandas(FRAME), "o"),
    ],
    ids=lambda given: type(given).__name__,
)
def test_every_input_becomes_wide_and_ordered(given):
    meta = make_meta(given, "o", ["p"])
    assert (meta, meta.origin) == (NORMAL, {"o"})
    assert [str(t) for t in meta.types] == ["int64", "double", "int64", "string"]


def test_a_wrapper_keeps_its_origins():
    assert make_meta(SchemaWrapper(SCHEMA, {"a", "b"}), "c").origin == {"a", "b"}


@pytest.mark.parametrize(
    ("keys", "names"),
    [
        (None, ["p", "v1", "x", "y"]),
        (["y", "p"], ["y", "p", "v1", "x"]),
        ("x", ["x", "p", "v1", "y"]),
        (["zz"], ["p", "v1", "x", "y"]),
    ],
)
def test_partition_keys_go_first_and_unknown_ones_are_passed_over(keys, names):
    assert (
        make_meta(FRAME, "o", keys).names
        == normalize_column_order(SchemaWrapper(NORMAL, "o"), keys).names
        == normalize_column_order(NORMAL, keys).names
        == names
    )


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (pd.Series([1], dtype="Int8"), pa.int64()),
        (np.array([1], np.uint16), pa.uint64()),
        ([True], pa.bool_()),
        ([b"a"], pa.binary()),
        ([None], pa.null()),
        (pd.Series([], dtype=object), pa.null()),
        (pd.Categorical(["a"]), pa.string()),
        ([dt.date(2024, 1, 31)], pa.date32()),
        ([pd.Timestamp("2024-01-31")], pa.timestamp("us")),
        ([pd.Timestamp("2024-01-31", tz="Europe/Berlin")], pa.timestamp("us", tz="Europe/Berlin")),
        ([decimal.Decimal("1.25")], pa.decimal128(3, 2)),
        ([np.array([1], np.int8)], pa.list_(pa.int64())),
    ],
)
def test_types_of_frames_become_stored_types(values, kind):
    assert make_meta(pd.DataFrame({"v1": values}), "o").field("v1").type == kind


@pytest.mark.parametrize(
    "index", [pd.Index([3], name="i"), pd.Index([3]), pd.MultiIndex.from_tuples([(3, 4)], names=["i", "j"])]
)
def test_row_labels_are_no_columns(index):
    frame = pd.DataFrame({"x": [1]}, index=index)
    assert (
        make_meta(frame, "o").names
        == make_meta(pa.Schema.from_pandas(frame), "o").names
        == make_meta(pa.Table.from_pandas(frame), "o").names
        == ["x"]
    )


def test_names_become_text_and_the_frame_stays_as_it_is():
    frame = pd.DataFrame([[1, 2]], columns=[1, b"a"])
    assert make_meta(frame, "o").names == ["1", "a"]
    assert list(frame.columns) == [1, b"a"]


@pytest.mark.parametrize(
    "given",
    [
        pd.DataFrame([[1, 2]], columns=["a", "a"]),
        pd.DataFrame([[1, 2]], columns=[1, "1"]),
        pa.schema([("a", pa.int8()), ("a", pa.int8())]),
    ],
)
def test_a_name_that_occurs_twice_is_refused(given):
    with pytest.raises(InvalidInput, match="Duplicate column names found"):
        make_meta(given, "o")


@pytest.mark.parametrize("wrong", [1, None, {"x": [1]}, pd.Series([1])])
def test_what_has_no_schema_is_refused(wrong):
    with pytest.raises(InvalidInput, match="Input must be a pyarrow schema, or a pandas dataframe"):
        make_meta(wrong, "o")


def test_a_type_that_cannot_be_stored_is_refused_with_column_and_origin():
    with pytest.raises(Unsupported, match="'x' of here"):
        make_meta(pa.schema({"x": pa.uuid()}), "here")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((pa.int8(), "int8", "int8", None), (pa.int64(), "int64", "int64", None)),
        ((pa.uint16(), None, None, None), (pa.uint64(), "uint64", "uint64", None)),
        ((pa.float16(), "float16", "float16", None), (pa.float64(), "float64", "float64", None)),
        (
            (pa.list_(pa.list_(pa.uint8())), "list[list[uint8]]", "object", None),
            (pa.list_(pa.list_(pa.uint64())), "list[list[uint64]]", "object", None),
        ),
        ((pa.list_(pa.int8()), None, None, None), (pa.list_(pa.int64()), "list[int64]", "object", None)),
        (
            (pa.dictionary(pa.int8(), pa.int32()), "categorical", "int8", {"num_categories": 1}),
            (pa.int64(), "int64", "int64", None),
        ),
        (
            (pa.dictionary(pa.int8(), pa.string()), "categorical", "int8", {"num_categories": 1}),
            (pa.string(), "unicode", "object", None),
        ),
        ((pa.bool_(), "bool", "boolean", None), (pa.bool_(), "bool", "boolean", None)),
        (
            (pa.decimal128(3, 2), "decimal", "object", {"precision": 3, "scale": 2}),
            (pa.decimal128(3, 2), "decimal", "object", {"precision": 3, "scale": 2}),
        ),
    ],
)
def test_types_are_normalised_with_their_names(given, expected):
    assert normalize_type(*given) == expected


def test_ordering_keeps_metadata_and_origin():
    ordered = normalize_column_order(SchemaWrapper(SCHEMA.with_metadata({"k": "v"}), "a"), "y")
    assert (ordered.names, ordered.metadata, ordered.origin) == (["y", "x"], {b"k": b"v"}, {"a"})


# --- comparing ------------------------------------------------------------------------------------


def metas(*columns):
    return [SchemaWrapper(pa.schema(c), f"origin {i}") for i, c in enumerate(columns)]


def test_without_schemas_there_is_none_in_common():
    assert validate_compatible([]) is None


@pytest.mark.parametrize("ignore_pandas", [False, True])
def test_metadata_do_not_make_schemas_incompatible(ignore_pandas):
    described = SchemaWrapper(pa.Schema.from_pandas(pd.DataFrame({"x": [1]})), "a")
    common = validate_compatible([described, *metas({"x": pa.int64()})], ignore_pandas)
    assert (common, common.origin) == (described, {"a", "origin 0"})


def test_null_gives_way_to_types_column_by_column():
    common = validate_compatible(
        metas({"a": pa.null(), "b": pa.int64()}, {"a": pa.string(), "b": pa.null()}, {"a": pa.null(), "b": pa.null()})
    )
    assert common == pa.schema({"a": pa.string(), "b": pa.int64()})


@pytest.mark.parametrize(
    "other",
    [
        {"x": pa.string(), "y": pa.string()},
        {"x": pa.float64(), "y": pa.string()},
        {"x": pa.uint64(), "y": pa.string()},
        {"x": pa.bool_(), "y": pa.string()},
        {"x": pa.int64()},
        {"x": pa.int64(), "y": pa.string(), "z": pa.null()},
        {"x": pa.int64(), "Y": pa.string()},
        {"x": pa.int64(), "y": pa.binary()},
        {"y": pa.string(), "x": pa.int64()},
    ],
)
def test_a_violation_names_the_origins(other):
    with pytest.raises(InvalidInput, match="Schema violation in origin 1, compared with origin 0"):
        validate_compatible(metas({"x": pa.int64(), "y": pa.string()}, other))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (pa.timestamp("us"), pa.timestamp("us", tz="UTC")),
        (pa.timestamp("us"), pa.date32()),
        (pa.decimal128(38, 0), pa.decimal128(38, 2)),
        (pa.list_(pa.int64()), pa.list_(pa.string())),
    ],
)
def test_types_of_one_family_are_not_one_type(left, right):
    with pytest.raises(InvalidInput, match="Schema violation"):
        validate_compatible(metas({"x": left}, {"x": right}))


def test_a_long_list_of_origins_is_cut():
    many = SchemaWrapper(pa.schema({"x": pa.int64()}), {f"table/{i:040}" for i in range(100)})
    with pytest.raises(InvalidInput, match=r"Schema violation.*\.\.\.") as error:
        validate_compatible([many, *metas({"x": pa.string()})])
    assert len(str(error.value)) < 500


def test_tables_may_share_columns_of_one_type():
    validate_shared_columns(
        metas(
            {"x": pa.null(), "a": pa.int64()}, {"x": pa.string()}, {"x": pa.null()}, {"x": pa.string(), "b": pa.bool_()}
        )
    )


@pytest.mark.parametrize("ignore_pandas", [False, True])
def test_tables_must_not_share_columns_of_two_types(ignore_pandas):
    with pytest.raises(InvalidInput, match=r'Found incompatible entries for column "x".*string.*int64'):
        validate_shared_columns(metas({"x": pa.null()}, {"x": pa.string()}, {"x": pa.int64()}), ignore_pandas)


# --- frames and files -----------------------------------------------------------------------------


def test_an_empty_frame_has_the_columns_and_types_of_a_schema():
    schema = pa.schema(
        {
            "x": pa.int64(),
            "y": pa.string(),
            "d": pa.date32(),
            "t": pa.timestamp("us"),
            "b": pa.bool_(),
            "__index_level_0__": pa.int64(),
        }
    )
    frame = empty_dataframe_from_schema(SchemaWrapper(schema, "a"))
    assert (len(frame), list(frame.columns)) == (0, ["x", "y", "d", "t", "b"])
    assert [frame.dtypes[c].kind for c in ("x", "d", "t", "b")] == ["i", "M", "M", "b"]
    assert empty_dataframe_from_schema(schema, date_as_object=True)["d"].dtype.kind == "O"
    assert list(empty_dataframe_from_schema(schema, ["b", "x"]).columns) == ["b", "x"]
    assert empty_dataframe_from_schema(schema, []).shape == (0, 0)


def test_an_unknown_column_is_refused():
    with pytest.raises(UnknownColumn, match=r"\['z'\]") as error:
        empty_dataframe_from_schema(SCHEMA, ["x", "z"])
    assert isinstance(error.value, KeyError)


def test_schemas_are_written_and_read():
    store = open_store("hmemory://")
    schema = make_meta(FRAME, "o", ["p"])
    assert store_schema_metadata(schema, "uuid", store, "facts") == "uuid/facts/_common_metadata"
    found = read_schema_metadata("uuid", lambda: store, "facts")
    assert (found, found.origin) == (schema, {"uuid/facts/_common_metadata"})


def test_a_missing_schema_is_named():
    with pytest.raises(KeyNotFound, match="'uuid/table/_common_metadata'"):
        read_schema_metadata("uuid", "hmemory://", "table")


def test_a_broken_schema_is_named():
    store = open_store("hmemory://")
    store.put(schema_key("uuid"), b"no schema")
    with pytest.raises(CorruptDocument, match="uuid/table/_common_metadata"):
        read_schema_metadata("uuid", store)
