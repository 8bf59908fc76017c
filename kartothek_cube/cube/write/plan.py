"""A write to several datasets of a cube as one value, planned and checked from schemas.

In order:

- rows of one dataset: checked, sorted, split
- data, ``partition_on`` and ``metadata`` in one form each
- deleted cells: rows of the seed, and of enrichments that no other cell shows
- cells that two files of one write share: only files whose ranges overlap are read
- the plan
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from msgspec import Struct, field
from msgspec.structs import replace

from kartothek_cube.core.arguments import converter_str, converter_str_tupleset, drop_or_fill, pluralize
from kartothek_cube.core.arrow.keys import IntArray, KeyIndex, Spill, ascends, pack, pack_one, take_rows
from kartothek_cube.core.arrow.pandas import concat_blocks, is_block, null_count, to_table
from kartothek_cube.core.arrow.types import ordered, unify
from kartothek_cube.core.commit.change import Change, OnConflict
from kartothek_cube.core.expressions.conditions import C, Condition, Conjunction
from kartothek_cube.core.io.formats import AdaptiveParquetFormat, FileFormat
from kartothek_cube.core.io.reader import FileRequest, open_rows, read_rows
from kartothek_cube.core.metadata.commit_log import Txn, is_applied
from kartothek_cube.core.metadata.document import check_user_metadata, dataset_schema
from kartothek_cube.core.metadata.index import index_type
from kartothek_cube.core.metadata.naming import SINGLE_TABLE, data_key, index_key
from kartothek_cube.core.metadata.snapshot import (
    KTK_CUBE_METADATA_DIMENSION_COLUMNS,
    KTK_CUBE_METADATA_KEY_IS_SEED,
    KTK_CUBE_METADATA_PARTITION_COLUMNS,
    Snapshot,
)
from kartothek_cube.core.rows.edits import MergeRows, MergeSource, rewrite_spec
from kartothek_cube.core.rows.merge import MergeRules, merge_search
from kartothek_cube.core.rows.run import RowsPlan, RowsSearch, StagedRows, check_seed_stays, plan_rows, stored_files
from kartothek_cube.core.runtime.executor import THREADS, map_in_threads
from kartothek_cube.core.runtime.options import current_options
from kartothek_cube.core.runtime.options import options as overrides
from kartothek_cube.core.scan.plan import partition_mask
from kartothek_cube.core.stores.contract import Store, check_key
from kartothek_cube.core.write.input_rows import chunk_bytes, is_lazy, is_stream, open_stream, stream_blocks
from kartothek_cube.core.write.layout import NO_LAYOUT, DatasetLayout, StageRequest, layout_of
from kartothek_cube.core.write.plan import layout_of_call
from kartothek_cube.core.write.prepare import PartitionRows, check_partition_types, refuse_derived, split_rows
from kartothek_cube.core.write.stage import Receipt
from kartothek_cube.cube.consistent_read import DatasetInfo, check_infos, check_members, infos_of
from kartothek_cube.cube.cube import (
    KTK_CUBE_COMPRESSION,
    KTK_CUBE_METADATA_SUPPRESS_INDEX_ON,
    Cube,
    check_dataset_ids,
    get_payload_subset,
    partition_clauses,
    partition_conditions,
    require_cube,
    visible_columns,
)
from kartothek_cube.cube.execute.run import iter_groups
from kartothek_cube.cube.query.intention import QueryArguments
from kartothek_cube.cube.query.planning import plan_members
from kartothek_cube.errors import (
    AlreadyExists,
    InvalidInput,
    InvalidType,
    KartothekCubeError,
    MultiTableCommitAborted,
    Unsupported,
)
from kartothek_cube.typing import Executor, IntoConditions

REPLACE_OR_APPEND = "Say overwrite=True to replace it, or call append_to_cube to add rows."
"""What to do about a dataset that is there already."""

_FORMAT = AdaptiveParquetFormat(KTK_CUBE_COMPRESSION)


class MemberWrite(Struct, frozen=True):
    """How rows of one dataset of a cube are checked and stored. Picklable, for Spark tasks.

    Attributes
    ----------
    id : str
        The dataset.
    schema : pyarrow.Schema
        The columns of the rows, in stored types.
    dimensions : tuple of str
        The cube's dimension columns among them.
    sort_columns : tuple of str
        The cube's partition and dimension columns among them. Rows are sorted by these and are
        distinct in them.
    null_free : tuple of (str, str)
        Columns without nulls, each with the word for its role.
    request : StageRequest
        How the files are staged.
    layout : DatasetLayout
        What the call says about files, and what is on record where the call says nothing. An order
        on record is that of compactions: new files are sorted by cell.
    """

    id: str
    schema: pa.Schema
    dimensions: tuple[str, ...]
    sort_columns: tuple[str, ...]
    null_free: tuple[tuple[str, str], ...]
    request: StageRequest
    layout: DatasetLayout = NO_LAYOUT


def make_write(
    cube: Cube,
    name: str,
    schema: pa.Schema,
    partition_on: tuple[str, ...],
    serializer: FileFormat | None = None,
    indexed: Collection[str] | None = None,
    on_record: DatasetLayout = NO_LAYOUT,
) -> MemberWrite:
    """How a dataset with these columns is written.

    If the dataset exists already, ``indexed`` are its columns with an index, ``on_record`` its
    layout.
    """
    columns, uuid = set(schema.names), cube.ktk_dataset_uuid(name)
    dims = tuple(c for c in cube.dimension_columns if c in columns)
    for column in dims:
        if pa.types.is_nested(schema.field(column).type):
            raise InvalidType(
                f"Dimension column {column!r} of dataset {name!r} is {schema.field(column).type}; "
                "a cell needs values that can be sorted."
            )
    if indexed is None:
        indexed = (cube.index_columns & columns) - set(partition_on)
        if name == cube.seed_dataset:
            indexed |= set(dims) - cube.suppress_index_on - set(partition_on)
    secondary = tuple(sorted(indexed))
    _check_indices(schema, secondary, uuid)
    check_partition_types(schema, partition_on, name)
    if serializer is not None and not isinstance(serializer, FileFormat):
        raise InvalidType(
            "df_serializer should be a ParquetSerializer or a CsvSerializer, "
            f'e.g. ParquetSerializer(compression="ZSTD"), but is {serializer!r}.'
        )
    layout = layout_of_call(serializer, on_record=on_record).within({*schema.names} - {*partition_on})
    file_format = layout.format(serializer or _FORMAT)
    file_format.check(pa.schema([f for f in schema if f.name not in partition_on]))
    # In the order in which an error names columns with nulls.
    roles = (
        *((c, "partition") for c in partition_on),
        *((c, "dimension") for c in sorted(dims)),
        *((c, "index") for c in sorted(cube.index_columns & columns)),
    )
    sort_columns = (*(c for c in cube.partition_columns if c in columns), *dims)
    target = layout.target_file_bytes
    request = StageRequest(uuid, partition_on, secondary, dims, file_format, target_file_bytes=target)
    return MemberWrite(name, dataset_schema(schema, partition_on), dims, sort_columns, roles, request, layout)


def _check_indices(schema: pa.Schema, columns: Sequence[str], uuid: str) -> None:
    for column in columns:
        # Any time will do: all have the same length. Keys have UTC without a zone.
        check_key(index_key(uuid, column, datetime(2000, 1, 1)))  # noqa: DTZ001
        # A column of nulls, or a dataset without rows, is refused later with a better message.
        if not pa.types.is_null(schema.field(column).type):
            index_type(schema.field(column).type, column, uuid)


def check_columns(cube: Cube, name: str, columns: Collection[str], partition_on: Sequence[str]) -> None:
    """Refuse a dataset without its dimension and partition columns, or without any other column."""
    missing = sorted(set(cube.dimension_columns) - set(columns))
    if name == cube.seed_dataset and missing:
        raise InvalidInput(f'Missing dimension columns in seed data "{name}": {", ".join(missing)}')
    if len(missing) == len(cube.dimension_columns):
        dims = ", ".join(cube.dimension_columns)
        raise InvalidInput(f'Dataset "{name}" must have at least 1 of the following dimension columns: {dims}')
    absent = sorted(set(partition_on) - set(columns))
    if absent:
        hint = ""
        if name != cube.seed_dataset:
            present = [c for c in partition_on if c in columns]
            hint = f" A dataset without them is written with partition_on={{{name!r}: {present}}}."
        raise InvalidInput(f'Missing partition columns in dataset "{name}": {", ".join(absent)}.{hint}')
    if set(columns) == set(partition_on):
        raise InvalidInput(f"No data left to save outside partition columns {list(partition_on)} in dataset {name!r}.")


def check_visible(cube: Cube, name: str, columns: Collection[str]) -> None:
    """Refuse dimension, partition and index columns that every query would hide."""
    roles = {*cube.dimension_columns, *cube.partition_columns, *cube.index_columns} & set(columns)
    hidden = sorted(roles - set(visible_columns(roles)))
    if hidden:
        raise InvalidInput(
            f'Columns of dataset "{name}" that are dimension, partition or index columns '
            f"would be hidden in every query: {', '.join(hidden)}. "
            'Names must not begin with "__" nor be KLEE_TS. Rename them.'
        )


def check_payload(
    cube: Cube, name: str, columns: Collection[str], partition_on: Sequence[str], owners: Mapping[str, str]
) -> None:
    """Refuse payload that is there, and partition columns that are not in ``partition_on``.

    ``owners``: the payload of the cube, each column with its dataset.
    """
    shared = sorted(get_payload_subset(visible_columns(columns), cube) & owners.keys())
    if shared:
        hint = f'. Dataset "{name}" exists. {REPLACE_OR_APPEND}' if all(owners[c] == name for c in shared) else ""
        raise InvalidInput(f'Payload written in "{name}" is already present in cube: {", ".join(shared)}{hint}')
    surplus = sorted((set(columns) & set(cube.partition_columns)) - set(partition_on))
    if surplus:
        raise InvalidInput(f"Unspecified but provided partition columns in {name}: {', '.join(surplus)}")


def check_no_null_cells(write: MemberWrite, table: pa.Table) -> None:
    """Refuse nulls (and NaN) in partition, dimension and index columns."""
    found: dict[str, tuple[str, str]] = {}
    for column, role in write.null_free:
        if column not in found and (nulls := null_count(table.column(column))):
            found[column] = f'{role} column "{column}"', f"({nulls:,} of {table.num_rows:,} rows)"
    if found:
        (first, count), *others = found.values()
        columns = ", ".join([f'{first} of dataset "{write.id}" {count}', *map(" ".join, others)])
        raise InvalidInput(f"Found NULL-values in {columns}. {drop_or_fill(found)}")


def prepare_parts(write: MemberWrite, table: pa.Table, base_label: str) -> list[PartitionRows]:
    """Check rows, sort them, refuse duplicate cells, and split them into physical partitions."""
    check_no_null_cells(write, table)
    if not table.num_rows:
        return []
    if set(table.column_names) != set(write.schema.names):
        table = table.select(write.schema.names)
    ordered = _sorted(write, table)
    columns = ", ".join(write.request.partition_on)
    try:
        parts = split_rows(ordered, write.request.partition_on, base_label, write.request.uuid)
        for part in parts:
            check_key(data_key(write.request.uuid, SINGLE_TABLE, part.label))
    except Unsupported as error:
        raise Unsupported(f"Partition columns {columns} of dataset {write.id!r}: {error}") from None
    except InvalidInput as error:
        raise InvalidInput(
            f"Partition columns {columns} of dataset {write.id!r}: a value makes no valid key. {error}"
        ) from None
    return parts


def _sorted(write: MemberWrite, table: pa.Table) -> pa.Table:
    # A function of its own, so that keys and order are freed before the rows are split.
    if ascends(table, write.sort_columns):
        return table
    keys = pack_one(table, write.sort_columns)
    order = np.argsort(keys, kind="stable")
    table = take_rows(table, order)
    check_repeated(write, table, keys[order])
    return table


def check_repeated(write: MemberWrite, table: pa.Table, keys: IntArray) -> None:
    """Refuse neighbouring rows with the same cell; ``keys`` are the packed sort columns."""
    duplicates = np.flatnonzero(keys[1:] == keys[:-1])
    if not len(duplicates):
        return
    one, other = table.slice(int(duplicates[0]), 2).to_pylist()
    cell = {c: one[c] for c in write.sort_columns}
    differing = {c: (one[c], other[c]) for c in table.column_names if one[c] != other[c]}
    detail = f"they differ in {differing}" if differing else "they are equal in every column"
    raise InvalidInput(
        f'Found duplicate cells by [{", ".join(write.sort_columns)}] in dataset "{write.id}": '
        f"{pluralize(len(duplicates), 'row')} with a cell that another one has. "
        f"Example: {cell} occurs twice; {detail}. A cell may occur once: "
        "aggregate such rows, or add a dimension that tells them apart."
    )


# --- data -----------------------------------------------------------------------------------------


Block: TypeAlias = tuple[str, pa.Table | None]

# Blocks of a stream are smaller than a chunk: they are buffered beside those of other datasets.
_BLOCKS_PER_CHUNK = 4


class InputData(NamedTuple):
    """Blocks of rows, each with its dataset: those in memory, and a stream of the rest.

    None instead of a block names a dataset without rows. ``rest`` is None if everything is in
    memory.
    """

    blocks: list[Block]
    rest: Iterator[Block] | None

    @property
    def names(self) -> list[str]:
        """The datasets known so far, by first appearance."""
        return list(dict.fromkeys(name for name, _ in self.blocks))


def read_input(data: object, cube: Cube) -> InputData:
    """Convert data to blocks.

    ``data`` is one block of rows (the seed), a mapping dataset id → block, or an iterable of these.
    A block is a pandas frame or anything with ``__arrow_c_stream__``; None is skipped. Data in
    memory is taken whole; of streams and lazy iterables about one chunk is read.
    """
    require_cube(cube)
    if is_block(data) or isinstance(data, Mapping):
        items: Iterable[Any] = [data]
    elif isinstance(data, Iterable) and not isinstance(data, (str, bytes)):
        items = data
    else:
        raise InvalidType(
            f"Expected data of the cube {cube.uuid_prefix!r}: "
            f"a frame, a dict dataset id → frame, or an iterable of such; got {data!r}."
        )
    blocks = (block for item in items for block in _blocks(item, cube))
    # What is in memory is taken whole: all rows are checked before the first file is written.
    if not is_lazy(items) and not any(is_lazy(list(item.values())) for item in items if isinstance(item, Mapping)):
        return InputData(list(blocks), None)
    waiting, size, limit = list[Block](), 0, chunk_bytes()
    for name, table in blocks:
        waiting.append((name, table))
        size += 0 if table is None else table.nbytes
        if size > limit:
            return InputData(waiting, blocks)
    return InputData(waiting, None)


def _blocks(item: object, cube: Cube) -> Iterator[Block]:
    for key, block in (item if isinstance(item, Mapping) else {cube.seed_dataset: item}).items():
        cube.ktk_dataset_uuid(key)  # checks the id
        name = converter_str(key)
        if is_stream(block):
            limit = max(1, chunk_bytes() // _BLOCKS_PER_CHUNK)
            yield from ((name, rows) for rows in stream_blocks(open_stream(block, name), name, limit))
        else:
            yield name, None if block is None else to_table(block, name)


def concat(blocks: Iterable[Block]) -> dict[str, pa.Table]:
    """One table per dataset, in order of first appearance."""
    tables: dict[str, list[pa.Table]] = {}
    for name, table in blocks:
        tables.setdefault(name, []).extend([] if table is None else [table])
    check_has_blocks([name for name, given in tables.items() if not given])
    for name, given in tables.items():
        # The types of an empty block say nothing, so it is dropped. One with other columns stays:
        # `concat_blocks` refuses it.
        first = next((t for t in given if t.num_rows), given[0])
        columns = set(first.column_names)
        tables[name] = [t for t in given if t.num_rows or t is first or set(t.column_names) != columns]
    return {name: concat_blocks(given, name) for name, given in tables.items()}


def check_has_blocks(without: Collection[str]) -> None:
    """Raise for datasets that are named without a single block."""
    if without:
        raise InvalidInput(f"Cannot concatenate 0 dataframes. There is no data for dataset {', '.join(without)}.")


def resolve_partition_on(cube: Cube, names: Iterable[str], partition_on: object) -> dict[str, tuple[str, ...]]:
    """Partition columns of each dataset, by default those of the cube; the seed has no choice."""
    if partition_on is not None and not isinstance(partition_on, Mapping):
        raise InvalidType(f"partition_on should be a dict dataset id → columns, but is {type(partition_on).__name__}.")
    given = partition_on or {}
    resolved = dict.fromkeys(names, cube.partition_columns)
    for name in [name for name in resolved if name in given]:
        columns = given[name]
        if not isinstance(columns, Iterable):
            raise InvalidType(
                f"partition_on of dataset {name} should be a list of columns ([] for none), but is {columns!r}."
            )
        listed = tuple(columns) if not isinstance(columns, (str, bytes)) else (columns,)
        refuse_derived(listed, f"partition_on of dataset {name}")
        if len(set(listed)) != len(listed):
            raise InvalidInput(
                f"partition-on attribute of dataset {name} contains duplicates: {', '.join(map(str, listed))}"
            )
        resolved[name] = converter_str_tupleset(listed)
    if resolved.get(cube.seed_dataset, cube.partition_columns) != cube.partition_columns:
        fixed = ", ".join(cube.partition_columns)
        raise InvalidInput(
            f"Seed dataset {cube.seed_dataset} must have the following, fixed partition-on attribute: {fixed}"
        )
    return resolved


def resolve_metadata(metadata: object, names: Collection[str], *, more: bool = False) -> dict[str, dict[str, Any]]:
    """User metadata of each dataset, as a document returns it.

    ``more``: further datasets may follow, so an unknown name is no error.
    """
    if metadata is None:
        return {}
    if not isinstance(metadata, dict):
        raise InvalidType(f"Provided metadata should be a dict but is {type(metadata).__name__}.")
    unknown = sorted(str(k) for k in metadata if k not in names)
    if unknown and not more:
        raise InvalidInput(f"Provided metadata for otherwise unspecified ktk_cube_dataset_ids: {', '.join(unknown)}")
    for name, user in sorted(metadata.items(), key=lambda item: item[0]):
        if not isinstance(user, dict):
            raise InvalidType(f"Provided metadata for dataset {name} should be a dict but is {type(user).__name__}.")
    return {name: check_user_metadata(user, f"dataset {name}") for name, user in metadata.items()}


def materialize(argument: object) -> Any:
    """The argument with lists instead of iterators, which can be read only once; also in a dict."""
    if isinstance(argument, Mapping):
        return {key: materialize(value) for key, value in argument.items()}
    return list(argument) if isinstance(argument, Iterator) else argument


def cube_metadata(cube: Cube, name: str, user: Mapping[str, Any]) -> dict[str, Any]:
    """The stored metadata of a dataset: the user's, and keys from which the `Cube` is recovered."""
    return {
        **user,
        KTK_CUBE_METADATA_DIMENSION_COLUMNS: list(cube.dimension_columns),
        KTK_CUBE_METADATA_KEY_IS_SEED: name == cube.seed_dataset,
        KTK_CUBE_METADATA_PARTITION_COLUMNS: list(cube.partition_columns),
        KTK_CUBE_METADATA_SUPPRESS_INDEX_ON: sorted(cube.suppress_index_on),
    }


# --- deleted cells --------------------------------------------------------------------------------


# A longer list of values costs more than it saves by the partitions that it leaves out.
_MOST_VALUES = 1_000


@contextmanager
def cells_where(
    cube: Cube, store: Store, members: Mapping[str, Snapshot], conditions: IntoConditions
) -> Iterator[MergeSource]:
    """The addresses of the cells that a query has; if they are many, in a temporary file."""
    # Planned before the file is made, so that a wrong condition leaves nothing behind.
    tables = _cell_tables(cube, store, members, conditions)
    schema, columns = members[cube.seed_dataset].schema, _address(cube)
    with Spill(pa.schema([schema.field(c) for c in columns]), chunk_bytes()) as spill:
        for cells in tables:
            spill.add(0, cells)
        yield MergeSource(spill.table(), columns)


def _address(cube: Cube) -> tuple[str, ...]:
    return (*cube.dimension_columns, *cube.partition_columns)


def _cell_tables(
    cube: Cube, store: Store, members: Mapping[str, Snapshot], conditions: IntoConditions
) -> Iterator[pa.Table]:
    plan = plan_members(QueryArguments(cube, conditions, payload_columns=()), members, store)
    return (cells.select(list(_address(cube))) for _, cells in iter_groups(plan, store))


def plan_cell_deletion(
    cube: Cube,
    store: Store,
    members: Mapping[str, Snapshot],
    cells: MergeSource,
    names: Collection[str],
    executor: Executor = THREADS,
) -> dict[str, RowsPlan]:
    """The rows that go with some cells, by dataset: the seed, then those of ``names``.

    Raises
    ------
    InvalidInput
        If no cell would be left.
    """
    seed = cube.seed_dataset
    datasets = [seed, *(name for name in members if name in names and name != seed)]

    def search(name: str) -> RowsSearch:
        base, keys = members[name], cells if name == seed else _keys_without_cells(cube, store, members, name, cells)
        rules = MergeRules(keys.on, "delete", inserts=False, deletes_others=False)
        edit = MergeRows(keys, rules.when_matched, rules.deletes_others, base.partition_keys)
        return merge_search(store, base, rewrite_spec(base), edit, keys, rules)

    # Near files are read in threads as it is.
    if store.is_remote:
        with overrides(bytes_in_flight=max(1, current_options().bytes_in_flight // len(datasets))):
            searches = list(map_in_threads(search, datasets, store=store))
    else:
        searches = list(map(search, datasets))
    plans = dict(zip(datasets, plan_rows(store, searches, executor), strict=True))
    check_seed_stays(plans[seed])
    return plans


def cell_changes(
    cube: Cube,
    store: Store,
    members: Mapping[str, Snapshot],
    plans: Mapping[str, RowsPlan],
    staged: Mapping[str, StagedRows],
) -> dict[str, Change]:
    """The changes of a deletion; new cells are a conflict where they matter."""
    changes, seed = {name: rows.change for name, rows in staged.items()}, cube.seed_dataset
    edits = [plan.edit for name, plan in plans.items() if name in changes and isinstance(plan.edit, MergeRows)]
    keys = [edit.source for edit in edits if len(edit.columns) < len(_address(cube))]
    if seed in changes and keys:
        # A cell that comes meanwhile may show a row that goes from an enrichment.
        scope = partial(_without_new_cells, store, members[seed], changes[seed].removed, keys)
        changes[seed] = replace(changes[seed], scope=scope)
    return changes


def _without_new_cells(
    store: Store, base: Snapshot, removed: pa.Array, keys: Sequence[MergeSource], newest: Snapshot
) -> pa.Array:
    """The labels to remove; InvalidInput if a cell of a later file has one of the keys."""
    is_new = pc.invert(pc.is_in(newest.partitions.labels, value_set=base.partitions.labels))
    [(table, schema)] = newest.schemas.items()
    for file in stored_files(newest, table, is_new.to_numpy(zero_copy_only=False)):
        for source in keys:
            cells = read_rows(store, file.key, FileRequest(newest.uuid, schema, source.on), file.values)
            if (source.positions(cells) >= 0).any():
                raise InvalidInput("cells were added that show rows of enrichments which were to be deleted")
    return removed


def _keys_without_cells(
    cube: Cube, store: Store, members: Mapping[str, Snapshot], name: str, cells: MergeSource
) -> MergeSource:
    """The addresses in a dataset of the deleted cells, without those that another cell has, too."""
    base = members[name]
    own = {*base.partition_keys, *(c for c in cube.dimension_columns if c in base.schema.names)}
    on = tuple(c for c in _address(cube) if c in own)
    # With the whole address no other cell can show a row.
    if len(on) == len(cells.on):
        return cells
    if not cells.num_rows:
        return MergeSource(cells.rows.select(list(on)), on)
    projected = cells.rows.select(list(on))
    distinct = np.unique(KeyIndex(projected, on).positions(projected))
    keys = MergeSource(projected.take(pa.array(distinct)), on)
    is_shown = np.zeros(keys.rows.num_rows, dtype=bool)
    for others in _cell_tables(cube, store, members, _within(keys)):
        # All other cells, not only those that the conditions hold for.
        kept = others.filter(pa.array(cells.positions(others) < 0))
        positions = keys.positions(kept)
        is_shown[positions[positions >= 0]] = True
    return MergeSource(keys.rows.filter(pa.array(~is_shown)), on)


def _within(keys: MergeSource) -> list[Condition]:
    """Conditions that all cells with one of these keys satisfy."""
    # These types may be dimensions, but conditions of cubes do not compare them.
    others = (pt.is_decimal, pt.is_time, pt.is_duration)
    values = {f.name: keys.distinct(f.name) for f in keys.rows.schema if not any(is_type(f.type) for is_type in others)}
    return [C(c).isin(v.to_pylist()) for c, v in values.items() if 0 < len(v) <= _MOST_VALUES]


# --- cells that two files of one write share ------------------------------------------------------


# With fewer bytes at a time, opening a file costs more than reading its rows.
_LEAST_PIECE = 2**16
# Files that one thread has open. More files are compared in several passes.
_MOST_OPEN = 64


def check_duplicates(store: Store, write: MemberWrite, receipts: Sequence[Receipt], places: str = "two blocks") -> None:
    """Read the key columns of files that may share cells, and refuse a cell that occurs twice.

    ``places`` says in the error message where a cell occurs.

    Raises
    ------
    InvalidInput
        With dataset and cell.
    """
    passes: list[list[Receipt]] = []
    for chain in overlapping(write, receipts):
        half = len(chain) if len(chain) <= _MOST_OPEN else _MOST_OPEN // 2
        parts = [chain[i : i + half] for i in range(0, len(chain), half)]
        # Any two files are in one of the passes, or a cell in both would go unnoticed.
        passes += [[*left, *right] for left, right in combinations(parts, 2)] if len(parts) > 1 else parts
    for _ in map_in_threads(lambda files: _check_files(store, write, files, places), passes):
        pass


def overlapping(write: MemberWrite, receipts: Sequence[Receipt]) -> Iterator[list[Receipt]]:
    """Sets of files of one partition of the cube whose ranges of cells overlap."""
    shared = [c for c in write.request.partition_on if c in write.sort_columns]
    groups: dict[tuple[object, ...], list[Receipt]] = {}
    for receipt in receipts:
        groups.setdefault(tuple(receipt.values[c] for c in shared), []).append(receipt)
    for group in groups.values():
        first, *files = sorted(group, key=lambda r: r.low)
        chain, greatest = [first], first.high
        for file in files:
            if file.low > greatest:
                if len(chain) > 1:
                    yield chain
                chain = []
            chain.append(file)
            greatest = max(greatest, file.high)
        if len(chain) > 1:
            yield chain


def _check_files(store: Store, write: MemberWrite, files: Sequence[Receipt], places: str) -> None:
    request = FileRequest(write.request.uuid, write.schema, write.dimensions)
    settings = current_options()
    # A piece of each file at a time: memory does not grow with the number of rows.
    nbytes = max(_LEAST_PIECE, settings.bytes_in_flight // (4 * settings.thread_count * len(files)))
    streams = [open_rows(store, file.key, request, nbytes, file.values)[1] for file in files]
    for cells in _side_by_side(streams, write.dimensions):
        keys = pack_one(cells, write.dimensions)
        order = np.argsort(keys, kind="stable")
        duplicates = np.flatnonzero(np.diff(keys[order]) == 0)
        if len(duplicates):
            first = int(order[duplicates[0]])
            values = {c: v for c, v in files[0].values.items() if c in write.sort_columns}
            cell = {**values, **cells.slice(first, 1).to_pylist()[0]}
            raise InvalidInput(
                f'Found duplicate cells by [{", ".join(write.sort_columns)}] in dataset "{write.id}": '
                f"{pluralize(len(duplicates), 'row')} with a cell that another one has. "
                f"Example: {cell} occurs in {places}. A cell may occur once: "
                "aggregate such rows, or add a dimension that tells them apart."
            )


def _side_by_side(streams: Sequence[Iterator[pa.Table]], columns: Sequence[str]) -> Iterator[pa.Table]:
    """The rows of sorted streams, cut so that equal rows are in one table."""
    heads = {i: head for i, stream in enumerate(streams) if (head := next(stream, None)) is not None}
    while heads:
        keys = pack(list(heads.values()), columns)
        # The head of every stream has all its rows up to this key.
        frontier = min(int(k[-1]) for k in keys)
        counts = [int(np.searchsorted(k, frontier, side="right")) for k in keys]
        yield pa.concat_tables([head.slice(0, n) for head, n in zip(heads.values(), counts, strict=True)])
        rests = {}
        for (i, head), n in zip(heads.items(), counts, strict=True):
            rests[i] = head.slice(n)
            # Read on when more than half of the head is used up: copies stay linear.
            if rests[i].num_rows < n and (more := next(streams[i], None)) is not None:
                rests[i] = pa.concat_tables([rests[i], more])
        heads = {i: rest for i, rest in rests.items() if rest.num_rows}


# --- the plan -------------------------------------------------------------------------------------


class CubeWrite(Struct, frozen=True):
    """A write to a cube, without its rows.

    Attributes
    ----------
    cube : Cube
        The cube.
    datasets : Mapping[str, MemberWrite]
        How the rows of each dataset are checked and stored.
    bases : Mapping[str, Snapshot]
        The datasets that exist, in the state for which the write was planned.
    replace : bool
        Whether the former contents of the datasets are removed.
    metadata : Mapping[str, dict]
        User metadata to merge into each dataset.
    removed : Mapping[str, pyarrow.Array]
        Labels to remove from each dataset.
    scopes : Mapping[str, Callable]
        Functions that give these labels for any state of the dataset.
    on_conflict : {"raise", "reapply"}
        The reaction to a commit in between that changed what this write removes or replaces.
    allow_empty, may_vanish : bool
        Whether a dataset may get no new rows, and whether it may end up without any.
    txn : Txn | None
        The number of the write; datasets that have it already are skipped.
    """

    cube: Cube
    datasets: Mapping[str, MemberWrite]
    bases: Mapping[str, Snapshot]
    replace: bool
    metadata: Mapping[str, dict[str, Any]]
    removed: Mapping[str, pa.Array] = field(default_factory=dict)
    scopes: Mapping[str, Callable[[Snapshot], pa.Array]] = field(default_factory=dict)
    on_conflict: OnConflict = "raise"
    allow_empty: bool = False
    may_vanish: bool = False
    txn: Txn | None = None

    @property
    def done(self) -> frozenset[str]:
        """The datasets that had the txn already when the write was planned."""
        return done_datasets(self.txn, self.bases)

    def change(self, name: str, receipts: Collection[Receipt]) -> Change:
        """The change of one dataset."""
        write = self.datasets[name]
        request = write.request
        return Change(
            request.uuid,
            tuple(receipts),
            {SINGLE_TABLE: ordered(write.schema, request.partition_on)},
            request.partition_on,
            request.index_columns,
            metadata=self.metadata[name],
            removed=self.removed.get(name, pa.array([], type=pa.string())),
            scope=self.scopes.get(name),
            replace=self.replace,
            on_conflict=self.on_conflict,
            txn=self.txn,
            # A dataset that is there keeps its own.
            records=write.layout.record() if self.replace or name not in self.bases else {},
        )


def check_not_empty(
    write: CubeWrite, added: Mapping[str, Sequence[object]], names: Iterable[str] | None = None
) -> None:
    """Raise for datasets without new rows, if the write needs some; by default of ``added``."""
    if not write.allow_empty:
        _raise_empty([i for i in (added if names is None else names) if not added.get(i)])


def check_stays_filled(write: CubeWrite, added: Mapping[str, Sequence[object]]) -> None:
    """Raise for datasets that the write would leave without rows; ``added``: new parts of each."""

    def loses_everything(name: str) -> bool:
        if not write.allow_empty:
            return name not in write.bases or write.replace
        partitions = len(write.bases[name].partitions)
        return partitions == len(write.removed.get(name, ())) and partitions > 0

    if not write.may_vanish:
        unchanged = [i for i in write.datasets if not added.get(i) and i not in write.done]
        _raise_empty([i for i in unchanged if loses_everything(i)])


def _raise_empty(names: Collection[str]) -> None:
    if names:
        cause: KartothekCubeError = InvalidInput(f"Cannot write empty datasets: {', '.join(sorted(names))}")
        raise MultiTableCommitAborted(f"Aborting commit, nothing was written. {cause}") from cause


def done_datasets(txn: Txn | None, existing: Mapping[str, Snapshot]) -> frozenset[str]:
    """The datasets that have a txn already."""
    return frozenset(i for i, snapshot in existing.items() if is_applied(txn, snapshot.document.metadata))


Arguments: TypeAlias = tuple[dict[str, tuple[str, ...]], dict[str, dict[str, Any]]]


def check_arguments(
    cube: Cube, names: Collection[str], metadata: object, partition_on: object, *, more: bool = False
) -> Arguments:
    """Partition columns and user metadata by dataset.

    ``more``, here and in all plans: further datasets may follow, so a missing one is no error.
    """
    return resolve_partition_on(cube, names, partition_on), resolve_metadata(metadata, names, more=more)


def check_extension(
    cube: Cube, names: Collection[str], metadata: object, partition_on: object, *, more: bool = False
) -> Arguments:
    """The same for an extension, without knowing the datasets of the cube."""
    arguments = check_arguments(cube, names, metadata, partition_on, more=more)
    if cube.seed_dataset in names:
        raise InvalidInput(f'Seed data ("{cube.seed_dataset}") cannot be written during extension.')
    return arguments


def plan_build(
    cube: Cube,
    schemas: Mapping[str, pa.Schema],
    existing: Mapping[str, Snapshot],
    metadata: object = None,
    overwrite: bool = False,
    partition_on: object = None,
    serializer: FileFormat | None = None,
    *,
    more: bool = False,
    on_conflict: OnConflict = "raise",
    txn: Txn | None = None,
) -> CubeWrite:
    """Check a build from the columns of its data.

    ``existing``: the datasets in the store under the cube's prefix. Without ``overwrite`` all of
    them must have the ``txn`` already.
    """
    keys, user = check_arguments(cube, schemas, metadata, partition_on, more=more)
    # While more blocks may follow, a missing dataset can still come.
    if not more and cube.seed_dataset not in schemas:
        given = ", ".join(sorted(schemas)) or "no dataset"
        raise InvalidInput(
            f'Seed data ("{cube.seed_dataset}") is missing. There is data for {given}; '
            "Cube(seed_dataset=...) says which one is the seed."
        )
    left = sorted(set(existing) - set(schemas))
    if not more and left:
        raise InvalidInput(
            "The cube has datasets that would not be overwritten (partial overwrite), this is not allowed: "
            f"{', '.join(left)}. Give data for them, too, delete them first (delete_cube), "
            "or write with extend_cube or update_cube."
        )
    writes = _new_writes(cube, schemas, keys, {}, serializer, existing)
    _check_absent(cube, existing.keys() - done_datasets(txn, existing), schemas, overwrite)
    _check_result(cube, {}, writes, more=more)
    stored = _metadata(cube, schemas, user)
    return CubeWrite(cube, writes, existing, overwrite, stored, on_conflict=on_conflict, txn=txn)


def plan_extend(
    cube: Cube,
    schemas: Mapping[str, pa.Schema],
    existing: Mapping[str, Snapshot],
    metadata: object = None,
    overwrite: bool = False,
    partition_on: object = None,
    serializer: FileFormat | None = None,
    *,
    more: bool = False,
    on_conflict: OnConflict = "raise",
    txn: Txn | None = None,
) -> CubeWrite:
    """Check an extension from the columns of its data.

    ``existing``: the datasets of the valid cube.
    """
    keys, user = check_extension(cube, schemas, metadata, partition_on, more=more)
    # A dataset that is replaced, or may be by a later block, need not keep its columns.
    done = done_datasets(txn, existing)
    replaced = (set(existing) - {cube.seed_dataset} if more else set(schemas)) if overwrite else done & schemas.keys()
    kept = {i: info for i, info in infos_of(existing).items() if i not in replaced}
    payload = {c: i for i, info in kept.items() for c in get_payload_subset(info.columns, cube)}
    writes = _new_writes(cube, schemas, keys, payload, serializer, existing)
    _check_absent(cube, existing.keys() - done, schemas, overwrite)
    _check_result(cube, kept, writes, more=more)
    bases = {i: existing[i] for i in schemas if i in existing}
    return CubeWrite(cube, writes, bases, overwrite, _metadata(cube, schemas, user), on_conflict=on_conflict, txn=txn)


def plan_append(
    cube: Cube,
    schemas: Mapping[str, pa.Schema],
    existing: Mapping[str, Snapshot],
    metadata: object = None,
    serializer: FileFormat | None = None,
    *,
    more: bool = False,
    txn: Txn | None = None,
) -> CubeWrite:
    """Check an append from the columns of its data.

    ``existing``: the datasets of the valid cube.
    """
    unknown = sorted(set(schemas) - set(existing))
    if unknown:
        raise InvalidInput(f"Unknown / non-existing datasets: {', '.join(unknown)}")
    user = resolve_metadata(metadata, schemas, more=more)
    writes = {i: _append_write(cube, i, schema, existing[i], serializer) for i, schema in schemas.items()}
    return CubeWrite(cube, writes, {i: existing[i] for i in schemas}, False, _metadata(cube, schemas, user), txn=txn)


def plan_update(
    cube: Cube,
    schemas: Mapping[str, pa.Schema],
    existing: Mapping[str, Snapshot],
    remove_conditions: IntoConditions,
    names: Collection[str] | None = None,
    metadata: object = None,
    serializer: FileFormat | None = None,
    *,
    more: bool = False,
    on_conflict: OnConflict = "raise",
    txn: Txn | None = None,
) -> CubeWrite:
    """Check an update: an append that also removes the partitions in which the conditions hold.

    ``names``: the datasets to update, by default those with data.
    """
    conjunction = None
    if remove_conditions is not None:
        conjunction = partition_conditions(cube, remove_conditions, existing, "remove")
    concerned = list(dict.fromkeys((*(names or ()), *schemas)))
    unknown = sorted(set(concerned) - set(existing))
    if unknown:
        raise InvalidInput(f"Unknown / non-existing datasets: {', '.join(unknown)}")
    if names is not None and set(schemas) - set(names):
        raise InvalidInput(
            "There is data for datasets that ktk_cube_dataset_ids does not name: "
            f"{', '.join(sorted(set(schemas) - set(names)))}"
        )
    if names is None and not schemas and remove_conditions is not None:
        raise InvalidInput(
            "There are conditions but no data, so no dataset is concerned. Name the datasets in ktk_cube_dataset_ids."
        )
    user = resolve_metadata(metadata, concerned, more=more)
    full = {i: schemas[i] if i in schemas else existing[i].schema for i in concerned}
    writes = {i: _append_write(cube, i, schema, existing[i], serializer) for i, schema in full.items()}
    bases = {i: existing[i] for i in concerned}
    scopes = {} if conjunction is None else _scopes(conjunction, bases, named=names is not None)
    removed = {i: scope(bases[i]) for i, scope in scopes.items()}
    stored = _metadata(cube, concerned, user)
    return CubeWrite(cube, writes, bases, False, stored, removed, scopes, on_conflict, allow_empty=True, txn=txn)


def plan_removal(
    cube: Cube,
    existing: Mapping[str, Snapshot],
    conditions: IntoConditions,
    names: Collection[str],
    metadata: object = None,
    *,
    named: bool = False,
    on_conflict: OnConflict = "raise",
    txn: Txn | None = None,
) -> CubeWrite:
    """Check a removal of partitions without new rows; a dataset may end up empty."""
    conjunction = partition_conditions(cube, conditions, existing, "remove")
    check_dataset_ids(cube, names, existing)
    user = resolve_metadata(metadata, names)
    bases = {i: existing[i] for i in names}
    writes = {i: _append_write(cube, i, base.schema, base, None) for i, base in bases.items()}
    scopes = _scopes(conjunction, bases, named=named)
    removed = {i: scope(bases[i]) for i, scope in scopes.items()}
    stored = _metadata(cube, names, user)
    return CubeWrite(
        cube, writes, bases, False, stored, removed, scopes, on_conflict, allow_empty=True, may_vanish=True, txn=txn
    )


def _scopes(
    conjunction: Conjunction, bases: Mapping[str, Snapshot], *, named: bool
) -> dict[str, Callable[[Snapshot], pa.Array]]:
    return {i: partial(_labels_to_remove, i, conjunction, named) for i in bases}


def _labels_to_remove(name: str, conjunction: Conjunction, named: bool, snapshot: Snapshot) -> pa.Array:
    """Labels of the physical partitions in which the conditions hold."""
    clauses = partition_clauses(conjunction, snapshot)
    # A dataset that is partitioned by none of the columns loses everything: it has to be named.
    if conjunction.columns and not clauses and not named:
        columns = ", ".join(sorted(conjunction.columns))
        raise InvalidInput(
            f'Dataset "{name}" is not partitioned by {columns}, so it would lose all partitions. '
            "Name it in ktk_cube_dataset_ids to say so."
        )
    return snapshot.partitions.labels.take(pa.array(np.flatnonzero(partition_mask(snapshot, clauses))))


def _new_writes(
    cube: Cube,
    schemas: Mapping[str, pa.Schema],
    keys: Mapping[str, tuple[str, ...]],
    payload: Mapping[str, str],
    serializer: FileFormat | None,
    existing: Mapping[str, Snapshot],
) -> dict[str, MemberWrite]:
    for name, schema in schemas.items():
        check_columns(cube, name, schema.names, keys[name])
        check_visible(cube, name, schema.names)
        check_payload(cube, name, schema.names, keys[name], payload)
    return {
        name: make_write(cube, name, schema, keys[name], serializer, on_record=_on_record(existing.get(name)))
        for name, schema in schemas.items()
    }


def _on_record(base: Snapshot | None) -> DatasetLayout:
    return NO_LAYOUT if base is None else layout_of(base.document.metadata, base.uuid)


def _append_write(
    cube: Cube, name: str, schema: pa.Schema, base: Snapshot, serializer: FileFormat | None
) -> MemberWrite:
    check_columns(cube, name, schema.names, base.partition_keys)
    unified = unify([base.schema, schema], f'dataset "{name}"')
    # A column of nulls takes the stored type.
    typed = pa.schema([unified.field(f.name) if pa.types.is_null(f.type) else f for f in schema])
    indexed, on_record = base.secondary_columns, _on_record(base)
    return make_write(cube, name, typed, base.partition_keys, serializer, indexed, on_record)


def _check_absent(cube: Cube, existing: Collection[str], names: Collection[str], overwrite: bool) -> None:
    present = sorted(cube.ktk_dataset_uuid(i) for i in set(existing) & set(names))
    if present and not overwrite:
        raise AlreadyExists(
            f"Dataset `{', '.join(present)}` already exists and overwrite is not permitted! {REPLACE_OR_APPEND}"
        )


def _check_result(
    cube: Cube, kept: Mapping[str, DatasetInfo], writes: Mapping[str, MemberWrite], *, more: bool
) -> None:
    """Check that the cube is valid after the write."""
    # kartothek checks after writing. Here the check comes first: nothing has to be rolled back.
    infos = dict(kept)
    for name, write in writes.items():
        keys, indexed = write.request.partition_on, frozenset(write.request.index_columns)
        infos[name] = DatasetInfo(name, ordered(write.schema, keys), keys, indexed)
    try:
        (check_members if more else check_infos)(infos, cube)
    except KartothekCubeError as error:
        raise MultiTableCommitAborted(
            f"The datasets would not make a valid cube; nothing was written. {error}"
        ) from error


def _metadata(cube: Cube, names: Collection[str], user: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return {name: cube_metadata(cube, name, user.get(name, {})) for name in names}
