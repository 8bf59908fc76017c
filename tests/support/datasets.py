"""Helpers of the tests of the writing verbs: they look at a store as a fresh reader does."""

from __future__ import annotations

import json
from contextlib import contextmanager
from io import BytesIO
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from kartothek_cube.core.dataset.read import read_table_arrow
from kartothek_cube.core.metadata.naming import SINGLE_TABLE, document_key
from kartothek_cube.core.snapshots.loader import find_snapshot, load_index, load_snapshot
from kartothek_cube.errors import KartothekCubeError
from tests.caches import forget

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from kartothek_cube.core.metadata.snapshot import Snapshot
    from kartothek_cube.core.stores.contract import Store

UUID = "uuid"


class Stream:
    """Rows of another library, such as Polars or DuckDB: the object can only export them."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


def snapshot(store: Store, uuid: str = UUID) -> Snapshot:
    """The dataset, without caches."""
    forget(store)
    return load_snapshot(store, uuid)


def exists(store: Store, uuid: str = UUID) -> bool:
    forget(store)
    return find_snapshot(store, uuid) is not None


def labels(store: Store, uuid: str = UUID) -> list[str]:
    return snapshot(store, uuid).partitions.labels.to_pylist()


def folders(store: Store) -> list[str]:
    """Labels without their random part, sorted."""
    return sorted(label.rpartition("/")[0] for label in labels(store))


def schema(store: Store, table: str = SINGLE_TABLE) -> dict[str, str]:
    return {f.name: str(f.type) for f in snapshot(store).schemas[table]}


def read(store: Store, uuid: str = UUID, **arguments: Any) -> pa.Table:
    forget(store)
    return read_table_arrow(uuid, store, **arguments)


def rows(store: Store, *columns: str, **arguments: Any) -> list[tuple[Any, ...]]:
    """All rows, sorted by their text; the columns are in the dataset's order by default."""
    table = read(store, columns=list(columns) or None, **arguments)
    return sorted(zip(*table.to_pydict().values(), strict=True), key=str)


def index(store: Store, column: str) -> dict[Any, set[str]]:
    """A secondary index: value → labels."""
    pairs, _ = load_index(store, snapshot(store), column)
    found: dict[Any, set[str]] = {}
    for value, label in zip(pairs.values.to_pylist(), pairs.labels.to_pylist(), strict=True):
        assert label not in found.setdefault(value, set()), "a pair twice"
        found[value].add(label)
    return found


def file_of(store: Store, label: str, table: str = SINGLE_TABLE) -> pa.Table:
    """The file of a partition as stored."""
    partitions = snapshot(store).partitions
    key = partitions.files[table][partitions.labels.to_pylist().index(label)].as_py()
    return pq.read_table(BytesIO(store.get(key)))


def index_of_files(store: Store, column: str) -> dict[Any, set[str]]:
    """The right contents of an index: the distinct non-null values, read file by file."""
    found: dict[Any, set[str]] = {}
    for label in labels(store):
        for table in snapshot(store).partitions.files:
            file = file_of(store, label, table)
            for value in set(file.column(column).to_pylist()) - {None} if column in file.column_names else ():
                found.setdefault(value, set()).add(label)
    return found


def document(store: Store, uuid: str = UUID) -> dict[str, Any]:
    return json.loads(store.get(document_key(uuid)))


def user_metadata(store: Store) -> dict[str, Any]:
    """The user metadata without the creation time."""
    return {k: v for k, v in snapshot(store).document.user_metadata.items() if k != "creation_time"}


def contents(store: Store) -> dict[str, bytes]:
    return {key: store.get(key) for key in store.list(recursive=True).keys}


def keys(store: Store, part: str = "") -> list[str]:
    """All keys but those of the history."""
    return [key for key in store.list(recursive=True).keys if part in key and "/_history/" not in key]


@contextmanager
def refused(
    store: Store, builtin: type[Exception], error: type[Exception] = KartothekCubeError, match: str | None = None
) -> Iterator[None]:
    """The block raises an error of both types and leaves the store unchanged."""
    before = contents(store)
    with pytest.raises(builtin, match=match) as caught:
        yield
    assert isinstance(caught.value, error)
    assert contents(store) == before
