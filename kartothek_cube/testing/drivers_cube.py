"""The tests of `DriverTests` for cubes."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kartothek_cube.api.cube import C, Cube, append_to_cube, build_cube, collect_stats, query_cube_arrow, verify_cube
from kartothek_cube.core.runtime.options import options
from kartothek_cube.core.stores.open import open_store
from kartothek_cube.errors import AlreadyExists, CommitConflict, InvalidInput
from kartothek_cube.testing.driver import Driver, EagerDriver
from kartothek_cube.testing.driver_cases import (
    CUBE,
    PARTITION_ON,
    TOTALS,
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

__all__ = ["CubeDriverTests"]


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
