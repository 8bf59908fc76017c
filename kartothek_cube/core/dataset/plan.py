"""Planning a scan of one table: which files are read, and a value that says why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.dataset.arguments import Source, source_of
from kartothek_cube.core.dataset.requests import LabelFilter, check_table, checked_columns, names_of
from kartothek_cube.core.explain import Explanation, Step, StepRow, clause_text, predicates_text, render
from kartothek_cube.core.index import SecondaryIndex
from kartothek_cube.core.journal import verb
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.naming import SINGLE_TABLE
from kartothek_cube.core.options import Overrides
from kartothek_cube.core.parallel import run
from kartothek_cube.core.predicates import Clause, Predicates, columns_of, parse_predicates
from kartothek_cube.core.rowkeys import take_rows
from kartothek_cube.core.scan import FilePlan, ScanStep, check_predicate_columns, indexed_clauses, needed_indices, plan_scan, rejects_null
from kartothek_cube.core.snapshots import load_index, remember
from kartothek_cube.typing import AsOf, ColumnsByTable, IntoPredicates, StoreLike

__all__ = ["ScanPlan", "filtered", "indices_for", "labels_of", "make_file_plan", "plan_table_scan"]

# A larger index (of value-label pairs) is not kept in memory between reads, unless by a factory.
_KEPT_PAIRS = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class ScanPlan:
    """Which files a read of one table touches, and why. Made by `plan_table_scan`; picklable.

    Attributes
    ----------
    dataset, table : str
        What is read.
    partition_keys, secondary_indices : tuple of str
        The dataset's partition columns, and the columns with a secondary index, without those that an older state does not have any more.
    scan : object
        The files with their partition values, and the request that each of them gets.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import open_store
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset
    >>> store, sales = open_store("hmemory://"), pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]})
    >>> _ = store_dataframes_as_dataset(store, "sales", [sales], partition_on="COUNTRY_CODE")
    >>> plan = plan_table_scan("sales", store, predicates=[[("COUNTRY_CODE", "==", "DE")]])
    >>> len(plan.files()), plan.partition_keys
    (1, ('COUNTRY_CODE',))
    """

    dataset: str
    table: str
    partition_keys: tuple[str, ...]
    secondary_indices: tuple[str, ...]
    scan: FilePlan

    def files(self) -> list[str]:
        """Keys of the files that are read, in this order."""
        return [str(key) for key in self.scan.files.to_pylist()]

    def explain(self, format: str = "text") -> str:  # noqa: A002 - the name users know from data frames
        """What was there, what each step left, what is read, and what is still to be asked of row groups and rows.

        Parameters
        ----------
        format : {"text", "html", "json"}
            JSON has all files, the others the first few.

        Raises
        ------
        InvalidInput
            For another format.
        """
        return render(_explanation(self), format)

    def __len__(self) -> int:
        return len(self.scan)

    def __repr__(self) -> str:
        return f"ScanPlan(dataset={self.dataset!r}, table={self.table!r}, files={len(self.scan)} of {self.scan.total})"

    def _repr_html_(self) -> str:
        return self.explain("html")


def plan_table_scan(
    dataset_uuid: str,
    store: StoreLike,
    columns: ColumnsByTable = None,
    predicates: IntoPredicates | None = None,
    table: str = SINGLE_TABLE,
    *,
    as_of: AsOf | None = None,
    options: Overrides | None = None,
) -> ScanPlan:
    """What `read_table` would read and why. No data file is read, only the document and the indices that help.

    Parameters
    ----------
    dataset_uuid, store, columns, predicates, table, as_of
        As in `read_table`.
    options : optional
        What `options` returns: settings for this call.

    Returns
    -------
    ScanPlan
        A value with ``files()`` and ``explain(format="text" | "html" | "json")``; a notebook shows it as a table.

    Raises
    ------
    DatasetNotFound, KeyNotFound, InvalidInput, InvalidType
        As in `read_table`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.api.cube import Cube, build_cube
    >>> from kartothek_cube import open_store
    >>> store = open_store("hmemory://")
    >>> sales = pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]})
    >>> _ = build_cube(sales, Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales"), store)
    >>> plan_table_scan("sales++seed", store, predicates=[[("COUNTRY_CODE", "==", "FR")]])
    ScanPlan(dataset='sales++seed', table='table', files=1 of 2)
    """
    with verb("plan_table_scan", options):
        names = names_of(columns, table, "columns")
        asked = parse_predicates(predicates)
        source = source_of(dataset_uuid, store, None, as_of)
        snapshot = source.snapshot()
        plan = make_file_plan(source, snapshot, table, names, asked)
        return ScanPlan(snapshot.uuid, table, snapshot.partition_keys, tuple(sorted(snapshot.pruning_columns)), plan)


def make_file_plan(
    source: Source, snapshot: Snapshot, table: str, names: list[str] | None, predicates: Predicates | None, label_filter: LabelFilter | None = None
) -> FilePlan:
    """Check columns and predicates against the snapshot, load the indices that help, and plan."""
    schema = check_table(snapshot, table)
    columns = checked_columns(names, schema, snapshot.uuid)
    check_predicate_columns(predicates, schema, snapshot.uuid)
    plan = plan_scan(snapshot, table, columns, predicates, indices_for(source, snapshot, predicates))
    return plan if label_filter is None else filtered(plan, snapshot, table, label_filter)


def indices_for(source: Source, snapshot: Snapshot, predicates: Predicates | None, more: Iterable[str] = ()) -> dict[str, SecondaryIndex]:
    """The secondary indices that can exclude files, and ``more``, read side by side. Those that were read whole are kept for the next call.

    For a single conjunction only those row groups of an index are read in which values may satisfy it; for a factory always all.
    """
    names = sorted(needed_indices(snapshot, predicates) | set(more))
    clauses = {} if source.factory is not None else _alone(predicates, frozenset(names))
    loaded = dict(zip(names, run(lambda column: load_index(source.store, snapshot, column, clauses.get(column, ())), names, at=source.store), strict=True))
    new = {column: index for column, (index, is_whole) in loaded.items() if is_whole and column not in snapshot.indices}
    _keep(source, snapshot, new)
    return {column: index for column, (index, _) in loaded.items()}


def _keep(source: Source, snapshot: Snapshot, new: Mapping[str, SecondaryIndex]) -> None:
    small = {column: index for column, index in new.items() if len(index) <= _KEPT_PAIRS}
    if source.factory is not None and new:
        source.factory.remember(snapshot.with_indices(new))
    elif small:
        remember(source.store, snapshot.with_indices(small))


def _alone(predicates: Predicates | None, columns: frozenset[str]) -> Mapping[str, list[Clause]]:
    return indexed_clauses(predicates[0], columns) if predicates is not None and len(predicates) == 1 else {}


def filtered(plan: FilePlan, snapshot: Snapshot, table: str, label_filter: LabelFilter) -> FilePlan:
    """The plan without the partitions whose label is not wanted."""
    keep = np.array([bool(label_filter(label)) for label in labels_of(plan, snapshot, table)], dtype=bool)
    return picked(plan, np.flatnonzero(keep))


def labels_of(plan: FilePlan, snapshot: Snapshot, table: str) -> list[str]:
    """The labels of the planned files."""
    files = snapshot.partitions.files.get(table, pa.array([], type=pa.string()))
    found: list[str] = snapshot.partitions.labels.take(pc.index_in(plan.files, value_set=files)).to_pylist()
    return found


def picked(plan: FilePlan, positions: np.ndarray[tuple[int], np.dtype[np.int64]]) -> FilePlan:
    """The plan with these of its files, in this order."""
    return FilePlan(plan.request, plan.files.take(pa.array(positions)), take_rows(plan.values, positions), plan.total, plan.steps)


# --- what to say about it ---------------------------------------------------------------------------------------------


def _explanation(plan: ScanPlan) -> Explanation:
    request = plan.scan.request
    facts = (
        ("columns", ", ".join(request.columns) or "none"),
        ("predicates", predicates_text(request.predicates)),
        ("remaining", predicates_text(residual(request.predicates, plan.partition_keys))),
    )
    return Explanation(f"Scan of table {plan.table!r} of dataset {plan.dataset!r}", facts, (_files_step(plan),), tuple(plan.files()))


def _files_step(plan: ScanPlan) -> Step:
    first, *others = plan.scan.steps
    predicates = plan.scan.request.predicates
    keys, asked = set(plan.partition_keys), columns_of(predicates)
    there = StepRow("partitions", plan.scan.total, first.before, "those that have a file of this table")
    by_value = StepRow("partition values", first.before, first.after, ", ".join(sorted(asked & keys)) or "no predicate on a partition column")
    indexed = [c for c in plan.secondary_indices if c in asked - keys]
    by_index = [_index_row(c, {s.column: s for s in others}.get(c), predicates) for c in indexed]
    rest = ", ".join(sorted(asked - keys - set(indexed)))
    inside = [StepRow("row groups and rows", None, None, f"{rest}: no index, answered inside the files")] if rest else []
    return Step("Pruning", "files", (there, by_value, *by_index, *inside))


def _index_row(column: str, step: ScanStep | None, predicates: Predicates | None) -> StepRow:
    before, after = (None, None) if step is None else (step.before, step.after)
    return StepRow(f"secondary index on {column}", before, after, _unanswered(column, predicates))


def _unanswered(column: str, predicates: Predicates | None) -> str:
    """Which clauses the index on a column is not asked for, and why."""
    by_conjunction = [[c for c in conjunction if c.column == column] for conjunction in predicates or ()]
    unanswered = [clause for clauses in by_conjunction if not any(map(rejects_null, clauses)) for clause in clauses]
    texts = ", ".join(dict.fromkeys(map(clause_text, unanswered)))
    return f"not asked for {texts}: null satisfies it, and the index has no nulls" if texts else ""


def residual(predicates: Predicates | None, partition_keys: Iterable[str]) -> Predicates | None:
    """What the values of a partition leave open; None if some conjunction leaves nothing open."""
    keys = set(partition_keys)
    rest = tuple(tuple(c for c in conjunction if c.column not in keys) for conjunction in predicates or ())
    return tuple(dict.fromkeys(rest)) if rest and all(rest) else None
