"""Healthy datasets, and ways to damage one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from kartothek_cube import options
from kartothek_cube.core.dataset.maintain import verify_dataset
from kartothek_cube.core.dataset.write import store_dataframes_as_dataset
from kartothek_cube.core.metadata.commit_log import COMMITS_KEY, fingerprint
from kartothek_cube.core.metadata.document import from_mapping
from kartothek_cube.core.metadata.naming import document_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from kartothek_cube.core.maintenance.inspection import VerifyReport
    from kartothek_cube.core.stores.contract import Store

UUID = "uuid"
ROWS = pa.table({"p": ["a", "a", "b"], "x": [1, 2, 3], "i1": [10, 20, 30], "v1": [0.5, 1.5, 2.5]})


def write(
    store: Store, rows: pa.Table = ROWS, on: Any = "p", index: Any = "i1", *, statistics: bool = False, **more: Any
) -> None:
    """A dataset with one partition per value of p; statistics would find every changed row."""
    on, index = ([name] if isinstance(name, str) else name for name in (on, index))
    with options(statistics=statistics):
        store_dataframes_as_dataset(store, UUID, [rows], partition_on=on, secondary_indices=index, **more)


def verify(store: Store, *, deep: bool = False) -> VerifyReport:
    return verify_dataset(UUID, store, deep)


def found(store: Store, *, deep: bool = False) -> list[tuple[str, str]]:
    """Severity and check of each finding."""
    return [(f.severity, f.check) for f in verify(store, deep=deep).findings]


def document(store: Store, uuid: str = UUID) -> dict[str, Any]:
    return json.loads(store.get(document_key(uuid)))


def put(store: Store, content: dict[str, Any], uuid: str = UUID) -> None:
    store.put(document_key(uuid), json.dumps(content).encode())


def edit(store: Store, change: Callable[[dict[str, Any]], object], uuid: str = UUID) -> None:
    """Change the document as its last writer would: the fingerprint fits."""
    content = document(store, uuid)
    change(content)
    chain = json.loads(content["metadata"][COMMITS_KEY])
    chain[-1][2] = fingerprint(from_mapping(content["partitions"], ""))
    content["metadata"][COMMITS_KEY] = json.dumps(chain)
    put(store, content, uuid)


def edit_foreign(store: Store, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the document as a writer without a commit log would."""
    content = document(store)
    change(content)
    put(store, content)


def data_keys(store: Store, uuid: str = UUID) -> list[str]:
    """Keys of the data files, in the order of the document."""
    return [key for entry in document(store, uuid)["partitions"].values() for key in entry["files"].values()]


def index_file(store: Store, column: str = "i1") -> str:
    return document(store)["indices"][column]


def read(store: Store, key: str) -> pa.Table:
    return pq.read_table(pa.BufferReader(store.get(key)))


def put_table(store: Store, key: str, table: pa.Table) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    store.put(key, sink.getvalue().to_pybytes())


def edit_file(store: Store, key: str, change: Callable[[pa.Table], pa.Table]) -> None:
    """Replace the rows of a Parquet file by the result of a function."""
    put_table(store, key, change(read(store, key)))
