"""The cases behind the page *Calls to the store*: how often each verb calls the store."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from kartothek_cube import C, Cube, options
from kartothek_cube.api import cube as cube_api
from kartothek_cube.api import dataset as dataset_api
from kartothek_cube.api import discover as discover_api
from kartothek_cube.core.snapshots import statistics
from kartothek_cube.core.stores.local import MemoryStore

UUID = "uuid"
NOW = options(grace=timedelta(0), retain=timedelta(0))

# P existing partitions, N written ones, I secondary indices, T tables, H commits, G files of
# garbage, K files per physical partition, D datasets. `I` of a cube counts the indices of all of
# its datasets.
DATASETS = [
    {"P": 1, "N": 1, "I": 0, "T": 1, "H": 1, "G": 1, "K": 2},
    {"P": 4, "N": 1, "I": 2, "T": 1, "H": 1, "G": 1, "K": 2},
    {"P": 1, "N": 5, "I": 1, "T": 2, "H": 3, "G": 2, "K": 3},
    {"P": 2, "N": 2, "I": 0, "T": 3, "H": 4, "G": 5, "K": 2},
]
CUBES = [
    {"D": 1, "P": 1, "N": 1, "I": 1, "H": 1, "G": 1, "K": 2},
    {"D": 1, "P": 4, "N": 3, "I": 3, "H": 1, "G": 1, "K": 2},
    {"D": 3, "P": 1, "N": 5, "I": 1, "H": 3, "G": 2, "K": 3},
    {"D": 4, "P": 3, "N": 2, "I": 2, "H": 2, "G": 5, "K": 2},
]
Z = SimpleNamespace
Run = Callable[[Any, Z, Any], object]


@dataclass(frozen=True)
class Case:
    """One verb with arguments of one kind.

    Attributes
    ----------
    verb, note
        The public name, and what the table says of the arguments.
    run
        Calls the verb on a store, given a size and what ``make`` returned.
    cold, warm
        Numbers of calls as ``"1 get_versioned, P*T tail"``: where nothing is cached of the store,
        and where this process knows the newest state.
    make
        Prepares the store.
    again
        Warm is after the same call; otherwise after the write that prepared the store.
    where
        Chooses among the sizes.
    """

    verb: str
    note: str
    run: Run
    cold: str
    warm: str = ""
    make: Callable[[Any, Z], object] = field(default=lambda s, z: None)
    again: bool = False
    where: Callable[[Z], bool] = field(default=lambda z: True)

    @property
    def name(self) -> str:
        return f"{self.verb} {self.note}".strip()


# --- datasets -------------------------------------------------------------------------------------


def rows(count: int, columns: int, start: int = 0) -> pa.Table:
    """One row per value of `p`."""
    indexed = {f"i{n}": [n] * count for n in range(columns)}
    return pa.table({"x": range(start, start + count), "p": range(count), **indexed, "v1": [1.0] * count})


def element(z: Z, count: int, start: int = 0) -> dict[str, pa.Table]:
    return {f"t{n}" if n else "table": rows(count, z.I, start) for n in range(z.T)}


def indexed(z: Z) -> list[str]:
    return [f"i{n}" for n in range(z.I)]


def store_dataset(s: Any, z: Z, count: int, **more: Any) -> None:
    dataset_api.store_dataframes_as_dataset(
        s, UUID, [element(z, count)], partition_on="p", secondary_indices=indexed(z), **more
    )


def stored(s: Any, z: Z) -> None:
    """A dataset with P partitions after H commits."""
    store_dataset(s, z, z.P)
    for n in range(1, z.H):
        dataset_api.update_dataset_from_dataframes([], s, UUID, metadata={"n": n})


def stored_without_statistics(s: Any, z: Z) -> None:
    with options(statistics=False):
        store_dataset(s, z, z.P)


def stored_msgpack(s: Any, z: Z) -> None:
    store_dataset(s, z, z.P, metadata_storage_format="msgpack")


def stored_large(s: Any, z: Z) -> None:
    """Files that the request for their tail does not cover."""
    data = pa.table({"p": range(z.P), "v1": [os.urandom(200_000) for _ in range(z.P)]})
    dataset_api.store_dataframes_as_dataset(s, UUID, [data], partition_on="p")


def stored_small(s: Any, z: Z) -> None:
    """K files in each of P physical partitions."""
    store_dataset(s, z, z.P)
    for n in range(1, z.K):
        dataset_api.update_dataset_from_dataframes([element(z, z.P, 100 * n)], s, UUID)


def stored_pairs(s: Any, z: Z) -> None:
    """P partitions of two rows: P values of `x`, and P others."""
    data = pa.concat_tables([rows(z.P, z.I), rows(z.P, z.I, z.P)])
    dataset_api.store_dataframes_as_dataset(s, UUID, [data], partition_on="p", secondary_indices=indexed(z))


def changed_rows(z: Z, before: pa.Table) -> pa.Table:
    """One row of each partition, with another value."""
    return before.drop_columns("v1").append_column("v1", pa.array([2.0] * z.P))


def published(s: Any, z: Z) -> None:
    """A Delta table after H commits, of which each has a version."""
    store_dataset(s, z, z.P)
    dataset_api.publish_delta(UUID, s, always=True)
    for n in range(1, z.H):
        dataset_api.update_dataset_from_dataframes([], s, UUID, metadata={"n": n})


def with_garbage(s: Any, z: Z) -> None:
    stored(s, z)
    for n in range(z.G):
        s.put(f"{UUID}/table/p=0/garbage{n}.parquet", b"")


def staged(s: Any, z: Z) -> object:
    stored(s, z)
    return [dataset_api.write_single_partition(s, UUID, element(z, 1, n)) for n in range(z.N)]


def appended(s: Any, z: Z) -> None:
    stored(s, z)
    update(s, z)


def staged_receipts(s: Any, z: Z) -> object:
    stored(s, z)
    return [dataset_api.stage_partitions(element(z, 1, n), s, UUID) for n in range(z.N)]


def first_commit(s: Any, z: Z) -> object:
    stored(s, z)
    return str(dataset_api.history(UUID, s)["commit"].iloc[-1])


def tagged(s: Any, z: Z) -> None:
    """H tags of the newest state."""
    stored(s, z)
    for n in range(z.H):
        dataset_api.tag_dataset(UUID, s, f"tag {n}")


def before_append(s: Any, z: Z) -> object:
    """The last commit before an append of N."""
    stored(s, z)
    update(s, z)
    return str(dataset_api.history(UUID, s)["commit"].iloc[1])


def update(s: Any, z: Z, **more: Any) -> object:
    return dataset_api.update_dataset_from_dataframes([element(z, z.N, 100)], s, UUID, **more)


def select(connection: Any, name: str) -> object:
    return connection.sql(f"FROM {name}").fetchall()


def first_index(z: Z) -> list[list[tuple[str, str, int]]] | None:
    return [[("i0", "==", 0)]]


def has_index(z: Z) -> bool:
    return bool(z.I)


def one_table(z: Z) -> bool:
    return z.T == 1


# Verbs that change one row of each partition of `stored_pairs`.
ROW_VERBS: list[tuple[str, Run]] = [
    ("delete_rows", lambda s, z, g: dataset_api.delete_rows(UUID, s, [[("x", "<", z.P)]])),
    ("update_rows", lambda s, z, g: dataset_api.update_rows(UUID, s, [[("x", "<", z.P)]], {"v1": 2.0})),
    ("merge_dataset", lambda s, z, g: dataset_api.merge_dataset(changed_rows(z, rows(z.P, z.I)), s, UUID, "x")),
]


def read(verb: str, note: str, run: Run, cold: str, warm: str, **more: Any) -> Case:
    return Case(verb, note, run, cold, warm, **{"make": stored, **more}, again=True)


# What the page says of an update, with a scope and without.
WITH_SCOPE = "also with `delete_scope` on a partition column"

api = dataset_api
DATASET_CASES = [
    read("read_table", "", lambda s, z, g: api.read_table(UUID, s), "1 get_versioned, P tail", "1 changed, P tail"),
    read(
        "read_table",
        "files of more than 128 KiB",
        lambda s, z, g: api.read_table(UUID, s),
        "1 get_versioned, P tail, P ranges",
        "1 changed, P tail, P ranges",
        make=stored_large,
    ),
    read(
        "read_table",
        "document in msgpack",
        lambda s, z, g: api.read_table(UUID, s),
        "2 get_versioned, P tail",
        "1 changed, 1 contains, P tail",
        make=stored_msgpack,
    ),
    read(
        "read_table",
        "predicate on an index",
        lambda s, z, g: api.read_table(UUID, s, predicates=first_index(z)),
        "1 get_versioned, 1+P tail",
        "1 changed, P tail",
        where=has_index,
    ),
    read(
        "read_table_arrow",
        "",
        lambda s, z, g: api.read_table_arrow(UUID, s),
        "1 get_versioned, P tail",
        "1 changed, P tail",
    ),
    read(
        "stream_table",
        "",
        lambda s, z, g: api.stream_table(UUID, s).read_all(),
        "1 get_versioned, P tail",
        "1 changed, P tail",
    ),
    read(
        "scan_dataset",
        "",
        lambda s, z, g: api.scan_dataset(UUID, s).collect(),
        "1 get_versioned, P tail",
        "1 changed, P tail",
    ),
    read(
        "connect",
        "a statement",
        lambda s, z, g: select(api.connect(s), UUID),
        "1 get_versioned, 2 list, P tail",
        "1 changed, 2 list, P tail",
    ),
    read(
        "plan_table_scan",
        "predicate on an index",
        lambda s, z, g: api.plan_table_scan(UUID, s, predicates=first_index(z)),
        "1 get_versioned, 1 tail",
        "1 changed",
        where=has_index,
    ),
    read(
        "read_dataset_as_dataframes",
        "",
        lambda s, z, g: api.read_dataset_as_dataframes(UUID, s),
        "1 get_versioned, P*T tail",
        "1 changed, P*T tail",
    ),
    read(
        "read_dataset_as_dataframes__iterator",
        "",
        lambda s, z, g: [*api.read_dataset_as_dataframes__iterator(UUID, s)],
        "1 get_versioned, P*T tail",
        "1 changed, P*T tail",
    ),
    read(
        "read_dataset_as_dataframes__iterator",
        "`dispatch_by` an index",
        lambda s, z, g: [*api.read_dataset_as_dataframes__iterator(UUID, s, dispatch_by="i0")],
        "1 get_versioned, 1+P*T tail",
        "1 changed, P*T tail",
        where=has_index,
    ),
    read(
        "DatasetFactory",
        "`.dataset_metadata`",
        lambda s, z, g: api.DatasetFactory(UUID, s).dataset_metadata,
        "1 get_versioned",
        "1 changed",
    ),
    read(
        "DatasetFactory",
        "`.load_all_indices()`",
        lambda s, z, g: api.DatasetFactory(UUID, s).load_all_indices().indices,
        "1 get_versioned, I tail",
        "1 changed",
    ),
    read(
        "DatasetMetadata",
        "`.load_from_store`",
        lambda s, z, g: api.DatasetMetadata.load_from_store(UUID, s),
        "1 get_versioned",
        "1 changed",
    ),
    Case(
        "DatasetMetadata",
        "`.exists`",
        lambda s, z, g: api.DatasetMetadata.exists(UUID, s),
        "1 get_versioned",
        make=stored,
    ),
    Case(
        "ExplicitSecondaryIndex",
        "`.store`",
        lambda s, z, g: api.ExplicitSecondaryIndex("i1", {1: ["a"]}).store(s, UUID),
        "1 put_if",
    ),
    Case(
        "ExplicitSecondaryIndex",
        "`.load`",
        lambda s, z, g: api.ExplicitSecondaryIndex("i1", index_storage_key=g).load(s),
        "1 tail",
        make=lambda s, z: api.ExplicitSecondaryIndex("i1", {1: ["a"]}).store(s, UUID),
    ),
    Case("read_schema_metadata", "", lambda s, z, g: api.read_schema_metadata(UUID, s), "1 get", make=stored),
    read(
        "collect_dataset_metadata",
        "",
        lambda s, z, g: api.collect_dataset_metadata(s, UUID),
        "1 get_versioned, P tail",
        "1 changed, P tail",
    ),
    read("list_datasets", "", lambda s, z, g: api.list_datasets(s), "1 list", "1 list"),
    read("hash_dataset", "", lambda s, z, g: api.hash_dataset(s, UUID), "1 get_versioned, P tail", "1 changed, P tail"),
    Case(
        "verify_dataset",
        "",
        lambda s, z, g: api.verify_dataset(UUID, s),
        "1 get_versioned, 1 contains, 1 list, T+H get, I tail",
        make=stored,
    ),
    Case(
        "verify_dataset",
        "`deep=True`",
        lambda s, z, g: api.verify_dataset(UUID, s, deep=True),
        "1 get_versioned, 1 contains, 1 list, T+H get, I+2*P*T tail",
        make=stored,
    ),
    Case(
        "store_dataframes_as_dataset",
        "new",
        lambda s, z, g: store_dataset(s, z, z.N),
        "2+T get_versioned, 2 contains, 1+N*T put, 1+T+I put_if",
    ),
    Case(
        "store_dataframes_as_dataset",
        "`overwrite=True`",
        lambda s, z, g: store_dataset(s, z, z.N, overwrite=True),
        "2+T get_versioned, 1 changed, 1+N*T put, 1+I put_if",
        "1+T get_versioned, 2 changed, 1+N*T put, 1+I put_if",
        make=stored,
    ),
    Case(
        "store_dataframes_as_dataset__iter",
        "new",
        lambda s, z, g: api.store_dataframes_as_dataset__iter(
            iter([element(z, z.N)]), s, UUID, partition_on="p", secondary_indices=indexed(z)
        ),
        "2+T get_versioned, 2 contains, 1+N*T put, 1+T+I put_if",
    ),
    Case(
        "create_empty_dataset_header",
        "with indices",
        lambda s, z, g: api.create_empty_dataset_header(
            s, UUID, element(z, 1), partition_on="p", secondary_indices=indexed(z)
        ),
        "2+T get_versioned, 2 contains, 1 put, 1+T+I put_if",
        where=has_index,
    ),
    Case(
        "create_empty_dataset_header",
        "without",
        lambda s, z, g: api.create_empty_dataset_header(s, UUID, element(z, 1), partition_on="p"),
        "1 list, 2+T get_versioned, 2 contains, 1 put, 1+T put_if",
    ),
    Case(
        "update_dataset_from_dataframes",
        WITH_SCOPE,
        lambda s, z, g: update(s, z),
        "2+T get_versioned, 1 changed, I tail, 1+N*T put, 1+I put_if",
        "1+T get_versioned, 2 changed, 1+N*T put, 1+I put_if",
        make=stored,
    ),
    Case(
        "update_dataset_from_dataframes",
        WITH_SCOPE,
        lambda s, z, g: update(s, z, delete_scope=[{"p": 0}]),
        "2+T get_versioned, 1 changed, I tail, 1+N*T put, 1+I put_if",
        "1+T get_versioned, 2 changed, 1+N*T put, 1+I put_if",
        make=stored,
    ),
    Case(
        "update_dataset_from_dataframes",
        "`metadata` only",
        lambda s, z, g: api.update_dataset_from_dataframes([], s, UUID, metadata={"a": 1}),
        "2+T get_versioned, 1 changed, 1 put, 1 put_if",
        "1+T get_versioned, 2 changed, 1 put, 1 put_if",
        make=stored,
    ),
    Case(
        "update_dataset_from_dataframes",
        "document in msgpack",
        lambda s, z, g: update(s, z),
        "2+T get_versioned, 1 changed, 1 contains, 1 get, I tail, 1+N*T put, 1+I put_if",
        "T get_versioned, 2 changed, 2 contains, 1 get, 1+N*T put, 1+I put_if",
        make=stored_msgpack,
    ),
    Case(
        "update_dataset_from_dataframes",
        "chosen labels",
        lambda s, z, g: api.update_dataset_from_dataframes([{"label": "a", "data": element(z, z.N)}], s, UUID),
        "2+T get_versioned, 1 changed, I tail, 1 put, 1+I+N*T put_if",
        "1+T get_versioned, 2 changed, 1 put, 1+I+N*T put_if",
        make=stored,
    ),
    Case(
        "update_dataset_from_dataframes",
        "published as Delta after each commit",
        lambda s, z, g: update(s, z),
        "2+T get_versioned, 1 changed, I tail, 1+N*T put, 1+I+T put_if, T list, T*H get",
        "1+T get_versioned, 2 changed, 1+N*T put, 1+I+T put_if, T ranges",
        make=published,
    ),
    Case(
        "publish_delta",
        "the first version",
        lambda s, z, g: api.publish_delta(UUID, s),
        "1 get_versioned, 2 changed, 1+T list, 1+T put_if",
        "3 changed, 1+T list, 1+T put_if",
        make=stored,
    ),
    Case(
        "publish_delta",
        "the newest state is published",
        lambda s, z, g: api.publish_delta(UUID, s),
        "1 get_versioned, 2 changed, 1+T list, T*H get",
        "3 changed, 1 list, T ranges",
        make=published,
    ),
    Case(
        "unpublish_delta",
        "",
        lambda s, z, g: api.unpublish_delta(UUID, s),
        "1 get_versioned, 1 changed, 1 put_if, 1+T list, T*H delete",
        "2 changed, 1 put_if, 1+T list, T*H delete",
        make=published,
    ),
    Case(
        "update_dataset_from_dataframes__iter",
        WITH_SCOPE,
        lambda s, z, g: api.update_dataset_from_dataframes__iter(iter([element(z, z.N, 100)]), s, UUID),
        "2+T get_versioned, 1 changed, I tail, 1+N*T put, 1+I put_if",
        "1+T get_versioned, 2 changed, 1+N*T put, 1+I put_if",
        make=stored,
    ),
    Case(
        "write_single_partition",
        "",
        lambda s, z, g: api.write_single_partition(s, UUID, element(z, z.N)),
        "1 get_versioned, N*T put",
        "1 changed, N*T put",
        make=stored,
    ),
    Case(
        "commit_dataset",
        "N staged partitions",
        lambda s, z, g: api.commit_dataset(s, UUID, g),
        "2+T get_versioned, 1 changed, I tail, 1 put, 1+I put_if",
        "1+T get_versioned, 2 changed, 1 put, 1+I put_if",
        make=staged,
    ),
    Case(
        "build_dataset_indices",
        "one column",
        lambda s, z, g: api.build_dataset_indices(s, UUID, ["x"]),
        "2+T get_versioned, 1 changed, P*T tail, 1 put, 2 put_if",
        "1+T get_versioned, 2 changed, P*T tail, 1 put, 2 put_if",
        make=stored,
    ),
    Case(
        "build_statistics",
        "every file has some",
        lambda s, z, g: api.build_statistics(UUID, s),
        "1 get_versioned",
        "1 changed",
        make=stored,
    ),
    Case(
        "build_statistics",
        "of one column, for all files",
        lambda s, z, g: api.build_statistics(UUID, s, ["x"]),
        "2+T get_versioned, 1 changed, P*T tail, 1 put, 1 put_if",
        "1+T get_versioned, 2 changed, P*T tail, 1 put, 1 put_if",
        make=stored_without_statistics,
    ),
    Case(
        "set_layout",
        "",
        lambda s, z, g: api.set_layout(UUID, s, compression="ZSTD"),
        "2+T get_versioned, 1 changed, 1 put, 1 put_if",
        "1+T get_versioned, 2 changed, 1 put, 1 put_if",
        make=stored,
    ),
    Case(
        "drop_columns",
        "",
        lambda s, z, g: api.drop_columns(UUID, s, "v1"),
        "2+T get_versioned, 1 changed, 1 put, 1+T put_if",
        "1+T get_versioned, 2 changed, 1 put, 1+T put_if",
        make=stored,
    ),
    Case(
        "compact_dataset",
        "nothing to do",
        lambda s, z, g: api.compact_dataset(UUID, s),
        "1 get_versioned",
        "1 changed",
        make=stored,
    ),
    Case(
        "compact_dataset",
        "K files each",
        lambda s, z, g: api.compact_dataset(UUID, s),
        "2+T get_versioned, 1 changed, I+P*K*T tail, 1 put, P*T put_file, 1+I put_if",
        "1+T get_versioned, 2 changed, P*K*T tail, 1 put, P*T put_file, 1+I put_if",
        make=stored_small,
    ),
    Case(
        "compact_dataset",
        "P files, `sort_by`",
        lambda s, z, g: api.compact_dataset(UUID, s, sort_by="v1"),
        "3 get_versioned, 1 changed, I+P tail, 1+P put, 1+I put_if",
        "2 get_versioned, 2 changed, P tail, 1+P put, 1+I put_if",
        make=stored,
        where=one_table,
    ),
    Case(
        "compact_dataset",
        "P files that are sorted",
        lambda s, z, g: api.compact_dataset(UUID, s, sort_by="v1"),
        "1 get_versioned, P tail",
        "1 changed, P tail",
        make=lambda s, z: stored(s, z) or api.compact_dataset(UUID, s, sort_by="v1"),
        where=one_table,
    ),
    *(
        Case(
            verb,
            "a row of each of P files",
            run,
            "3 get_versioned, 1 changed, I+P tail, 1+P put, 1+I put_if",
            "2 get_versioned, 2 changed, P tail, 1+P put, 1+I put_if",
            make=stored_pairs,
            where=one_table,
        )
        for verb, run in ROW_VERBS
    ),
    Case(
        "copy_dataset",
        "inside a store",
        lambda s, z, g: api.copy_dataset(UUID, s, "new"),
        "4+2*T get_versioned, 2 contains, 1 list, I+P*T copy, 1+T put_if",
        "3+2*T get_versioned, 1 changed, 2 contains, 1 list, I+P*T copy, 1+T put_if",
        make=stored,
    ),
    Case(
        "copy_dataset",
        "to another store: the source",
        lambda s, z, g: api.copy_dataset(UUID, s, target_store=MemoryStore()),
        "1 get_versioned, 1 list, I+P*T tail",
        "1 changed, 1 list, I+P*T tail",
        make=stored,
    ),
    Case(
        "copy_dataset",
        "to another store: the target",
        lambda s, z, g: api.copy_dataset(UUID, g, target_store=s),
        "3+2*T get_versioned, 2 contains, I+P*T put, 1+T put_if",
        make=lambda s, z: another(stored, z),
    ),
    Case(
        "rename_dataset",
        "",
        lambda s, z, g: api.rename_dataset(UUID, s, "new"),
        "10+2*T get_versioned, 1 changed, 2 contains, 2 list, 2 leftovers, I+P*T copy, 2+T put_if, 2+I+P*T+T+H delete",
        "9+2*T get_versioned, 2 changed, 2 contains, 2 list, 2 leftovers, I+P*T copy, 2+T put_if, 2+I+P*T+T+H delete",
        make=stored,
    ),
    Case(
        "convert_metadata_format",
        "",
        lambda s, z, g: api.convert_metadata_format(UUID, s, "msgpack"),
        "4 get_versioned, 2 changed, 2 contains, 2 put_if, 1 delete",
        "4 get_versioned, 3 changed, 2 contains, 2 put_if, 1 delete",
        make=stored,
    ),
    Case(
        "garbage_collect_dataset",
        "nothing to do",
        lambda s, z, g: api.garbage_collect_dataset(UUID, s),
        "1 get_versioned, H get, 1 list, 2 leftovers",
        "1 changed, H get, 1 list, 2 leftovers",
        make=stored,
    ),
    Case(
        "garbage_collect_dataset",
        "G files, no history kept",
        lambda s, z, g: api.garbage_collect_dataset(UUID, s, options=NOW),
        "1 get_versioned, 1 changed, H get, 3 list, 2 leftovers, G+H delete",
        "2 changed, H get, 3 list, 2 leftovers, G+H delete",
        make=with_garbage,
    ),
    Case(
        "tag_dataset",
        "",
        lambda s, z, g: api.tag_dataset(UUID, s, "tag"),
        "2 get_versioned, 1 changed, 1 put, 1 put_if",
        "1 get_versioned, 2 changed, 1 put, 1 put_if",
        make=stored,
    ),
    read(
        "list_dataset_tags",
        "H tags",
        lambda s, z, g: api.list_dataset_tags(UUID, s),
        "1 get_versioned, 1 list, H get",
        "1 changed, 1 list, H get",
        make=tagged,
    ),
    Case(
        "drop_dataset_tag",
        "",
        lambda s, z, g: api.drop_dataset_tag(UUID, s, "tag 0"),
        "3 get_versioned, 2 delete",
        "2 get_versioned, 1 changed, 2 delete",
        make=tagged,
    ),
    read(
        "read_table",
        "`as_of` a tag, however old",
        lambda s, z, g: api.read_table(UUID, s, as_of="tag 0"),
        "2 get_versioned, 1 get, P tail",
        "1 changed, 1 get_versioned, 1 get, P tail",
        make=tagged,
    ),
    read(
        "history",
        "",
        lambda s, z, g: api.history(UUID, s),
        "1 get_versioned, 1 list, H get",
        "1 changed, 1 list, H get",
    ),
    read(
        "read_table",
        "`as_of` the first of H commits",
        lambda s, z, g: api.read_table(UUID, s, as_of=g),
        "1 get_versioned, H get, P tail",
        "1 changed, H get, P tail",
        make=first_commit,
        where=lambda z: z.H > 1,
    ),
    read(
        "read_dataset_changes",
        "since before an append of N",
        lambda s, z, g: api.read_dataset_changes(UUID, s, g).read_all(),
        "1 get_versioned, 2 get, I contains, N tail",
        "1 changed, 2 get, I contains, N tail",
        make=before_append,
    ),
    Case(
        "undo",
        "an append of N",
        lambda s, z, g: api.undo(UUID, s),
        "2+T get_versioned, 1 changed, 2 get, I contains, I tail, 1 put, 1+I put_if",
        "1+T get_versioned, 2 changed, 2 get, I contains, 1 put, 1+I put_if",
        make=appended,
    ),
    Case(
        "stage_partitions",
        "",
        lambda s, z, g: api.stage_partitions(element(z, z.N), s, UUID),
        "1 get_versioned, N*T put",
        "1 changed, N*T put",
        make=stored,
    ),
    Case(
        "commit_receipts",
        "N staged partitions",
        lambda s, z, g: api.commit_receipts(g, s, UUID),
        "2+T get_versioned, 1 changed, I tail, 1 put, 1+I put_if",
        "1+T get_versioned, 2 changed, 1 put, 1+I put_if",
        make=staged_receipts,
    ),
    Case(
        "delete_dataset",
        "",
        lambda s, z, g: api.delete_dataset(UUID, s),
        "2 get_versioned, 1 list, 2 leftovers, 2+I+P*T+T+H delete",
        make=stored,
    ),
]


def another(make: Callable[[Any, Z], object], z: Z) -> MemoryStore:
    """A prepared store beside the counted one."""
    store = MemoryStore()
    make(store, z)
    return store


# --- cubes ----------------------------------------------------------------------------------------


def cube_of(z: Z) -> Cube:
    # The dimension column of the seed is indexed, too.
    return Cube(["x"], ["p"], "cube", index_columns=[f"i{n}" for n in range(z.I - 1)])


def frames(z: Z, count: int, start: int = 0) -> dict[str, pa.Table]:
    others = {f"e{d}": rows(count, 0, start).rename_columns(["x", "p", f"v{d}_"]) for d in range(1, z.D)}
    return {"seed": rows(count, z.I - 1, start), **others}


def extension(z: Z) -> dict[str, pa.Table]:
    return {f"n{d}": rows(z.N, 0).rename_columns(["x", "p", f"w{d}"]) for d in range(z.D)}


def built(s: Any, z: Z) -> None:
    """D datasets of P partitions after H commits each."""
    cube_api.build_cube(frames(z, z.P), cube_of(z), s)
    for n in range(1, z.H):
        for name in frames(z, 1):
            dataset_api.update_dataset_from_dataframes([], s, f"cube++{name}", metadata={"n": n})


def built_without_statistics(s: Any, z: Z) -> None:
    with options(statistics=False):
        built(s, z)


def built_with_statistics_files(s: Any, z: Z) -> None:
    with patch.object(statistics, "_MOST_INSIDE", 0):
        built(s, z)


def built_tagged(s: Any, z: Z) -> None:
    """H tags of the newest state."""
    built(s, z)
    for n in range(z.H):
        cube_api.tag_cube(cube_of(z), s, f"tag {n}")


def built_pairs(s: Any, z: Z) -> None:
    """P partitions of two rows in each dataset; `v1` tells the cells of one row from the others."""
    first, others = frames(z, z.P), frames(z, z.P, z.P)
    first["seed"] = changed_rows(z, first["seed"])
    cube_api.build_cube({name: pa.concat_tables([rows, others[name]]) for name, rows in first.items()}, cube_of(z), s)


def built_small(s: Any, z: Z) -> None:
    cube_api.build_cube(frames(z, z.P), cube_of(z), s)
    for n in range(1, z.K):
        cube_api.append_to_cube(frames(z, z.P, 100 * n), cube_of(z), s)


def built_and_appended(s: Any, z: Z) -> None:
    built(s, z)
    cube_api.append_to_cube(frames(z, z.N, 100), cube_of(z), s)


def built_with_garbage(s: Any, z: Z) -> None:
    built(s, z)
    for n in range(z.G):
        s.put(f"cube++seed/table/p=0/garbage{n}.parquet", b"")


def planned(s: Any, z: Z) -> cube_api.QueryPlan:
    built(s, z)
    return cube_api.plan_cube_query(cube_of(z), s)


def before_one_more(s: Any, z: Z) -> object:
    """What a plan noted before the seed got one more file, in a partition that it had."""
    noted = planned(s, z).commits
    cube_api.append_to_cube(frames(z, 1, 100)["seed"], cube_of(z), s)
    return noted


def changed(s: Any, z: Z) -> object:
    """The commits of a cube before K appends to each of its datasets."""
    built(s, z)
    commits = cube_api.plan_cube_query(cube_of(z), s).commits
    for n in range(1, z.K):
        cube_api.append_to_cube(frames(z, z.P, 100 * n), cube_of(z), s)
    return commits


def i0(z: Z) -> Any:
    return C("i0") == 0


def more_indices(z: Z) -> bool:
    return bool(z.I > 1)


def look(verb: str, note: str, run: Run, cold: str, warm: str = "", **more: Any) -> Case:
    return Case(verb, note, run, cold, warm, **{"make": built, **more}, again=True)


one, several, several_files = (lambda z: z.D == 1), (lambda z: z.D > 1), (lambda z: z.P > 1)
cubes = cube_api
PLANNED = ("D get_versioned, 1 list", "D changed, 1 list")
WALKED = ("D get_versioned, 2 list, D*H get", "D changed, 2 list, D*H get")
LOADED = ("D get_versioned, 1 list, D*P tail", "D changed, 1 list, D*P tail")
CUBE_CASES = [
    look("query_cube", "", lambda s, z, g: cubes.query_cube(cube_of(z), s), *LOADED),
    look(
        "query_cube",
        "condition or `partition_by` on an index",
        lambda s, z, g: cubes.query_cube(cube_of(z), s, i0(z)),
        "D get_versioned, 1 list, 1+D*P tail",
        LOADED[1],
        where=more_indices,
    ),
    look(
        "query_cube",
        "condition or `partition_by` on an index",
        lambda s, z, g: cubes.query_cube(cube_of(z), s, partition_by="i0"),
        "D get_versioned, 1 list, 1+D*P tail",
        LOADED[1],
        where=more_indices,
    ),
    look("query_cube_arrow", "", lambda s, z, g: cubes.query_cube_arrow(cube_of(z), s), *LOADED),
    look("iter_cube", "", lambda s, z, g: [*cubes.iter_cube(cube_of(z), s)], *LOADED),
    look("stream_cube", "", lambda s, z, g: cubes.stream_cube(cube_of(z), s).read_all(), *LOADED),
    look("scan_cube", "", lambda s, z, g: cubes.scan_cube("cube", s).collect(), *LOADED),
    look(
        "connect",
        "a statement",
        lambda s, z, g: select(cubes.connect(s), "cube"),
        "D get_versioned, 2 list, D*P tail",
        "D changed, 2 list, D*P tail",
    ),
    look("plan_cube_query", "", lambda s, z, g: cubes.plan_cube_query(cube_of(z), s), *PLANNED),
    look(
        "plan_cube_query",
        "condition on an index",
        lambda s, z, g: cubes.plan_cube_query(cube_of(z), s, i0(z)),
        "D get_versioned, 1 list, 1 tail",
        PLANNED[1],
        where=more_indices,
    ),
    look(
        "plan_cube_query",
        "`changed_since` one append to the seed",
        lambda s, z, g: cubes.plan_cube_query(cube_of(z), s, changed_since=g),
        "D get_versioned, 1 list, 2 get, I contains",
        "D changed, 1 list, 2 get, I contains",
        make=before_one_more,
    ),
    look(
        "query_cube_changes",
        "since before one more file of the seed",
        lambda s, z, g: cubes.query_cube_changes(cube_of(z), s, g).read_all(),
        "D get_versioned, 1 list, 2 get, I contains, 1+2*D tail",
        "D changed, 1 list, 2 get, I contains, 1+2*D tail",
        make=before_one_more,
    ),
    look("load_group", "one partition", lambda s, z, g: cubes.load_group(g.groups[0], s), "D tail", make=planned),
    look("run_plan", "", lambda s, z, g: cubes.run_plan(g, s).read_all(), "D*P tail", make=planned),
    look(
        "count_cube",
        "",
        lambda s, z, g: cubes.count_cube(cube_of(z), s),
        *PLANNED,
    ),
    look(
        "count_cube",
        "statistics in files",
        lambda s, z, g: cubes.count_cube(cube_of(z), s),
        "D get_versioned, 1 list, 1 tail",
        PLANNED[1],
        make=built_with_statistics_files,
        where=several_files,
    ),
    look(
        "count_cube",
        "no statistics",
        lambda s, z, g: cubes.count_cube(cube_of(z), s),
        "D get_versioned, 1 list, P tail",
        "D changed, 1 list, P tail",
        make=built_without_statistics,
    ),
    look("collect_stats", "", lambda s, z, g: cubes.collect_stats(cube_of(z), s), *PLANNED),
    look(
        "collect_stats",
        "statistics in files",
        lambda s, z, g: cubes.collect_stats(cube_of(z), s),
        "D get_versioned, 1 list, D tail",
        PLANNED[1],
        make=built_with_statistics_files,
        where=several_files,
    ),
    look(
        "collect_stats",
        "no statistics",
        lambda s, z, g: cubes.collect_stats(cube_of(z), s),
        "D get_versioned, 1+D list, D*P tail",
        "D changed, 1+D list, D*P tail",
        make=built_without_statistics,
    ),
    look(
        "describe_cube",
        "",
        lambda s, z, g: cubes.describe_cube("cube", s),
        "D get_versioned, 2 list",
        "D changed, 2 list",
    ),
    look(
        "describe_cube_changes",
        "all partitions",
        lambda s, z, g: cubes.describe_cube_changes(cube_of(z), s, g),
        "D get_versioned, 1 list, D*K get, I contains, D*P+2*D*K*P tail",
        "D changed, 1 list, D*K get, I contains, D*P+2*D*K*P tail",
        make=changed,
    ),
    look("list_cubes", "", lambda s, z, g: cubes.list_cubes(s), "1 list"),
    look("open_cube", "", lambda s, z, g: cubes.open_cube("cube", s), *PLANNED),
    look("discover_cube", "", lambda s, z, g: discover_api.discover_cube("cube", s), *PLANNED),
    look("discover_datasets", "", lambda s, z, g: discover_api.discover_datasets(cube_of(z), s), *PLANNED),
    look(
        "discover_datasets_unchecked", "", lambda s, z, g: discover_api.discover_datasets_unchecked("cube", s), *PLANNED
    ),
    look(
        "discover_ktk_cube_dataset_ids",
        "",
        lambda s, z, g: discover_api.discover_ktk_cube_dataset_ids("cube", s),
        "1 list",
    ),
    look(
        "verify_cube",
        "",
        lambda s, z, g: cubes.verify_cube(cube_of(z), s),
        "D get_versioned, D contains, 1+D list, D+D*H get, I tail",
    ),
    look(
        "verify_cube",
        "`deep=True`",
        lambda s, z, g: cubes.verify_cube(cube_of(z), s, deep=True),
        "D get_versioned, D contains, 1+D list, D+D*H get, I+4*D*P-2*P tail",
    ),
    look(
        "cube_report",
        "",
        lambda s, z, g: cubes.cube_report(cube_of(z), s),
        "D get_versioned, D contains, 2+D list, D+D*H get, I tail",
    ),
    look(
        "cube_report",
        "no statistics",
        lambda s, z, g: cubes.cube_report(cube_of(z), s),
        "D get_versioned, D contains, 2+D list, D+D*H get, I+D*P tail",
        make=built_without_statistics,
    ),
    look(
        "cube_report",
        "no statistics, `rows=False`",
        lambda s, z, g: cubes.cube_report("cube", s, rows=False),
        "D get_versioned, D contains, 2+D list, D+D*H get, I tail",
        make=built_without_statistics,
    ),
    Case(
        "publish_cube_delta",
        "the first versions",
        lambda s, z, g: cubes.publish_cube_delta(cube_of(z), s),
        "1+3*D list, D get_versioned, 3*D changed, 2*D put_if",
        "1+3*D list, 4*D changed, 2*D put_if",
        make=built,
    ),
    Case(
        "build_cube",
        "one dataset",
        lambda s, z, g: cubes.build_cube(frames(z, z.N), cube_of(z), s),
        "1 list, 1 get_versioned, 2 contains, 1+N put, 2+I put_if",
        where=one,
    ),
    Case(
        "build_cube",
        "several datasets",
        lambda s, z, g: cubes.build_cube(frames(z, z.N), cube_of(z), s),
        "1 list, 3*D get_versioned, 2*D contains, D+D*N put, 3*D-1+I put_if",
        where=several,
    ),
    Case(
        "build_cube",
        "`overwrite=True`, several",
        lambda s, z, g: cubes.build_cube(frames(z, z.N), cube_of(z), s, overwrite=True),
        "1 list, 3*D get_versioned, D changed, D+D*N put, 2*D-1+I put_if",
        "1 list, 2*D get_versioned, 2*D changed, D+D*N put, 2*D-1+I put_if",
        make=built,
        where=several,
    ),
    Case(
        "extend_cube",
        "one dataset, a cube of D",
        lambda s, z, g: cubes.extend_cube({"n0": extension(z)["n0"]}, cube_of(z), s),
        "1 list, 1+D get_versioned, 2 contains, 1+N put, 2 put_if",
        "1 list, 1 get_versioned, D changed, 2 contains, 1+N put, 2 put_if",
        make=built,
    ),
    Case(
        "extend_cube",
        "D datasets, a cube of D",
        lambda s, z, g: cubes.extend_cube(extension(z), cube_of(z), s),
        "1 list, 2+4*D get_versioned, 2 changed, 2*D contains, 1+D+D*N put, 1+3*D put_if",
        "1 list, 2+3*D get_versioned, 2+D changed, 2*D contains, 1+D+D*N put, 1+3*D put_if",
        make=built,
        where=several,
    ),
    Case(
        "append_to_cube",
        "one dataset, a cube of D",
        lambda s, z, g: cubes.append_to_cube(frames(z, z.N, 100)["seed"], cube_of(z), s),
        "1 list, 2+D get_versioned, 1 changed, I tail, 1+N put, 1+I put_if",
        "1 list, 2 get_versioned, 1+D changed, 1+N put, 1+I put_if",
        make=built,
    ),
    Case(
        "append_to_cube",
        "D datasets",
        lambda s, z, g: cubes.append_to_cube(frames(z, z.N, 100), cube_of(z), s),
        "1 list, 3*D get_versioned, D changed, I tail, D+D*N put, 2*D-1+I put_if",
        "1 list, 2*D get_versioned, 2*D changed, D+D*N put, 2*D-1+I put_if",
        make=built,
        where=several,
    ),
    Case(
        "update_cube",
        "D datasets",
        lambda s, z, g: cubes.update_cube(frames(z, z.N, 100), cube_of(z), s, C("p") == 0),
        "1 list, 3*D get_versioned, D changed, I tail, D+D*N put, 2*D-1+I put_if",
        "1 list, 2*D get_versioned, 2*D changed, D+D*N put, 2*D-1+I put_if",
        make=built,
        where=several,
    ),
    Case(
        "remove_partitions",
        "D datasets",
        lambda s, z, g: cubes.remove_partitions(cube_of(z), s, C("p") == 0),
        "1 list, 3*D get_versioned, D changed, I tail, D put, 2*D-1+I put_if",
        "1 list, 2*D get_versioned, 2*D changed, D put, 2*D-1+I put_if",
        make=built,
        where=several,
    ),
    Case(
        "delete_cells",
        "a cell of each of P partitions, D datasets",
        lambda s, z, g: cubes.delete_cells(cube_of(z), s, C("v1") > 1.0),
        "1 list, 3*D get_versioned, D changed, I+D*P tail, D+D*P put, 2*D-1+I put_if",
        "1 list, 2*D get_versioned, 2*D changed, D*P tail, D+D*P put, 2*D-1+I put_if",
        make=built_pairs,
        where=several,
    ),
    look("cube_history", "", lambda s, z, g: cubes.cube_history("cube", s), *WALKED),
    Case(
        "undo_cube",
        "an append of N, D datasets",
        lambda s, z, g: cubes.undo_cube("cube", s),
        "1 list, 3*D get_versioned, D changed, 2*D get, I contains, I tail, D put, 2*D-1+I put_if",
        "1 list, 2*D get_versioned, 2*D changed, 2*D get, I contains, D put, 2*D-1+I put_if",
        make=built_and_appended,
        where=several,
    ),
    Case(
        "build_cube_index",
        "a column of one dataset",
        lambda s, z, g: cubes.build_cube_index(cube_of(z), s, "v1"),
        "1 list, 2+D get_versioned, 1 changed, P tail, 1 put, 2 put_if",
        "1 list, 2 get_versioned, 1+D changed, P tail, 1 put, 2 put_if",
        make=built,
    ),
    Case(
        "drop_cube_index",
        "a column of one dataset",
        lambda s, z, g: cubes.drop_cube_index(cube_of(z), s, "i0"),
        "1 list, 2+D get_versioned, 1 changed, 1 put, 1 put_if",
        "1 list, 2 get_versioned, 1+D changed, 1 put, 1 put_if",
        make=built,
        where=more_indices,
    ),
    Case("compact_cube", "nothing to do", lambda s, z, g: cubes.compact_cube(cube_of(z), s), *PLANNED, make=built),
    Case(
        "compact_cube",
        "K files each, several datasets",
        lambda s, z, g: cubes.compact_cube(cube_of(z), s),
        "1 list, 3*D get_versioned, D changed, I+D*P*K tail, D+D*P put, D+I put_if",
        "1 list, 2*D get_versioned, 2*D changed, D*P*K tail, D+D*P put, D+I put_if",
        make=built_small,
        where=several,
    ),
    Case(
        "copy_cube",
        "the source",
        lambda s, z, g: cubes.copy_cube(cube_of(z), s, MemoryStore()),
        "1+D list, 1 contains, D get_versioned, I+D*P tail",
        "1+D list, 1 contains, D changed, I+D*P tail",
        make=built,
    ),
    Case(
        "copy_cube",
        "the target",
        lambda s, z, g: cubes.copy_cube(cube_of(z), g, s),
        "1 list, 1 delete, 4*D get_versioned, 2*D contains, 1+I+D*P put, 2*D put_if",
        make=lambda s, z: another(built, z),
    ),
    Case(
        "tag_cube",
        "",
        lambda s, z, g: cubes.tag_cube(cube_of(z), s, "tag"),
        "1 list, 3*D-1 get_versioned, D changed, D-1 get, D put, D put_if",
        "1 list, 2*D-1 get_versioned, 2*D changed, D-1 get, D put, D put_if",
        make=built,
    ),
    look(
        "list_cube_tags",
        "H tags",
        lambda s, z, g: cubes.list_cube_tags(cube_of(z), s),
        "1 get_versioned, 1 list, H get",
        "1 changed, 1 list, H get",
        make=built_tagged,
    ),
    Case(
        "drop_cube_tag",
        "",
        lambda s, z, g: cubes.drop_cube_tag(cube_of(z), s, "tag 0"),
        "3+D get_versioned, 2*D delete",
        "2+D get_versioned, 1 changed, 2*D delete",
        make=built_tagged,
    ),
    look(
        "plan_cube_query",
        "`as_of` a tag, however old",
        lambda s, z, g: cubes.plan_cube_query(cube_of(z), s, as_of="tag 0"),
        "1 list, 1+D get_versioned, D get",
        "1 list, 1 get_versioned, D changed, D get",
        make=built_tagged,
    ),
    Case(
        "cleanup_cube",
        "nothing to do",
        lambda s, z, g: cubes.cleanup_cube(cube_of(z), s),
        "1 list, D get_versioned, D*H get, 1 leftovers",
        "1 list, D changed, D*H get, 1 leftovers",
        make=built,
    ),
    Case(
        "cleanup_cube",
        "G files, no history kept",
        lambda s, z, g: cubes.cleanup_cube(cube_of(z), s, options=NOW),
        "3+D list, D get_versioned, D changed, D*H get, 1 leftovers, G+D*H delete",
        "3+D list, 2*D changed, D*H get, 1 leftovers, G+D*H delete",
        make=built_with_garbage,
    ),
    Case(
        "delete_cube",
        "",
        lambda s, z, g: cubes.delete_cube(cube_of(z), s),
        "1+D list, 2*D get_versioned, 2*D leftovers, 3*D+D*P+D*H+I delete",
        make=built,
    ),
]
