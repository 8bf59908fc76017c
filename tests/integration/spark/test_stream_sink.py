"""Structured streaming into a cube: a batch that Spark repeats, after a crash between our commit
and its own, is there once.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kartothek_cube.api.cube import Cube, query_cube_arrow
from kartothek_cube.api.dataset import read_table_arrow
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.stores.open import open_store
from kartothek_cube.spark import register, update_dataset_from_spark
from kartothek_cube.spark.datasource import KartothekCubeSource
from kartothek_cube.spark.datasource.write import CubeStreamWriter

CUBE = Cube(["x"], ["p"], "cube")
SCHEMA = "x BIGINT, p BIGINT, v1 DOUBLE"


def put(folder, *numbers):
    """One file, which is one micro-batch, for each number."""
    folder.mkdir(exist_ok=True)
    for n in numbers:
        rows = [{"x": 10 * n + i, "p": n % 2, "v1": 0.5} for i in range(3)]
        # Under another name first: the stream must not see half a file.
        hidden = folder / f"_{n}"
        hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
        hidden.rename(folder / f"{n}.json")


def crashing_source(flag):
    """The data source whose process fails after the commit of batch 0, once.

    Defined in here, so that it travels by value.
    """

    class Crashing(KartothekCubeSource):
        @classmethod
        def name(cls):
            return "crashing"

        def streamWriter(self, schema, overwrite):
            writer = super().streamWriter(schema, overwrite)

            class CrashingWriter(CubeStreamWriter):
                def commit(self, messages, batchId):
                    super().commit(messages, batchId)
                    if batchId == 0 and not Path(flag).exists():
                        Path(flag).touch()
                        raise RuntimeError("after the commit")

            return CrashingWriter(writer._target, writer._rows)

    return Crashing


def numbers_of(uuid, url):
    return json.loads(load_snapshot(open_store(url), uuid).document.metadata["kartothek_cube.txn"])


def test_a_stream_that_is_killed_after_a_commit_has_each_row_once(spark, store_url, tmp_path):
    register(spark)
    flag, source = tmp_path / "crashed", tmp_path / "in"
    spark.dataSource.register(crashing_source(str(flag)))
    put(source, 0)

    def run():
        frame = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(source))
        to = frame.writeStream.format("crashing").options(
            store=store_url, cube="cube", dimension_columns="x", partition_columns="p"
        )
        query = to.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()
        return query.id

    with pytest.raises(Exception, match="after the commit"):
        run()
    assert flag.exists()
    assert len(query_cube_arrow(CUBE, store_url)) == 3
    commits = len(load_snapshot(open_store(store_url), "cube++seed").chain)
    put(source, 1)
    application = run()
    assert sorted(read_table_arrow("cube++seed", store_url).column("x").to_pylist()) == sorted(
        10 * n + i for n in range(2) for i in range(3)
    )
    assert len(load_snapshot(open_store(store_url), "cube++seed").chain) == commits + 1
    assert numbers_of("cube++seed", store_url) == {application: 1}


def test_each_batch_by_hand_is_there_once(spark, store_url, tmp_path):
    """`foreachBatch` with ``txn``: the function fails after its commit, and Spark repeats the
    batch.
    """
    source, done = tmp_path / "in", []
    put(source, 0)

    def write(frame, batch_id):
        update_dataset_from_spark(frame, store_url, "sales", partition_on=["p"], txn=("sales stream", batch_id))
        done.append(batch_id)
        if len(done) == 1:
            raise RuntimeError("after the commit")

    def run():
        frame = spark.readStream.schema(SCHEMA).json(str(source))
        frame.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(
            availableNow=True
        ).start().awaitTermination()

    with pytest.raises(Exception, match="after the commit"):
        run()
    run()
    assert done == [0, 0]
    assert read_table_arrow("sales", store_url).num_rows == 3
    assert numbers_of("sales", store_url) == {"sales stream": 0}
