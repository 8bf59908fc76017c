"""Delta tables as other programs read them, and a naive reader of their logs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pathlib import Path

    from kartothek_cube.core.stores.contract import Store

UUID = "uuid"


# --- naive ----------------------------------------------------------------------------------------


def log_keys(store: Store, uuid: str = UUID, table: str = "table") -> list[str]:
    return store.list(f"{uuid}/{table}/_delta_log/", recursive=True).keys


def actions(store: Store, version: int, uuid: str = UUID, table: str = "table") -> list[dict[str, Any]]:
    """The actions of a version."""
    data = store.get(f"{uuid}/{table}/_delta_log/{version:020d}.json")
    return [json.loads(line) for line in data.splitlines()]


def added(store: Store, version: int, uuid: str = UUID, table: str = "table") -> list[dict[str, Any]]:
    return [action["add"] for action in actions(store, version, uuid, table) if "add" in action]


def stats(store: Store, version: int, uuid: str = UUID) -> list[dict[str, Any]]:
    """The statistics of the files that a version adds."""
    return [json.loads(add["stats"]) for add in added(store, version, uuid)]


def versions(store: Store, uuid: str = UUID, table: str = "table") -> dict[int, set[str]]:
    """The keys of the files of each version that can be read; none is missing before the newest."""
    folder, found = f"{uuid}/{table}/", dict[int, set[str]]()
    names = [key.rpartition("/")[2] for key in log_keys(store, uuid, table)]
    present = {int(name[:20]) for name in names if name.endswith(".json")}
    numbers = [n for n in sorted(present) if present >= {*range(n, max(present))}]
    for number in numbers:
        checkpoint = f"{number:020d}.checkpoint.parquet"
        if checkpoint in names:
            rows = pq.read_table(pa.BufferReader(store.get(f"{folder}_delta_log/{checkpoint}"))).to_pylist()
            files = {row["add"]["path"] for row in rows if row["add"]}
            assert not found or _applied(store, number, found[number - 1], uuid, table) == files
        elif number == 0 or number - 1 in found:
            files = _applied(store, number, found.get(number - 1, set()), uuid, table)
        else:
            continue
        found[number] = files
    return {number: {folder + unquote(path) for path in files} for number, files in found.items()}


def _applied(store: Store, number: int, before: set[str], uuid: str, table: str) -> set[str]:
    done = actions(store, number, uuid, table)
    gone = {action["remove"]["path"] for action in done if "remove" in action}
    new = {action["add"]["path"] for action in done if "add" in action}
    assert not gone & new
    return (before - gone) | new


# --- other programs -------------------------------------------------------------------------------


def by_polars(root: Path, uuid: str = UUID, version: int | None = None, table: str = "table") -> Any:
    """The lazy frame of a version."""
    import polars as pl

    return pl.scan_delta(str(root / uuid / table), version=version)


def by_deltalake(
    root: Path, where: str = "", select: str = "*", uuid: str = UUID, version: int | None = None
) -> pa.Table:
    """The rows of a version that satisfy a condition in SQL."""
    from deltalake import DeltaTable, QueryBuilder

    found = DeltaTable(str(root / uuid / "table"), version=version)
    return pa.table(QueryBuilder().register("t", found).execute(f"SELECT {select} FROM t {where}").read_all())


def comparable(table: pa.Table) -> list[str]:
    """The rows in an order of their own, without regard to the order of columns and zones."""
    columns = sorted(table.column_names)
    return sorted(str([_plain(row[c]) for c in columns]) for row in table.to_pylist())


def _plain(value: Any) -> Any:
    if hasattr(value, "astimezone") and value.tzinfo is not None:
        return value.timestamp()
    if isinstance(value, float) and value == 0:
        return 0.0
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return dict(value)
    return {k: _plain(v) for k, v in value.items()} if isinstance(value, dict) else value
