"""Reads of datasets in dask: planned on the client, each task loads the files of one group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import pandas as pd
import pyarrow as pa
from msgspec.structs import replace

from kartothek_cube.core.arguments import as_list, check_flag
from kartothek_cube.core.arrow.pandas import encoded, to_frame
from kartothek_cube.core.dataset.reference import dataset_ref
from kartothek_cube.core.expressions.predicates import Predicates, parse_predicates
from kartothek_cube.core.metadata.index import SecondaryIndex
from kartothek_cube.core.scan.execute import GroupPlan, TableRead, joined, load_tables, make_group_plan
from kartothek_cube.core.scan.plan import GroupArguments, ScanTask, checked_label_filter
from kartothek_cube.core.stores.open import open_instrumented, store_factory
from kartothek_cube.core.stores.shipping import Opener
from kartothek_cube.dask.tasks import in_task
from kartothek_cube.errors import InvalidInput
from kartothek_cube.typing import AsOf, ColumnsByTable, IntoPredicates, StoreLike

if TYPE_CHECKING:
    from kartothek_cube.core.kartothek.dataset_metadata import DatasetFactory


DtypeBackend: TypeAlias = Literal["pyarrow"]
"""As in ``pandas.read_parquet``: frames with the types of Arrow."""


def check_backend(backend: object) -> None:
    """Raise `InvalidInput` for an unknown ``dtype_backend``."""
    if backend not in (None, "pyarrow"):
        raise InvalidInput(f'dtype_backend is "pyarrow" or None, not {backend!r}.')


def arrow_frame(table: pa.Table) -> pd.DataFrame:
    """The rows with the types of Arrow, but dictionaries as categoricals."""
    frame: pd.DataFrame = table.to_pandas(
        types_mapper=lambda data_type: None if pa.types.is_dictionary(data_type) else pd.ArrowDtype(data_type)
    )
    return frame


@dataclass(frozen=True, slots=True)
class GroupFiles:
    """The files of one group, by table, and the predicates that select its rows."""

    files: Mapping[str, tuple[ScanTask, ...]]
    predicates: Mapping[str, Predicates | None]


@dataclass(frozen=True, slots=True)
class DatasetRead:
    """What is the same for all groups of a read; it travels to tasks, without files.

    Attributes
    ----------
    store : Opener
        The store.
    reads : tuple of TableRead
        What is read of each table.
    dates_as_object : bool
        How dates come.
    backend : {"pyarrow"}, optional
        The types of frames.
    """

    store: Opener
    reads: tuple[TableRead, ...]
    dates_as_object: bool
    backend: DtypeBackend | None = None

    def tables(self, group: GroupFiles, columns: Sequence[str] | None = None) -> dict[str, pa.Table]:
        """In a task: the rows of a group, of some columns."""
        store, found = open_instrumented(self.store), {}
        for read in (read for read in self.reads if read.table in group.files):
            names = read.request.columns if columns is None else tuple(columns)
            request = replace(read.request, predicates=group.predicates[read.table], columns=names)
            encodes = [c for c in read.categoricals if c in names]
            found[read.table] = joined(load_tables(store, request, group.files[read.table], encodes), request, encodes)
        return found

    def frames(self, group: GroupFiles) -> dict[str, pd.DataFrame]:
        """In a task: the rows of a group as frames by table."""
        return {name: self.frame(table) for name, table in self.tables(group).items()}

    def frame(self, table: pa.Table) -> pd.DataFrame:
        """A table as pandas has it."""
        if self.backend is not None:
            return arrow_frame(table)
        return to_frame(table, dates_as_object=self.dates_as_object, nullable=True)

    def empty(self) -> pd.DataFrame:
        """The only table without rows."""
        (read,) = self.reads
        table = pa.schema([read.request.schema.field(c) for c in read.request.columns]).empty_table()
        return self.frame(encoded(table, read.categoricals))


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """A planned read: what is common, one value a group, and what was planned from."""

    read: DatasetRead
    groups: tuple[GroupFiles, ...]
    plan: GroupPlan
    indices: Mapping[str, SecondaryIndex]

    def loader(self) -> Callable[[GroupFiles], dict[str, pd.DataFrame]]:
        """The function of tasks."""
        return in_task(self.read.frames)


def plan_read(
    dataset_uuid: str | None,
    store: StoreLike | None,
    factory: DatasetFactory | None,
    tables: Iterable[str] | None,
    columns: ColumnsByTable,
    categoricals: ColumnsByTable,
    label_filter: Callable[[str], bool] | None,
    dates_as_object: bool,
    predicates: IntoPredicates | None,
    dispatch_by: Iterable[str] | None,
    by_partition_keys: bool = False,
    as_of: AsOf | None = None,
    backend: DtypeBackend | None = None,
) -> ReadPlan:
    """Check arguments and plan; errors as of `read_dataset_as_dataframes`."""
    check_backend(backend)
    by_keys = check_flag(by_partition_keys, "concat_partitions_on_primary_index")
    if by_keys and dispatch_by is not None:
        raise InvalidInput(
            "Both `dispatch_by` and `concat_partitions_on_primary_index` are provided; "
            "the latter means dispatch by the partition keys."
        )
    source = dataset_ref(dataset_uuid, store, factory, as_of)
    opener = store_factory(store if factory is None else factory.store_factory)
    arguments = GroupArguments(
        None if tables is None else {str(table) for table in as_list(tables, "tables")},
        columns,
        categoricals,
        parse_predicates(predicates),
        checked_label_filter(label_filter),
        None if dispatch_by is None else as_list(dispatch_by, "dispatch_by"),
        by_keys,
    )
    snapshot = source.snapshot()
    plan = make_group_plan(source.store, snapshot, arguments, keep=source.keep)
    read = DatasetRead(opener, plan.reads, check_flag(dates_as_object, "dates_as_object"), backend)
    return ReadPlan(read, tuple(map(plan_files(plan), range(len(plan.groups)))), plan, snapshot.indices)


def plan_files(plan: GroupPlan) -> Callable[[int], GroupFiles]:
    """A function from the number of a group to its files."""

    def files_of(i: int) -> GroupFiles:
        positions = plan.groups.partitions(i)
        files = {read.table: tuple(plan.tasks(read, positions)) for read in plan.reads}
        # Only the one group of everything can have no partition. It still has all tables.
        kept = {table: found for table, found in files.items() if found or not len(positions)}
        return GroupFiles(kept, {read.table: plan.request(read, i).predicates for read in plan.reads})

    return files_of
