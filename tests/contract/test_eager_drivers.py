"""The verbs behave the same with one thread and with several; and the suite notices an engine that
does not.
"""

from __future__ import annotations

import pytest

from kartothek_cube.api.cube import build_cube
from kartothek_cube.api.dataset import store_dataframes_as_dataset
from kartothek_cube.testing.driver import CUBE, PARTITION_ON, EagerDriver, enrichment, seed
from kartothek_cube.testing.drivers import DriverTests


class TestOneThread(DriverTests):
    @pytest.fixture
    def driver(self):
        return EagerDriver(threads=1)


class TestThreads(DriverTests):
    @pytest.fixture
    def driver(self):
        return EagerDriver(threads=4)


class Forgetful(EagerDriver):
    """Loses rows, removes nothing, finds nothing and merges nothing."""

    def append_to_cube(self, data, cube, store, **arguments):
        return super().append_to_cube({name: table.slice(1) for name, table in data.items()}, cube, store, **arguments)

    def update_cube(self, data, cube, store, remove_conditions, **arguments):
        return super().update_cube(data, cube, store, None, **arguments)

    def query_cube(self, cube, store, *, conditions=None, **arguments):
        return super().query_cube(cube, store, **arguments).slice(0, None if conditions is None else 0)

    def update_dataset(self, table, store, dataset_uuid, *, delete_scope=None, **arguments):
        return super().update_dataset(table, store, dataset_uuid, **arguments)

    def compact_cube(self, cube, store, **arguments):
        return super().compact_cube(cube, store, dry_run=True)


NOTICED = [
    "test_a_compacted_cube_has_the_same_rows_in_fewer_files",
    "test_a_delete_scope_removes_before_it_adds",
    "test_an_append_goes_together_with_a_commit_that_came_in_between",
    "test_an_update_replaces_partitions",
    "test_conditions_select_rows",
    "test_the_newest_row_of_a_cell_wins",
]


@pytest.mark.parametrize("name", NOTICED)
def test_an_engine_that_is_wrong_is_noticed(name, tmp_path):
    store = f"hfs://{tmp_path / 'store'}"
    build_cube({"seed": seed(), "e": enrichment()}, CUBE, store, partition_on=PARTITION_ON)
    store_dataframes_as_dataset(store, "sales", [seed()], partition_on=["p"], secondary_indices=["i1"])
    with pytest.raises(AssertionError):
        getattr(DriverTests(), name)(Forgetful(), store)
