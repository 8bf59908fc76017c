"""plateau's eager functions: its shapes, and what it refuses."""

from __future__ import annotations

import datetime as dt

import pandas as pd
import pytest

from kartothek_cube.api import dataset as ours
from kartothek_cube.errors import InvalidInput, InvalidRequest, InvalidType
from kartothek_cube.plateau.api import dataset as api
from kartothek_cube.plateau.core.dataset import DatasetMetadata
from kartothek_cube.plateau.core.factory import DatasetFactory
from kartothek_cube.plateau.io import eager
from kartothek_cube.plateau.io import iter as by_item

ROWS = pd.DataFrame({"p": ["a", "b"], "x": [1, 2], "v1": [dt.date(2024, 5, 1), dt.date(2024, 5, 2)]})


@pytest.fixture
def store(tmp_path):
    url = f"hfs://{tmp_path / 'store'}"
    eager.store_dataframes_as_dataset(url, "d", [ROWS], partition_on=["p"], secondary_indices=["x"], table_name="shop")
    return url


def test_frames_come_instead_of_dicts_with_dates_as_dates(store):
    frames = eager.read_dataset_as_dataframes("d", store, columns=["v1"], dispatch_by=["x"])
    assert [frame["v1"].tolist() for frame in frames] == [[dt.date(2024, 5, 1)], [dt.date(2024, 5, 2)]]
    assert [len(frame) for frame in by_item.read_dataset_as_dataframes__iterator("d", store)] == [1, 1]
    table = eager.read_table("d", store, predicates=[[("x", ">", 1)]])
    assert (table["p"].tolist(), table["v1"].tolist()) == (["b"], [dt.date(2024, 5, 2)])
    assert str(eager.read_table("d", store, dates_as_object=False)["v1"].dtype).startswith("datetime64")


def test_the_table_is_that_of_the_dataset(store):
    factory = DatasetFactory("d", store)
    assert (factory.table_name, factory.dataset_metadata.table_name) == ("shop", "shop")
    assert eager.read_table(factory=factory)["x"].tolist() == [1, 2]
    eager.update_dataset_from_dataframes([ROWS], store, "d", table_name="shop", delete_scope=[{"p": "a"}])
    by_item.update_dataset_from_dataframes__iter(iter([ROWS]), store, "d", table_name="shop")
    assert sorted(eager.read_table("d", store)["x"]) == [1, 1, 2, 2, 2]
    assert list(ours.read_dataset_as_dataframes("d", store)[0]) == ["shop"]


def test_a_header_takes_one_schema_and_partitions_are_written_and_committed(store):
    schema = api.make_meta(ROWS, origin="rows", partition_keys=["p"])
    made = eager.create_empty_dataset_header(store, "h", schema, partition_on=["p"], table_name="shop")
    assert (made.table_name, made.schema) == ("shop", schema)
    written = [eager.write_single_partition(store, "h", ROWS[i : i + 1], table_name="shop") for i in (0, 1)]
    assert len(eager.commit_dataset(store, "h", written).partitions) == 2
    assert eager.read_table("h", store)["x"].tolist() == [1, 2]


def test_a_dataset_is_made_of_a_schema_and_the_name_of_its_table():
    made = DatasetMetadata("d", partition_keys=["p"], schema=api.make_meta(ROWS, "rows", ["p"]), table_name="shop")
    assert (made.table_name, made.schema.names) == ("shop", ["p", "v1", "x"])
    assert DatasetMetadata("d").table_name == "table"


def test_what_plateau_refuses_is_refused_before_anything_is_written(store):
    for rows in (ROWS, {"table": ROWS}, None):
        with pytest.raises(InvalidType, match="list of frames"):
            eager.store_dataframes_as_dataset(store, "new", rows)
    for item in ({"table": ROWS}, ("table", ROWS)):
        with pytest.raises(InvalidInput, match="Unexpected type during parsing"):
            eager.store_dataframes_as_dataset(store, "new", [item])
    assert ours.list_datasets(store) == ["d"]


def test_a_dataset_of_several_tables_is_refused(store):
    ours.store_dataframes_as_dataset(store, "two", [{"one": ROWS, "other": ROWS}])
    for read in (eager.read_table, eager.read_dataset_as_dataframes, by_item.read_dataset_as_dataframes__iterator):
        with pytest.raises(InvalidRequest, match="multi tabled dataset was dropped"):
            read("two", store)


def test_maintenance_has_the_same_names(store):
    assert not eager.garbage_collect_dataset("d", store).removed
    eager.build_dataset_indices(store, "d", ["v1"])
    assert sorted(DatasetFactory("d", store).indices) == ["v1", "x"]
    eager.delete_dataset("d", store)
    assert ours.list_datasets(store) == []


def test_the_api_has_every_name_and_loads_dask_for_its_functions_alone():
    import subprocess
    import sys

    code = (
        "import sys, kartothek_cube.plateau.api.dataset as api; api.read_table; api.DatasetFactory; "
        "import kartothek_cube.plateau.api.serialization; print('dask' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
    assert {"read_table", "update_dataset_from_ddf", "SchemaWrapper"} <= set(dir(api))
