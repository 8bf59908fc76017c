"""What log and progress say of verbs in Spark: driver and tasks together."""

from __future__ import annotations

import logging
import threading

import pyarrow as pa
import pytest

from kartothek_cube import Cube, build_cube, options
from kartothek_cube.api.cube import copy_cube
from kartothek_cube.spark import (
    append_to_cube_from_spark,
    build_cube_from_spark,
    copy_cube_spark,
    map_cube_groups,
    query_cube_spark,
)

CUBE = Cube(["x"], ["p"], "cube")
ROWS = pa.table({"x": [1, 2, 3, 4], "p": [0, 1, 2, 2]})


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO, logger="kartothek_cube.verbs")
    return lambda: [record.kartothek_cube for record in caplog.records if record.name == "kartothek_cube.verbs"]


def test_what_tasks_did_is_in_the_line_of_the_driver(spark, tmp_path, lines, monkeypatch):
    monkeypatch.setattr("kartothek_cube.spark.tasks.FEWEST_LIGHT", 2)
    source, events = f"hfs://{tmp_path}/source", []
    build_cube(ROWS, CUBE, source)
    copy_cube(CUBE, source, f"hfs://{tmp_path}/eager")
    copy_cube_spark(CUBE, source, f"hfs://{tmp_path}/spread", spark=spark, options=options(progress=events.append))
    _, eager, spread = lines()
    assert (spread.verb, spread.subject) == ("copy_cube_spark", "cube")
    assert eager.counts.files_written == 4  # an index among them
    assert {(event.phase, event.unit) for event in events} == {("copy", "tasks")}
    assert (spread.counts.files_written, spread.counts.bytes_written) == (
        eager.counts.files_written,
        eager.counts.bytes_written,
    )


def test_the_function_that_watches_stays_on_the_driver(spark, tmp_path, monkeypatch):
    monkeypatch.setattr("kartothek_cube.spark.tasks.FEWEST_LIGHT", 2)
    store, lock, events = f"hfs://{tmp_path}/cube", threading.Lock(), []  # a lock cannot be pickled

    def watch(event):
        with lock:
            events.append(event)

    with options(progress=watch):
        build_cube_from_spark(spark.createDataFrame([(5, 0), (6, 1)], "x long, p long").coalesce(1), CUBE, store)
        assert query_cube_spark(CUBE, store, spark=spark).count() == 2
        assert map_cube_groups(lambda key, table: table, "x long, p long", CUBE, store, spark=spark).count() == 2
        copy_cube_spark(CUBE, store, f"hfs://{tmp_path}/copy", spark=spark)
    assert {event.verb for event in events} == {"build_cube_from_spark", "copy_cube_spark"}


def test_a_write_counts_its_receipts_and_a_lazy_frame_only_its_plan(spark, tmp_path, lines):
    store, events = f"hfs://{tmp_path}/cube", []
    build_cube(ROWS, CUBE, store)
    with options(progress=events.append):
        append_to_cube_from_spark(spark.createDataFrame([(5, 0), (6, 1)], "x long, p long").coalesce(1), CUBE, store)
    query_cube_spark(CUBE, store, spark=spark)
    _, append, query = lines()
    assert (append.verb, append.rows, append.counts.files_written) == ("append_to_cube_from_spark", 2, 2)
    assert append.counts.bytes_written > 0
    assert (query.verb, query.rows, query.counts.files_read) == ("query_cube_spark", 0, 0)
    assert {(event.verb, event.subject, event.phase, event.unit) for event in events} == {
        ("append_to_cube_from_spark", "cube", "write", "tasks")
    }
    assert events[-1].done == events[-1].total
