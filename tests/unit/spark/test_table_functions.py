"""The table functions of SQL: their rows, and what they refuse."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from kartothek_cube import Cube, append_to_cube, build_cube, cube_history, tag_cube
from kartothek_cube.api.dataset import history, store_dataframes_as_dataset, update_dataset_from_dataframes
from kartothek_cube.core.runtime.options import options as use
from kartothek_cube.errors import DatasetNotFound, KartothekCubeError
from kartothek_cube.spark import driver_errors
from kartothek_cube.spark.datasource.functions import Changes, Cubes, Explain, Files, History

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


def test_changes_count_the_rows_of_each_dataset(built):
    (first,) = history("sales", built)["commit"]
    update_dataset_from_dataframes([seed(4, 5, p=1)], built, "sales", delete_scope=[{"p": 1}])
    assert rows(Changes, built, dataset="sales", since=first) == [
        {"dataset": "sales", "inserted": 2, "updated": None, "deleted": 1}
    ]
    assert rows(Changes, built, dataset="sales", since=first, until=first)[0]["inserted"] == 0
    since = rows(History, built, cube="cube")[1]["commit"]
    counted = rows(Changes, built, cube="cube", since=since)
    assert [(row["dataset"], row["inserted"], row["updated"]) for row in counted] == [("seed", 1, 0), ("e", 0, 0)]
    assert rows(Changes, built, cube="cube", dataset="e", since=since) == counted[1:]
    with pytest.raises(DatasetNotFound, match="'none'"):
        rows(Changes, built, cube="cube", dataset="none", since=since)


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
        (Changes, {"cube": "cub", "since": "now"}, "Cubes of this store: cube. Did you mean 'cube'"),
        (Explain, {"cube": "cub"}, "Cubes of this store: cube. Did you mean 'cube'"),
        (Changes, {"cube": "cube"}, "since is missing"),
        (Files, {"cube": "cube", "dataset": "none"}, "none"),
        (Changes, {"dataset": "sales", "since": "nonsense"}, "nonsense"),
        (Explain, {"dataset": "sales", "conditions": "v9 > 1"}, "v9"),
        (Explain, {"cube": "cube", "conditions": "v9 > 1"}, "v9"),
    ],
)
def test_what_is_no_target_is_refused(built, function, named, words):
    with pytest.raises(KartothekCubeError, match=words):
        rows(function, built, **named)


@pytest.mark.parametrize("function", [History, Files, Explain, Changes, Cubes])
def test_a_store_that_depends_on_the_directory_is_refused(function):
    named = {} if function is Cubes else {"cube": "cube"}
    with pytest.raises(KartothekCubeError, match="relative path"):
        rows(function, "data/store", **named)


@pytest.mark.parametrize(("store", "words"), [(None, "store => NULL is no text"), (5, "store => 5 is no text")])
def test_cubes_are_listed_of_a_store_alone(store, words):
    with pytest.raises(KartothekCubeError, match=words):
        rows(Cubes, store)
