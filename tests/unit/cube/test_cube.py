"""What a `Cube` accepts, refuses, and does as a value."""

from __future__ import annotations

import copy
import pickle

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kartothek_cube.core.arguments import (
    converter_str,
    converter_str_set,
    converter_str_set_optional,
    converter_str_tupleset,
    converter_tuple,
    get_str_to_python_converter,
)
from kartothek_cube.cube.cube import Cube
from kartothek_cube.errors import InvalidInput, InvalidType, KartothekCubeError


def make(**changes):
    return Cube(**{"dimension_columns": ["x", "y"], "partition_columns": ["p", "q"], "uuid_prefix": "cube"} | changes)


def test_arguments_have_the_documented_order_and_defaults():
    cube = Cube(["x", "y"], ["p", "q"], "cube", "seed2", ["i1"], ["x"])
    assert cube == Cube(
        dimension_columns=("x", "y"),
        partition_columns=("p", "q"),
        uuid_prefix="cube",
        seed_dataset="seed2",
        index_columns=frozenset({"i1"}),
        suppress_index_on=frozenset({"x"}),
    )
    assert make().seed_dataset == "seed"


@pytest.mark.parametrize("given_columns", ["x", b"x", ["x"], (b"x",)])
def test_one_text_or_an_iterable_of_texts_becomes_a_tuple_for_ordered_columns(given_columns):  # cube 1
    assert make(dimension_columns=given_columns).dimension_columns == ("x",)


@pytest.mark.parametrize("name", ["index_columns", "suppress_index_on"])
@pytest.mark.parametrize("given_columns", ["x", b"x", ["x", b"x"], {"x"}, {"x": 1}, {"x": 1}.keys()])
def test_one_text_or_an_iterable_of_texts_becomes_a_set_for_the_others(name, given_columns):  # cube 1
    changes = {"dimension_columns": "y"} if name == "index_columns" else {}
    assert getattr(make(**changes, **{name: given_columns}), name) == frozenset({"x"})


def test_generators_of_columns_are_taken():
    assert make(
        dimension_columns=(c for c in "xy"), index_columns=(c for c in "ij"), suppress_index_on=(c for c in "y")
    ) == make(index_columns=["i", "j"], suppress_index_on="y")


def test_bytes_are_decoded_in_every_attribute():  # cube 2
    assert Cube([b"x"], [b"p"], b"cube", b"seed", [b"i1"], [b"x"]) == Cube(["x"], ["p"], "cube", "seed", ["i1"], ["x"])


@pytest.mark.parametrize("name", ["dimension_columns", "partition_columns"])
@pytest.mark.parametrize("columns", [{"x"}, frozenset({"x"}), {"x": 1}])
def test_ordered_columns_are_no_set_and_no_dict(name, columns):  # cube 3
    with pytest.raises(InvalidType, match="unstable iteration order"):
        make(**{name: columns})


@pytest.mark.parametrize("columns", [["x", "x"], [b"x", "x"]])
def test_duplicate_dimension_columns_are_refused(columns):  # cube 4
    with pytest.raises(InvalidInput, match="Tuple-set contains duplicates: x, x"):
        make(dimension_columns=columns)


@pytest.mark.parametrize("name", ["dimension_columns", "partition_columns"])
@pytest.mark.parametrize("nothing", [[], (), None])
def test_dimension_and_partition_columns_are_not_empty(name, nothing):  # cube 5
    with pytest.raises(InvalidInput, match=f"{name} must not be empty"):
        make(**{name: nothing})


def test_a_partition_column_is_no_dimension_column():  # cube 6
    with pytest.raises(
        InvalidInput,
        match="partition_columns cannot share columns with dimension_columns, but share the following: x, y",
    ):
        make(partition_columns=["y", "p", "x"])


@pytest.mark.parametrize(("column", "other"), [("x", "dimension_columns"), ("p", "partition_columns")])
def test_an_index_column_is_neither_dimension_nor_partition_column(column, other):  # cube 7
    with pytest.raises(
        InvalidInput, match=f"index_columns cannot share columns with {other}, but share the following: {column}"
    ):
        make(index_columns=[column, "i1"])


def test_indices_are_suppressed_on_dimension_columns_only():  # cube 8
    with pytest.raises(
        InvalidInput,
        match="suppress_index_on must be a subset of dimension_columns, but it has additional values: a, p",
    ):
        make(suppress_index_on=["x", "p", "a"])


def test_no_index_columns_and_no_suppressed_ones_are_empty_sets():  # cube 9
    cube = make(index_columns=None, suppress_index_on=None)
    assert cube.index_columns == cube.suppress_index_on == frozenset()


@pytest.mark.parametrize("name", ["uuid_prefix", "seed_dataset"])
@pytest.mark.parametrize("text", ["a b", "a.b", "a/b", "ä", "", "a\n"])
def test_names_are_made_of_ascii_letters_digits_plus_minus_underscore(name, text):  # cube 10
    with pytest.raises(InvalidInput, match=f'{name} \\("{text}"\\) is not compatible with kartothek'):
        make(**{name: text})


@pytest.mark.parametrize("name", ["uuid_prefix", "seed_dataset"])
def test_names_do_not_hold_the_separator(name):  # cube 11
    with pytest.raises(InvalidInput, match=f'{name} \\("a\\+\\+b"\\) must not contain UUID separator \\+\\+'):
        make(**{name: "a++b"})


@pytest.mark.parametrize("name", ["uuid_prefix", "seed_dataset"])
@pytest.mark.parametrize("value", [None, 1, ["a"]])
def test_names_are_text(name, value):
    with pytest.raises(InvalidType, match="is not a string"):
        make(**{name: value})


def test_every_value_is_converted_before_any_is_checked():
    with pytest.raises(InvalidType):
        make(dimension_columns=[], uuid_prefix=None)


def test_the_first_broken_rule_is_reported():
    with pytest.raises(InvalidInput, match="dimension_columns must not be empty"):
        make(dimension_columns=[], uuid_prefix="a b")


def test_dataset_uuid_joins_prefix_and_id():
    assert make().ktk_dataset_uuid("f") == make().ktk_dataset_uuid(b"f") == "cube++f"


@pytest.mark.parametrize("dataset_id", ["f ", "f++", "", "f\n"])
def test_dataset_uuid_checks_the_id_by_its_argument_name(dataset_id):  # cube 12
    with pytest.raises(InvalidInput, match="ktk_cube_dataset_id"):
        make().ktk_dataset_uuid(dataset_id)


@pytest.mark.parametrize("dataset_id", [None, 1, ["f"]])
def test_dataset_uuid_takes_text(dataset_id):
    with pytest.raises(InvalidType):
        make().ktk_dataset_uuid(dataset_id)


def test_a_uuid_is_split_in_one_way_only():  # cube 12
    assert make(uuid_prefix="a+").ktk_dataset_uuid("s") == "a+++s"
    with pytest.raises(InvalidInput, match='must not begin with "\\+"'):
        make(uuid_prefix="a").ktk_dataset_uuid("+s")
    with pytest.raises(InvalidInput, match="seed_dataset"):
        make(seed_dataset="+s")


def test_copy_converts_and_checks_again():  # cube 13
    cube = make()
    assert cube.copy(dimension_columns=b"z", uuid_prefix="other") == make(dimension_columns=["z"], uuid_prefix="other")
    assert cube.copy() == cube
    with pytest.raises(InvalidInput):
        cube.copy(uuid_prefix="a b")
    with pytest.raises(InvalidInput):
        cube.copy(partition_columns="x")


def test_copy_refuses_unknown_attributes():  # cube 14
    with pytest.raises(TypeError, match="nonsense"):
        make().copy(nonsense=1)


@pytest.mark.parametrize("name", ["dimension_columns", "seed_dataset", "ktk_index_columns", "nonsense"])
def test_attributes_cannot_be_assigned(name):  # cube 15
    with pytest.raises(AttributeError):
        setattr(make(), name, "a")
    with pytest.raises(AttributeError):
        delattr(make(), name)


def test_equal_cubes_have_equal_hashes():  # cube 16
    assert make(index_columns=["i1", "i2"]) == make(index_columns=["i2", "i1"])
    assert hash(make(index_columns=["i1", "i2"])) == hash(make(index_columns=["i2", "i1"]))


@pytest.mark.parametrize(
    "changes",
    [
        {"dimension_columns": ["y", "x"]},
        {"partition_columns": ["q", "p"]},
        {"uuid_prefix": "other"},
        {"seed_dataset": "other"},
        {"index_columns": ["i1"]},
        {"suppress_index_on": ["x"]},
    ],
)
def test_cubes_that_differ_in_one_attribute_or_in_the_order_of_columns_are_unequal(changes):  # cube 17
    assert make(**changes) != make()
    assert hash(make(**changes)) != hash(make())
    assert make() != "cube"


def test_cubes_are_ordered_by_their_attributes():
    assert make(dimension_columns="a") < make(dimension_columns="b") <= make(dimension_columns="b")
    assert make(uuid_prefix="b") > make(uuid_prefix="a")


def test_index_columns_of_all_datasets_leave_out_suppressed_dimensions():  # cube 18
    columns = make(index_columns="i1", suppress_index_on="y").ktk_index_columns
    assert columns == {"x", "p", "q", "i1"}
    assert type(columns) is set


def test_repr_is_a_call():
    cube = make(index_columns="i1")
    assert repr(cube) == (
        "Cube(dimension_columns=('x', 'y'), partition_columns=('p', 'q'), uuid_prefix='cube', seed_dataset='seed', "
        "index_columns=frozenset({'i1'}), suppress_index_on=frozenset())"
    )
    assert eval(repr(cube)) == cube


names = st.text("abcXYZ019_-", min_size=1)


@given(st.lists(st.text(), min_size=3, unique=True), names, names, st.sets(st.sampled_from("jkl")))
def test_pickle_and_deepcopy_give_an_equal_cube(columns, prefix, seed, indices):
    first, second, third = columns[0], columns[1], columns[2:]
    cube = Cube([first, second], third, prefix, seed, indices - set(columns), {first})
    for twin in (pickle.loads(pickle.dumps(cube)), copy.deepcopy(cube)):
        assert twin == cube
        assert hash(twin) == hash(cube)


def test_errors_have_their_builtin_and_the_common_base():
    with pytest.raises(ValueError) as value:
        make(uuid_prefix="")
    with pytest.raises(TypeError) as kind:
        make(uuid_prefix=1)
    assert isinstance(value.value, KartothekCubeError)
    assert isinstance(kind.value, KartothekCubeError)


# --- converters -----------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, ["a"], 1])
def test_only_text_and_bytes_are_text(value):
    assert converter_str("a") == converter_str(b"a") == "a"
    with pytest.raises(InvalidType, match=f"Object of type {type(value).__name__} is not a string"):
        converter_str(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ()),
        ("ab", ("ab",)),
        (b"ab", (b"ab",)),
        (1, (1,)),
        ([1, None], (1, None)),
        ((i for i in range(2)), (0, 1)),
        ({"a": 1}, ("a",)),
    ],
)
def test_tuples_are_made_of_items(value, expected):
    assert converter_tuple(value) == expected


def test_sets_of_text_collapse_duplicates():
    assert converter_str_set(["foo", b"foo"]) == frozenset({"foo"})
    assert converter_str_set(None) == frozenset()
    assert converter_str_set_optional(None) is None
    assert converter_str_set_optional("a") == frozenset({"a"})


def test_tuplesets_keep_the_order():
    assert converter_str_tupleset(["b", "a"]) == ("b", "a")
    assert converter_str_tupleset(None) == ()


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        *[(pa.bool_(), t, False) for t in ("0", "f", "n", "False", "NO")],
        *[(pa.bool_(), t, True) for t in ("1", "t", "Y", "true", "yes")],
        (pa.float32(), "1.5", 1.5),
        (pa.uint8(), "1_000", 1000),
        (pa.int64(), "-1", -1),
        (pa.string(), "'a b'", "a b"),
        (pa.string(), '"', '"'),
        (pa.string(), "'a\"", "'a\""),
        (pa.string(), " a ", " a "),
    ],
)
def test_literals_are_parsed_by_the_type_of_the_column(kind, text, expected):
    assert get_str_to_python_converter(kind)(text) == expected


def test_timestamp_literals_are_pandas_timestamps():
    pd = pytest.importorskip("pandas")
    assert get_str_to_python_converter(pa.timestamp("us"))("2020-01-02 03:04") == pd.Timestamp(2020, 1, 2, 3, 4)


@pytest.mark.parametrize(("kind", "text"), [(pa.bool_(), "maybe"), (pa.int8(), "1.0"), (pa.float64(), "x")])
def test_text_that_is_no_literal_is_refused(kind, text):
    with pytest.raises(ValueError):
        get_str_to_python_converter(kind)(text)


@pytest.mark.parametrize("kind", [pa.date32(), pa.binary(), pa.large_string(), pa.list_(pa.int64()), pa.decimal128(5)])
def test_types_without_literals_are_refused(kind):
    with pytest.raises(InvalidInput, match="Cannot handle type"):
        get_str_to_python_converter(kind)
