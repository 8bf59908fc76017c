"""Every encoding that is chosen for a column is read by the other libraries and engines, also with
conditions.
"""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kartothek_cube.api.dataset import store_dataframes_as_dataset

N = 40_000
COUNT, RANDOM = np.arange(N), np.random.default_rng(0)
NAMES = np.array([f"article {i:05d}" for i in range(N)])
ROWS = pa.table(
    {
        "x": COUNT // 4,
        "few": RANDOM.integers(0, 50, N),
        "many": RANDOM.integers(0, 10**6, N),
        "small": RANDOM.integers(0, 10**4, N).astype(np.int32),
        "moment": pa.array(RANDOM.integers(0, 2**44, N), pa.timestamp("us")),
        "float": RANDOM.random(N),
        "price": np.round(RANDOM.random(N) * 10_000, 2),
        "holes": pa.array(RANDOM.integers(0, 10**6, N), mask=COUNT % 3 == 0),
        "sorted": NAMES,
        "shuffled": NAMES[RANDOM.permutation(N)],
        "brand": NAMES[RANDOM.integers(0, 97, N)],
        "flag": RANDOM.random(N) < 0.5,
    }
)
SUMS = {
    "rows": N,
    "x": int((COUNT // 4).sum()),
    "many": int(ROWS["many"].to_numpy().sum()),
    "holes": int(ROWS["holes"].to_numpy(zero_copy_only=False)[COUNT % 3 > 0].sum()),
    "flag": int(ROWS["flag"].to_numpy().sum()),
    "texts": hashlib.sha256(
        "".join(f"{a}{b}" for a, b in zip(NAMES, ROWS["shuffled"].to_pylist(), strict=True)).encode()
    ).hexdigest(),
    "one": int(ROWS["many"].to_numpy()[4 * 77 : 4 * 78].sum()),
}

READ = """
import hashlib, json, sys
from functools import partial
from {kv} import get_store_from_url
from {library} import read_table
store = partial(get_store_from_url, sys.argv[1])
rows = read_table("uuid", store{table}).sort_values(["x", "sorted"])
one = read_table("uuid", store{table}, predicates=[[("x", "==", 77)]])
print(json.dumps({{
    "rows": len(rows), "x": int(rows["x"].sum()), "many": int(rows["many"].sum()),
    "holes": int(rows["holes"].sum()), "flag": int(rows["flag"].sum()),
    "texts": hashlib.sha256("".join((rows["sorted"] + rows["shuffled"]).tolist()).encode()).hexdigest(),
    "one": int(one["many"].sum()),
}}))
"""
SQL = "SELECT count(*), sum(x), sum(many), sum(holes), sum(CASE WHEN flag THEN 1 ELSE 0 END) FROM {}"


@pytest.fixture
def written(store_url):
    dataset = store_dataframes_as_dataset(store_url, "uuid", [ROWS])
    (partition,) = dataset.partitions.values()
    file = store_url.removeprefix("hfs://").partition("?")[0] + "/" + partition.files["table"]
    footer = pq.read_metadata(file).row_group(0)
    encodings = {name for j in range(footer.num_columns) for name in footer.column(j).encodings}
    # pyarrow 6 reads these, the newest that kartothek 5.3 allows.
    assert encodings == {"DELTA_BINARY_PACKED", "PLAIN", "RLE", "RLE_DICTIONARY"}
    return file


@pytest.mark.interop
def test_kartothek_reads_every_encoding(run_kartothek, written, store_url):
    assert (
        run_kartothek(READ.format(kv="storefact", library="kartothek.io.eager", table=', table="table"'), store_url)
        == SUMS
    )


@pytest.mark.interop
def test_plateau_reads_every_encoding(run_plateau, written, store_url):
    assert run_plateau(READ.format(kv="minimalkv", library="plateau.api.dataset", table=""), store_url) == SUMS


def test_duckdb_reads_every_encoding(written):
    duckdb = pytest.importorskip("duckdb")
    table = f"read_parquet('{written}')"
    rows = duckdb.sql(SQL.format(table)).fetchall()[0]
    assert list(map(int, rows)) == [SUMS[name] for name in ("rows", "x", "many", "holes", "flag")]
    assert int(duckdb.sql(f"SELECT sum(many) FROM {table} WHERE x = 77").fetchall()[0][0]) == SUMS["one"]
    texts = duckdb.sql(f"SELECT sorted || shuffled FROM {table} ORDER BY x, sorted").fetchall()
    assert hashlib.sha256("".join(text for (text,) in texts).encode()).hexdigest() == SUMS["texts"]


def test_polars_reads_every_encoding(written):
    pl = pytest.importorskip("polars")
    rows = pl.scan_parquet(written).filter(pl.col("x") == 77).collect()
    assert rows["many"].sum() == SUMS["one"]
    assert pl.read_parquet(written).to_arrow().cast(ROWS.schema) == ROWS


@pytest.mark.spark
def test_spark_reads_every_encoding(spark, written):
    spark.read.parquet(written).createOrReplaceTempView("encoded")
    rows = spark.sql(SQL.format("encoded")).collect()[0]
    assert list(map(int, rows)) == [SUMS[name] for name in ("rows", "x", "many", "holes", "flag")]
    assert spark.sql("SELECT sum(many) FROM encoded WHERE x = 77").collect()[0][0] == SUMS["one"]
    texts = spark.sql("SELECT concat(sorted, shuffled) FROM encoded ORDER BY x, sorted").collect()
    assert hashlib.sha256("".join(text for (text,) in texts).encode()).hexdigest() == SUMS["texts"]
