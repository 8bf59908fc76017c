"""Datasets in dask beyond what all drivers show: laziness, graphs, retries, divisions, buckets."""

from __future__ import annotations

import datetime as dt
import pickle
import subprocess
import sys
from functools import partial

import cloudpickle
import dask
import dask.bag as db
import dask.dataframe as dd
import pandas as pd
import pyarrow as pa
import pytest

from kartothek_cube import options
from kartothek_cube.api.dataset import (
    DatasetFactory,
    compact_dataset,
    history,
    list_datasets,
    read_table,
    store_dataframes_as_dataset,
    update_dataset_from_dataframes,
)
from kartothek_cube.core.stores.open import open_store
from kartothek_cube.dask.bag import build_dataset_indices__bag, read_dataset_as_dataframe_bag, store_bag_as_dataset
from kartothek_cube.dask.dataframe import (
    collect_dataset_metadata,
    hash_dataset,
    read_dataset_as_ddf,
    store_dataset_from_ddf,
    update_dataset_from_ddf,
)
from kartothek_cube.dask.delayed import (
    garbage_collect_dataset__delayed,
    read_dataset_as_delayed,
    read_table_as_delayed,
    store_delayed_as_dataset,
    update_dataset_from_delayed,
)
from kartothek_cube.dask.tasks import DaskExecutor
from kartothek_cube.errors import (
    AlreadyExists,
    CommitConflict,
    InvalidInput,
    InvalidRequest,
    InvalidType,
    UnknownColumn,
)

ROWS = pd.DataFrame({"p": ["a", "b", "a", "c"] * 5, "x": range(20), "v1": [i / 2 for i in range(20)]})


@pytest.fixture
def store(tmp_path):
    return f"hfs://{tmp_path / 'store'}"


@pytest.fixture
def filled(store):
    store_dataframes_as_dataset(store, "d", [ROWS[:10], ROWS[10:]], partition_on=["p"], secondary_indices=["x"])
    return store


@pytest.fixture
def ddf():
    return dd.from_pandas(ROWS, npartitions=4)


def files(store):
    return [key for key in open_store(store).list(recursive=True).keys if key.endswith(".parquet")]


def sizes(store):
    """Partition value → number of files."""
    labels = DatasetFactory("d", store).partitions
    return pd.Series([label.split("/")[0] for label in labels]).value_counts().to_dict()


# --- laziness -------------------------------------------------------------------------------------


def test_nothing_is_written_before_the_computation(store, ddf):
    lazy = [
        store_dataset_from_ddf(ddf, store, "d", partition_on=["p"]),
        update_dataset_from_ddf(ddf, store, "e", shuffle=True),
        store_delayed_as_dataset([dask.delayed(ROWS.copy)()], store, "f"),
        store_bag_as_dataset(db.from_sequence([ROWS]), store, "g"),
    ]
    assert list_datasets(store) == []
    dask.compute(*lazy, scheduler="threads")
    assert list_datasets(store) == ["d", "e", "f", "g"]
    assert {len(read_table(uuid, store)) for uuid in "defg"} == {20}


def test_graphs_survive_pickling_and_hold_neither_rows_nor_partitions(filled):
    before = DatasetFactory("d", filled).partitions
    read = read_dataset_as_ddf("d", filled)
    update = update_dataset_from_ddf(read, filled, "d", shuffle=True, delete_scope=[{"p": "a"}])
    data = cloudpickle.dumps(update)
    assert not any(key.encode() in cloudpickle.dumps(update_dataset_from_ddf(None, filled, "d")) for key in before)
    assert len(data) < 200_000
    pickle.loads(data).compute(scheduler="threads")
    assert sorted(read_table("d", filled)["x"].tolist()) == sorted([*range(20), *ROWS[ROWS["p"] != "a"]["x"]])


def test_a_read_sees_the_dataset_as_it_was(filled):
    read = read_dataset_as_ddf("d", filled)
    update_dataset_from_dataframes([ROWS], filled, "d", delete_scope=[{"p": "a"}])
    assert read.compute()["x"].sum() == ROWS["x"].sum()


# --- once -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("shuffle", [False, True])
def test_the_same_lazy_write_writes_once(filled, ddf, shuffle):
    lazy = update_dataset_from_ddf(ddf, filled, "d", shuffle=shuffle, delete_scope=[{"p": "a"}])
    first = lazy.compute(scheduler="threads")
    update_dataset_from_dataframes([ROWS], filled, "d")
    again = lazy.compute(scheduler="threads")
    assert again.commit.id == first.commit.id
    assert len(read_table("d", filled)) == 10 + 20 + 20
    assert len(history("d", filled)) == 3


def test_an_append_goes_together_with_commits_in_between(filled, ddf):
    lazy = update_dataset_from_ddf(ddf, filled, "d")
    update_dataset_from_dataframes([ROWS], filled, "d", delete_scope=[{"p": "b"}])
    lazy.compute(scheduler="threads")
    assert len(read_table("d", filled)) == 15 + 20 + 20


def test_a_removal_that_others_were_faster_than_is_refused_or_applied_again(filled, ddf):
    update = partial(update_dataset_from_ddf, ddf, filled, "d", delete_scope=[{"p": "a"}])
    lazy, again, other = update(), update(on_conflict="reapply"), update(delete_scope=[{"p": "c"}])
    update_dataset_from_dataframes([ROWS[:1]], filled, "d")
    with pytest.raises(CommitConflict):
        lazy.compute(scheduler="threads")
    assert len(read_table("d", filled)) == 21
    other.compute(scheduler="threads")
    assert again.compute(scheduler="threads").commit.reapplied
    assert set(read_table("d", filled)["p"].value_counts().to_dict().items()) == {("a", 10), ("b", 15), ("c", 10)}


def test_a_dataset_that_was_deleted_meanwhile_is_not_made_anew(filled, ddf):
    lazy = update_dataset_from_ddf(ddf, filled, "d")
    for key in open_store(filled).list(recursive=True).keys:
        open_store(filled).delete(key)
    with pytest.raises(CommitConflict, match="'d' was deleted"):
        lazy.compute(scheduler="threads")
    assert list_datasets(filled) == []


def test_of_two_that_make_a_dataset_one_wins(store, ddf):
    one, other = (store_dataset_from_ddf(ddf, store, "d", partition_on=["p"]) for _ in range(2))
    one.compute(scheduler="threads")
    with pytest.raises(CommitConflict):
        other.compute(scheduler="threads")
    assert len(read_table("d", store)) == 20


def test_a_numbered_write_is_skipped_the_second_time(store, ddf):
    for _ in range(2):
        update_dataset_from_ddf(ddf, store, "d", txn=("nightly", 7)).compute(scheduler="threads")
    assert len(read_table("d", store)) == 20


# --- shapes of files ------------------------------------------------------------------------------


def test_without_a_shuffle_each_partition_writes_its_values(store, ddf):
    store_dataset_from_ddf(ddf, store, "d", partition_on=["p"]).compute(scheduler="threads")
    assert sizes(store) == {"p=a": 4, "p=b": 4, "p=c": 4}
    ratio = store_dataset_from_ddf(ddf, store, "d", partition_on=["p"], repartition_ratio=2, overwrite=True)
    ratio.compute(scheduler="threads")
    assert sizes(store) == {"p=a": 2, "p=b": 2, "p=c": 2}


def test_a_shuffle_makes_one_file_for_each_value_and_bucket(store, ddf):
    store_dataset_from_ddf(ddf, store, "d", partition_on=["p"], shuffle=True, sort_partitions_by="x").compute(
        scheduler="threads"
    )
    assert sizes(store) == {"p=a": 1, "p=b": 1, "p=c": 1}
    assert [frame["x"].is_monotonic_increasing for frame in read_dataset_as_ddf("d", store).partitions] != []
    rows = ddf.assign(k=ddf["x"] % 6)
    bucketed = store_dataset_from_ddf(
        rows, store, "d", partition_on=["p"], shuffle=True, num_buckets=3, bucket_by="k", overwrite=True
    )
    assert len(bucketed.compute(scheduler="threads").layout.bucket_by) == 1
    assert max(sizes(store).values()) <= 3
    parts = [part.compute(scheduler="threads") for part in read_table_as_delayed("d", store)]
    for _, keys in pd.concat([part[["p", "k"]].drop_duplicates() for part in parts]).groupby("p"):
        assert keys["k"].is_unique


def test_buckets_on_record_hold_for_later_writes(store, ddf):
    store_dataset_from_ddf(ddf, store, "d", shuffle=True, num_buckets=4, bucket_by="x").compute(scheduler="threads")
    update_dataset_from_ddf(ddf, store, "d", shuffle=True).compute(scheduler="threads")
    assert len(DatasetFactory("d", store).partitions) == 8


@pytest.mark.parametrize("shuffle", [False, True])
def test_frames_without_rows(store, ddf, shuffle):
    nothing = ddf[ddf["x"] > 99]
    store_dataset_from_ddf(nothing, store, "d", shuffle=shuffle).compute(scheduler="threads")
    assert (len(read_table("d", store)), list(read_table("d", store).columns)) == (0, ["p", "v1", "x"])
    with pytest.raises(InvalidInput, match="Cannot store empty datasets"):
        store_dataset_from_ddf(nothing, store, "e", partition_on=["p"], shuffle=shuffle).compute(scheduler="threads")
    assert list_datasets(store) == ["d"]


def test_columns_of_objects_are_stored_as_what_they_are(store):
    days = pd.DataFrame({"p": ["a", "b"], "v1": [dt.date(2024, 5, 1), None], "v2": [[1], [2, 3]]})
    with dask.config.set({"dataframe.convert-string": False}):
        ddf = dd.from_pandas(days.astype({"p": object}), npartitions=2)
        store_dataset_from_ddf(ddf, store, "d", partition_on=["p"], shuffle=True).compute(scheduler="threads")
        update_dataset_from_ddf(ddf, store, "d").compute(scheduler="threads")
    read = read_dataset_as_ddf("d", store, dates_as_object=True).compute()
    assert read["v1"].dropna().tolist() == [dt.date(2024, 5, 1)] * 2
    assert sorted(map(list, read["v2"])) == [[1], [1], [2, 3], [2, 3]]


# --- what is refused ------------------------------------------------------------------------------


def test_the_call_refuses_what_cannot_be_written(filled, ddf):
    with pytest.raises(AlreadyExists, match="'d' already exists"):
        store_dataset_from_ddf(ddf, filled, "d")
    with pytest.raises(InvalidType, match="Unexpected table in dataset"):
        update_dataset_from_ddf(ddf, filled, "d", table="other")
    with pytest.raises(InvalidType, match="parameter `table` is not optional"):
        update_dataset_from_ddf(ddf, filled, "d", table=None)
    with pytest.raises(InvalidInput, match="Incompatible set of partition keys"):
        update_dataset_from_ddf(ddf, filled, "d", partition_on=["x"])
    with pytest.raises(InvalidInput, match="must not be None when shuffling"):
        update_dataset_from_ddf(ddf, filled, "d", shuffle=True, num_buckets=None)
    with pytest.raises(UnknownColumn, match="bucket_by names columns"):
        update_dataset_from_ddf(ddf, filled, "d", shuffle=True, num_buckets=2, bucket_by="nope")
    with pytest.raises(InvalidInput, match="v1"):
        update_dataset_from_ddf(ddf.assign(v1="text"), filled, "d")
    with pytest.raises(InvalidInput, match="repartition_ratio=0"):
        update_dataset_from_ddf(ddf, filled, "d", repartition_ratio=0)
    with pytest.raises(InvalidType, match="frame of dask"):
        update_dataset_from_ddf(ROWS, filled, "d")
    with pytest.raises(InvalidType, match="memory of this process"):
        update_dataset_from_ddf(ddf, "hmemory://", "d")
    with pytest.raises(InvalidInput, match="Cannot store empty datasets"):
        update_dataset_from_ddf(None, filled, "new")
    with pytest.raises(InvalidRequest, match="partition columns"):
        store_dataset_from_ddf(ddf, filled, "new", partition_on=["p"], secondary_indices=["p"])


def test_rows_that_a_task_refuses_leave_nothing_visible(filled, ddf):
    nulls = ddf.assign(p=ddf["p"].where(ddf["x"] < 19))
    for shuffle in (False, True):
        with pytest.raises(InvalidInput, match="p"):
            update_dataset_from_ddf(nulls, filled, "d", shuffle=shuffle).compute(scheduler="threads")
    assert len(read_table("d", filled)) == 20


def test_empty_lists_are_refused_by_the_computation(store):
    with pytest.raises(InvalidInput, match="Cannot store empty datasets"):
        store_delayed_as_dataset([], store, "d").compute(scheduler="threads")
    assert list_datasets(store) == []


# --- reads ----------------------------------------------------------------------------------------


def test_dask_asks_for_the_columns_that_it_needs(filled, monkeypatch):
    from kartothek_cube.dask import read as module

    asked, inner = [], module.load_tables

    def load(store, request, tasks, categoricals):
        asked.append(request.columns)
        return inner(store, request, tasks, categoricals)

    monkeypatch.setattr(module, "load_tables", load)
    assert read_dataset_as_ddf("d", filled)["v1"].sum().compute() == ROWS["v1"].sum()
    assert set(asked) == {("v1",)}


def test_a_task_reads_a_file_or_a_group(filled):
    ddf = read_dataset_as_ddf("d", filled, predicates=[[("p", "!=", "c")]])
    assert (ddf.npartitions, ddf.known_divisions) == (4, False)
    by_value = read_dataset_as_ddf("d", filled, dispatch_by=["p"])
    assert [sorted(set(part["p"])) for part in dask.compute(*by_value.to_delayed())] == [["a"], ["b"], ["c"]]
    together = read_dataset_as_ddf("d", filled, concat_partitions_on_primary_index=True)
    assert together.npartitions == 3


def test_divisions_are_known_where_an_indexed_column_orders(filled):
    for column, expected in (("p", ("a", "b", "b")), ("x", (0, 1, 2, 2))):
        ddf = read_dataset_as_ddf(
            "d", filled, columns=["v1"], dask_index_on=column, predicates=[[("p", "!=", "c"), ("x", "<", 3)]]
        )
        assert ddf.divisions == expected
        assert list(ddf.columns) == ["v1"]
        assert ddf.compute().sort_index()["v1"].tolist() in ([0.0, 1.0, 0.5], [0.0, 0.5, 1.0])
    assert ddf.loc[1:1].compute()["v1"].tolist() == [0.5]


def test_index_and_groups_are_checked_by_the_call(filled):
    with pytest.raises(InvalidType, match="`dask_index_on` must be a string"):
        read_dataset_as_ddf("d", filled, dask_index_on=["p"])
    with pytest.raises(InvalidInput, match="`dask_index_on` and `dispatch_by`"):
        read_dataset_as_ddf("d", filled, dask_index_on="p", dispatch_by=["p"])
    with pytest.raises(InvalidRequest, match="must be indexed"):
        read_dataset_as_ddf("d", filled, dask_index_on="v1")
    with pytest.raises(InvalidInput, match="Both `dispatch_by` and"):
        read_dataset_as_delayed("d", filled, dispatch_by=["p"], concat_partitions_on_primary_index=True)
    with pytest.raises(InvalidInput, match="dtype_backend"):
        read_dataset_as_ddf("d", filled, dtype_backend="numpy")


@pytest.mark.parametrize("index", [None, "p"])
def test_nothing_that_matches_is_one_empty_partition(filled, index):
    ddf = read_dataset_as_ddf("d", filled, predicates=[[("p", "==", "z")]], dask_index_on=index)
    assert (ddf.npartitions, len(ddf.compute()), ddf.compute()["v1"].dtype) == (1, 0, "float64")


def test_categories_of_an_index_are_known(filled):
    ddf = read_dataset_as_ddf("d", filled, categoricals=["x", "p"])
    assert (ddf["x"].cat.known, ddf["p"].cat.known) == (True, False)
    assert ddf["x"].cat.categories.tolist() == list(range(20))
    found = ddf.compute()
    assert (str(found.dtypes["x"]), sorted(found["p"].astype(str).unique())) == ("category", ["a", "b", "c"])


def test_the_types_of_arrow_are_the_same_in_each_partition(store):
    rows = [pa.table({"x": pa.array([1, None], pa.int64())}), pa.table({"x": pa.array([2], pa.int64())})]
    store_dataframes_as_dataset(store, "d", rows)
    ddf = read_dataset_as_ddf("d", store, dtype_backend="pyarrow")
    assert {str(part.dtypes["x"]) for part in dask.compute(*ddf.to_delayed())} == {"int64[pyarrow]"}
    assert str(ddf.dtypes["x"]) == "int64[pyarrow]"


def test_bags_and_delayed_values_have_the_entries_of_the_eager_reader(filled):
    delayed = dask.compute(*read_dataset_as_delayed("d", filled, columns=["x"]), scheduler="threads")
    bag = read_dataset_as_dataframe_bag("d", filled, columns=["x"], partition_size=4)
    assert bag.npartitions == 2
    for parts in (delayed, bag.compute(scheduler="threads")):
        assert sorted(x for part in parts for x in part["table"]["x"]) == list(range(20))
    nothing = read_dataset_as_dataframe_bag("d", filled, predicates=[[("p", "==", "z")]])
    assert nothing.compute(scheduler="threads") == []


# --- maintenance ----------------------------------------------------------------------------------


def test_statistics_and_hashes_are_lazy_and_checked_by_the_call(filled):
    assert collect_dataset_metadata(filled, "d", frac=0.5).compute()["number_rows_total"].sum() > 0
    with pytest.raises(InvalidInput, match="Invalid value for parameter `frac`"):
        collect_dataset_metadata(filled, "d", frac=0)
    with pytest.raises(UnknownColumn):
        hash_dataset(filled, "d", subset=["nope"])
    assert str(hash_dataset(filled, "d").compute().dtype) == "uint64"


def test_indices_and_garbage(filled):
    with pytest.raises(UnknownColumn):
        build_dataset_indices__bag(filled, "d", ["nope"])
    build_dataset_indices__bag(filled, "d", ["v1"], partition_size=2).compute(scheduler="threads")
    assert sorted(DatasetFactory("d", filled).indices) == ["v1", "x"]
    with pytest.raises(InvalidInput, match="blocksize must be > 0"):
        garbage_collect_dataset__delayed("d", filled, chunk_size=0)


def test_a_lazy_scope_is_evaluated_by_the_computation(filled):
    scope = dask.delayed(lambda: [{"p": "a"}])()
    update_dataset_from_delayed([], filled, "d", delete_scope=scope).compute(scheduler="threads")
    assert sorted(set(read_table("d", filled)["p"])) == ["b", "c"]
    update_dataset_from_ddf(None, filled, "d", delete_scope=dask.delayed([{"p": "b"}])).compute(scheduler="threads")
    assert sorted(set(read_table("d", filled)["p"])) == ["c"]


def test_the_executor_runs_in_tasks(filled, cluster, monkeypatch):
    monkeypatch.setattr("kartothek_cube.dask.tasks._FEWEST_LIGHT", 2)
    before, seen = read_table("d", filled), []
    with options(progress=seen.append):
        report = compact_dataset("d", filled, executor=DaskExecutor())
    assert (report.files_before, report.files_after) == (6, 3)
    again = read_table("d", filled)
    assert again.sort_values("x", ignore_index=True).equals(before.sort_values("x", ignore_index=True))


def test_without_dask_the_error_says_what_to_install():
    code = (
        "import sys; sys.modules['dask'] = None\n"
        "from kartothek_cube.errors import MissingExtra\n"
        "try:\n    import kartothek_cube.dask.bag\n"
        "except MissingExtra as error:\n    print(error)"
    )
    assert (
        "pip install 'kartothek-cube[dask]'"
        in subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    )


def test_files_of_a_failed_write_are_garbage_and_not_rows(filled, ddf):
    def broken(frame):
        if 19 in frame["x"].tolist():
            raise RuntimeError("a task of the user")
        return frame

    before = files(filled)
    with pytest.raises(RuntimeError, match="a task of the user"):
        update_dataset_from_ddf(ddf.map_partitions(broken, meta=ddf), filled, "d").compute(scheduler="sync")
    assert len(files(filled)) >= len(before)
    assert len(read_table("d", filled)) == 20
