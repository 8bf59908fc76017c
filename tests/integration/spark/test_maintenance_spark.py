"""The verbs of maintenance do in tasks what the eager ones do in threads: with equal results, in
the same order, and once more where a task fails.
"""

from __future__ import annotations

import datetime as dt
import os
import pickle
import re
import shutil
import threading
from functools import partial
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from pyspark import cloudpickle

from kartothek_cube import (
    Cube,
    append_to_cube,
    build_cube,
    cleanup_cube,
    collect_stats,
    compact_cube,
    copy_cube,
    open_store,
    options,
    query_cube_arrow,
)
from kartothek_cube.api.dataset import (
    build_dataset_indices,
    collect_dataset_metadata,
    compact_dataset,
    copy_dataset,
    garbage_collect_dataset,
    hash_dataset,
    read_table,
    store_dataframes_as_dataset,
)
from kartothek_cube.core.io.formats import ParquetFormat
from kartothek_cube.core.kartothek.dataset_metadata import DatasetFactory
from kartothek_cube.core.runtime.executor import Task, map_files
from kartothek_cube.core.runtime.options import current_options
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.stores.contract import StoreView
from kartothek_cube.core.stores.open import open_instrumented
from kartothek_cube.core.stores.shipping import Stores
from kartothek_cube.errors import CorruptData, InvalidInput, InvalidType, KeyNotFound, MultiTableCommitAborted
from kartothek_cube.spark import (
    append_to_cube_from_spark,
    build_dataset_indices_spark,
    cleanup_cube_spark,
    collect_dataset_metadata_spark,
    collect_stats_spark,
    compact_cube_spark,
    compact_dataset_spark,
    copy_cube_spark,
    copy_dataset_spark,
    delete_cube_spark,
    delete_dataset_spark,
    garbage_collect_dataset_spark,
    hash_dataset_spark,
    query_cube_spark,
    remove_partitions_spark,
)
from kartothek_cube.spark import tasks as executor_module
from kartothek_cube.spark.tasks import FEWEST_LIGHT, spark_executor

NOW = options(grace=dt.timedelta(0), retain=dt.timedelta(0))
ROWS = pd.DataFrame(
    {
        "x": range(60),
        "p": [i % 2 for i in range(60)],
        "i1": [i % 7 for i in range(60)],
        "v1": [i / 3 for i in range(60)],
    }
)
PARTS = [ROWS[i : i + 10] for i in range(0, 60, 10)]

pytestmark = pytest.mark.usefixtures("pickled_by_value", "anything_goes_out")


class Witness(StoreView):
    """A store that notes who does what; in a task the first call of ``fails`` fails when it is
    done.
    """

    def __init__(self, folder: Path, fails: str = "") -> None:
        super().__init__(open_store(folder / "store"))
        self.folder, self.fails, self.home = folder, fails, os.getpid()

    def around(self, operation, key, action):
        result = action()
        with (self.folder / "log").open("a") as log:
            log.write(f"{os.getpid()}\t{operation}\t{key}\n")
        if operation == self.fails and os.getpid() != self.home:
            self.fail_once()
        return result

    def fail_once(self):
        try:
            os.close(os.open(self.folder / "failed", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        raise ConnectionError("a failure of the first attempt")

    def has_failed(self):
        return (self.folder / "failed").exists()

    def calls(self, *operations):
        """Keys in the order of the calls, and whether each was made in a task."""
        lines = [line.split("\t") for line in (self.folder / "log").read_text().splitlines()]
        return [(key, int(pid) != self.home) for pid, operation, key in lines if operation in operations]

    def away(self, *operations):
        return [key for key, away in self.calls(*operations) if away]

    def here(self, *operations):
        return [key for key, away in self.calls(*operations) if not away]

    def clear(self):
        (self.folder / "log").write_text("")


@pytest.fixture
def anything_goes_out(monkeypatch):
    monkeypatch.setattr(executor_module, "FEWEST_LIGHT", 2)


@pytest.fixture
def twins(tmp_path):
    """A function: two stores with the same files, of which the first notes its calls."""

    def made(write, fails=""):
        write(open_store(tmp_path / "one" / "store"))
        shutil.copytree(tmp_path / "one", tmp_path / "other")
        witness = Witness(tmp_path / "one", fails)
        witness.clear()
        return witness, open_store(tmp_path / "other" / "store")

    return made


def write_dataset(store):
    store_dataframes_as_dataset(store, "uuid", PARTS, metadata={"owner": "team"}, partition_on=["p"])


def write_twice(store):
    write_dataset(store)
    store_dataframes_as_dataset(store, "uuid", PARTS, partition_on=["p"], overwrite=True)


CUBE = Cube(["x"], ["p"], "cube")


def write_cube(store):
    table = pa.Table.from_pandas(ROWS, preserve_index=False)
    build_cube({"seed": table.slice(0, 10), "e": table.slice(0, 10).select(["x", "p"])}, CUBE, store)
    for i in range(10, 40, 10):
        append_to_cube({"seed": table.slice(i, 10), "e": table.slice(i, 10).select(["x", "p"])}, CUBE, store)


def contents(store):
    return {key: store.get(key) for key in store.list(recursive=True).keys if key.endswith(".parquet")}


def data_files(keys):
    return sorted(key for key in keys if key.endswith(".parquet") and "/table/" in key)


# --- one dataset ----------------------------------------------------------------------------------


def test_figures_and_hashes_of_a_dataset_are_those_of_the_eager_verbs(spark, twins):
    store, twin = twins(write_dataset)
    files = data_files(twin.list(recursive=True).keys)
    pd.testing.assert_frame_equal(collect_dataset_metadata_spark(store, "uuid"), collect_dataset_metadata(twin, "uuid"))
    assert {*data_files(store.away("local_path", "tail"))} == {*files}
    assert data_files(store.here("local_path", "tail", "get")) == []
    pd.testing.assert_series_equal(hash_dataset_spark(store, "uuid"), hash_dataset(twin, "uuid"))
    grouped = {"group_key": ["i1", "p"], "subset": ["v1"], "predicates": [[("x", ">", 5)]]}
    found = hash_dataset_spark(factory=DatasetFactory("uuid", store), **grouped)
    pd.testing.assert_series_equal(found, hash_dataset(twin, "uuid", **grouped))
    assert data_files(store.here("local_path", "tail", "get")) == []


def test_indices_are_built_from_columns_that_tasks_read(spark, twins):  # L18
    store, twin = twins(write_dataset)
    found, expected = (
        build(s, "uuid", ["i1"]).load_all_indices()
        for build, s in [(build_dataset_indices_spark, store), (build_dataset_indices, twin)]
    )
    assert found.indices["i1"].index_dct == expected.indices["i1"].index_dct
    assert data_files(store.here("local_path", "tail", "get")) == []
    snapshot = load_snapshot(store, "uuid")
    assert len(snapshot.chain) == 2
    assert snapshot.document.user_metadata["owner"] == "team"


def test_a_dataset_is_copied_by_tasks_one_of_which_fails_and_named_by_the_driver(spark, twins, tmp_path):
    store, twin = twins(write_dataset, fails="local_path")
    target = Witness(tmp_path / "target")
    assert list(copy_dataset_spark("uuid", store, "copy", target)) == list(copy_dataset("uuid", twin, "copy"))
    assert contents(target) == {key: data for key, data in contents(twin).items() if key.startswith("copy/")}
    assert {*data_files(target.away("put_file"))} == {*contents(target)}
    assert target.here("put_file") == target.away("put_if") == []
    assert store.has_failed()


def test_a_dataset_is_deleted_by_tasks_one_of_which_fails_its_document_last(spark, twins):
    store, _ = twins(write_dataset, fails="delete")
    files = data_files(store.inner.list(recursive=True).keys)
    delete_dataset_spark("uuid", store, parallelism=1)
    assert store.inner.list(recursive=True).keys == []
    assert {*data_files(store.away("delete"))} == {*files}
    assert len(store.away("delete")) > len(files)
    assert store.has_failed()
    assert store.calls("delete")[-1][0] == "uuid.by-dataset-metadata.json"


def test_garbage_is_found_twice_by_the_driver_and_removed_by_tasks(spark, twins):  # L17
    store, twin = twins(write_twice)
    found, expected = (
        garbage_collect_dataset_spark("uuid", store, options=NOW),
        garbage_collect_dataset(*("uuid", twin), options=NOW),
    )
    assert [(file.key, file.why) for file in found.removed] == [(file.key, file.why) for file in expected.removed]
    assert data_files(store.away("delete")) == data_files(file.key for file in found.removed)
    assert len(data_files(store.away("delete"))) == 12
    assert contents(store) == contents(twin)
    looks = [
        i
        for i, (key, _) in enumerate(store.calls("get_versioned", "changed", "delete"))
        if key == "uuid.by-dataset-metadata.json"
    ]
    assert len(looks) == 2  # for the plan, and before the deletion


def test_files_are_merged_by_tasks_one_of_which_fails_and_published_by_the_driver(spark, twins):
    store, twin = twins(write_dataset, fails="put_file")
    found, expected = (
        compact_dataset_spark("uuid", store, options=options(bytes_in_flight=4096)),
        compact_dataset("uuid", twin),
    )
    assert (found.files_before, found.files_after, found.rows_before, found.rows_after) == (12, 2, 60, 60)
    assert found.partitions == expected.partitions
    pd.testing.assert_frame_equal(read_table("uuid", store), read_table("uuid", twin))
    # What the first attempt left lies where the second one writes: not even garbage is left.
    assert len(store.away("put_file")) == 3
    assert {*store.away("put_file")} == {*load_snapshot(store, "uuid").files.to_pylist()}
    assert store.here("put_file") == store.away("put_if") == []
    assert store.has_failed()


@pytest.mark.parametrize("order", [{"sort_by": "x"}, {"zorder_by": ["x", "v1"]}])
def test_rows_are_sorted_by_tasks_one_of_which_fails(spark, twins, order):
    store, twin = twins(write_dataset, fails="put")
    found = compact_dataset_spark("uuid", store, 10, **order)
    expected = compact_dataset("uuid", twin, 10, **order)
    assert (found.files_before, found.files_after) == (expected.files_before, expected.files_after) == (12, 6)
    pd.testing.assert_frame_equal(read_table("uuid", store), read_table("uuid", twin))
    assert store.has_failed()
    assert compact_dataset_spark("uuid", store, 10, **order).commit is None


# --- a cube ---------------------------------------------------------------------------------------


def test_the_verbs_of_a_cube_are_those_of_the_eager_ones(spark, twins, tmp_path):
    store, twin = twins(write_cube, fails="put")
    target, other = Witness(tmp_path / "target"), open_store(tmp_path / "other target")

    assert collect_stats_spark(CUBE, store) == collect_stats(CUBE, twin)
    found, expected = compact_cube_spark(CUBE, store), compact_cube(CUBE, twin)
    assert {i: (r.files_before, r.files_after, r.rows_after) for i, r in found.items()} == dict.fromkeys(
        ("seed", "e"), (8, 2, 40)
    )
    assert {i: r.partitions for i, r in found.items()} == {i: r.partitions for i, r in expected.items()}
    assert query_cube_arrow(CUBE, store).equals(query_cube_arrow(CUBE, twin))
    # One merge was written twice, to the same key.
    assert (len(data_files(store.away("put"))), len({*data_files(store.away("put"))}), store.has_failed()) == (
        5,
        4,
        True,
    )
    assert data_files(store.here("put", "put_file")) == []

    copy_cube_spark(CUBE, store, target)
    copy_cube(CUBE, twin, other)
    assert query_cube_arrow(CUBE, target).equals(query_cube_arrow(CUBE, other))
    assert len(data_files(target.away("put_file"))) == 4

    found, expected = cleanup_cube_spark(CUBE, store, options=NOW), cleanup_cube(CUBE, twin, options=NOW)
    assert len(found.removed) == len(expected.removed) > 16
    assert len(data_files(store.away("delete"))) == 16
    store.clear()
    delete_cube_spark(CUBE, store)
    assert store.inner.list(recursive=True).keys == []
    assert [key for key, _ in store.calls("delete") if key.endswith("metadata.json")] == [
        "cube++seed.by-dataset-metadata.json",
        "cube++e.by-dataset-metadata.json",
    ]


# --- failures -------------------------------------------------------------------------------------


def test_errors_in_tasks_arrive_as_their_types_with_the_key(spark, twins, tmp_path):
    store, _ = twins(write_cube)
    lost = load_snapshot(store, "cube++seed").files.to_pylist()[3]
    store.inner.delete(lost)
    store.clear()
    with pytest.raises(KeyNotFound, match=re.escape(lost)):
        hash_dataset_spark(store, "cube++seed")
    with pytest.raises(KeyNotFound, match=re.escape(lost)):
        copy_dataset_spark("cube++seed", store, "copy")
    assert not store.contains("copy.by-dataset-metadata.json")
    with pytest.raises(MultiTableCommitAborted, match=re.escape(lost)):
        copy_cube_spark(CUBE, store, tmp_path / "target")
    assert data_files(store.here("copy")) == []


# --- what stays on the driver ---------------------------------------------------------------------


@pytest.fixture
def no_jobs(monkeypatch):
    def refused(frame, job):
        raise AssertionError(f"a job: {job}")

    monkeypatch.setattr(executor_module, "collect", refused)


@pytest.mark.usefixtures("no_jobs")
def test_few_files_are_not_worth_a_job(spark, twins, monkeypatch):
    monkeypatch.setattr(executor_module, "FEWEST_LIGHT", FEWEST_LIGHT)
    store, twin = twins(write_twice)
    pd.testing.assert_frame_equal(collect_dataset_metadata_spark(store, "uuid"), collect_dataset_metadata(twin, "uuid"))
    copy_dataset_spark("uuid", store, "copy")
    garbage_collect_dataset_spark("uuid", store, options=NOW)
    delete_dataset_spark("uuid", store)
    assert store.away("delete", "copy", "tail", "local_path") == []
    assert len(read_table("copy", store)) == 60


@pytest.mark.usefixtures("no_jobs")
@pytest.mark.parametrize(
    "call",
    [
        lambda s: delete_dataset_spark("uuid", s),
        lambda s: copy_dataset_spark("uuid", "hfs://there", None, s),
        lambda s: hash_dataset_spark(factory=DatasetFactory("uuid", s)),
        lambda s: delete_cube_spark(CUBE, s),
        lambda s: copy_cube_spark(CUBE, "hfs://there", s),
    ],
)
def test_a_store_that_does_not_travel_is_refused(spark, call):
    with pytest.raises(InvalidType, match="memory of this process"):
        call("hmemory://")


def test_a_prefix_stands_for_its_cube_and_a_text_for_conditions(spark, store_url):
    build_cube(ROWS, CUBE, store_url)
    prefix = CUBE.uuid_prefix
    assert collect_stats_spark(prefix, store_url, spark=spark) == collect_stats(CUBE, store_url)
    more = spark.createDataFrame(ROWS.assign(x=ROWS["x"] + 60))
    append_to_cube_from_spark(more, prefix, store_url)
    found = query_cube_spark(prefix, store_url, "x > 117.5 & v1 >= 19 & p in (0, 1)", spark=spark)
    assert sorted(row["x"] for row in found.collect()) == [118, 119]
    remove_partitions_spark(prefix, store_url, "p == 0", ["seed"])
    assert compact_cube_spark(prefix, store_url, conditions="p == 1", dry_run=True, spark=spark)
    assert set(query_cube_arrow(prefix, store_url)["p"].to_pylist()) == {1}
    with pytest.raises(InvalidType, match="would be right"):
        query_cube_spark(store_url, CUBE, spark=spark)


def test_arguments_are_checked_as_by_the_eager_verbs(spark, store_url):
    with pytest.raises(InvalidInput, match="parallelism=0"):
        delete_cube_spark(CUBE, store_url, parallelism=0)
    with pytest.raises(InvalidInput, match="factory"):
        hash_dataset_spark(store_url)
    with pytest.raises(InvalidType, match="Expected a Cube"):
        collect_stats_spark(7, store_url)
    with pytest.raises(KeyNotFound):
        compact_dataset_spark("uuid", store_url)


# --- the driver -----------------------------------------------------------------------------------


class Unpicklable(StoreView):
    def __reduce__(self):
        raise TypeError("a connection")


def open_unpicklable():
    return Unpicklable(open_store("hfs:///somewhere"))


def seen_in_task(store, item):
    held = current_options()
    return item, type(store.inner).__name__, held.threads, held.bytes_in_flight, os.getpid()


def test_options_and_stores_that_do_not_pickle_hold_in_tasks(spark):
    store = open_unpicklable()
    executor = spark_executor("look", "at nothing", [(open_instrumented(store), open_unpicklable)], spark, 2)
    look = partial(seen_in_task, open_instrumented(store))
    with options(bytes_in_flight=12345, progress=lambda event: None):
        found = list(map_files(look, range(20), executor=executor, heavy=True))
        with options(threads=3):
            assert {seen[2] for seen in map_files(look, range(2), executor=executor, heavy=True)} == {3}
    assert [seen[0] for seen in found] == list(range(20))
    assert {seen[1:4] for seen in found} == {("Unpicklable", 2, 12345)}
    assert os.getpid() not in {seen[4] for seen in found}


def test_what_cannot_be_pickled_is_refused_with_a_reason():
    with pytest.raises(InvalidType, match="cannot be sent to a task"):
        Stores([], cloudpickle.Pickler).dumps(threading.Lock())


def test_what_executors_cannot_import_travels_whole():
    class Mine(ParquetFormat):
        """As defined in a notebook."""

    assert pickle.loads(Stores([], cloudpickle.Pickler).dumps(Mine("ZSTD"))).compression == "ZSTD"


@pytest.mark.parametrize(
    ("heavy", "items", "width", "tasks"),
    [(True, 2, 200, 2), (True, 5000, 2, 8), (False, 2, 2, 1), (False, 500, 200, 20), (False, 5000, 2, 8)],
)
def test_calls_of_a_store_are_cut_into_fewer_tasks_than_work_that_takes_seconds(heavy, items, width, tasks):
    assert executor_module.tasks_for(Task(len, heavy), items, width) == tasks


@pytest.mark.parametrize("tasks", [[0], [0, 0, 1], [0, 2]])
def test_results_of_tasks_that_are_not_one_of_each_are_refused(tasks):
    with pytest.raises(CorruptData, match="not one of each of 2"):
        list(executor_module._in_order([{"task": task, "results": b"", "error": None} for task in tasks], 2))
