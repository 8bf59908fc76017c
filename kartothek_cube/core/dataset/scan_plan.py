"""The plan of a scan of one table, as a value that says why each file is read, and the verb that makes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kartothek_cube.core.dataset.arguments import source_of
from kartothek_cube.core.dataset.plan import make_file_plan
from kartothek_cube.core.dataset.requests import names_of
from kartothek_cube.core.explain import Explanation, Step, StepRow, clause_text, predicates_text
from kartothek_cube.core.naming import SINGLE_TABLE
from kartothek_cube.core.options import Overrides
from kartothek_cube.core.predicates import Predicates, columns_of, parse_predicates
from kartothek_cube.core.scan import FilePlan, ScanStep, rejects_null
from kartothek_cube.core.telemetry import operation
from kartothek_cube.typing import AsOf, IntoPredicates, StoreLike

__all__ = ["ScanPlan", "plan_table_scan", "residual"]


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
        from kartothek_cube.core.render import render

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
    columns: Iterable[str] | Mapping[str, Iterable[str]] | None = None,
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
    with operation("plan_table_scan", options):
        names = names_of(columns, table, "columns")
        asked = parse_predicates(predicates)
        source = source_of(dataset_uuid, store, None, as_of)
        snapshot = source.snapshot()
        plan = make_file_plan(source.store, snapshot, table, names, asked)
        return ScanPlan(snapshot.uuid, table, snapshot.partition_keys, tuple(sorted(snapshot.pruning_columns)), plan)


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
