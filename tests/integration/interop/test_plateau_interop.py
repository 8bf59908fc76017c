"""A dataset of a cube is a plain dataset for plateau 4.6, which reads it and adds to it."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kartothek_cube.api.cube import C, Cube, append_to_cube, build_cube, query_cube_arrow
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.stores.open import open_store

CUBE = Cube(["PRODUCT_ID", "WEEK"], ["COUNTRY_CODE"], "sales", index_columns=["BRAND_ID"])
HEAD = """
import json, sys
from functools import partial
import pandas as pd
import pyarrow as pa, pyarrow.parquet as pq
from minimalkv import get_store_from_url
from plateau.api.dataset import read_table, update_dataset_from_dataframes
STORE = partial(get_store_from_url, sys.argv[1])
"""
READ = """
table = read_table("sales++seed", STORE, **json.loads(sys.argv[3]))
pq.write_table(pa.Table.from_pandas(table, preserve_index=False), sys.argv[2], coerce_timestamps="us")
print(json.dumps(len(table)))
"""
UPDATE = """
new = pq.read_table(sys.argv[2]).to_pandas()
indices = json.loads(sys.argv[3])
result = update_dataset_from_dataframes(
    [new], STORE, "sales++seed", partition_on=["COUNTRY_CODE"], secondary_indices=indices
)
print(json.dumps(len(result.partitions)))
"""


def rows(countries, weeks, units):
    cells = [(product, week, country) for country in countries for week in weeks for product in (1, 2, 3)]
    columns = dict(zip(("PRODUCT_ID", "WEEK", "COUNTRY_CODE"), map(list, zip(*cells, strict=True)), strict=True))
    sold = (
        pa.array([1_500_000_000 + week for _, week, _ in cells], pa.int64())
        .cast(pa.timestamp("s"))
        .cast(pa.timestamp("us"))
    )
    brands = {"BRAND": [f"B{p}" for p, _, _ in cells], "BRAND_ID": [p for p, _, _ in cells]}
    payload = {"UNITS": [units * p for p, _, _ in cells], "PRICE": [None if w % 2 else 1.5 for _, w, _ in cells]}
    return pa.table({**columns, **brands, **payload, "LAST_SOLD": sold})


def sorted_rows(table):
    return sorted(
        (dict(sorted(row.items())) for row in table.to_pylist()),
        key=lambda row: (row["COUNTRY_CODE"], row["PRODUCT_ID"], row["WEEK"]),
    )


def read(run_plateau, url, path, **arguments):
    run_plateau(HEAD + READ, url, path, json.dumps(arguments))
    return sorted_rows(pq.read_table(path))


def ours(store, **arguments):
    return sorted_rows(query_cube_arrow(CUBE, store, **arguments))


def test_plateau_reads_our_dataset_and_adds_to_it(run_plateau, store_url, tmp_path):
    store, path = open_store(store_url), tmp_path / "rows.parquet"
    build_cube(rows(["DE", "FR/BE"], range(1, 5), 10), CUBE, store)
    assert read(run_plateau, store_url, path) == ours(store) == sorted_rows(rows(["DE", "FR/BE"], range(1, 5), 10))

    pq.write_table(rows(["DE", "IT"], range(5, 7), 20), path)
    assert run_plateau(HEAD + UPDATE, store_url, path, json.dumps(["PRODUCT_ID", "WEEK", "BRAND_ID"])) == 4
    assert load_snapshot(store, "sales++seed").has_foreign_commit
    both = ours(store)
    assert len(both) == 24 + 12
    assert read(run_plateau, store_url, path) == both
    assert len(ours(store, conditions=(C("BRAND_ID") == 2) & (C("WEEK") > 4))) == 4

    append_to_cube(rows(["IT"], [9], 30), CUBE, store)
    assert not load_snapshot(store, "sales++seed").has_foreign_commit
    assert read(run_plateau, store_url, path) == ours(store)
    assert len(ours(store)) == 39


def test_an_update_that_plateau_gives_up_leaves_our_dataset_as_it_was(run_plateau, store_url, tmp_path):
    """It cannot update an index on text that kartothek or we wrote, and notices after it has
    replaced the schema file.
    """
    store, path, cube = open_store(store_url), tmp_path / "rows.parquet", CUBE.copy(index_columns=["BRAND"])
    build_cube(rows(["DE"], range(1, 5), 10), cube, store)
    before, schema = query_cube_arrow(cube, store), store.get("sales++seed/table/_common_metadata")
    pq.write_table(rows(["DE"], [5], 20), path)
    with pytest.raises(AssertionError, match="large_string"):
        run_plateau(HEAD + UPDATE, store_url, path, json.dumps(["PRODUCT_ID", "WEEK", "BRAND"]))
    assert query_cube_arrow(cube, store).equals(before)
    assert store.get("sales++seed/table/_common_metadata") != schema
    append_to_cube(rows(["DE"], [6], 30), cube, store)
    assert query_cube_arrow(cube, store).num_rows == 15


def test_our_next_commit_makes_the_schema_file_readable_for_kartothek_again(run_plateau, store_url, tmp_path):
    store, path = open_store(store_url), tmp_path / "rows.parquet"
    build_cube(rows(["DE"], range(1, 5), 10), CUBE, store)
    schema = pq.read_schema(pa.BufferReader(store.get("sales++seed/table/_common_metadata")))
    pq.write_table(rows(["DE"], [5], 20), path)
    run_plateau(HEAD + UPDATE, store_url, path, json.dumps(["PRODUCT_ID", "WEEK", "BRAND_ID"]))
    append_to_cube(rows(["DE"], [6], 30), CUBE, store)
    assert pq.read_schema(pa.BufferReader(store.get("sales++seed/table/_common_metadata"))).equals(schema)
