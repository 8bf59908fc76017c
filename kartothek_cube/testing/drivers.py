"""The behaviour suite `DriverTests` for engines that run the verbs."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kartothek_cube.api.cube import C, Cube, append_to_cube, build_cube, collect_stats, query_cube_arrow, verify_cube
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
from kartothek_cube.testing.driver import (
    CUBE,
    PARTITION_ON,
    TOTALS,
    Driver,
    EagerDriver,
    InBetween,
    data_files,
    documents,
    enrichment,
    every_type,
    expected,
    model,
    ordered,
    rows_in,
    seed,
    total,
)
from kartothek_cube.typing import StoreLike

__all__ = ["CubeDriverTests", "DatasetDriverTests", "DriverTests", "behaviours"]


class CubeDriverTests:
    """The state of a cube after each verb, the results of queries, and refused calls."""

    @pytest.fixture
    def driver(self) -> Driver:
        """Return the driver to be tested."""
        raise NotImplementedError("a subclass of DriverTests provides the fixture `driver`")

    @pytest.fixture
    def store(self, tmp_path: Path) -> str:
        """Return the URL of an empty store that the driver can open, by default a directory."""
        return f"hfs://{tmp_path / 'driven'}"

    @pytest.fixture
    def cube_store(self, store: str) -> str:
        """Return the URL of a store with the small cube, written eagerly."""
        build_cube({"seed": seed(), "e": enrichment()}, CUBE, store, partition_on=PARTITION_ON)
        return store

    # --- verbs that write ---

    def test_a_built_cube_holds_the_rows_of_its_datasets(self, driver: Driver, store: str) -> None:
        written = driver.build_cube(
            {"seed": seed(), "e": enrichment()},
            CUBE,
            store,
            metadata={"seed": {"owner": "us"}},
            partition_on=PARTITION_ON,
        )
        assert rows_in(store) == expected(model())
        assert {name: d.metadata.get("owner") for name, d in written.items()} == {"seed": "us", "e": None}

    def test_a_cube_is_the_same_as_one_that_was_written_eagerly(
        self, driver: Driver, store: str, tmp_path: Path
    ) -> None:
        one, two = (
            d.build_cube({"seed": seed()}, CUBE, s)["seed"]
            for d, s in ((driver, store), (EagerDriver(), tmp_path / "eager"))
        )
        assert query_cube_arrow(CUBE, store).equals(query_cube_arrow(CUBE, tmp_path / "eager"))
        assert collect_stats(CUBE, store)["seed"]["rows"] == 16
        assert (one.partition_keys, sorted(one.indices), one.schema) == (
            two.partition_keys,
            sorted(two.indices),
            two.schema,
        )
        assert one.metadata.keys() == two.metadata.keys()

    def test_a_dataset_extends_the_cube(self, driver: Driver, store: str) -> None:
        build_cube(seed(), CUBE, store)
        driver.extend_cube({"e": enrichment()}, CUBE, store, partition_on=PARTITION_ON)
        assert rows_in(store) == expected(model())

    def test_the_newest_row_of_a_cell_wins(self, driver: Driver, cube_store: str) -> None:
        newer, naive = seed(partitions=(1,), add=100.0).slice(0, 3), model()
        naive.append({"seed": newer.to_pylist()})
        written = driver.append_to_cube({"seed": newer}, CUBE, cube_store)
        assert rows_in(cube_store) == expected(naive)
        assert written.keys() == {"seed"}

    def test_an_update_replaces_partitions(self, driver: Driver, cube_store: str) -> None:
        newer, naive = seed(partitions=(0,), add=100.0).slice(0, 3), model()
        naive.update({"seed": newer.to_pylist()}, C("p") == 0)
        driver.update_cube({"seed": newer}, CUBE, cube_store, C("p") == 0)
        assert rows_in(cube_store) == expected(naive)

    def test_partitions_are_removed(self, driver: Driver, cube_store: str) -> None:
        naive = model()
        naive.remove_partitions(C("p") == 0, ["seed"])
        driver.remove_partitions(CUBE, cube_store, C("p") == 0, ktk_cube_dataset_ids=["seed"])
        assert rows_in(cube_store) == expected(naive)

    def test_an_overwritten_cube_is_the_new_one(self, driver: Driver, cube_store: str) -> None:
        with pytest.raises(AlreadyExists):
            driver.build_cube({"seed": seed(), "e": enrichment()}, CUBE, cube_store, partition_on=PARTITION_ON)
        assert rows_in(cube_store) == expected(model())
        naive = model()
        naive.datasets["seed"] = naive.datasets["seed"].without([C("p") == 0])
        driver.build_cube(
            {"seed": seed((1,)), "e": enrichment()}, CUBE, cube_store, partition_on=PARTITION_ON, overwrite=True
        )
        assert rows_in(cube_store) == expected(naive)

    def test_every_type_comes_back_as_it_went_in(self, driver: Driver, store: str) -> None:
        cube, table = Cube(["x"], ["p"], "types"), every_type()
        driver.build_cube({"seed": table}, cube, store)
        stored = query_cube_arrow(cube, store)
        assert {f.name: f.type for f in stored.schema} == {f.name: f.type for f in table.schema}
        # Text, because a NaN is not equal to itself.
        assert (
            str(ordered(stored))
            == str(ordered(driver.query_cube(cube, store)))
            == str(ordered(table.select(stored.column_names)))
        )

    # --- what is refused ---

    def test_cells_that_occur_twice_are_refused(self, driver: Driver, store: str) -> None:
        with pytest.raises(InvalidInput, match="duplicate cells"):
            driver.build_cube({"seed": pa.concat_tables([seed(), seed().slice(0, 1)])}, CUBE, store)
        assert documents(store) == []

    def test_no_dataset_of_a_refused_write_is_published(self, driver: Driver, cube_store: str) -> None:
        with pytest.raises(InvalidInput, match="duplicate cells"):
            driver.append_to_cube({"seed": seed(add=1.0), "e": pa.concat_tables([enrichment()] * 2)}, CUBE, cube_store)
        assert rows_in(cube_store) == expected(model())

    def test_nulls_in_keys_are_refused(self, driver: Driver, cube_store: str) -> None:
        for i, name in ((0, "x"), (2, "p")):
            table = seed().set_column(i, name, pa.array([None, *seed().column(name).to_pylist()[1:]]))
            with pytest.raises(InvalidInput, match=rf'column "{name}"'):
                driver.append_to_cube({"seed": table}, CUBE, cube_store)
        assert rows_in(cube_store) == expected(model())

    def test_columns_that_do_not_fit_are_refused_before_anything_is_written(
        self, driver: Driver, cube_store: str
    ) -> None:
        before = data_files(cube_store)
        text = pa.array(["a"] * 16)
        for table in (seed().drop_columns(["y"]), seed().append_column("w", text), seed().set_column(4, "v1", text)):
            with pytest.raises(InvalidInput):
                driver.append_to_cube({"seed": table}, CUBE, cube_store)
        with pytest.raises(InvalidInput, match="v2"):
            driver.extend_cube({"other": enrichment()}, CUBE, cube_store, partition_on={"other": []})
        assert data_files(cube_store) == before

    def test_a_removal_that_would_empty_a_dataset_unasked_is_refused(self, driver: Driver, cube_store: str) -> None:
        with pytest.raises(InvalidInput, match="Name it"):
            driver.remove_partitions(CUBE, cube_store, C("p") == 0)
        assert rows_in(cube_store) == expected(model())

    def test_an_update_that_somebody_else_was_faster_than_is_refused(self, driver: Driver, cube_store: str) -> None:
        between = InBetween(cube_store, partial(append_to_cube, {"seed": seed((0,), 50.0)}, CUBE, cube_store))
        with pytest.raises(CommitConflict):
            driver.update_cube({"seed": seed((0,)).slice(0, 3)}, CUBE, between, C("p") == 0)
        naive = model()
        naive.append({"seed": seed((0,), 50.0).to_pylist()})
        assert rows_in(cube_store) == expected(naive)

    def test_an_update_that_somebody_else_was_faster_than_is_applied_again(
        self, driver: Driver, cube_store: str
    ) -> None:
        between = InBetween(cube_store, partial(append_to_cube, {"seed": seed((0,), 50.0)}, CUBE, cube_store))
        driver.update_cube({"seed": seed((0,)).slice(0, 3)}, CUBE, between, C("p") == 0, on_conflict="reapply")
        naive = model()
        naive.update({"seed": seed((0,)).slice(0, 3).to_pylist()}, C("p") == 0)
        assert rows_in(cube_store) == expected(naive)

    def test_an_append_goes_together_with_a_commit_that_came_in_between(self, driver: Driver, cube_store: str) -> None:
        between = InBetween(cube_store, partial(append_to_cube, {"seed": seed((2,))}, CUBE, cube_store))
        driver.append_to_cube({"seed": seed((3,))}, CUBE, between)
        naive = model()
        naive.append({"seed": seed((2, 3)).to_pylist()})
        assert rows_in(cube_store) == expected(naive)

    # --- queries ---

    def test_conditions_select_rows(self, driver: Driver, cube_store: str) -> None:
        conditions: list[Any] = [
            C("v1") > 2.5,
            (C("i1") == 1) & (C("y") != 0),
            C("v2") == "c",
            C("p").isin([1, 7]) & C("x").in_interval(1, 3),
        ]
        for condition in conditions:
            rows = ordered(driver.query_cube(CUBE, cube_store, conditions=condition))
            assert rows == expected(model(), conditions=condition)
            assert 0 < len(rows) < 16

    def test_payload_columns_are_those_that_were_asked_for(self, driver: Driver, cube_store: str) -> None:
        table = driver.query_cube(CUBE, cube_store, payload_columns=["v2"])
        assert table.column_names == ["p", "v2", "x", "y"]
        assert ordered(table) == expected(model(), payload_columns=["v2"])

    def test_dimension_columns_project(self, driver: Driver, cube_store: str) -> None:
        query: dict[str, Any] = {"dimension_columns": ["x"], "payload_columns": ["v2"]}
        assert ordered(driver.query_cube(CUBE, cube_store, **query)) == expected(model(), **query)

    def test_datasets_that_are_not_named_are_left_out(self, driver: Driver, cube_store: str) -> None:
        assert ordered(driver.query_cube(CUBE, cube_store, datasets=["seed"])) == expected(model(), datasets=["seed"])

    def test_rows_of_a_group_come_one_after_the_other(self, driver: Driver, cube_store: str) -> None:
        table = driver.query_cube(CUBE, cube_store, partition_by=["i1"])
        values = table.column("i1").to_pylist()
        assert [v for before, v in zip([None, *values], values, strict=False) if v != before] == [0, 1, 10, 11]
        assert ordered(table) == expected(model(), partition_by=["i1"])

    def test_a_function_gets_each_group_once(self, driver: Driver, cube_store: str) -> None:
        table = driver.map_groups(total, TOTALS, CUBE, cube_store, partition_by=["x"], payload_columns=["v1"])
        groups = model().query(partition_by=["x"], payload_columns=["v1"])
        assert table.schema.names == TOTALS.names
        assert ordered(table) == [{"x": group[0]["x"], "total": sum(row["v1"] for row in group)} for group in groups]

    def test_results_of_groups_extend_the_cube(self, driver: Driver, cube_store: str) -> None:
        totals = driver.map_groups(total, TOTALS, CUBE, cube_store, partition_by=["x"], conditions=C("x") < 2)
        driver.extend_cube({"totals": totals}, CUBE, cube_store, partition_on={"totals": []})
        naive = model()
        naive.extend({"totals": totals.to_pylist()}, {"totals": []})
        assert rows_in(cube_store) == expected(naive)

    def test_an_empty_result_keeps_the_schema(self, driver: Driver, cube_store: str) -> None:
        query: dict[str, Any] = {"conditions": C("p") == 99}
        table = driver.query_cube(CUBE, cube_store, **query)
        assert table.num_rows == 0
        assert [(f.name, f.type) for f in table.schema] == [
            (f.name, f.type) for f in query_cube_arrow(CUBE, cube_store, **query).schema
        ]

    def test_columns_that_nobody_has_are_refused(self, driver: Driver, cube_store: str) -> None:
        queries: list[dict[str, Any]] = [
            {"payload_columns": ["nope"]},
            {"conditions": C("nope") == 1},
            {"dimension_columns": ["nope"]},
            {"partition_by": "nope"},
        ]
        for query in queries:
            with pytest.raises(InvalidInput, match="nope"):
                driver.query_cube(CUBE, cube_store, **query)

    def test_files_that_an_index_excludes_are_not_read(self, driver: Driver, cube_store: str) -> None:
        for key in data_files(cube_store):
            if "/p=0/" in key:
                open_store(cube_store).delete(key)
        assert ordered(driver.query_cube(CUBE, cube_store, conditions=C("i1") == 11)) == expected(
            model(), conditions=C("i1") == 11
        )

    # --- the cube as a whole ---

    def test_statistics_count_what_is_stored(self, driver: Driver, cube_store: str) -> None:
        stats = driver.collect_stats(CUBE, cube_store)
        assert {name: (s["partitions"], s["files"], s["rows"]) for name, s in stats.items()} == {
            "seed": (2, 2, 16),
            "e": (1, 1, 4),
        }
        assert stats == collect_stats(CUBE, cube_store)

    def test_a_copied_cube_is_the_same(self, driver: Driver, cube_store: str, tmp_path: Path) -> None:
        target = f"hfs://{tmp_path / 'copy'}"
        driver.copy_cube(CUBE, cube_store, target)
        assert rows_in(target) == expected(model())
        with pytest.raises(AlreadyExists):
            driver.copy_cube(CUBE, cube_store, target)

    def test_a_deleted_cube_leaves_nothing(self, driver: Driver, cube_store: str) -> None:
        driver.delete_cube(CUBE, cube_store)
        assert open_store(cube_store).list(recursive=True).keys == []

    def test_cleaning_up_removes_what_nothing_names(self, driver: Driver, cube_store: str) -> None:
        open_store(cube_store).put("cube++seed/table/p=0/stray.parquet", b"PAR1")
        with options(grace=timedelta(0)):
            report = driver.cleanup_cube(CUBE, cube_store)
        assert report.keys == ["cube++seed/table/p=0/stray.parquet"]
        assert rows_in(cube_store) == expected(model())

    def test_a_compacted_cube_has_the_same_rows_in_fewer_files(self, driver: Driver, cube_store: str) -> None:
        append_to_cube({"seed": seed((0, 1), add=100.0).slice(0, 12)}, CUBE, cube_store)
        before = rows_in(cube_store)
        driver.compact_cube(CUBE, cube_store)
        assert rows_in(cube_store) == before
        assert {name: s["files"] for name, s in collect_stats(CUBE, cube_store).items()} == {"seed": 2, "e": 1}
        assert verify_cube(CUBE, cube_store, deep=True).clean


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


class DriverTests(CubeDriverTests, DatasetDriverTests):
    """The behaviour that every `Driver` must show.

    Subclass it and provide the fixture ``driver``: a `Driver`, which may serve all tests.

    Each test gets a directory store of its own, as the URL ``store``; override this fixture for an
    engine whose tasks share no disk. Tests read eagerly what the driver writes, and write eagerly
    what the driver reads. The naive model gives the expected rows. No test is skipped: an engine
    without a verb fails the tests of the verb.

    Examples
    --------
    >>> import pytest
    >>> from kartothek_cube.testing.driver import EagerDriver
    >>> from kartothek_cube.testing.drivers import DriverTests
    >>> class TestMyEngine(DriverTests):
    ...     @pytest.fixture
    ...     def driver(self):
    ...         return EagerDriver(threads=2)
    """


def behaviours() -> list[str]:
    """The names of all tests, to check that a run elsewhere left none out.

    Examples
    --------
    >>> "test_the_newest_row_of_a_cell_wins" in behaviours()
    True
    """
    return [name for name in dir(DriverTests) if name.startswith("test_")]
