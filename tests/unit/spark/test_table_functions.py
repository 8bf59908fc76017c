"""The table functions of SQL: their rows, and what they refuse."""

from __future__ import annotations

import datetime as dt
import pickle
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import NullType
from pyspark.sql.udtf import AnalyzeArgument

from kartothek_cube import (
    Cube,
    append_to_cube,
    build_cube,
    connect,
    cube_history,
    plan_cube_query,
    tag_cube,
)
from kartothek_cube.api.dataset import history, store_dataframes_as_dataset, update_dataset_from_dataframes
from kartothek_cube.core.runtime.options import options as use
from kartothek_cube.errors import DatasetNotFound, KartothekCubeError
from kartothek_cube.spark import driver_errors
from kartothek_cube.spark.datasource.read import (
    ChangeCounts,
    Changes,
    Cubes,
    Explain,
    Files,
    History,
    PinnedChanges,
)

CUBE = Cube(["x"], ["p"], "cube", index_columns=["i1"])


def rows(function, *arguments, **named):
    """The result as Spark makes it: by position, under the names of the schema."""
    names = [column.split()[0] for column in function.schema.split(", ")]
    with driver_errors():
        return [dict(zip(names, row, strict=True)) for row in function().eval(*arguments, **named)]


def seed(*xs, p=0):
    return pa.table({"x": [*xs], "p": [p] * len(xs), "i1": [x % 2 for x in xs]})


@pytest.fixture
def built(store_url):
    """A cube of two datasets and two writes, and a dataset of its own."""
    build_cube({"seed": seed(1, 2), "e": pa.table({"x": [1], "p": [0], "v1": [0.5]})}, CUBE, store_url)
    append_to_cube(seed(3, p=1), CUBE, store_url)
    store_dataframes_as_dataset(store_url, "sales", [seed(1, 2), seed(3, p=1)], partition_on=["p"])
    return store_url


def test_the_history_of_a_cube_has_its_writes(built):
    tag_cube(CUBE, built, "t")
    newest, first = rows(History, built, cube="cube")
    assert [newest["commit"], first["commit"]] == cube_history(CUBE, built)["commit"].tolist()
    assert (newest["datasets"], newest["added"], newest["removed"], newest["tags"]) == (["seed"], 1, 0, ["t"])
    assert (first["datasets"], first["added"], first["kept"], first["tags"]) == (["e", "seed"], 2, True, [])
    assert first["time"].utcoffset().total_seconds() == 0
    assert (first["parent"], first["cube"]) == (None, None)


@pytest.mark.parametrize("named", [{"dataset": "cube++seed"}, {"cube": "cube", "dataset": "seed"}])
def test_the_history_of_a_dataset_has_its_commits(built, named):
    newest, first = rows(History, built, **named)
    assert (newest["parent"], first["parent"]) == (first["commit"], None)
    assert first["cube"] == rows(History, built, cube="cube")[1]["commit"]
    assert (newest["datasets"], newest["added"]) == (None, 1)


@pytest.fixture
def changed(built):
    """Another write to the cube and to the dataset; the first commits of both."""
    append_to_cube({"seed": seed(1, 4, p=1), "e": pa.table({"x": [1], "p": [0], "v1": [9.5]})}, CUBE, built)
    update_dataset_from_dataframes([seed(4, 5, p=1)], built, "sales", delete_scope=[{"p": 1}])
    return {"cube": cube_history(CUBE, built)["commit"].iloc[-1], "sales": history("sales", built)["commit"].iloc[-1]}


def constants(**named):
    """Arguments as Spark shows them while it plans."""
    return {name: AnalyzeArgument(NullType(), value, False, True) for name, value in named.items()}


def changed_rows(function=PinnedChanges, **named):
    """The columns and the rows of the function of changes, as Spark makes them."""
    with driver_errors():
        pinned = function.analyze(**constants(**named))
        rows = list(function(*[pinned] if function is PinnedChanges else []).eval(**named))
    return pinned.schema.names, sorted(rows)


@pytest.mark.parametrize("function", [PinnedChanges, Changes])
def test_changes_are_the_rows_of_a_cube_as_in_duckdb(built, changed, function):
    names, found = changed_rows(function, store=built, cube="cube", since=changed["cube"])
    with connect(built) as con:
        same = con.sql(f"FROM kartothek_changes('cube', since => '{changed['cube']}') ORDER BY ALL")
        assert (names, [tuple(map(str, row)) for row in found]) == (
            same.columns,
            [tuple(map(str, row)) for row in same.fetchall()],
        )
    assert names[0] == "_change_type"
    assert len(found) == 5


def test_changes_are_the_rows_of_a_dataset_as_in_duckdb(built, changed):
    for key, given in ((None, "NULL"), (["x"], "['x']"), ("x", "'x'")):
        names, found = changed_rows(store=built, dataset="sales", since=changed["sales"], on_columns=key)
        with connect(built) as con:
            call = f"kartothek_changes('sales', since => '{changed['sales']}', on_columns => {given})"
            same = con.sql(f"FROM {call} ORDER BY ALL")
            assert (names, found) == (same.columns, same.fetchall())
        assert [row[0] for row in found] == ["delete", "insert", "insert"]


def test_changes_of_a_dataset_of_a_cube_are_those_of_its_cells(built, changed):
    names, found = changed_rows(store=built, cube="cube", dataset="e", since=changed["cube"])
    assert names == ["_change_type", "p", "v1", "x"]
    assert found == [("update_postimage", 0, 9.5, 1), ("update_preimage", 0, 0.5, 1)]


def test_changes_have_the_later_state_of_their_plan(built, changed):
    targets = {"cube": "cube"}, {"cube": "cube", "dataset": "seed"}, {"dataset": "sales"}
    for x, named in enumerate(targets, start=7):
        named |= {"store": built, "since": changed["sales" if named == {"dataset": "sales"} else "cube"]}
        pinned = PinnedChanges.analyze(**constants(**named))
        before = list(PinnedChanges(pinned).eval(**named))
        append_to_cube(seed(x, p=1), CUBE, built)
        update_dataset_from_dataframes([seed(x, p=1)], built, "sales")
        assert list(PinnedChanges(pickle.loads(pickle.dumps(pinned))).eval(**named)) == before
        assert len(changed_rows(**named)[1]) == len(before) + 1


def test_changes_begin_with_the_commits_of_a_plan_or_on_a_day(built):
    since = dict(plan_cube_query(CUBE, built).commits)
    append_to_cube(seed(4, p=1), CUBE, built)
    for given in (since, list(since.items())):  # a map on Spark, and on Sail
        assert [row[0] for row in changed_rows(store=built, cube="cube", since=given)[1]] == ["insert"]
    assert rows(ChangeCounts, built, dataset="sales", since=dt.date(2999, 1, 1))[0]["inserted"] == 0


def test_changes_of_arguments_that_are_no_constants_are_refused(built):
    given = {**constants(store=built, cube="cube"), "since": AnalyzeArgument(NullType(), None, False, False)}
    with pytest.raises(KartothekCubeError, match="constants"), driver_errors():
        Changes.analyze(**given)


def test_changes_have_every_type(store_url):
    values = {
        "d": dt.date(2024, 3, 10),
        "t": dt.datetime(2024, 3, 10, 2, 30),
        "z": dt.datetime(2024, 3, 10, 2, 30, tzinfo=dt.UTC),
        "l": [1, None],
        "s": {"a": 1, "b": ["x"]},
        "n": None,
    }
    table = pa.table({name: [value] for name, value in values.items() if name != "n"})
    table = table.append_column("m", pa.array([[("k", [1])]], pa.map_(pa.string(), pa.list_(pa.int64()))))
    table = table.append_column("n", pa.array([None], pa.uint64()))
    store_dataframes_as_dataset(store_url, "d", [table.slice(0, 0), table])
    first = history("d", store_url)["commit"].iloc[0]
    update_dataset_from_dataframes([table], store_url, "d")
    names, ((*row,),) = changed_rows(store=store_url, dataset="d", since=first)
    assert dict(zip(names, row, strict=True)) == {"_change_type": "insert", **values, "m": {"k": [1]}}


def test_counts_are_those_of_duckdb(built, changed):
    calls = [({"cube": "cube"}, "'cube'"), ({"dataset": "sales"}, "'sales'")]
    calls += [({"dataset": "sales", "on_columns": ["x"]}, "'sales', on_columns => ['x']")]
    for named, given in calls:
        since = changed["cube" if "cube" in named else "sales"]
        with connect(built) as con:
            same = con.sql(f"FROM kartothek_change_counts({given}, since => '{since}')").fetchall()
        assert [tuple(row.values()) for row in rows(ChangeCounts, built, **named, since=since)] == same


def test_counts_are_of_the_rows_of_each_dataset(built):
    (first,) = history("sales", built)["commit"]
    update_dataset_from_dataframes([seed(4, 5, p=1)], built, "sales", delete_scope=[{"p": 1}])
    assert rows(ChangeCounts, built, dataset="sales", since=first) == [
        {"dataset": "sales", "inserted": 2, "updated": None, "deleted": 1}
    ]
    assert rows(ChangeCounts, built, dataset="sales", since=first, until=first)[0]["inserted"] == 0
    since = rows(History, built, cube="cube")[1]["commit"]
    counted = rows(ChangeCounts, built, cube="cube", since=since)
    assert [(row["dataset"], row["inserted"], row["updated"]) for row in counted] == [("seed", 1, 0), ("e", 0, 0)]
    assert rows(ChangeCounts, built, cube="cube", dataset="e", since=since) == counted[1:]
    with pytest.raises(DatasetNotFound, match="'none'"):
        rows(ChangeCounts, built, cube="cube", dataset="none", since=since)


def test_files_have_their_partition_rows_and_bytes(built):
    found = rows(Files, built, cube="cube")
    assert [(row["dataset"], row["partition"], row["rows"]) for row in found] == [
        ("cube++e", {"p": "0"}, 1),
        ("cube++seed", {"p": "0"}, 2),
        ("cube++seed", {"p": "1"}, 1),
    ]
    assert rows(Files, built, dataset="cube++seed") == found[1:] == rows(Files, built, cube="cube", dataset="seed")
    root = Path(built.removeprefix("hfs://"))
    assert [row["bytes"] for row in found] == [(root / row["file"]).stat().st_size for row in found]


def test_files_without_statistics_have_bytes_and_no_rows(store_url):
    with use(statistics=False):
        store_dataframes_as_dataset(store_url, "plain", [seed(1)])
    (found,) = rows(Files, store_url, dataset="plain")
    assert (found["table"], found["partition"], found["rows"]) == ("table", {}, None)
    assert found["bytes"] > 0


def test_files_of_several_tables(store_url):
    store_dataframes_as_dataset(store_url, "tables", [{"data": [("a", seed(1)), ("b", seed(1, 2))]}])
    assert [(row["table"], row["rows"]) for row in rows(Files, store_url, dataset="tables")] == [("a", 1), ("b", 2)]


@pytest.mark.parametrize(
    ("named", "title"),
    [({"cube": "cube"}, "Query of cube 'cube'"), ({"dataset": "sales"}, "Scan of table 'table' of dataset 'sales'")],
)
def test_a_plan_is_explained_with_its_conditions(built, named, title):
    every = [row["plan"] for row in rows(Explain, built, **named)]
    some = [row["plan"] for row in rows(Explain, built, **named, conditions="p == 1 & x > 0")]
    assert every[0] == some[0] == title
    assert not any("p=1" not in line for line in some if "parquet" in line)
    assert sum("p=0" in line for line in every) == (2 if "cube" in named else 1)


def test_the_cubes_of_a_store(built):
    build_cube(pa.table({"y": [1], "q": [1]}), Cube(["y"], ["q"], "other", seed_dataset="s"), built)
    first, second = rows(Cubes, built)
    assert first == {
        "cube": "cube",
        "seed_dataset": "seed",
        "dimension_columns": ["x"],
        "partition_columns": ["p"],
        "index_columns": ["i1"],
        "datasets": ["e", "seed"],
    }
    assert (second["cube"], second["seed_dataset"], second["datasets"]) == ("other", "s", ["s"])


def test_a_dataset_whose_name_looks_like_that_of_a_cube_is_none(built):
    store_dataframes_as_dataset(built, "archive++2023", [seed(1)])
    assert [row["cube"] for row in rows(Cubes, built)] == ["cube"]


@pytest.mark.parametrize(
    ("function", "named", "words"),
    [
        (History, {}, "Give the option cube"),
        (History, {"cube": "none"}, "none"),
        (History, {"dataset": "none"}, "none"),
        (Files, {"cube": 5}, "cube => 5 is no text"),
        (Files, {"cube": "cub"}, "There is no cube 'cub'"),
        (ChangeCounts, {"cube": "cub", "since": "now"}, "Cubes of this store: cube. Did you mean 'cube'"),
        (Explain, {"cube": "cub"}, "Cubes of this store: cube. Did you mean 'cube'"),
        (ChangeCounts, {"cube": "cube"}, "since is missing"),
        (Files, {"cube": "cube", "dataset": "none"}, "none"),
        (ChangeCounts, {"dataset": "sales", "since": "nonsense"}, "nonsense"),
        (ChangeCounts, {"dataset": "sales", "since": dt.datetime(2024, 5, 1)}, "no text"),
        (ChangeCounts, {"cube": "cube", "since": "2999-01-01", "on_columns": ["x"]}, "on is for datasets"),
        (Explain, {"dataset": "sales", "conditions": "v9 > 1"}, "v9"),
        (Explain, {"cube": "cube", "conditions": "v9 > 1"}, "v9"),
    ],
)
def test_what_is_no_target_is_refused(built, function, named, words):
    with pytest.raises(KartothekCubeError, match=words):
        rows(function, built, **named)


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ({"cube": "cub", "since": "2999-01-01"}, "Did you mean 'cube'"),
        ({"cube": "cube", "dataset": "seeds", "since": "2999-01-01"}, "Did you mean 'seed'"),
        ({"dataset": "none", "since": "2999-01-01"}, "none"),
        ({"cube": "cube"}, "since is missing"),
        ({"cube": "cube", "since": "nonsense"}, "nonsense"),
        ({"cube": "cube", "since": "2999-01-01", "until": "nonsense"}, "nonsense"),
        ({"cube": "cube", "since": "2999-01-01", "on_columns": ["x"]}, "on is for datasets"),
        ({"dataset": "sales", "since": "2999-01-01", "on_columns": ["y"]}, "y"),
    ],
)
def test_changes_of_no_state_are_refused_when_they_are_planned(built, named, words):
    with pytest.raises(KartothekCubeError, match=words), driver_errors():
        Changes.analyze(**constants(store=built, **named))


@pytest.mark.parametrize("function", [History, Files, Explain, ChangeCounts, Cubes])
def test_a_store_that_depends_on_the_directory_is_refused(function):
    named = {} if function is Cubes else {"cube": "cube"}
    with pytest.raises(KartothekCubeError, match="relative path"):
        rows(function, "data/store", **named)


@pytest.mark.parametrize(("store", "words"), [(None, "store => NULL is no text"), (5, "store => 5 is no text")])
def test_cubes_are_listed_of_a_store_alone(store, words):
    with pytest.raises(KartothekCubeError, match=words):
        rows(Cubes, store)
