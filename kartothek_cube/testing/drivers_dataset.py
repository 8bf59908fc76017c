"""The tests of `DriverTests` for single datasets."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from kartothek_cube.api.dataset import (
    DatasetFactory,
    collect_dataset_metadata,
    delete_rows,
    hash_dataset,
    read_table_arrow,
    store_dataframes_as_dataset,
    update_dataset_from_dataframes,
)
from kartothek_cube.core.runtime.options import options
from kartothek_cube.core.stores.open import open_store
from kartothek_cube.errors import AlreadyExists, CommitConflict, DatasetNotFound, InvalidInput
from kartothek_cube.testing.driver import Driver
from kartothek_cube.testing.driver_cases import InBetween, data_files, documents, every_type, ordered, seed
from kartothek_cube.typing import StoreLike

__all__ = ["DatasetDriverTests"]

UUID = "sales"


def rows(store: StoreLike) -> list[dict[str, Any]]:
    """All rows of the dataset, read eagerly."""
    return ordered(read_table_arrow(UUID, store))


def other(store: str) -> partial[Any]:
    """A concurrent write that adds rows to the first partition."""
    return partial(update_dataset_from_dataframes, [seed((0,), add=50.0)], store, UUID)


class DatasetDriverTests:
    """The state of a dataset after each verb, and the results of reads."""

    @pytest.fixture
    def dataset_store(self, store: str) -> str:
        """Return the URL of a store with a dataset, written eagerly."""
        store_dataframes_as_dataset(store, UUID, [seed()], partition_on=["p"], secondary_indices=["i1"])
        return store

    def test_a_stored_dataset_holds_its_rows(self, driver: Driver, store: str) -> None:
        written = driver.store_dataset(
            seed(), store, UUID, partition_on=["p"], secondary_indices=["i1"], metadata={"owner": "us"}
        )
        assert rows(store) == ordered(seed())
        assert (written.partition_keys, sorted(written.indices), written.metadata["owner"]) == (["p"], ["i1"], "us")

    def test_a_dataset_that_exists_is_replaced_on_demand_only(self, driver: Driver, dataset_store: str) -> None:
        with pytest.raises(AlreadyExists):
            driver.store_dataset(seed((1,)), dataset_store, UUID, partition_on=["p"])
        assert rows(dataset_store) == ordered(seed())
        driver.store_dataset(seed((1,)), dataset_store, UUID, partition_on=["p"], overwrite=True)
        assert rows(dataset_store) == ordered(seed((1,)))

    def test_an_update_adds_rows(self, driver: Driver, dataset_store: str) -> None:
        driver.update_dataset(seed((2,)), dataset_store, UUID)
        assert rows(dataset_store) == ordered(seed((0, 1, 2)))
        assert read_table_arrow(UUID, dataset_store, predicates=[[("i1", "==", 21)]]).num_rows == 4

    def test_a_delete_scope_removes_before_it_adds(self, driver: Driver, dataset_store: str) -> None:
        driver.update_dataset(seed((0,), add=9.0), dataset_store, UUID, delete_scope=[{"p": 0}])
        assert rows(dataset_store) == ordered([*seed((0,), add=9.0).to_pylist(), *seed((1,)).to_pylist()])

    def test_an_update_without_rows_may_empty_the_dataset(self, driver: Driver, dataset_store: str) -> None:
        driver.update_dataset(seed().slice(0, 0), dataset_store, UUID, delete_scope=[{"p": 0}, {"p": 1}])
        table = driver.read_dataset(UUID, dataset_store)
        assert table.num_rows == 0
        assert {f.name: f.type for f in table.schema} == {f.name: f.type for f in seed().schema}

    def test_a_delete_scope_that_somebody_else_was_faster_than_is_refused_or_applied_again(
        self, driver: Driver, dataset_store: str
    ) -> None:
        newer, scope = seed((0,)).slice(0, 3), [{"p": 0}]
        with pytest.raises(CommitConflict):
            driver.update_dataset(newer, InBetween(dataset_store, other(dataset_store)), UUID, delete_scope=scope)
        assert rows(dataset_store) == ordered([*seed().to_pylist(), *seed((0,), add=50.0).to_pylist()])
        driver.update_dataset(
            newer, InBetween(dataset_store, other(dataset_store)), UUID, delete_scope=scope, on_conflict="reapply"
        )
        assert rows(dataset_store) == ordered([*newer.to_pylist(), *seed((1,)).to_pylist()])

    def test_columns_that_do_not_fit_a_dataset_are_refused(self, driver: Driver, dataset_store: str) -> None:
        before = data_files(dataset_store)
        for table in (seed().drop_columns(["v1"]), seed().set_column(4, "v1", [["a"] * 16])):
            with pytest.raises(InvalidInput):
                driver.update_dataset(table, dataset_store, UUID)
        assert data_files(dataset_store) == before

    def test_rows_are_deleted_by_predicates(self, driver: Driver, dataset_store: str) -> None:
        where: Any = [[("x", "==", 0), ("i1", "==", 10)], [("v1", ">", 12.0)]]
        planned = driver.delete_rows(UUID, dataset_store, where, dry_run=True)
        assert (planned.deleted, planned.commit, rows(dataset_store)) == (5, None, ordered(seed()))
        report = driver.delete_rows(UUID, dataset_store, where)
        assert (report.matched, report.deleted, report.files_rewritten, report.files_untouched) == (5, 5, 1, 1)
        left = [r for r in seed().to_pylist() if not (r["p"] == 1 and (r["x"] == 0 or r["v1"] > 12.0))]
        assert rows(dataset_store) == ordered(left)

    def test_a_file_without_rows_is_removed(self, driver: Driver, dataset_store: str) -> None:
        report = driver.delete_rows(UUID, dataset_store, [[("v1", "<", 10.0)], [("x", "==", 3)]])
        assert (report.deleted, report.files_removed, report.files_rewritten) == (10, 1, 1)
        assert rows(dataset_store) == ordered(r for r in seed((1,)).to_pylist() if r["x"] != 3)

    def test_a_merge_updates_and_inserts_by_key(self, driver: Driver, dataset_store: str) -> None:
        # Rows of a partition, of which one moves to a new one, and rows of a new partition.
        source = pa.concat_tables([seed((0,), add=5.0).slice(3), seed((2,)).slice(6)])
        columns = source.to_pydict()
        columns["p"][0] = 3
        source = pa.table({**columns, "key": [10 * r["x"] + r["y"] + 100 * (r["p"] == 2) for r in source.to_pylist()]})
        keyed = seed((0, 1)).append_column("key", pa.array([i // 2 * 10 + i % 2 for i in range(8)] + [None] * 8))
        driver.store_dataset(keyed, dataset_store, UUID, partition_on=["p"], secondary_indices=["i1"], overwrite=True)
        planned = driver.merge_dataset(source, dataset_store, UUID, "key", dry_run=True)
        assert (planned.updated, planned.inserted, rows(dataset_store)) == (5, 2, ordered(keyed))
        report = driver.merge_dataset(source, dataset_store, UUID, ["key"])
        assert (report.matched, report.updated, report.inserted, report.deleted) == (5, 5, 2, 0)
        by_key = {row["key"]: row for row in [*keyed.slice(0, 8).to_pylist(), *source.to_pylist()]}
        assert rows(dataset_store) == ordered([*by_key.values(), *keyed.slice(8).to_pylist()])
        assert read_table_arrow(UUID, dataset_store, predicates=[[("p", "==", 3)]]).num_rows == 1
        # The source is nowhere in the store, but for the new rows.
        assert not [key for key in data_files(dataset_store) if "/p=" not in key]

    def test_a_merge_does_with_rows_what_it_is_told(self, driver: Driver, dataset_store: str) -> None:
        source, on = seed((1, 2)).slice(6, 4).drop_columns(["v1", "i1"]), ["x", "y", "p"]
        ignored = driver.merge_dataset(
            source, dataset_store, UUID, on, when_matched="ignore", when_not_matched="ignore"
        )
        assert (ignored.matched, ignored.commit) == (2, None)
        with pytest.raises(InvalidInput, match="when_matched"):
            driver.merge_dataset(source, dataset_store, UUID, on, when_matched="error", when_not_matched="ignore")
        report = driver.merge_dataset(source, dataset_store, UUID, on, when_matched="delete", when_not_matched="ignore")
        assert (report.deleted, report.inserted) == (2, 0)
        assert rows(dataset_store) == ordered(seed().slice(0, 14))
        report = driver.merge_dataset(
            seed((1, 2)).slice(0, 3), dataset_store, UUID, on, when_not_matched_by_source="delete"
        )
        assert (report.updated, report.deleted, report.inserted, report.files_removed) == (3, 11, 0, 1)
        assert rows(dataset_store) == ordered(seed((1,)).slice(0, 3))

    def test_keys_that_are_null_or_occur_twice_are_refused(self, driver: Driver, dataset_store: str) -> None:
        before, on = data_files(dataset_store), ["x", "y", "p"]
        null = seed().set_column(0, "x", pa.array([None, *range(15)], pa.int64()))
        for table, message in (
            (null, "no value in the key column 'x'"),
            (pa.concat_tables([seed(), seed((1,), add=9.0).slice(7)]), r"{'x': 3, 'y': 1, 'p': 1} twice"),
            (seed().set_column(4, "v1", [["a"] * 16]), "v1"),
        ):
            with pytest.raises(InvalidInput, match=message):
                driver.merge_dataset(table, dataset_store, UUID, on)
        assert (data_files(dataset_store), rows(dataset_store)) == (before, ordered(seed()))

    def test_a_changed_file_is_a_conflict_or_its_rows_are_searched_again(
        self, driver: Driver, dataset_store: str
    ) -> None:
        changed = partial(delete_rows, UUID, dataset_store, [[("x", "==", 3), ("p", "==", 0)]])
        source, on = seed((0,), add=9.0).slice(4), ["x", "y", "p"]
        with pytest.raises(CommitConflict):
            driver.merge_dataset(source, InBetween(dataset_store, changed), UUID, on)
        assert rows(dataset_store) == ordered(r for r in seed().to_pylist() if r["x"] != 3 or r["p"] == 1)
        again = partial(delete_rows, UUID, dataset_store, [[("x", "==", 2), ("p", "==", 0)]])
        report = driver.merge_dataset(source, InBetween(dataset_store, again), UUID, on, on_conflict="reapply")
        assert (report.updated, report.inserted) == (0, 4)
        expected = [*seed((0,)).slice(0, 4).to_pylist(), *source.to_pylist(), *seed((1,)).to_pylist()]
        assert rows(dataset_store) == ordered(expected)
        # What somebody else appends is no conflict.
        where: Any = [[("x", "==", 0)]]
        driver.delete_rows(UUID, InBetween(dataset_store, other(dataset_store)), where)
        left = [row for row in expected if row["x"]]
        assert rows(dataset_store) == ordered([*left, *seed((0,), add=50.0).to_pylist()])

    def test_a_dataset_is_read_as_it_is(self, driver: Driver, store: str) -> None:
        store_dataframes_as_dataset(store, UUID, [every_type()], partition_on=["p"])
        table = driver.read_dataset(UUID, store)
        # Text, because a NaN is not equal to itself.
        assert str(ordered(table.select(every_type().column_names))) == str(ordered(every_type()))

    def test_predicates_and_columns_select(self, driver: Driver, dataset_store: str) -> None:
        query: dict[str, Any] = {
            "predicates": [[("v1", ">", 11.0), ("y", "==", 0)], [("i1", "==", 1)]],
            "columns": ["x", "v1"],
        }
        table = driver.read_dataset(UUID, dataset_store, **query)
        assert sorted(table.column_names) == ["v1", "x"]
        assert ordered(table) == ordered(read_table_arrow(UUID, dataset_store, **query))

    def test_files_that_the_index_of_a_dataset_excludes_are_not_read(self, driver: Driver, dataset_store: str) -> None:
        for key in data_files(dataset_store):
            if "/p=0/" in key:
                open_store(dataset_store).delete(key)
        assert driver.read_dataset(UUID, dataset_store, predicates=[[("i1", "==", 11)]]).num_rows == 4

    def test_a_dataset_that_is_not_there_is_named(self, driver: Driver, store: str) -> None:
        with pytest.raises(DatasetNotFound, match="nowhere"):
            driver.read_dataset("nowhere", store)

    def test_an_index_is_built_from_the_files(self, driver: Driver, dataset_store: str) -> None:
        driver.build_indices(dataset_store, UUID, ["x"])
        index = DatasetFactory(UUID, dataset_store).load_index("x").indices["x"].index_dct
        assert {value: len(labels) for value, labels in index.items()} == {0: 2, 1: 2, 2: 2, 3: 2}

    def test_a_compacted_dataset_has_the_same_rows_in_fewer_files(self, driver: Driver, dataset_store: str) -> None:
        other(dataset_store)()
        before = rows(dataset_store)
        driver.compact_dataset(UUID, dataset_store)
        assert rows(dataset_store) == before
        assert len(DatasetFactory(UUID, dataset_store).partitions) == 2

    def test_metadata_of_files_and_hashes_are_those_of_the_eager_verbs(
        self, driver: Driver, dataset_store: str
    ) -> None:
        eager = collect_dataset_metadata(dataset_store, UUID)
        table = driver.collect_dataset_metadata(dataset_store, UUID)
        assert table.column_names == list(eager.columns)
        assert table.sort_by("partition_label").to_pylist() == eager.sort_values("partition_label").to_dict("records")
        assert driver.hash_dataset(dataset_store, UUID, group_key=["p"]) == dict(
            hash_dataset(dataset_store, UUID, group_key=["p"]).items()
        )

    def test_garbage_of_a_dataset_is_collected(self, driver: Driver, dataset_store: str) -> None:
        open_store(dataset_store).put(f"{UUID}/table/p=0/stray.parquet", b"PAR1")
        with options(grace=timedelta(0)):
            report = driver.garbage_collect_dataset(UUID, dataset_store)
        assert report.keys == [f"{UUID}/table/p=0/stray.parquet"]
        assert rows(dataset_store) == ordered(seed())

    def test_a_copied_dataset_is_on_its_own(self, driver: Driver, dataset_store: str) -> None:
        driver.copy_dataset(UUID, dataset_store, "copy")
        driver.delete_dataset(UUID, dataset_store)
        assert [key.split(".")[0] for key in documents(dataset_store)] == ["copy"]
        assert ordered(read_table_arrow("copy", dataset_store)) == ordered(seed())
