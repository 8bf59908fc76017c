"""Appending to a cube: what is added, what overrides what, what is refused."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kartothek_cube.api.cube import C, append_to_cube, build_cube, extend_cube, query_cube
from kartothek_cube.core.commit import change as apply
from kartothek_cube.core.io.formats import ParquetFormat
from kartothek_cube.core.snapshots import loader
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.cube.cube import Cube
from kartothek_cube.errors import InvalidInput, InvalidType, MultiTableCommitAborted
from tests.caches import forget
from tests.support.cubes import (
    CUBE,
    SEED,
    answers,
    build_two,
    contents,
    files,
    index_of,
    refused,
    snapshot,
    table,
    with_column,
)

NEW = table(x=[0, 2], y=["a", "c"], p=[0, 2], i1=[10, 30], v1=[9.5, 4.5])


@pytest.fixture
def store():
    store = MemoryStore()
    build_two(store)
    return store


def test_old_partitions_stay_and_new_ones_follow(store):  # cube 117
    old = files(store)
    assert set(append_to_cube(NEW, CUBE, store)) == {"seed"}
    new = files(store)
    assert new[:2] == old
    assert [key.split("/")[2] for key in new] == ["p=0", "p=1", "p=0", "p=2"]
    assert len(set(new)) == 4


def test_the_later_file_wins_a_cell(store):  # cube 134
    append_to_cube(NEW, CUBE, store)
    assert [(row["x"], row["y"], row["v1"]) for row in answers(store)] == [
        (0, "a", 9.5),
        (0, "b", 1.5),
        (1, "a", None),
        (1, "b", 3.5),
        (2, "c", 4.5),
    ]


def test_a_cell_in_another_partition_is_another_cell(store):
    append_to_cube(with_column(NEW, "p", [1, 2]), CUBE, store)
    assert [row["v1"] for row in answers(store, conditions=(C("x") == 0) & (C("y") == "a"))] == [0.5, 9.5]


def test_other_datasets_are_not_touched(store):  # cube 118
    before = contents(store)
    append_to_cube({"e": table(x=[0], i2=["new"], v2=[5])}, CUBE, store)
    after = contents(store)
    assert {k: v for k, v in after.items() if k.startswith("cube++seed")} == {
        k: v for k, v in before.items() if k.startswith("cube++seed")
    }


def test_a_dataset_without_partitions_takes_more_rows(store):  # cube 119
    append_to_cube({"e": table(x=[0, 1], i2=["zero", "uno"], v2=[5, 11])}, CUBE, store)
    assert len(files(store, "e")) == 2
    assert [(row["x"], row["i2"], row["v2"]) for row in answers(store, conditions=C("y") == "a")] == [
        (0, "zero", 5),
        (1, "uno", 11),
    ]


def test_indices_have_old_and_new_values(store):  # cube 120
    append_to_cube(NEW, CUBE, store)
    zero, one, zero_again, two = snapshot(store).partitions.labels.to_pylist()
    assert index_of(store, "x") == {0: {zero, zero_again}, 1: {one}, 2: {two}}
    assert index_of(store, "i1") == {10: {zero, one, zero_again}, 20: {zero, one}, 30: {two}}


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        ({"e": table(x=[1], i2=["a"], v2=[1]), "u": NEW, "t": NEW}, InvalidInput, ["t, u"]),
        (with_column(NEW, "v1", ["a", "b"]), InvalidInput, ["Schema violation", "v1", "seed"]),
        (with_column(NEW, "v1", [1, 2]), InvalidInput, ["Schema violation", "v1", "seed"]),
        (with_column(NEW, "x", [1.0, 2.0]), InvalidInput, ["x", "seed"]),
        (with_column(NEW, "p", ["0", "2"]), InvalidInput, ["p", "seed"]),
        (NEW.drop_columns(["v1"]), InvalidInput, ["Schema violation", "v1", "seed"]),
        (with_column(NEW, "v9", [1, 2]), InvalidInput, ["Schema violation", "v9", "seed"]),
        (NEW.drop_columns(["y"]), InvalidInput, ["dimension", "y", "seed"]),
        (NEW.drop_columns(["p"]), InvalidInput, ["partition", "p", "seed"]),
        (with_column(NEW, "x", [None, 2]), InvalidInput, ["NULL", "dimension", '"x"']),
        (with_column(NEW, "p", [None, 2]), InvalidInput, ["NULL", "partition", '"p"']),
        (with_column(NEW, "i1", [None, 2]), InvalidInput, ["NULL", "index", '"i1"']),
        (pa.concat_tables([NEW, NEW]), InvalidInput, ["duplicate", "seed"]),
        (NEW[:0], MultiTableCommitAborted, ["seed"]),
        ({"seed": NEW, "e": table(x=[1], i2=["a"], v2=[1])[:0]}, MultiTableCommitAborted, ["e"]),
        (
            {"e": table(x=[1], i2=["a"], v2=[1]), "seed": with_column(NEW, "v1", ["a", "b"])},
            InvalidInput,
            ["Schema violation", "seed"],
        ),
        ({"e": None}, InvalidInput, ["e"]),
        ("seed", InvalidType, ["seed"]),
        (pd.Series([1]), InvalidType, ["Series"]),
    ],
)
def test_a_wrong_append_changes_nothing_in_any_dataset(store, data, error, words):  # cube 121, 122, 123, 124, 125, 131
    with refused(store, error, *words):
        append_to_cube(data, CUBE, store)


@pytest.mark.parametrize(
    ("metadata", "error"),
    [({"u": {}}, InvalidInput), ({"seed": 1}, InvalidType), ("seed", InvalidType), ({"e": {}}, InvalidInput)],
)
def test_wrong_metadata_is_refused(store, metadata, error):  # cube 84
    with refused(store, error):
        append_to_cube(NEW, CUBE, store, metadata=metadata)


def test_nothing_to_append(store):
    before = contents(store)
    assert append_to_cube([], CUBE, store) == {}
    assert contents(store) == before


@pytest.mark.parametrize("values", [[None, None], pa.nulls(2), pa.nulls(2, pa.float32())])
def test_a_typed_column_takes_only_nulls(store, values):  # cube 126
    append_to_cube(with_column(NEW, "v1", values), CUBE, store)
    assert snapshot(store).schema.field("v1").type == pa.float64()
    assert [row["v1"] for row in answers(store)] == [None, 1.5, None, 3.5, None]


def test_a_column_of_nulls_gets_its_type_from_the_first_values(store):
    extend_cube({"f": with_column(table(x=[0]), "v3", pa.nulls(1))}, CUBE, store, partition_on={"f": []})
    append_to_cube({"f": table(x=[1], v3=["a"])}, CUBE, store)
    assert [row["v3"] for row in answers(store)] == [None, None, "a", "a"]


@pytest.mark.parametrize(
    ("old", "new"),
    [(pa.int8(), pa.int64()), (pa.int64(), pa.int8()), (pa.float32(), pa.float64()), (pa.uint8(), pa.uint16())],
)
def test_widths_of_one_family_widen(store, old, new):
    extend_cube({"f": table(x=[0], v3=pa.array([1], old))}, CUBE, store, partition_on={"f": []})
    append_to_cube({"f": table(x=[1], v3=pa.array([2], new))}, CUBE, store)
    assert [row["v3"] for row in answers(store)] == [1, 1, 2, 2]
    widest = max(old, new, key=lambda kind: kind.bit_width)
    assert snapshot(store, "f").schema.field("v3").type == widest


def test_the_order_of_columns_does_not_matter(store):
    append_to_cube(NEW.select(["v1", "p", "i1", "y", "x"]), CUBE, store)
    assert len(answers(store)) == 5


def test_metadata_is_merged_key_by_key(store):  # cube 127
    build_cube(
        SEED,
        CUBE.copy(uuid_prefix="other"),
        store,
        metadata={"seed": {"a": {"b": 1}, "c": 1, "ktk_cube_is_seed": False}},
    )
    other = CUBE.copy(uuid_prefix="other")
    created = snapshot(store, prefix="other").document.metadata["creation_time"]
    result = append_to_cube(
        NEW, other, store, metadata={"seed": {"a": {"d": 2}, "e": 3, "ktk_cube_dimension_columns": "x"}}
    )
    found = result["seed"].metadata
    assert {k: found[k] for k in "ace"} == {"a": {"d": 2}, "c": 1, "e": 3}
    assert (found["creation_time"], found["ktk_cube_is_seed"], found["ktk_cube_dimension_columns"]) == (
        created,
        True,
        ["x", "y"],
    )


def test_metadata_of_other_datasets_stays(store):  # cube 128
    before = snapshot(store, "e").document.metadata
    append_to_cube(NEW, CUBE, store, metadata={"seed": {"a": 1}})
    assert snapshot(store, "e").document.metadata == before


def test_files_keep_the_layout_of_their_writer(store):  # cube 129, 130
    data = table(x=[0, 1, 2], y=["z"] * 3, p=[0] * 3, i1=[1] * 3, v1=[1.0] * 3)
    append_to_cube(data, CUBE, store, df_serializer=ParquetFormat(compression="GZIP", chunk_size=1))
    groups = [pq.ParquetFile(pa.BufferReader(store.get(key))).metadata for key in files(store)]
    assert [(m.num_row_groups, m.row_group(0).column(0).compression) for m in groups] == [
        (1, "SNAPPY"),
        (1, "SNAPPY"),
        (3, "GZIP"),
    ]


@pytest.mark.parametrize("changes", [{"index_columns": []}, {"suppress_index_on": ["x", "y"]}])
def test_indices_that_the_cube_does_not_mention_are_kept_up(store, changes):  # cube 132, 246
    append_to_cube(NEW, CUBE.copy(**changes), store)
    assert snapshot(store).secondary_columns == {"x", "y", "i1"}
    assert set(index_of(store, "x")) == {0, 1, 2}
    assert set(index_of(store, "i1")) == {10, 20, 30}


def test_nulls_are_allowed_in_an_index_column_that_the_cube_does_not_mention(store):
    append_to_cube(with_column(NEW, "i1", [None, 30]), CUBE.copy(index_columns=[]), store)
    assert set(index_of(store, "i1")) == {10, 20, 30}
    assert [row["i1"] for row in answers(store, CUBE.copy(index_columns=[]), conditions=C("y") == "a")] == [None, 10]


def test_an_index_that_the_store_lacks_is_refused(store):  # cube 133, 246
    with refused(store, InvalidInput, "v1", "seed"):
        append_to_cube(NEW, CUBE.copy(index_columns=["i1", "v1"]), store)


def test_a_cube_that_does_not_exist_is_refused(store):
    with refused(store, InvalidInput, "seed", "missing"):
        append_to_cube(NEW, CUBE.copy(uuid_prefix="nothing"), store)


def test_several_datasets_in_one_call(store):
    assert set(append_to_cube([{"seed": NEW}, {"e": table(x=[2], i2=["two"], v2=[20])}], CUBE, store)) == {"seed", "e"}
    assert [(row["v1"], row["v2"]) for row in answers(store, conditions=C("x") == 2)] == [(4.5, 20)]


def test_each_of_many_appends_wins_in_turn(store):
    for i in range(5):
        append_to_cube(with_column(NEW, "v1", [float(i), float(-i)]), CUBE, store)
    assert len(files(store)) == 12
    assert query_cube(CUBE, store, conditions=C("x") == 2)[0]["v1"].tolist() == [-4.0]


def test_unknown_datasets_come_before_metadata_and_frames(store):
    with refused(store, InvalidInput, "Unknown / non-existing datasets: u"):
        append_to_cube({"u": NEW, "seed": NEW.drop_columns(["x"])}, CUBE, store, metadata={"t": {}})


def test_several_datasets_are_checked_before_any_is_published_and_applied_once(monkeypatch):
    store = MemoryStore()
    cube = Cube(["x"], ["p"], "cube", index_columns=["i1"])
    frame = pd.DataFrame({"x": [1, 2], "p": [1, 2]})
    build_cube({"seed": frame, "more": frame.assign(i1=[5, 6])}, cube, store)
    forget(store)
    applied, loaded = [], []
    monkeypatch.setattr(
        apply,
        "apply_change",
        lambda change, *args, real=apply.apply_change: (applied.append(change.uuid), real(change, *args))[1],
    )
    monkeypatch.setattr(
        loader,
        "load_index",
        lambda s, snapshot, column, real=loader.load_index: (
            loaded.append(column),
            real(s, snapshot, column),
        )[1],
    )
    append_to_cube({"seed": frame, "more": frame.assign(i1=[7, 8])}, cube, store)
    assert sorted(applied) == ["cube++more", "cube++seed"]
    assert sorted(loaded) == ["i1", "x"]
    monkeypatch.undo()
    assert sorted(query_cube(cube, store, C("i1") > 6)[0]["i1"]) == [7, 8]
