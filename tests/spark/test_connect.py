"""Spark Connect: nothing that it lacks is used, and the verbs run on it where its parts are installed."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys

import pytest

from tests.source import MODULES

PARTS = ["grpc", "grpc_status", "google.rpc", "zstandard"]

JOB = """
import os, sys, warnings
warnings.simplefilter("ignore")
from kartothek_cube.spark import build_cube_from_spark, ensure_java, map_cube_groups, extend_cube_from_spark, query_cube_spark
from kartothek_cube import C, Cube
ensure_java()
os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote("local[2]").config("spark.sql.shuffle.partitions", "2").getOrCreate()
cube = Cube(["x"], ["p"], "cube", index_columns=["i1"])
frame = spark.range(0, 100, 1, 2).selectExpr("id AS x", "id % 3 AS p", "id % 5 AS i1")
build_cube_from_spark(frame, cube, sys.argv[1], shuffle=True)
def total(key, table):
    import pyarrow as pa
    return pa.table({"x": table.column("x"), "n": [table.num_rows] * table.num_rows})
extend_cube_from_spark({"e": map_cube_groups(total, "x bigint, n bigint", cube, sys.argv[1], partition_by="i1")}, cube, sys.argv[1], partition_on={"e": []})
try:
    build_cube_from_spark(frame.union(frame), cube, sys.argv[1] + "2", shuffle=True)
except ValueError as error:
    print(type(error).__name__)
print("rows", query_cube_spark(cube, sys.argv[1], C("n") == 20).count())
spark.stop()
"""


def missing():
    try:
        return [part for part in PARTS if importlib.util.find_spec(part) is None]
    except ModuleNotFoundError as error:
        return [error.name]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.skipif(bool(missing()), reason=f"Spark Connect needs {', '.join(missing())}, which the extra pyspark[connect] brings")
def test_the_verbs_run_on_spark_connect(tmp_path):
    done = subprocess.run([sys.executable, "-c", JOB, str(tmp_path / "store")], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.stdout.split() == ["InvalidInput", "rows", "100"], done.stderr[-3000:]


@pytest.mark.parametrize("name", [name for name in MODULES if name.startswith("kartothek_cube.spark")])
def test_nothing_is_used_that_connect_lacks(name):
    lines = [line for line in MODULES[name].text.splitlines() if re.search(r"\.rdd\b|_jvm|_jdf|\bsparkContext\b|\bbroadcast\b|parallelize", line)]
    # The one place that asks for it asks first what kind of session it has.
    allowed = 2 if name == "kartothek_cube.spark.session" else 0
    assert len(lines) <= allowed, lines
