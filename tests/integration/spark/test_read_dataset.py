"""read_dataset_as_spark: the rows of the eager reader, lazily, in few tasks."""

from __future__ import annotations

import datetime as dt

import pandas as pd
import pyarrow as pa
import pytest

from kartothek_cube import options
from kartothek_cube.api.dataset import (
    DatasetFactory,
    history,
    read_dataset_as_dataframes,
    read_table_arrow,
    store_dataframes_as_dataset,
    update_dataset_from_dataframes,
)
from kartothek_cube.errors import DatasetNotFound, InvalidInput, InvalidRequest, InvalidType, KeyNotFound, UnknownColumn
from kartothek_cube.spark import read as dataset
from kartothek_cube.spark import read_dataset_as_spark

READS = {
    "everything": {},
    "columns in order": {"columns": ["v1", "p", "x"]},
    "partition": {"predicates": [[("p", "==", 1)]], "columns": ["x"]},
    "index": {"predicates": [[("i1", "in", [1, 7])]]},
    "rows": {"predicates": [[("v1", "<", 3.0), ("t", ">", dt.datetime(2024, 3, 10, 2))], [("x", "==", 11)]]},
    "null": {"predicates": [[("s", "==", None)]]},
    "nothing": {"predicates": [[("p", "==", 77)]], "columns": ["s", "t"]},
    "no rows": {"predicates": [[("v1", ">", 1e9)]]},
}


def element(i: int) -> pd.DataFrame:
    x = range(4 * i, 4 * i + 4)
    moments = [dt.datetime(2024, 3, 10, 2, 30) + dt.timedelta(hours=n) for n in x]
    return pd.DataFrame(
        {
            "x": x,
            "p": [n % 3 for n in x],
            "i1": [i % 2 if n % 4 else 7 for n in x],
            "v1": [float(n) for n in x],
            "s": ["a", None, "c", "d"],
            "t": moments,
        }
    )


@pytest.fixture
def stored(store_url) -> str:
    store_dataframes_as_dataset(
        store_url, "one", [element(i) for i in range(4)], partition_on=["p"], secondary_indices=["i1"]
    )
    return store_url


def ordered(table):
    return sorted(table.to_pylist(), key=str)


def test_rows_types_and_columns_are_those_of_the_eager_reader(spark, stored):  # L14
    for name, given in READS.items():
        found, expected = (
            read_dataset_as_spark("one", stored, **given).toArrow(),
            read_table_arrow("one", stored, **given),
        )
        assert found.schema.equals(expected.schema), name
        assert found.to_pylist() == expected.to_pylist(), name


def test_files_are_in_few_tasks_and_pruned_ones_in_none(spark, stored):
    def tasks(**given):
        return read_dataset_as_spark("one", stored, **given).rdd.getNumPartitions()

    files = len(read_dataset_as_dataframes("one", stored))
    assert files == 12
    assert tasks() == 2
    assert tasks(parallelism=1) == 1
    assert tasks(blocksize=5) == 3
    assert tasks(blocksize=1, predicates=[[("p", "==", 1)]]) == 4
    assert tasks(blocksize=1, predicates=[[("i1", "==", 0), ("p", "==", 1)]]) == 2


@pytest.mark.parametrize(
    ("by", "given"),
    [
        ("p", {"columns": ["x", "p"]}),
        (["i1", "p"], {"blocksize": 2, "predicates": [[("i1", "!=", 0)]]}),
        (["i1"], {"columns": ["x", "i1"], "blocksize": 2}),  # every file in two groups: not many
    ],
)
def test_the_rows_of_a_group_come_one_after_the_other_from_one_task(spark, stored, by, given):
    from pyspark.sql import functions as F

    names = [by] if isinstance(by, str) else by
    frame = read_dataset_as_spark("one", stored, dispatch_by=by, **given)
    wanted = {k: v for k, v in given.items() if k != "blocksize"}
    found = frame.withColumn("task", F.spark_partition_id()).toArrow()
    assert ordered(found.drop_columns(["task"])) == ordered(read_table_arrow("one", stored, **wanted))
    keys = list(zip(*(found[c].to_pylist() for c in names), strict=True))
    runs = [k for i, k in enumerate(keys) if i == 0 or keys[i - 1] != k]
    assert runs == sorted(set(keys))
    assert len(set(zip(keys, found["task"].to_pylist(), strict=True))) == len(runs)


def test_files_that_many_groups_share_are_read_once(spark, store_url):
    frames = [pd.DataFrame({"x": range(12), "k": [n % 6 if n else None for n in range(12)], "v": n}) for n in (1, 2)]
    store_dataframes_as_dataset(store_url, "shared", frames, secondary_indices=["k"])
    frame = read_dataset_as_spark(
        "shared", store_url, dispatch_by="k", columns=["v", "x"], predicates=[[("x", "<", 11)]], blocksize=4
    )
    rows = [tuple(r) for r in frame.collect()]
    # Row 0 has no value: it is in no group.
    assert sorted(rows) == sorted((v, x) for v in (1, 2) for x in range(1, 11))
    keys = [x % 6 for _, x in rows]
    assert [k for i, k in enumerate(keys) if i == 0 or keys[i - 1] != k] == sorted(set(keys))
    assert read_dataset_as_spark("shared", store_url, dispatch_by="k", predicates=[[("k", ">", 9.0)]]).count() == 0


def test_every_action_sees_the_dataset_as_it_was(spark, stored):
    frame = read_dataset_as_spark(factory=DatasetFactory("one", stored), columns=["x"])
    old = history("one", stored)["commit"].iloc[0]
    update_dataset_from_dataframes([element(9)], stored, "one", delete_scope=[{"p": 1}], partition_on=["p"])
    assert (frame.count(), read_dataset_as_spark("one", stored, as_of=old).count()) == (16, 16)
    assert read_dataset_as_spark("one", stored).count() == read_table_arrow("one", stored).num_rows != 16


def test_a_table_of_several_is_read_by_name(spark, store_url):
    store_dataframes_as_dataset(store_url, "two", [{"a": element(0), "b": pd.DataFrame({"z": [1, 2]})}])
    assert [
        r.z
        for r in read_dataset_as_spark(
            "two", store_url, "b", columns={"b": ["z"]}, categoricals={"b": ["z"]}, dates_as_object=True
        ).collect()
    ] == [
        1,
        2,
    ]
    with pytest.raises(KeyNotFound, match="no table 'c', only"):
        read_dataset_as_spark("two", store_url, "c")


@pytest.mark.parametrize(
    ("given", "error", "match"),
    [
        ({"dataset_uuid": "other"}, DatasetNotFound, "other"),
        ({"table": "other"}, KeyNotFound, "no table 'other'"),
        ({"table": "other", "dispatch_by": "p"}, KeyNotFound, "no table 'other'"),
        ({"columns": ["x", "z"]}, UnknownColumn, "z"),
        ({"columns": ["x", "z"], "dispatch_by": "p"}, UnknownColumn, "z"),
        ({"columns": []}, InvalidInput, "at least one column"),
        ({"columns": "x"}, InvalidType, "list of column names"),
        ({"columns": ["x"], "categoricals": ["s"]}, UnknownColumn, "s"),
        ({"columns": ["x"], "categoricals": ["s"], "dispatch_by": "p"}, UnknownColumn, "s"),
        ({"dates_as_object": "no"}, InvalidType, "dates_as_object"),
        ({"predicates": [[("z", "==", 1)]]}, UnknownColumn, "z"),
        ({"predicates": [[("x", "==", "1")]]}, InvalidType, "x"),
        ({"dispatch_by": "v1"}, InvalidRequest, "must be indexed"),
        ({"blocksize": 0}, InvalidInput, "blocksize"),
        ({"parallelism": 0}, InvalidInput, "parallelism"),
        ({"store": None}, InvalidInput, "factory"),
    ],
)
def test_wrong_arguments_are_refused_before_any_task(spark, stored, given, error, match):
    with pytest.raises(error, match=match):
        read_dataset_as_spark(**{"dataset_uuid": "one", "store": stored, **given})


def test_a_large_file_comes_in_pieces(store_url, monkeypatch):
    frame = pd.DataFrame({"x": range(600_000), "v": 1.0})
    store_dataframes_as_dataset(store_url, "large", [frame])
    from kartothek_cube.core.dataset.reference import dataset_ref
    from kartothek_cube.core.scan.plan import make_file_plan

    source = dataset_ref("large", store_url, None)
    plan = make_file_plan(source.store, source.snapshot(), "table", None, None)
    wire = pa.schema([("x", pa.int64()), ("v", pa.float64())])
    assert sum(batch.num_rows for batch in dataset._rows(store_url, plan.request, plan.tasks(), wire)) == 600_000
    pieces = []
    monkeypatch.setattr(dataset, "to_spark", lambda piece, *_: pieces.append(piece.num_rows) or ())
    with options(bytes_in_flight=2**20):
        assert list(dataset._rows(store_url, plan.request, plan.tasks(), wire)) == []
    assert len(pieces) > 4
    assert sum(pieces) == 600_000
