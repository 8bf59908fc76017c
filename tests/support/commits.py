"""Helpers of the tests of the core: a small dataset, written with the core's own functions."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

import pyarrow as pa

from kartothek_cube.core.arrow.types import ordered
from kartothek_cube.core.commit.change import Change
from kartothek_cube.core.commit.commit import _CommitQueues, _queues, commit_change
from kartothek_cube.core.io.formats import ParquetFormat
from kartothek_cube.core.metadata.document import dataset_schema
from kartothek_cube.core.metadata.naming import SINGLE_TABLE, document_key, new_id, schema_key
from kartothek_cube.core.metadata.snapshot import common_metadata_bytes
from kartothek_cube.core.snapshots.loader import find_snapshot
from kartothek_cube.core.write.layout import StageRequest
from kartothek_cube.core.write.prepare import split_rows
from kartothek_cube.core.write.stage import Receipt, stage_parts
from tests.caches import forget

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kartothek_cube.core.metadata.snapshot import Snapshot
    from kartothek_cube.core.stores.contract import Store

UUID = "uuid"
DOCUMENT = document_key(UUID)
PATIENCE = 60
_arrival = threading.Condition()


@contextmanager
def announced_arrivals() -> Iterator[None]:
    """Tell `wait_for_waiting` about every commit that joins a queue inside the block."""
    join = _CommitQueues.join

    def announce(*arguments: Any) -> Any:
        queue = join(*arguments)
        with _arrival:
            _arrival.notify_all()
        return queue

    with mock.patch.object(_CommitQueues, "join", announce):
        yield


def wait_for_waiting(store: Store, number: int) -> None:
    """Return once ``number`` commits wait behind the leader; needs `announced_arrivals`."""
    key = (store.identity, UUID)
    with _arrival:
        assert _arrival.wait_for(lambda: len(_queues.waiting(key)) >= number, PATIENCE), "the others never came"


def stage(
    store: Store,
    table: pa.Table,
    on: Sequence[str] = (),
    index: Sequence[str] = (),
    label: str | None = None,
    **serializer: Any,
) -> list[Receipt]:
    request = StageRequest(UUID, tuple(on), tuple(index), (), ParquetFormat(**serializer))
    return stage_parts(store, request, split_rows(table, on, label or new_id(), UUID), table.schema)


def make_change(
    store: Store, rows: Any, on: Sequence[str] = (), index: Sequence[str] = (), removed: Sequence[str] = (), **more: Any
) -> Change:
    """A staged change; ``rows`` is a table or what `pa.table` takes."""
    table = rows if isinstance(rows, pa.Table) else pa.table(rows)
    label, serializer = more.pop("label", None), more.pop("serializer", {})
    receipts = stage(store, table, on, index, label, **serializer) if table.num_rows else []
    schema = ordered(dataset_schema(table.schema, on), on)
    return Change(
        UUID,
        tuple(receipts),
        {SINGLE_TABLE: schema},
        tuple(on),
        tuple(index),
        removed=pa.array(removed, type=pa.string()),
        **more,
    )


def write(store: Store, rows: Any, on: Sequence[str] = (), index: Sequence[str] = (), **more: Any) -> Snapshot:
    """Stage rows and commit them onto the newest state."""
    base = find_snapshot(store, UUID)
    return commit_change(store, make_change(store, rows, on, index, **more), base)


def labels(snapshot: Snapshot) -> list[str]:
    return snapshot.partitions.labels.to_pylist()


def raw(store):
    return json.loads(store.get(DOCUMENT))


def edit(store, **members):
    """Edit the document as a writer without a commit log does."""
    store.put(DOCUMENT, json.dumps({**raw(store), **members}).encode())


def make_foreign(store, uuid):
    """A library without commit ids commits to a dataset."""
    key = document_key(uuid)
    document = json.loads(store.get(key))
    files = document["partitions"]
    document["partitions"] = {f"{label}_": files[label] for label in files}
    store.put(key, json.dumps(document).encode())
    forget(store)


def foreign_commit(store):
    """Add a partition as kartothek does: keep the metadata and rewrite the schema file."""
    (receipt,) = make_change(store, {"x": ["t"]}, label="theirs").receipts
    store.put(schema_key(UUID), common_metadata_bytes(pa.schema([("x", pa.string())])))
    edit(store, partitions={**raw(store)["partitions"], "theirs": {"files": {"table": receipt.key}}})
