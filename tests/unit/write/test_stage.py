"""Staging many small files at a time."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from kartothek_cube.core.io.formats import ParquetFormat
from kartothek_cube.core.runtime import executor
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.runtime.options import options
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.core.write import stage as module
from kartothek_cube.core.write.layout import StageRequest
from kartothek_cube.core.write.prepare import PartitionRows, split_rows
from kartothek_cube.core.write.stage import Drained, Staging, stage_parts, stage_together

TABLE = pa.table({"p": range(40), "x": range(40)})
REQUEST = StageRequest("uuid", ("p",), ("x",), ("x",), ParquetFormat())


class Remote(MemoryStore):
    @property
    def is_remote(self):
        return True


@pytest.fixture
def tasks(monkeypatch):
    found = []
    monkeypatch.setattr(
        module,
        "_stage",
        lambda store, request, parts, schema, real=module._stage: (
            found.append(len(parts)),
            real(store, request, parts, schema),
        )[1],
    )
    return found


@pytest.mark.parametrize(
    ("store", "fresh", "expected"),
    # Whether a user's label is taken is asked of a far store file by file.
    [(MemoryStore(), True, [20] * 2), (Remote(), True, [20] * 2), (Remote(), False, [1] * 40)],
)
def test_small_files_share_a_task(tasks, store, fresh, expected):
    request = replace(REQUEST, fresh=fresh)
    with options(threads=1):
        receipts = stage_parts(store, request, split_rows(TABLE, ["p"], "base", "uuid"), TABLE.schema)
    assert tasks == expected
    assert [(r.label, r.values, r.rows, r.low, r.high) for r in receipts] == [
        (f"p={i}/base", {"p": i}, 1, (i,), (i,)) for i in range(40)
    ]
    assert all(len(store.get(r.key)) == r.size and r.entries["x"].to_pylist() == [i] for i, r in enumerate(receipts))


def test_rows_of_one_partition_start_no_threads(monkeypatch):
    started = []
    monkeypatch.setattr(executor, "ThreadPoolExecutor", lambda *args, **more: started.append(args))
    items = [1]
    assert list(map_in_threads(str, Drained(items))) == ["1"]
    assert (items, started) == ([], [])


def test_several_datasets_share_the_tasks_of_one_run(tasks, monkeypatch):
    runs = []
    monkeypatch.setattr(
        module,
        "map_in_threads",
        lambda *args, real=module.map_in_threads, **more: runs.append(more["phase"].total) or real(*args, **more),
    )
    store, other = MemoryStore(), replace(REQUEST, uuid="other")
    empty = Staging(replace(REQUEST, uuid="none"), [], TABLE.schema)
    parts = split_rows(TABLE, ["p"], "base", "uuid")
    with options(threads=2):
        found = stage_together(
            store, [Staging(REQUEST, parts, TABLE.schema), empty, Staging(other, parts[:8], TABLE.schema)]
        )
    assert [[(r.dataset, r.label) for r in receipts] for receipts in found] == [
        [("uuid", part.label) for part in parts],
        [],
        [("other", part.label) for part in parts[:8]],
    ]
    assert sum(tasks) == 48
    assert runs == [48]


def test_a_bundle_has_few_bytes(monkeypatch):
    monkeypatch.setattr(module, "_BUNDLE_BYTES", 100)
    parts = [PartitionRows({}, str(n), pa.table({"x": pa.array(range(n), pa.int64())})) for n in (1, 11, 20, 2, 2, 2)]
    bundles = module._bundles(Staging(REQUEST, parts, TABLE.schema), 2)
    assert [[len(part.table) for part in bundle.parts] for bundle in bundles] == [[1, 11], [20], [2, 2], [2]]
    assert [bundle.nbytes for bundle in bundles] == [96, 160, 32, 16]


@pytest.mark.parametrize(
    ("count", "limit", "expected"), [(0, 5, []), (3, 0, [1, 1, 1]), (3, 1, [1, 1, 1]), (3, 64, [3])]
)
def test_bundles_of_no_more_than_so_many(count, limit, expected):
    parts = [PartitionRows({}, str(n), pa.table({"x": [n]})) for n in range(count)]
    assert [len(bundle.parts) for bundle in module._bundles(Staging(REQUEST, parts, TABLE.schema), limit)] == expected
