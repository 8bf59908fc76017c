"""Extending a cube by further datasets, and replacing some."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pytest

from kartothek_cube.api.cube import build_cube, extend_cube
from kartothek_cube.core.io.formats import ParquetFormat
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import AlreadyExists, InvalidInput, InvalidType, MultiTableCommitAborted
from tests.support.cubes import (
    CUBE,
    ENRICH,
    SEED,
    answers,
    build_two,
    contents,
    files,
    refused,
    snapshot,
    table,
    with_column,
)

OTHER = table(x=[1, 0], y=["a", "a"], p=[1, 0], i2=["u", "w"], v3=[1, 2])
UNPARTITIONED = {"e": [], "f": []}


@pytest.fixture
def store():
    store = MemoryStore()
    build_two(store)
    return store


def extend(data, store, **arguments):
    return extend_cube(data, CUBE, store, **{"partition_on": UNPARTITIONED} | arguments)


def test_a_cube_that_does_not_exist_cannot_be_extended():  # cube 100
    with refused(store := MemoryStore(), InvalidInput, "seed", "missing"):
        extend_cube({"e": ENRICH}, CUBE, store, partition_on={"e": []})


@pytest.mark.parametrize("data", [SEED, {"seed": SEED}, [{"f": OTHER}, SEED]])
@pytest.mark.parametrize("overwrite", [False, True])
def test_the_seed_cannot_be_written(store, data, overwrite):  # cube 101
    with refused(store, InvalidInput, "seed"):
        extend(data, store, overwrite=overwrite)


def test_a_new_dataset_gets_partition_index_and_its_index_columns(store):  # cube 102
    build_cube(SEED, CUBE.copy(uuid_prefix="other"), store)
    extend_cube({"f": OTHER}, CUBE.copy(uuid_prefix="other"), store)
    new = snapshot(store, "f", "other")
    assert (new.partition_keys, new.secondary_columns) == (("p",), {"i2"})
    assert new.document.metadata["ktk_cube_is_seed"] is False


def test_only_the_written_datasets_are_returned_and_touched(store):
    before = contents(store)
    assert set(extend({"f": table(x=[1], v3=[1])}, store)) == {"f"}
    after = contents(store)
    assert {key: after[key] for key in before} == before
    assert all(key.startswith("cube++f") for key in after.keys() - before.keys())


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"f": table(x=[1], v1=[1.0])}, ["f", "v1"]),
        ({"f": table(x=[1], v2=[1])}, ["f", "v2"]),
        ({"f": table(x=[1], v1=[1.0], v2=[1], v3=[1])}, ["f", "v1, v2"]),
        ({"f": table(x=[1], v3=[1]), "g": table(x=[1], v2=[1], p=[1])}, ["g", "v2"]),
        ({"e": table(x=[1], v2=[1])}, ["e", "v2"]),
    ],
)
def test_payload_that_the_cube_has_is_refused(store, data, words):  # cube 103, 104
    with refused(store, InvalidInput, *words):
        extend(data, store)


def test_a_replacement_may_not_take_payload_of_the_seed(store):  # cube 106
    with refused(store, InvalidInput, "e", "v1"):
        extend({"e": table(x=[1], v1=[1.0])}, store, overwrite=True)


def test_two_new_datasets_with_the_same_payload_abort(store):
    with refused(store, MultiTableCommitAborted, "v3", "f, g"):
        extend({"f": table(x=[1], v3=[1]), "g": table(x=[1], v3=[1])}, store, partition_on={"f": [], "g": []})


def test_an_existing_dataset_is_not_replaced_without_being_told_to(store):  # cube 107
    with refused(store, AlreadyExists, "e", "overwrite=True"):
        extend({"e": table(x=[1], v3=[1])}, store)


@pytest.mark.parametrize(("payload", "error"), [("v2", InvalidInput), ("v3", AlreadyExists)])
def test_an_error_about_an_existing_dataset_says_how_it_is_replaced_or_grows(store, payload, error):
    rows = {"e": table(x=[1], y=["a"], **{payload: [1]})}
    with refused(store, error, "e", "overwrite=True to replace it", "append_to_cube to add rows"):
        extend(rows, store)
    with pytest.raises(InvalidInput) as caught:
        extend({"f": table(x=[1], v2=[1])}, store)
    assert "overwrite" not in str(caught.value)  # which would not help
    with pytest.raises(InvalidInput) as caught:
        extend({"e": table(x=[1], v1=[1.0])}, store, overwrite=True)
    assert "overwrite" not in str(caught.value)


def test_a_dataset_is_replaced_with_overwrite(store):  # cube 108
    extend({"e": table(y=["a"], v3=[7])}, store, overwrite=True, metadata={"e": {"a": 1}})
    assert [row["v3"] for row in answers(store)] == [7, None, 7, None]
    assert "v2" not in answers(store)[0]
    assert snapshot(store, "e").document.metadata["a"] == 1


def test_columns_may_move_between_datasets_of_one_call(store):  # cube 109
    extend({"f": table(x=[1], v3=[3])}, store)
    extend({"e": table(x=[1], v3=[3]), "f": table(x=[1], v2=[2])}, store, overwrite=True)
    assert (snapshot(store, "e").schema.names, snapshot(store, "f").schema.names) == (["v3", "x"], ["v2", "x"])


@pytest.mark.parametrize(
    ("column", "values"), [("x", [1.0]), ("x", ["1"]), ("x", pa.array([1], pa.uint64())), ("y", [1])]
)
def test_a_dimension_of_another_type_aborts(store, column, values):  # cube 110
    with refused(store, MultiTableCommitAborted, f'"{column}"', '"f"'):
        extend({"f": with_column(table(v3=[1]), column, values)}, store)


def test_a_partition_column_of_another_type_aborts(store):
    with refused(store, MultiTableCommitAborted, '"p"', "f"):
        extend({"f": table(x=[1], p=["1"], v3=[1])}, store, partition_on=None)


@pytest.mark.parametrize("keys", [[], ["x"]])
def test_empty_data_aborts(store, keys):  # cube 111
    with refused(store, MultiTableCommitAborted, "f"):
        extend({"f": table(x=[1], v3=[1])[:0]}, store, partition_on={"f": keys})


def test_one_empty_dataset_among_others_aborts_all(store):
    with refused(store, MultiTableCommitAborted, "g"):
        extend({"f": table(x=[1], v3=[1]), "g": table(x=[1], v4=[1])[:0]}, store, partition_on={"f": [], "g": []})


@pytest.mark.parametrize("data", [{"f": pd.Series([1])}, {"f": 1}, "f", None, [{"f": "text"}]])
def test_what_is_no_frame_is_refused(store, data):  # cube 112
    with refused(store, InvalidType):
        extend(data, store)


@pytest.mark.parametrize(
    ("metadata", "error"), [("f", InvalidType), ({"f": 1}, InvalidType), ({"seed": {}}, InvalidInput)]
)
def test_wrong_metadata_is_refused(store, metadata, error):  # cube 113
    with refused(store, error):
        extend({"f": table(x=[1], v3=[1])}, store, metadata=metadata)


def test_a_dataset_of_dimension_and_partition_columns_alone_is_allowed(store):  # cube 114
    before = answers(store)
    extend({"f": table(x=[1], y=["a"], p=[1])}, store, partition_on=None)
    assert answers(store) == before


def test_the_compression_may_differ(store):  # cube 115
    extend({"f": table(x=[1], v3=[3])}, store, df_serializer=ParquetFormat(compression="GZIP"))
    assert [row["v3"] for row in answers(store)] == [None, None, 3, 3]


@pytest.mark.parametrize("data", [[], {}])
def test_no_data_writes_nothing(store, data):  # cube 116
    before = contents(store)
    assert extend(data, store) == {}
    assert contents(store) == before


def test_an_index_that_the_existing_datasets_lack_is_refused(store):
    with refused(store, InvalidInput, "v1", "seed"):
        extend_cube(
            {"f": table(x=[1], v3=[1])}, CUBE.copy(index_columns=["i1", "i2", "v1"]), store, partition_on={"f": []}
        )


def test_a_narrower_dimension_is_compatible(store):
    extend({"f": table(x=pa.array([1], pa.int8()), v3=[3])}, store)
    assert [row["v3"] for row in answers(store)] == [None, None, 3, 3]
    assert len(files(store, "f")) == 1


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        (pa.float64(), pa.float32()),
        (pa.uint64(), pa.uint8()),
        (pa.int64(), pa.int8()),
        (pa.string(), pa.dictionary(pa.int8(), pa.string())),
    ],
)
@pytest.mark.parametrize("swap", [False, True])
def test_dimensions_of_the_same_family_are_joined_by_value(wide, narrow, swap):
    store, values = MemoryStore(), ["1", "2"] if pa.types.is_string(wide) else [1, 2]
    first, second = (narrow, wide) if swap else (wide, narrow)
    build_cube(table(x=pa.array(values).cast(first), y=["a", "b"], p=[0, 0], v1=[1.0, 2.0]), CUBE, store)
    extend_cube({"f": table(x=pa.array(values[1:]).cast(second), v3=[3])}, CUBE, store, partition_on={"f": []})
    assert [row["v3"] for row in answers(store)] == [None, 3]


def test_arguments_are_looked_at_before_the_cube():
    store = MemoryStore()
    with refused(store, InvalidInput, "cannot be written during extension"):
        extend_cube(SEED, CUBE, store)
    with refused(store, InvalidInput, "otherwise unspecified"):
        extend_cube({"f": table(z=[1])}, CUBE, store, metadata={"e": {}})
    with refused(store, InvalidInput, "Seed data", "missing"):
        extend_cube({"f": table(z=[1])}, CUBE, store)
