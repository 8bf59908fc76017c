"""The page for movers names every function that kartothek ran on dask, and every verb that takes
its place exists.
"""

from __future__ import annotations

import re

import pytest

from tests.support.moving_pages import section

ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in section("From dask").splitlines()
    if line.startswith("| `")
]

# What the modules of kartothek.io.dask exported.
CUBE = """
    append_to_cube_from_bag update_cube_from_bag build_cube_from_bag cleanup_cube_bag
    collect_stats_bag copy_cube_bag delete_cube_bag extend_cube_from_bag query_cube_bag
    append_to_cube_from_dataframe build_cube_from_dataframe extend_cube_from_dataframe
    query_cube_dataframe
"""
DATASET = """
    read_dataset_as_ddf store_dataset_from_ddf update_dataset_from_ddf collect_dataset_metadata
    hash_dataset read_dataset_as_delayed store_delayed_as_dataset update_dataset_from_delayed
    garbage_collect_dataset__delayed delete_dataset__delayed read_dataset_as_dataframe_bag
    store_bag_as_dataset build_dataset_indices__bag read_dataset_as_metapartitions_bag
    read_dataset_as_delayed_metapartitions read_table_as_delayed merge_datasets_as_delayed
"""


@pytest.mark.parametrize("name", [*CUBE.split(), *DATASET.split()])
def test_every_function_has_a_row(name):
    assert len([row for row in ROWS if f"`{name}`" in row[0]]) == 1


@pytest.mark.spark
def test_every_heir_exists():
    from kartothek_cube import spark

    heirs = {name for row in ROWS for name in re.findall(r"`(\w+_spark|map_cube_groups)`", row[1])}
    assert len(heirs) >= 17
    assert heirs <= set(spark.__all__)
