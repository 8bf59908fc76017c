"""A cube or its prefix, conditions or their text, and what is said when arguments are mixed up."""

from __future__ import annotations

import datetime as dt
import inspect
from decimal import Decimal

import pandas as pd
import pyarrow as pa
import pytest

import kartothek_cube
import kartothek_cube.api.cube as cube_api
import kartothek_cube.api.discover as discovery
import kartothek_cube.spark as spark_api
from kartothek_cube import C, Cube, build_cube, count_cube, open_store
from kartothek_cube.api.dataset import month, read_table, store_dataframes_as_dataset
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import DatasetNotFound, InvalidInput, InvalidType
from tests.support.cli_cubes import leave_unmade
from tests.support.cubes import ColdStore

CUBE = Cube(["x"], ["p"], "cube", index_columns=["i1"])
CELLS = pa.table({"x": [1, 2, 3], "p": ["a", "a", "b"], "i1": [7, 8, 7], "v1": [1.5, 2.5, 3.5]})
MORE = pa.table({"x": [4], "p": ["b"], "i1": [9], "v1": [4.5]})


@pytest.fixture
def store():
    store = open_store("hmemory://")
    build_cube(CELLS, CUBE, store)
    return store


def plain(result):
    """A result in a form that can be compared."""
    if isinstance(result, pa.RecordBatchReader):
        result = result.read_all()
    if isinstance(result, list):
        return [plain(item) for item in result]
    if isinstance(result, dict):
        return {key: plain(value) for key, value in result.items()}
    if isinstance(result, pd.DataFrame):
        return result.astype(object).to_dict("list")
    return result.to_pylist() if isinstance(result, pa.Table) else repr(result)


ONE = C("v1") > 2.0
READS = {
    "query_cube": lambda cube, store: cube_api.query_cube(cube, store, ONE),
    "query_cube_arrow": lambda cube, store: cube_api.query_cube_arrow(cube, store, ONE),
    "iter_cube": lambda cube, store: [table for _, table in cube_api.iter_cube(cube, store, ONE)],
    "plan_cube_query": lambda cube, store: cube_api.plan_cube_query(cube, store, ONE),
    "stream_cube": lambda cube, store: cube_api.stream_cube(cube, store, ONE),
    "count_cube": lambda cube, store: cube_api.count_cube(cube, store, ONE),
    "collect_stats": cube_api.collect_stats,
    "describe_cube": cube_api.describe_cube,
    "open_cube": cube_api.open_cube,
    "discover_cube": lambda cube, store: discovery.discover_cube(cube, store)[0],
    "discover_datasets": lambda cube, store: sorted(discovery.discover_datasets(cube, store)),
    "discover_datasets_unchecked": lambda cube, store: sorted(discovery.discover_datasets_unchecked(cube, store)),
    "discover_ktk_cube_dataset_ids": discovery.discover_ktk_cube_dataset_ids,
    "cube_history": cube_api.cube_history,
    "verify_cube": cube_api.verify_cube,
    "list_cube_tags": cube_api.list_cube_tags,
    "cleanup_cube": lambda cube, store: cube_api.cleanup_cube(cube, store, dry_run=True),
    "compact_cube": lambda cube, store: cube_api.compact_cube(cube, store, dry_run=True),
    "delete_cells": lambda cube, store: cube_api.delete_cells(cube, store, C("x") == 1, dry_run=True),
    "forget_cells": lambda cube, store: cube_api.forget_cells(cube, store, C("x") == 1, dry_run=True),
    "rename_cube": lambda cube, store: cube_api.rename_cube(cube, store, "new", dry_run=True),
}
WRITES = {
    "append_to_cube": lambda cube, store: cube_api.append_to_cube(MORE, cube, store),
    "extend_cube": lambda cube, store: cube_api.extend_cube(
        {"e": CELLS.select(["x", "p"]).append_column("v2", CELLS["v1"])}, cube, store
    ),
    "update_cube": lambda cube, store: cube_api.update_cube(MORE, cube, store, C("p") == "b"),
    "remove_partitions": lambda cube, store: cube_api.remove_partitions(cube, store, C("p") == "b", ["seed"]),
    "delete_cube": cube_api.delete_cube,
    "build_cube_index": lambda cube, store: cube_api.build_cube_index(cube, store, "v1"),
    "drop_cube_index": lambda cube, store: cube_api.drop_cube_index(cube, store, "i1"),
    "tag_cube": lambda cube, store: cube_api.tag_cube(cube, store, "t"),
    "copy_cube": lambda cube, store: cube_api.copy_cube(cube, store, open_store("hmemory://")),
    "undo_cube": lambda cube, store: cube_api.append_to_cube(MORE, cube, store) and cube_api.undo_cube(cube, store),
}


@pytest.mark.parametrize("verb", READS)
def test_a_verb_that_reads_takes_the_prefix(store, verb):
    assert plain(READS[verb]("cube", store)) == plain(READS[verb](CUBE, store))


def rows(store) -> list[dict[str, object]]:
    try:
        return cube_api.query_cube_arrow(CUBE, store).to_pylist()
    except InvalidInput:
        return []


@pytest.mark.parametrize("verb", WRITES)
def test_a_verb_that_writes_takes_the_prefix(store, verb):
    twin = open_store("hmemory://")
    build_cube(CELLS, CUBE, twin)
    WRITES[verb]("cube", store)
    WRITES[verb](CUBE, twin)
    assert rows(store) == rows(twin)


# A new cube is more than its prefix; two are given datasets, and look into no store. One has
# another place for it.
ONLY_CUBES = {"build_cube", "check_migration", "check_datasets", "get_cube_payload", "build_cube_from_spark"}


@pytest.mark.parametrize("module", [cube_api, spark_api])
def test_every_verb_says_that_it_takes_both(module):
    functions = {name: getattr(module, name) for name in module.__all__}
    hints = {
        name: inspect.signature(f).parameters["cube"].annotation
        for name, f in functions.items()
        if inspect.isfunction(f) and "cube" in inspect.signature(f).parameters and name not in ONLY_CUBES
    }
    assert {name for name, hint in hints.items() if hint != "Cube | str"} == set()
    assert len(hints) > 5


def test_a_new_cube_needs_the_cube(store):
    with pytest.raises(InvalidType, match=r"a new one needs Cube\(dimension_columns, partition_columns, uuid_prefix"):
        build_cube(CELLS, "new", store)


def test_the_state_of_a_prefix_is_that_of_the_query(store):
    cube_api.tag_cube(CUBE, store, "before")
    cube_api.build_cube_index(CUBE, store, "v1")
    assert cube_api.query_cube("cube", store, partition_by="i1", as_of="before")


@pytest.mark.parametrize("verb", [*READS, *(name for name in WRITES if name != "undo_cube")])
def test_swapped_arguments_are_named(store, verb):
    call = {**READS, **WRITES}[verb]
    with pytest.raises(InvalidType, match=r"query_cube\('cube', store\) would be right"):
        call(store, CUBE)


@pytest.mark.parametrize("verb", [cube_api.query_cube, cube_api.open_cube, kartothek_cube.open])
def test_a_url_in_the_place_of_the_cube_is_not_shown(tmp_path, verb):
    with pytest.raises(InvalidInput, match="the cube comes before it, as in query_cube") as error:
        verb("s3://key:secret@host/bucket", str(tmp_path))
    assert "secret" not in str(error.value)


def test_the_uuid_of_a_dataset_is_no_cube(store):
    with pytest.raises(InvalidInput, match=r"query_cube\('cube', store\); read_table\('cube\+\+seed', store\)"):
        cube_api.query_cube("cube++seed", store)
    store_dataframes_as_dataset(store, "alone", [pd.DataFrame({"x": [1]})])
    with pytest.raises(InvalidInput, match=r"'alone' is a dataset and no cube: read_table\('alone', store\)"):
        cube_api.count_cube("alone", store)
    with pytest.raises(InvalidInput, match=r"'alone' is a dataset and no cube: .*open_dataset\('alone', store\)"):
        kartothek_cube.open("alone", store)


def test_an_unknown_prefix_lists_the_cubes(store):
    with pytest.raises(InvalidInput, match=r"no cube 'cub' in the store hmemory://\. It has: cube\..*'cube'"):
        cube_api.query_cube("cub", store)


# What only lists finds nothing under an unknown prefix.
LISTS = {"discover_datasets_unchecked", "discover_ktk_cube_dataset_ids"}
BY_PREFIX = {
    **{name: verb for name, verb in {**READS, **WRITES}.items() if name not in LISTS},
    "cube_report": cube_api.cube_report,
    "drop_cube_tag": lambda cube, store: cube_api.drop_cube_tag(cube, store, "t"),
    "open": kartothek_cube.open,
    "undo_cube": cube_api.undo_cube,
}


@pytest.mark.parametrize("verb", BY_PREFIX)
def test_every_verb_names_the_cubes_for_an_unknown_prefix(store, verb):
    build_cube(CELLS, CUBE.copy(uuid_prefix="stock"), store)
    counting = ColdStore(store)
    with pytest.raises((InvalidInput, DatasetNotFound), match=r": cube, stock\. Did you mean 'cube'\?$"):
        BY_PREFIX[verb]("cub", counting)
    assert counting.touched("list").count("") == 1


@pytest.mark.parametrize("verb", ["open", "open_cube", "discover_cube", "describe_cube", "cube_history", "verify_cube"])
def test_a_verb_that_finds_its_cube_does_not_list_the_others(store, verb):
    counting = ColdStore(store)
    BY_PREFIX[verb]("cube", counting)
    assert "" not in counting.touched("list")


def test_a_missing_seed_is_said_in_the_words_of_kartothek(store):
    with pytest.raises(InvalidInput) as error:
        cube_api.open_cube("cub", store)
    assert str(error.value) == (
        "Could not find seed dataset for cube \"cub\". Cubes of this store: cube. Did you mean 'cube'?"
    )
    # The cube is there: none of the others is meant.
    with pytest.raises(InvalidInput) as error:
        discovery.discover_cube("cube", store, "nothing")
    assert str(error.value) == 'Could not find seed dataset for cube "cube".'


def test_a_cube_that_nobody_sees_yet_is_not_named(tmp_path):
    leave_unmade(str(tmp_path), "cub")
    store = open_store(str(tmp_path))
    build_cube(CELLS, CUBE, store)
    for verb in (cube_api.query_cube, kartothek_cube.open):
        with pytest.raises(InvalidInput, match=r"There is no cube 'cub' .* It has: cube\. Did you mean 'cube'\?$"):
            verb("cub", store)


def test_a_cube_is_no_dataset(store):
    with pytest.raises(DatasetNotFound, match=r"query_cube\('cube', store\).*read_table\('cube\+\+seed', store\)"):
        read_table("cube", store)
    with pytest.raises(InvalidType, match=r"query_cube\('cube', store\).*read_table\('cube\+\+seed', store\)"):
        read_table(CUBE, store)
    with pytest.raises(InvalidType, match="give the arguments by name"):
        read_table(store, "cube++seed")
    with pytest.raises(DatasetNotFound, match=r"Dataset does not exist[^']*$"):
        read_table("nothing", store)


# --- conditions as text ---------------------------------------------------------------------------


TEXTS = [
    ("v1 > 2.0 & i1 in (7, 9)", (C("v1") > 2.0) & C("i1").isin([7, 9])),
    ("p == 'a'", C("p") == "a"),
    ("", None),
]


@pytest.mark.parametrize(("text", "conditions"), TEXTS)
@pytest.mark.parametrize("verb", ["query_cube", "query_cube_arrow", "count_cube", "stream_cube", "plan_cube_query"])
def test_conditions_may_be_text(store, verb, text, conditions):
    call = getattr(cube_api, verb)
    assert plain(call("cube", store, text)) == plain(call(CUBE, store, conditions))


def test_conditions_of_partitions_may_be_text(store):
    assert plain(cube_api.compact_cube("cube", store, conditions="p == a", dry_run=True))
    cube_api.remove_partitions("cube", store, "p == a", ["seed"])
    assert {row["p"] for row in rows(store)} == {"b"}
    cube_api.update_cube(MORE, "cube", store, "p == b")
    assert [row["x"] for row in rows(store)] == [4]
    with pytest.raises(InvalidInput, match="physical partition columns"):
        cube_api.remove_partitions("cube", store, "v1 > 2.0", ["seed"])


def test_cells_of_a_text_are_deleted(store):
    cube_api.delete_cells("cube", store, "v1 > 2.0 & p == 'a'")
    assert [row["x"] for row in rows(store)] == [1, 3]
    with pytest.raises(InvalidInput, match="Which cells"):
        cube_api.delete_cells("cube", store, " ")


def test_a_text_that_may_be_meant_otherwise_is_refused(store):
    with pytest.raises(InvalidInput, match="nothing can be compared with a null"):
        cube_api.query_cube("cube", store, "p == NULL")
    with pytest.raises(InvalidInput, match='Unknown column "z"'):
        cube_api.query_cube("cube", store, "z == 1")


# --- constants ------------------------------------------------------------------------------------

PRICES = pa.table(
    {
        "x": [1, 2, 3],
        "p": [dt.date(2024, 2, day) for day in (27, 28, 29)],
        "i1": pa.array([Decimal("1.50"), Decimal("2.00"), None], pa.decimal128(6, 2)),
        "v1": [1.5, 2.0, 2.0**53],
        "v2": [dt.datetime(2024, 2, 28), dt.datetime(2024, 2, 28, 12), None],
        "v3": pa.array([1, 2, None], pa.int16()),
    }
)


@pytest.fixture(scope="module")
def prices():
    store = open_store("hmemory://")
    build_cube(PRICES, Cube(["x"], ["p"], "cube"), store)
    return store


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        (C("i1") > 1, [1, 2]),
        (C("i1") == Decimal("1.5"), [1]),
        (C("i1").isin([2, 1.5]), [1, 2]),
        ("i1 >= 2", [2]),
        (C("v1") == 2, [2]),
        (C("v1") < 2**53 + 1, [1, 2, 3]),
        (C("v1") == 2**53 + 1, []),
        (C("v3") > 1.5, [2]),
        (C("v3") == 1.5, []),
        (C("v3") != 1.5, [1, 2, 3]),  # a stored null satisfies `!=`
        ("v3 > 1.5 & v3 < 1e9", [2]),
        (C("v3") == pa.scalar(2.0), [2]),
        (C("v2") >= dt.date(2024, 2, 28), [1, 2]),
        (C("v2") > "2024-02-28", [2]),
        (C("v2").in_interval("2024-02-28", pd.Timestamp("2024-02-28 12:00")), [1]),
        (C("p") == pd.Timestamp("2024-02-28"), [2]),
        (C("p") > dt.datetime(2024, 2, 28, 12), [3]),
        (C("x").isin(pa.array([1.0, 3.0, 2.5])), [1, 3]),
    ],
    ids=str,
)
def test_constants_without_loss_are_compared_in_a_cube(prices, conditions, expected):
    found = cube_api.query_cube_arrow("cube", prices, conditions)
    assert found.column("x").to_pylist() == expected
    assert cube_api.count_cube("cube", prices, conditions) == len(expected)


@pytest.mark.parametrize(
    ("condition", "hint"),
    [
        (C("i1") == 0.1, r"Write Decimal\('0\.1'\)"),
        (C("v1") == Decimal("0.1"), "Write 0.1, which is a double"),
        (C("v1") > "2", "without quotes"),
        (C("v2") > dt.datetime(2024, 2, 28, tzinfo=dt.UTC), "datetimes without a zone"),
    ],
    ids=str,
)
def test_what_is_doubtful_says_what_would_be_right(prices, condition, hint):
    with pytest.raises(InvalidType, match=hint):
        cube_api.query_cube("cube", prices, condition)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Cube(["x"], [month("y")], "c"),
        lambda: build_cube(
            {"seed": pa.table({"x": [1], "p": [1]}), "e": pa.table({"x": [1], "p": [1], "y": [dt.date(2024, 5, 1)]})},
            Cube(["x"], ["p"], "c"),
            "hmemory://",
            partition_on={"e": ["p", month("y")]},
        ),
    ],
)
def test_derived_columns_are_for_single_datasets(make):
    with pytest.raises(InvalidInput, match="Add the column 'y_month' to the rows yourself"):
        make()


@pytest.mark.parametrize(("text", "rows"), [("v1 < 9007199254740993", 1), ("v1 == 9007199254740993", 0)])
def test_integers_in_text_are_compared_exactly_with_doubles(text, rows):
    store, cube = MemoryStore(), Cube(["x"], ["p"], "c")
    build_cube(pa.table({"x": [1], "p": [1], "v1": [2.0**53]}), cube, store)
    assert count_cube("c", store, text) == rows
