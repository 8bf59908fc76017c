"""Writes in dask: rows are staged in tasks, and one last task commits, once however often it runs.

In order:

- a write to a dataset
- a write to a cube
- the shuffle: all rows of a partition and bucket in one task
- frames of dask
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from math import ceil
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
from msgspec.structs import replace

from kartothek_cube.core.arguments import as_list, converter_str_set_optional
from kartothek_cube.core.arrow.difference import row_hashes
from kartothek_cube.core.arrow.keys import group_starts
from kartothek_cube.core.arrow.pandas import concat_blocks, plain_frame, to_table
from kartothek_cube.core.arrow.types import unify
from kartothek_cube.core.commit.dataset_write import DatasetWrite
from kartothek_cube.core.dataset.reference import DatasetRef
from kartothek_cube.core.dataset.write import StagedPartitions, merge_staged
from kartothek_cube.core.kartothek.dataset_metadata import DatasetMetadata
from kartothek_cube.core.metadata.naming import new_id
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.scan.plan import without_files
from kartothek_cube.core.snapshots.loader import find_snapshot
from kartothek_cube.core.stores.contract import Store, check_store_can_commit
from kartothek_cube.core.stores.open import open_instrumented, store_factory
from kartothek_cube.core.stores.shipping import Opener
from kartothek_cube.core.write.input_rows import InputPartition
from kartothek_cube.core.write.layout import NO_LAYOUT, DatasetLayout
from kartothek_cube.core.write.prepare import (
    DerivedColumn,
    Schemas,
    WriteRequest,
    check_final,
    prepare,
    with_derived,
)
from kartothek_cube.core.write.stage import Receipt, stage_data
from kartothek_cube.cube.cube import Cube
from kartothek_cube.cube.members import existing_for_build, load_cube
from kartothek_cube.cube.write.commit import publish
from kartothek_cube.cube.write.plan import (
    Block,
    CubeWrite,
    check_duplicates,
    check_not_empty,
    check_stays_filled,
    concat,
    read_input,
)
from kartothek_cube.cube.write.stage import stage_table
from kartothek_cube.dask.tasks import BaseState, id_of, landed, task
from kartothek_cube.errors import CommitConflict, InvalidInput, InvalidType, UnknownColumn
from kartothek_cube.typing import StoreLike

if TYPE_CHECKING:
    from dask.dataframe import DataFrame


# --- a write to a dataset -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Planner:
    """Plans a write to a dataset for any state of it."""

    plan: Callable[..., WriteRequest]
    uuid: str
    arguments: tuple[object, ...]

    def __call__(self, base: Snapshot | None) -> WriteRequest:
        return self.plan(self.uuid, base, *self.arguments)


@dataclass(frozen=True, slots=True)
class DatasetTarget:
    """A write to a dataset, for tasks: arguments, and no partitions.

    Attributes
    ----------
    verb : str
        The function that was called.
    store, uuid : Opener, str
        The dataset.
    base : BaseState | None
        The state from which the write began.
    plan : Callable
        Plans the write for a state of the dataset.
    request : WriteRequest
        The plan for the state of the begin, without partitions.
    metadata, merger, on_conflict, txn : object
        As in the eager verbs.
    creates : bool
        Whether the write makes the dataset.
    id : str
        The id of the commit.
    """

    verb: str
    store: Opener
    uuid: str
    base: BaseState | None
    plan: Planner
    request: WriteRequest
    metadata: Any = None
    merger: Any = None
    on_conflict: str = "raise"
    txn: Any = None
    creates: bool = False
    id: str = field(default_factory=new_id)

    @classmethod
    def begin(
        cls,
        verb: str,
        given: StoreLike | None,
        source: DatasetRef,
        plan: Planner,
        **arguments: Any,
    ) -> DatasetTarget:
        """Read the present state, and check the arguments against it."""
        named: dict[str, Any] = {name: arguments.get(name) for name in ("metadata", "merger", "txn")}
        rule, creates = arguments.get("on_conflict", "raise"), bool(arguments.get("creates"))
        scope = arguments.get("delete_scope")
        write = DatasetWrite.begin(
            source.store, source.uuid, named["metadata"], named["merger"], rule, delete_scope=scope, txn=named["txn"]
        )
        request, base = plan(write.base), None if write.base is None else BaseState.of(write.base)
        stub = None if write.base is None or request.replace else without_files(write.base)
        opener = store_factory(source.store.inner if given is None and hasattr(source.store, "inner") else given)
        request = replace(request, base=stub)
        return cls(verb, opener, source.uuid, base, plan, request, **named, on_conflict=rule, creates=creates)

    def buckets(self, num_buckets: int, by: Collection[str]) -> DatasetTarget:
        """The write with these buckets on record."""
        return dataclasses.replace(
            self, request=replace(self.request, layout=recorded(self.request.layout, num_buckets, by))
        )

    def check(self, table: str, columns: pa.Schema) -> None:
        """Raise what the eager verb raises for rows of these types."""
        schemas = Schemas(self.request)
        schemas.add(prepare(self.request, InputPartition(new_id(), {table: columns.empty_table()})).schemas)
        check_final(self.request, schemas.tables)


def stage_items(target: DatasetTarget, items: Sequence[object]) -> StagedPartitions:
    """In a task: the files of some items of rows, which no commit names yet."""
    staged = stage_data(open_instrumented(target.store), target.request, list(items))
    keys = target.request.partition_on
    return StagedPartitions(target.uuid, staged.receipts, keys, staged.request.index_columns)


def stage_frame(target: DatasetTarget, table: str, frame: pd.DataFrame) -> StagedPartitions:
    """In a task: the files of one partition of a frame of dask."""
    return stage_items(target, [{table: frame}])


def commit_staged(target: DatasetTarget, scope: object, staged: Sequence[StagedPartitions]) -> DatasetMetadata:
    """In the last task: one commit of all files; it is there already if the task runs again."""
    with operation(target.verb, None):
        store = open_instrumented(target.store)
        newest = find_snapshot(store, target.uuid)
        done = landed(target.id, newest)
        if done is not None:
            return DatasetMetadata.of(done)
        scopes = as_list(scope, "delete_scope")
        write = DatasetWrite.begin(
            store,
            target.uuid,
            target.metadata,
            target.merger,
            target.on_conflict,
            creates=target.creates,
            txn=target.txn,
        )
        if write.skipped is not None:
            return DatasetMetadata.of(write.skipped)
        removes = bool(scopes) or target.creates
        base = None if target.base is None else target.base.find(store, write.base, target.uuid, removes=removes)
        write = replace(write, base=base, id=target.id).removing(scopes)
        request = replace(target.plan(base), layout=target.request.layout)
        return DatasetMetadata.of(write.commit(merge_staged(store, request, [s for s in staged if s.receipts])))


# --- a write to a cube ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CubeTarget:
    """A write to a cube, for tasks: arguments, and no partitions.

    Attributes
    ----------
    verb : str
        The function that was called.
    cube, store : Cube, Opener
        The cube.
    names : frozenset of str
        The datasets that the rows may be of.
    bases : Mapping[str, BaseState]
        The states from which the write began.
    existing : Mapping[str, Snapshot]
        The same without partitions, by which tasks check rows.
    plan : Callable
        Plans the write from the columns of its rows and the states of the datasets.
    builds, adds : bool
        Whether the write makes the cube, or adds to the datasets that there are.
    id : str
        From which the ids of the commits are made.
    """

    verb: str
    cube: Cube
    store: Opener
    names: frozenset[str]
    bases: Mapping[str, BaseState]
    existing: Mapping[str, Snapshot]
    plan: Callable[..., CubeWrite]
    builds: bool = False
    adds: bool = False
    id: str = field(default_factory=new_id)

    @classmethod
    def begin(
        cls,
        verb: str,
        cube: Cube,
        store: StoreLike,
        names: Iterable[str] | None,
        plan: Callable[..., CubeWrite],
        *,
        builds: bool = False,
        adds: bool = False,
    ) -> CubeTarget:
        """Read the present state of the cube, and check the arguments against it."""
        opener = store_factory(store)
        opened = open_instrumented(opener)
        check_store_can_commit(opened)
        given = frozenset(converter_str_set_optional(names) or ())
        members = existing_for_build(cube, opened) if builds else load_cube(cube, opened)
        if adds and given - members.keys():
            raise InvalidInput(f"Unknown / non-existing datasets: {', '.join(sorted(given - members.keys()))}")
        bases = {i: BaseState.of(snapshot) for i, snapshot in members.items()}
        stubs = {i: without_files(snapshot) for i, snapshot in members.items()}
        return cls(verb, cube, opener, given, bases, stubs, plan, builds, adds)

    def states(self, store: Store) -> dict[str, Snapshot]:
        """The newest states of the datasets."""
        return existing_for_build(self.cube, store) if self.builds else load_cube(self.cube, store)


@dataclass(frozen=True, slots=True)
class StagedBlock:
    """What a task staged of a cube: columns and receipts by dataset."""

    schemas: Mapping[str, pa.Schema]
    receipts: Mapping[str, Sequence[Receipt]]


def stage_element(target: CubeTarget, element: object) -> StagedBlock:
    """In a task: the files of one element of a bag: a frame, a dict dataset → frame, or None."""
    if element is None:
        return StagedBlock({}, {})
    data = read_input([element], target.cube)
    return stage_blocks(target, [*data.blocks, *(data.rest or ())])


def stage_blocks(target: CubeTarget, blocks: Sequence[Block]) -> StagedBlock:
    """In a task: checked rows of some datasets, staged."""
    unknown = sorted({name for name, _ in blocks} - target.names)
    if unknown:
        raise InvalidInput(
            f'Ktk_cube Dataset ID "{unknown[0]}" is present during pipeline execution but was not specified in '
            f"ktk_cube_dataset_ids ({', '.join(sorted(target.names))})."
        )
    # An empty block has columns, but its types say nothing.
    tables = concat([block for block in blocks if block[1] is not None])
    if not tables:
        return StagedBlock({}, {})
    write, store = target.plan({i: t.schema for i, t in tables.items()}, target.existing, more=True), open_instrumented
    opened = store(target.store)
    filled = {i: t for i, t in tables.items() if t.num_rows}
    receipts = {i: stage_table(opened, write.datasets[i], table) for i, table in filled.items()}
    return StagedBlock({i: write.datasets[i].schema for i in tables}, receipts)


def commit_blocks(target: CubeTarget, staged: Sequence[StagedBlock]) -> dict[str, DatasetMetadata]:
    """In the last task: one write of all files, which is there already if the task runs again."""
    with operation(target.verb, None, cube=target.cube):
        store = open_instrumented(target.store)
        newest = target.states(store)
        done = {i: landed(id_of(target.id, i), s) for i, s in newest.items()}
        if any(done.values()):
            return DatasetMetadata.of_each({i: s for i, s in done.items() if s is not None})
        if target.adds and not staged:
            return {}
        existing = {
            i: b.find(store, newest.get(i), target.cube.ktk_dataset_uuid(i), removes=True)
            for i, b in target.bases.items()
        }
        write = target.plan(_schemas(staged), existing)
        receipts = {i: [r for block in staged for r in block.receipts.get(i, ())] for i in write.datasets}
        check_not_empty(write, receipts)
        check_stays_filled(write, receipts)
        for name, files in receipts.items():
            check_duplicates(store, write.datasets[name], files)
            _check_indexed(write, name, files)
        changes = {i: replace(write.change(i, receipts[i]), commit=id_of(target.id, i)) for i in write.datasets}
        return DatasetMetadata.of_each(publish(store, write.cube, changes, write.bases))


def _schemas(staged: Iterable[StagedBlock]) -> dict[str, pa.Schema]:
    """The columns of each dataset, with types that hold the rows of all blocks."""
    found: dict[str, list[pa.Schema]] = {}
    for block in staged:
        # Of a dataset without rows any block tells the columns.
        for name, schema in block.schemas.items():
            found.setdefault(name, []).append(schema)
    for name, schemas in found.items():
        if len({frozenset(schema.names) for schema in schemas}) > 1:
            raise InvalidInput(f"Not all DataFrames have the same set of columns! (dataset {name!r})")
    return {name: unify(schemas, f"the blocks of dataset {name!r}") for name, schemas in found.items()}


def _check_indexed(write: CubeWrite, name: str, receipts: Sequence[Receipt]) -> None:
    wanted = set(write.datasets[name].request.index_columns)
    if any(wanted - receipt.entries.keys() for receipt in receipts):
        raise CommitConflict(
            f"Dataset {name!r} of the cube {write.cube.uuid_prefix!r} got an index while rows were written. Nothing of "
            "the write is visible. Make it again."
        )


# --- the shuffle ----------------------------------------------------------------------------------


_BUCKET = "__KTK_HASH_BUCKET"
# Rows travel as Arrow messages: dask would convert and compare every value. Columns of objects are
# moved without a copy, but cannot go through the disks of workers.
_BYTES = pd.ArrowDtype(pa.large_binary())
_COLUMNS = ("task", "block", "rows")


def _messages_of(found: Sequence[tuple[int, int, bytes]], dtype: Any) -> pd.DataFrame:
    types = ("int64", "int64", dtype)
    columns = zip(*found, strict=True) if found else ((), (), ())
    return pd.DataFrame({c: pd.Series(v, dtype=t) for c, v, t in zip(_COLUMNS, columns, types, strict=True)})


# dask spreads these by their hashes, so that several for each task are more even than one.
_MESSAGES_PER_TASK = 8
# NumPy sorts 16-bit integers by radix, which is many times as fast.
_COUNTED = 2**16


@dataclass(frozen=True, slots=True)
class Buckets:
    """How a shuffle spreads rows over files.

    Attributes
    ----------
    number : int
        Files for each combination of partition values.
    by : tuple of str
        The columns whose hash is the bucket; none: all rows of a partition are in one.
    tasks : int
        The number of tasks after the shuffle.
    """

    number: int
    by: tuple[str, ...]
    tasks: int

    @property
    def messages(self) -> int:
        """In how many parts each block of rows is cut, at most."""
        return self.tasks * _MESSAGES_PER_TASK


def check_buckets(
    num_buckets: object, bucket_by: object, columns: Collection[str], dataset: str
) -> tuple[int, list[str]]:
    """The arguments ``num_buckets`` and ``bucket_by`` of a shuffle.

    Raises
    ------
    InvalidInput
        For a number below one, or None.
    UnknownColumn
        For a column that the rows do not have.
    """
    if isinstance(num_buckets, bool) or not isinstance(num_buckets, Integral) or num_buckets < 1:
        raise InvalidInput(
            f"num_buckets={num_buckets!r} is no positive number; ``num_buckets`` must not be None when shuffling data."
        )
    by = [str(c) for c in as_list(bucket_by, "bucket_by")]
    missing = sorted(set(by) - set(columns))
    if missing:
        raise UnknownColumn(
            f"bucket_by names columns that dataset {dataset!r} does not have: {', '.join(missing)}. "
            f"It has {list(columns)}."
        )
    if _BUCKET in columns:
        raise InvalidInput(
            f"Column {_BUCKET!r} of dataset {dataset!r} has the name under which rows carry their bucket. Rename it."
        )
    return int(num_buckets), by


def check_ratio(ratio: object, npartitions: int) -> int:
    """The number of partitions after ``repartition_ratio``."""
    if ratio is None:
        return npartitions
    if isinstance(ratio, bool) or not isinstance(ratio, Real):
        raise InvalidType(
            f"repartition_ratio is a number, by which the number of partitions is divided, not {ratio!r}."
        )
    if not float(ratio) > 0:
        raise InvalidInput(f"repartition_ratio={ratio!r} is not above zero; the number of partitions is divided by it.")
    return max(1, ceil(npartitions / float(ratio)))


def recorded(layout: DatasetLayout, num_buckets: int, by: Collection[str]) -> DatasetLayout:
    """A layout with these buckets, if there are several."""
    return layout if num_buckets == 1 else dataclasses.replace(layout, num_buckets=num_buckets, bucket_by=tuple(by))


def split(
    dataset: str,
    keys: Sequence[str],
    derived: Iterable[DerivedColumn],
    buckets: Buckets,
    dtype: object,
    block: int,
    frame: Any,
) -> pd.DataFrame:
    """In a task: rows as messages, each with those of some partitions and buckets."""
    rows = to_table(plain_frame(frame, dataset) if isinstance(frame, pd.DataFrame) else frame, dataset)
    rows = with_derived(rows, derived, dataset)
    together = tuple(keys)
    if buckets.number > 1:
        number = row_hashes(rows, buckets.by) % np.uint64(buckets.number)
        rows, together = rows.append_column(_BUCKET, pa.array(number)), (*together, _BUCKET)
    tasks = (row_hashes(rows, together) % np.uint64(buckets.messages)).astype(np.int64)
    # One copy of all rows, in which each message is a slice.
    order = np.argsort(tasks.astype(np.uint16) if buckets.messages <= _COUNTED else tasks, kind="stable")
    rows, tasks = rows.take(pa.array(order)).combine_chunks(), tasks[order]
    starts = group_starts(tasks).tolist() if rows.num_rows else []
    found = []
    for start, end in pairwise([*starts, rows.num_rows]):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows.slice(start, end - start))
        found.append((int(tasks[start]), block, sink.getvalue().to_pybytes()))
    return _messages_of(found, dtype)


def unpacked(dataset: str, messages: pd.DataFrame) -> list[pa.Table]:
    """In a task: the rows of each bucket, in the order of their blocks."""
    ordered = messages.sort_values(["task", "block"])
    tables = [pa.ipc.open_stream(pa.py_buffer(message)).read_all() for message in ordered["rows"]]
    if not tables:
        return []
    rows = concat_blocks(tables, dataset)
    if _BUCKET not in rows.column_names:
        return [rows]
    number = rows.column(_BUCKET).to_numpy()
    order = np.argsort(number, kind="stable")
    starts = group_starts(number[order])
    rows = rows.drop_columns([_BUCKET])
    return [rows.take(pa.array(positions)) for positions in np.split(order, starts[1:])]


def stage_shuffled(target: DatasetTarget, table: str, messages: pd.DataFrame) -> StagedPartitions:
    """In a task: one file for each combination of partition values and bucket."""
    return stage_items(target, [{table: rows} for rows in unpacked(target.uuid, messages)])


def stage_shuffled_block(target: CubeTarget, name: str, messages: pd.DataFrame) -> StagedBlock:
    """The same for a dataset of a cube."""
    staged = [stage_blocks(target, [(name, rows)]) for rows in unpacked(name, messages)]
    receipts = [receipt for block in staged for receipt in block.receipts[name]]
    return StagedBlock(_schemas(staged), {name: receipts} if staged else {})


# --- frames of dask -------------------------------------------------------------------------------


def check_ddf(frame: object, dataset: object) -> DataFrame:
    """The frame of dask.

    Raises
    ------
    InvalidType
        If it is anything else.
    """
    from dask.dataframe import DataFrame

    if not isinstance(frame, DataFrame):
        raise InvalidType(
            f"Expected a frame of dask for dataset {dataset!r}; got {type(frame).__name__}. "
            "dask.dataframe.from_pandas makes one of a frame of pandas."
        )
    return frame


def schema_of(frame: DataFrame, known: Mapping[str, pa.DataType] | None, dataset: str) -> pa.Schema:
    """The columns of a frame of dask, as far as dask knows their types.

    Columns of objects may be anything: they get the type that the dataset has, or text.
    """
    meta = frame._meta  # noqa: SLF001 - dask has no other name for it
    schema = to_table(plain_frame(meta.iloc[:0], dataset), dataset).schema
    types = {**dict.fromkeys(schema.names, pa.string()), **(known or {})}
    return pa.schema(
        [f.with_type(types[f.name]) if pa.types.is_null(f.type) and not _is_null(meta, f.name) else f for f in schema]
    )


def _is_null(meta: pd.DataFrame, name: str) -> bool:
    dtype = meta.dtypes.get(name)
    return isinstance(dtype, pd.ArrowDtype) and pa.types.is_null(dtype.pyarrow_dtype)


def shuffled(
    frame: DataFrame, dataset: str, keys: Sequence[str], derived: Iterable[DerivedColumn], buckets: Buckets
) -> list[Any]:
    """Lazy messages of the rows, by task."""
    import dask
    import dask.dataframe as dd

    method = _method()
    dtype = _BYTES if method == "p2p" else object
    cut = [
        task("split", partial(split, dataset, tuple(keys), derived, buckets, dtype, i), part)
        for i, part in enumerate(frame.to_delayed())
    ]
    # dask would turn columns of objects into text.
    with dask.config.set({"dataframe.convert-string": False}):
        messages = dd.from_delayed(cut, meta=_messages_of([], dtype), verify_meta=False)
        spread = messages.shuffle("task", npartitions=buckets.tasks, ignore_index=True, shuffle_method=method)
        return list(spread.to_delayed())


def _method() -> str:
    """Through the disks of workers where there is a cluster, else as tasks."""
    import dask

    chosen = dask.config.get("dataframe.shuffle.method", None)
    if chosen is not None:
        return str(chosen)
    try:
        from distributed import default_client

        default_client()
    except (ImportError, ValueError):
        return "tasks"
    return "p2p"


def buckets_on_record(
    num_buckets: object, bucket_by: object, layout: DatasetLayout = NO_LAYOUT
) -> tuple[object, object]:
    """The arguments ``num_buckets`` and ``bucket_by``; if they say nothing, what is on record."""
    if num_buckets != 1 or bucket_by is not None or layout.num_buckets is None:
        return num_buckets, bucket_by
    return layout.num_buckets, list(layout.bucket_by) or None
