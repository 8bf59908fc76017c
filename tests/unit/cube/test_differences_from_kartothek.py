"""Wrong results that kartothek 5.3 gives, and the right ones that this library gives instead.

A comment at a test names the faults that it is about; tests/checklist/faults.toml has a row for
each.
"""

from __future__ import annotations

import datetime
import io
import re
import tokenize
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from kartothek_cube import options
from kartothek_cube.api.cube import (
    C,
    Conjunction,
    Cube,
    append_to_cube,
    build_cube,
    build_cube_index,
    cleanup_cube,
    copy_cube,
    delete_cube,
    extend_cube,
    plan_cube_query,
    query_cube,
    query_cube_arrow,
    remove_partitions,
)
from kartothek_cube.api.dataset import convert_metadata_format, read_table_arrow, store_dataframes_as_dataset
from kartothek_cube.api.discover import discover_cube, discover_datasets_unchecked
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import InvalidInput, InvalidType, KartothekCubeError, KeyNotFound
from tests.support.checklists import rows_in
from tests.support.cubes import answers, contents, files, index_of, refused, snapshot, table, with_column

FAULTS = [*(f"10.1.{n}" for n in range(1, 22)), "10.4.50", "10.4.51", "10.4.52"]

CUBE = Cube(["x"], ["p"], "cube")
INDEXED = CUBE.copy(index_columns=["i1"])
NOW = options(grace=datetime.timedelta(0), retain=datetime.timedelta(0))


def built(cube=CUBE, **columns):
    store = MemoryStore()
    build_cube(table(**columns), cube, store)
    return store


def rows(store, cube=CUBE, condition=None, **arguments):
    return answers(store, cube, conditions=condition, **arguments)


def xs(store, cube=CUBE, condition=None, **arguments):
    return [row["x"] for row in rows(store, cube, condition, **arguments)]


def frames_by(store, cube, by, **arguments):
    return [
        (frame[by].unique().tolist(), frame["x"].tolist())
        for frame in query_cube(cube, store, partition_by=by, **arguments)
    ]


# --- values of partition columns ------------------------------------------------------------------


@pytest.mark.parametrize(
    "values",
    [
        [False, True],  # 10.1.1
        ["a/b", "a/c", "a"],  # 10.1.2
        [b"a", b"b"],  # 10.1.3
    ],
)
def test_partition_values_come_back_as_they_were_and_select_what_they_say(values):
    store = built(x=list(range(len(values))), p=values)
    assert query_cube_arrow(CUBE, store).column("p").to_pylist() == values
    assert query_cube(CUBE, store)[0]["p"].tolist() == values
    for x, value in enumerate(values):
        assert xs(store, condition=C("p") == value) == [x]
    assert frames_by(store, CUBE, "p") == sorted(([value], [x]) for x, value in enumerate(values))
    remove_partitions(CUBE, store, C("p") == values[0])
    assert query_cube_arrow(CUBE, store).column("p").to_pylist() == values[1:]


# --- null and types in conditions -----------------------------------------------------------------


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("partitions", [[0, 0, 0, 0], [0, 0, 1, 1], [0, 1, 2, 3]])
def test_unequal_gives_the_same_answer_whatever_is_indexed_and_whatever_shares_a_file(partitions, indexed):  # 10.1.4
    store = built(x=[0, 1, 2, 3], p=partitions, i1=pa.array([1.0, None, 2.0, None]))
    if indexed:
        build_cube_index(CUBE, store, ["i1"])
        assert set(index_of(store, "i1")) == {1.0, 2.0}
    assert xs(store, condition=C("i1") != 1.0) == [1, 2, 3]
    assert xs(store, condition=C("i1") == 1.0) == [0]


def test_unequal_does_not_match_cells_that_a_dataset_lacks():  # 10.1.4
    store = built(x=[0, 1, 2], p=[0, 0, 0])
    extend_cube({"e": table(x=[0, 1], v1=[1.0, None])}, CUBE, store, partition_on={"e": []})
    assert xs(store, condition=C("v1") != 7.0) == [0, 1]
    assert len(Conjunction(C("v1") != 7.0).filter_df(query_cube(CUBE, store)[0])) == 1


@pytest.mark.parametrize(
    ("condition", "expected"),
    [(C("v1") < "b", [0]), (C("v1") >= "a", [0, 2]), (C("v1").in_interval("a", "b"), [0])],
    ids=str,
)
def test_text_with_nulls_can_be_ordered(condition, expected):  # 10.1.5
    assert xs(built(x=[0, 1, 2], p=[0, 0, 0], v1=["a", None, "b"]), condition=condition) == expected


@pytest.mark.parametrize("by", ["i1", "v1", "p"])
def test_dates_can_be_compared_and_grouped_by(by):  # 10.1.10
    dates = [datetime.date(2020, 1, 1), datetime.date(2020, 1, 2)]
    store = built(INDEXED, x=[0, 1], i1=dates, v1=dates, p=dates)
    assert query_cube_arrow(INDEXED, store).schema.field(by).type == pa.date32()
    assert xs(store, INDEXED, C(by) == dates[1]) == xs(store, INDEXED, C(by) > dates[0]) == [1]
    if by != "v1":
        assert [group.key for group in plan_cube_query(INDEXED, store, partition_by=by).groups] == [
            {by: date} for date in dates
        ]
        assert [x for _, x in frames_by(store, INDEXED, by)] == [[0], [1]]


@pytest.mark.parametrize("column", ["i1", "v1", "p"])
def test_bytes_match_text_wherever_it_stands(column):  # 10.1.11
    store = built(INDEXED, x=[0, 1], i1=["a", "b"], v1=["a", "b"], p=["a", "b"])
    assert xs(store, INDEXED, C(column) == b"b") == [1]
    assert xs(store, INDEXED, C(column).isin([b"a"])) == [0]


@pytest.mark.parametrize("literal", [1, "soon", 0.5])
def test_a_constant_that_is_no_timestamp_is_a_type_error_that_names_it(literal):  # 10.1.20
    store = built(x=[0], p=[0], v1=[datetime.datetime(2020, 1, 1)])
    with refused(store, InvalidType, "v1", "seed", "timestamp", repr(literal)):
        query_cube(CUBE, store, C("v1") == literal)


EXTENSIONS = {
    "string": pd.array(["a", None], "string"),
    "boolean": pd.array([True, None], "boolean"),
    "zoned timestamp": pd.to_datetime(["2020-01-01", None], utc=True),
    "duration": pd.to_timedelta(["1s", None]),
}


@pytest.mark.parametrize("name", EXTENSIONS)
def test_what_can_be_stored_can_be_queried(name):  # 10.1.9
    store, values = MemoryStore(), pd.Series(EXTENSIONS[name])
    build_cube(pd.DataFrame({"x": [0, 1], "p": 0, "v1": values}), CUBE, store)
    (frame,) = query_cube(CUBE, store)
    assert frame["v1"].iloc[0] == values.iloc[0]
    assert frame["v1"].isna().tolist() == [False, True]


# --- rows that come back, leak or vanish ----------------------------------------------------------


@pytest.fixture
def overwritten():
    """Cell 0 was overwritten: group 1 → 2, and 10 → 20."""
    store = built(INDEXED, x=[0, 1], p=[0, 0], i1=[1, 1], v1=[10, 10])
    append_to_cube(table(x=[0], p=[0], i1=[2], v1=[20]), INDEXED, store)
    return store


@pytest.mark.parametrize(
    ("condition", "expected"),
    [(C("i1") == 1, [1]), (C("i1") == 2, [0]), (C("v1") == 10, [1]), (C("v1") < 20, [1])],
    ids=str,
)
def test_overwritten_rows_stay_gone(overwritten, condition, expected):  # 10.1.6
    assert xs(overwritten, INDEXED, condition) == expected


def test_an_overwritten_row_is_in_the_group_of_its_new_value_alone(overwritten):  # 10.1.6
    assert frames_by(overwritten, INDEXED, "i1") == [([1], [1]), ([2], [0])]


@pytest.mark.parametrize("name", ["aaa", "zzz"])
def test_each_row_is_in_the_group_of_its_own_value_if_two_datasets_index_the_column(name):  # 10.1.7
    store = built(x=[0, 1, 2, 3], p=[0, 0, 1, 1])
    extend_cube({name: table(x=[0, 1, 2, 3], v1=[0, 1, 2, 3])}, CUBE, store, partition_on={name: ["x"]})
    assert frames_by(store, CUBE, "x") == [([x], [x]) for x in range(4)]


@pytest.mark.parametrize("condition", [None, C("v1") > 0, C("p") == 1])
@pytest.mark.parametrize("by", [None, "p", "x"])
def test_row_labels_count_from_zero(condition, by):  # 10.1.8
    store = built(x=[0, 1, 2, 3], p=[1, 0, 1, 0], v1=[0, 1, 2, 3])
    append_to_cube(table(x=[0, 1, 2], p=[1, 0, 1], v1=[5, 0, 6]), CUBE, store)
    frames = query_cube(CUBE, store, condition, partition_by=by)
    assert frames
    assert [list(frame.index) for frame in frames] == [list(range(len(frame))) for frame in frames]


PLANE = Cube(["x", "y"], ["p"], "cube")


def test_a_dropped_dimension_is_no_payload():  # 10.1.12
    store = built(PLANE, x=[0, 0], y=[1, 2], p=[0, 0])
    with refused(store, InvalidInput, "y", "x"):
        query_cube(PLANE, store, dimension_columns=["x"], payload_columns=["y"])
    assert rows(store, PLANE, dimension_columns=["x"]) == [{"p": 0, "x": 0}]


def test_rows_without_a_value_are_in_no_group_and_the_plan_says_how_many_files_that_concerns():  # 10.1.13
    store = built(x=[0, 1, 2], p=[0, 0, 1], i1=pa.array([1, None, None], pa.int64()))
    build_cube_index(CUBE, store, ["i1"])
    assert frames_by(store, CUBE, "i1") == [([1], [0])]
    text = plan_cube_query(CUBE, store, partition_by="i1").explain()
    assert "in no group: 1 file without a value of i1" in text
    assert "cells without a value of i1 are in no group" in text


# --- removal --------------------------------------------------------------------------------------


def test_a_removal_that_would_empty_another_dataset_is_refused():  # 10.1.14
    store = built(x=[0, 1], p=[0, 1])
    extend_cube({"e": table(x=[0], v1=[1])}, CUBE, store, partition_on={"e": []})
    for condition in (C("p") == 0, C("p") == 77):
        with refused(store, InvalidInput, "e", "p", "ktk_cube_dataset_ids"):
            remove_partitions(CUBE, store, condition)
    remove_partitions(CUBE, store, C("p") == 0, ["seed"])
    assert [len(files(store, name)) for name in ("seed", "e")] == [1, 1]


def test_a_partition_column_may_have_any_name():  # 10.1.14
    cube = Cube(["x"], ["indices"], "cube")
    store = built(cube, x=[0, 1, 2], indices=[0, 1, 1])
    remove_partitions(cube, store, C("indices") == 0)
    assert xs(store, cube) == [1, 2]


# --- maintenance ----------------------------------------------------------------------------------


def users(metadata):
    """The entries of the user and of the cube, without those in which this library keeps its
    commits.
    """
    return {key: value for key, value in metadata.items() if not key.startswith("kartothek_cube")}


def test_an_index_that_is_built_later_leaves_the_metadata_alone():  # 10.1.15
    store = MemoryStore()
    build_cube(table(x=[0, 1], p=[0, 1], v1=[1, 2]), CUBE, store, metadata={"seed": {"who": "we"}})
    before = users(snapshot(store).document.metadata)
    build_cube_index(CUBE, store, ["v1"])
    assert users(snapshot(store).document.metadata) == before
    assert discover_cube("cube", store)[0] == CUBE.copy(index_columns=["v1"])


def test_an_index_on_a_partition_column_is_refused():  # 10.1.15
    store = built(x=[0, 1], p=[0, 1])
    with refused(store, InvalidInput, "p"):
        build_cube_index(CUBE, store, ["p"])


@pytest.fixture
def packed():
    """A cube whose documents are msgpack, and garbage of an overwrite."""
    store = built(x=[0, 1], p=[0, 1])
    build_cube(table(x=[5, 6], p=[0, 1]), CUBE, store, overwrite=True)
    convert_metadata_format("cube++seed", store, "msgpack")
    return store


def test_a_cube_of_msgpack_documents_is_cleaned_without_loss(packed):  # 10.1.16
    removed = cleanup_cube(CUBE, packed, options=NOW).removed
    assert not any("metadata" in str(key) for key in removed)
    assert xs(packed) == [5, 6]


def test_a_cube_of_msgpack_documents_is_copied_and_deleted_whole(packed):  # 10.1.16
    target = MemoryStore()
    copy_cube(CUBE, packed, target)
    assert xs(target) == [5, 6]
    cleanup_cube(CUBE, packed, options=NOW)
    delete_cube(CUBE, packed)
    assert contents(packed) == {}


def with_enrichments(*names):
    store = built(x=[0, 1], p=[0, 1], v0=[1, 2])
    for name in names:
        extend_cube({name: table(x=[0], **{f"v_{name}": [1]})}, CUBE, store, partition_on={name: []})
    return store


def test_a_copy_that_lacks_a_file_fails_even_if_the_target_has_a_seed():  # 10.1.17
    source, target = with_enrichments("e"), built(x=[0, 1], p=[0, 1], v0=[1, 2])
    (key,) = files(source, "e")
    source.delete(key)
    with pytest.raises(KartothekCubeError, match="e"):
        copy_cube(CUBE, source, target, datasets=["e"])
    assert sorted(discover_datasets_unchecked("cube", target)) == ["seed"]


def test_renaming_concerns_the_whole_name_of_a_dataset():  # 10.1.18
    source, target = with_enrichments("enrich", "enrich2"), MemoryStore()
    copy_cube(CUBE, source, target, renamed_datasets={"enrich": "other"})
    assert sorted(discover_datasets_unchecked("cube", target)) == ["enrich2", "other", "seed"]
    assert rows(target) == rows(source)


def test_names_can_be_exchanged():  # 10.1.18
    source, target = with_enrichments("a", "b"), MemoryStore()
    copy_cube(CUBE, source, target, renamed_datasets={"a": "b", "b": "a"})
    assert read_table_arrow("cube++a", target).column_names == read_table_arrow("cube++b", source).column_names


def test_two_datasets_do_not_get_one_name_and_nothing_is_overwritten():  # 10.1.18
    source, target = with_enrichments("a", "b"), MemoryStore()
    with refused(target, KartothekCubeError, "b"):
        copy_cube(CUBE, source, target, renamed_datasets={"a": "b"})
    copy_cube(CUBE, source, target)
    with refused(target, KartothekCubeError, "b"):
        copy_cube(CUBE, source, target, datasets=["a"], renamed_datasets={"a": "b"})


def test_a_broken_dataset_does_not_vanish_from_queries():  # 10.1.19
    store = with_enrichments("e", "wrong")
    store.put("cube++wrong.by-dataset-metadata.json", b'{"dataset_metadata_version": 4}')
    with pytest.raises(KartothekCubeError, match="wrong"):
        query_cube(CUBE, store)
    assert xs(store, datasets=["seed", "e"]) == [0, 1]


def test_a_missing_file_is_an_error_that_names_it():  # 10.1.19
    store = with_enrichments("e")
    (key,) = files(store, "e")
    store.delete(key)
    with pytest.raises(KeyNotFound, match=re.escape(key)):
        query_cube(CUBE, store)


# --- cells in two places --------------------------------------------------------------------------


def test_a_cell_in_two_partitions_is_two_rows_that_a_count_finds():  # 10.1.21
    store = built(x=[0, 0, 1], p=[0, 1, 1], v1=[1, 2, 3])
    assert [(row["p"], row["v1"]) for row in rows(store, condition=C("x") == 0)] == [(0, 1), (1, 2)]
    counts = query_cube_arrow(CUBE, store, payload_columns=[]).group_by("x").aggregate([([], "count_all")])
    assert [row["x"] for row in counts.to_pylist() if row["count_all"] > 1] == [0]


def test_enrichment_rows_in_another_partition_than_their_cell_join_nothing_and_an_anti_join_finds_them():  # 10.1.21
    store = built(x=[0, 1], p=[0, 1])
    extend_cube({"e": table(x=[0, 1], p=[0, 0], v1=[1, 2])}, CUBE, store)
    assert [(row["x"], row["v1"]) for row in rows(store)] == [(0, 1), (1, None)]
    cells = query_cube_arrow(CUBE, store, payload_columns=[])
    lost = read_table_arrow("cube++e", store).join(cells, ["x", "p"], join_type="left anti")
    assert lost.select(["x", "p", "v1"]).to_pylist() == [{"x": 1, "p": 0, "v1": 2}]


# --- odd dimensions and names ---------------------------------------------------------------------


def foreign(values):
    """A seed that another tool wrote; nobody checked it for nulls.

    The third row overwrites the second.
    """
    store = MemoryStore()
    metadata = {"ktk_cube_is_seed": True, "ktk_cube_dimension_columns": ["x"], "ktk_cube_partition_columns": ["p"]}
    frame = pd.DataFrame({"x": values, "p": 0, "v1": [1, 2, 3, 4]})
    arguments = {"partition_on": ["p"], "secondary_indices": ["x"], "metadata": metadata}
    store_dataframes_as_dataset(store=store, dataset_uuid="cube++seed", dfs=[frame], **arguments)
    return store


@pytest.mark.parametrize("values", [["a", None, None, "b"], [1.5, float("nan"), float("nan"), 2.5]])
def test_null_dimensions_of_other_writers_are_one_cell_at_the_end(values):  # 10.4.50
    store = foreign(values)
    assert [(row["x"], row["v1"]) for row in rows(store)] == [(values[0], 1), (values[3], 4), (None, 3)]
    assert xs(store, condition=C("x") == values[0]) == [values[0]]
    assert [x for _, x in frames_by(store, CUBE, "x")] == [[values[0]], [values[3]]]
    assert "in no group" not in plan_cube_query(CUBE, store).explain()


@pytest.mark.parametrize("column", ["x", "p", "i1"])
def test_nulls_are_refused_in_columns_that_address_or_group(column):  # 10.4.50
    store = MemoryStore()
    data = with_column(table(x=[0, 1], p=[0, 0], i1=[0, 1]), column, [0, None])
    with refused(store, InvalidInput, column, "seed", "NULL"):
        build_cube(data, INDEXED, store)


@pytest.mark.parametrize("values", [[1, "a"], [[1], [2]], [{"a": 1}, {"a": 2}]], ids=str)
def test_dimensions_that_cannot_be_ordered_are_refused_by_name(values):  # 10.4.51
    store = MemoryStore()
    with refused(store, InvalidType, "'x'", "seed"):
        build_cube(pd.DataFrame({"x": pd.Series(values, dtype=object), "p": 0}), CUBE, store)


@pytest.mark.parametrize("name", ["partition", "__x", "KLEE_TS", "__ktk_cube_join_dummy"])
@pytest.mark.parametrize("role", ["dimension_columns", "partition_columns", "index_columns"])
def test_names_that_would_disappear_are_refused_for_columns_with_a_role(name, role):  # 10.4.52
    store, cube = MemoryStore(), CUBE.copy(**{role: [*getattr(CUBE, role), name]})
    with refused(store, InvalidInput, name, "seed"):
        build_cube(table(x=[0], p=[0], **{name: [1]}), cube, store)


@pytest.mark.parametrize("name", ["__ktk_cube_labels_seed", "__ktk_cube_join_dummy"])
def test_hidden_payload_disturbs_no_query(name):  # 10.4.52
    store = built(x=[0, 1], p=[0, 1], **{name: [1, 2]})
    extend_cube({"e": table(x=[0, 1], **{name: [1, 2], "v1": [1, 2]})}, CUBE, store, partition_on={"e": []})
    assert rows(store) == [{"p": 0, "v1": 1, "x": 0}, {"p": 1, "v1": 2, "x": 1}]


# --- the list -------------------------------------------------------------------------------------


def faults_in_comments():
    source = Path(__file__).read_text(encoding="utf-8")
    comments = [
        token.string
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    ]
    return {fault for comment in comments for fault in re.findall(r"\b10\.[14]\.\d+\b", comment)}


def test_every_fault_has_a_test():
    assert faults_in_comments() == set(FAULTS)


def test_every_fault_has_its_row():
    rows = rows_in("faults.toml")
    assert [int(number) for number in rows] == [*range(1, 38), 50, 51, 52]
    assert all(row["kartothek"] and row["here"] for row in rows.values())
