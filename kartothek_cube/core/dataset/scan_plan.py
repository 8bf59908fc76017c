"""`plan_table_scan` and `ScanPlan`: which files a read of one table touches, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kartothek_cube.core.dataset.reference import dataset_ref
from kartothek_cube.core.display import Explanation, Step, StepRow, clause_text, predicates_text
from kartothek_cube.core.expressions.predicates import Predicates, columns_of, parse_predicates
from kartothek_cube.core.metadata.naming import SINGLE_TABLE
from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.scan.plan import FilePlan, make_file_plan, names_of, rejects_null
from kartothek_cube.typing import AsOf, IntoPredicates, StoreLike

__all__ = ["ScanPlan", "plan_table_scan", "residual"]


# Without equality: Arrow columns inside have none that is a bool.
@dataclass(frozen=True, slots=True, eq=False)
class ScanPlan:
    """Which files a read of one table touches, and why. Made by `plan_table_scan`; picklable.

    Attributes
    ----------
    dataset, table : str
        What is read.
    partition_keys, secondary_indices : tuple of str
        Partition columns, and columns with a secondary index. In a past state, indices whose files
        are gone are left out.
    scan : object
        The files with their partition values, and what is read of each file.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import open_store
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset
    >>> store = open_store("hmemory://")
    >>> sales = pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]})
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
        """Keys of the files to read, in reading order."""
        return [str(key) for key in self.scan.files.to_pylist()]

    def explain(self, format: str = "text") -> str:  # noqa: A002 - the name users know from data frames
        """The files before and after each step of pruning, and the predicates left to the rows.

        Parameters
        ----------
        format : {"text", "html", "json"}
            JSON has all files, text and HTML the first few.

        Raises
        ------
        InvalidInput
            If the format is none of these.
        """
        # Imported here: plans travel to Spark executors, which draw nothing.
        from kartothek_cube.core.display import render

        request = self.scan.request
        facts = (
            ("columns", ", ".join(request.columns) or "none"),
            ("predicates", predicates_text(request.predicates)),
            ("remaining", predicates_text(residual(request.predicates, self.partition_keys))),
        )
        title = f"Scan of table {self.table!r} of dataset {self.dataset!r}"
        return render(Explanation(title, facts, (_pruning_step(self),), tuple(self.files())), format)

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
    """Plan the scan that `read_table` would do. See the page *Reading datasets*.

    Only the document and the needed indices are read, no data file.

    Parameters
    ----------
    dataset_uuid, store, columns, predicates, table, as_of
        As in `read_table`.
    options : optional
        Settings for this call, from `options`.

    Returns
    -------
    ScanPlan
        A value with ``files()`` and ``explain(format="text" | "html" | "json")``, shown as a table
        in notebooks.

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
        filters = parse_predicates(predicates)
        source = dataset_ref(dataset_uuid, store, None, as_of)
        snapshot = source.snapshot()
        plan = make_file_plan(source.store, snapshot, table, names, filters)
        return ScanPlan(snapshot.uuid, table, snapshot.partition_keys, tuple(sorted(snapshot.pruning_columns)), plan)


def _pruning_step(plan: ScanPlan) -> Step:
    first, *others = plan.scan.steps
    predicates = plan.scan.request.predicates
    keys, columns = set(plan.partition_keys), columns_of(predicates)
    by_value = ", ".join(sorted(columns & keys)) or "no predicate on a partition column"
    rows = [
        StepRow("partitions", plan.scan.total, first.before, "those that have a file of this table"),
        StepRow("partition values", first.before, first.after, by_value),
    ]
    steps = {step.column: step for step in others if not step.statistics}
    indexed = [c for c in plan.secondary_indices if c in columns - keys]
    for column in indexed:
        step = steps.get(column)  # None: the scan did not use the index
        before, after = (None, None) if step is None else (step.before, step.after)
        by_conjunction = [[c for c in conjunction if c.column == column] for conjunction in predicates or ()]
        unanswered = [clause for clauses in by_conjunction if not any(map(rejects_null, clauses)) for clause in clauses]
        texts = ", ".join(dict.fromkeys(map(clause_text, unanswered)))
        note = f"not asked for {texts}: null satisfies it, and the index has no nulls" if texts else ""
        rows.append(StepRow(f"secondary index on {column}", before, after, note))
    rows += [
        StepRow(f"statistics on {', '.join(s.statistics)}", s.before, s.after, "least and greatest values of each file")
        for s in others
        if s.statistics
    ]
    rest = ", ".join(sorted(columns - keys - set(indexed)))
    if rest:
        rows.append(StepRow("row groups and rows", None, None, f"{rest}: no index, answered inside the files"))
    return Step("Pruning", "files", tuple(rows))


def residual(predicates: Predicates | None, partition_keys: Iterable[str]) -> Predicates | None:
    """The predicates without clauses on partition keys; None if a conjunction has no others."""
    keys = set(partition_keys)
    rest = tuple(tuple(c for c in conjunction if c.column not in keys) for conjunction in predicates or ())
    return tuple(dict.fromkeys(rest)) if rest and all(rest) else None
