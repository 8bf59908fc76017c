"""The plan and the result of a compaction, as values that explain themselves. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from kartothek_cube.core.arguments import pluralize
from kartothek_cube.core.display import Explanation, Step, StepRow, render
from kartothek_cube.core.io.reader import Clustering, FileFigures

__all__ = ["CompactionPlan", "CompactionReport", "Merge"]

_SHOWN_PARTITIONS = 20


@dataclass(frozen=True, slots=True)
class Merge:
    """Files of one physical partition that become one, or a few where the rows are too many.

    Attributes
    ----------
    label : str
        Label of the new partition.
    values : Mapping[str, Any]
        Its partition values.
    inputs : tuple of str
        Labels of the partitions that it replaces, in their order.
    files : Mapping[str, tuple of str]
        Table → keys of the input files, in the same order. A partition may lack a table.
    figures : Mapping[str, tuple of FileFigures]
        Table → figures of these files.
    pieces : int
        Files that the rows are written to.
    overlaid : int
        Number of inputs that are known to override cells of others, or to be overridden.
    """

    label: str
    values: Mapping[str, Any]
    inputs: tuple[str, ...]
    files: Mapping[str, tuple[str, ...]]
    figures: Mapping[str, tuple[FileFigures, ...]]
    pieces: int = 1
    overlaid: int = 0

    @property
    def folder(self) -> str:
        """Folder of the physical partition; empty for a dataset without partition keys."""
        return self.label.rpartition("/")[0]

    @property
    def rows(self) -> int:
        """Rows of all inputs and tables."""
        return sum(f.rows for f in self._all())

    @property
    def bytes(self) -> int:
        """Size of the input files."""
        return sum(f.size for f in self._all())

    @property
    def unpacked(self) -> int:
        """Estimated bytes of the rows in memory, of the largest table."""
        return max((sum(f.unpacked for f in figures) for figures in self.figures.values()), default=0)

    def _all(self) -> Iterator[FileFigures]:
        return chain.from_iterable(self.figures.values())


@dataclass(frozen=True, slots=True, eq=False)
class CompactionPlan:
    """The files of a dataset that a compaction is to merge. Nothing has been written yet.

    Attributes
    ----------
    uuid : str
        The dataset.
    target_rows : int
        Maximum of rows in a merged file. Files of half as many rows or more stay as they are,
        unless they share cells.
    merges : tuple of Merge
        The merges, one for each new partition.
    total, selected, neighbouring : int
        Number of stored partitions: of the dataset, of the selected physical partitions, and of
        those with a neighbour in the same physical partition.
    clustering : Clustering or None
        The order of the rows in the new files, from ``sort_by`` or ``zorder_by``; None if rows keep
        their order.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import open_store
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset
    >>> store = open_store("hmemory://")
    >>> sales = pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]})
    >>> _ = store_dataframes_as_dataset(store, "sales", [sales.slice(0, 1), sales.slice(1)])
    >>> from kartothek_cube.api.dataset import compact_dataset
    >>> plan = compact_dataset("sales", store, dry_run=True)
    >>> plan.files_before, plan.files_after
    (2, 1)
    """

    uuid: str
    target_rows: int
    merges: tuple[Merge, ...]
    total: int
    selected: int
    neighbouring: int
    clustering: Clustering | None = None

    @property
    def partitions(self) -> list[str]:
        """Folders of the physical partitions that change; one, ``""``, without partition keys."""
        return list(dict.fromkeys(m.folder for m in self.merges))

    @property
    def files_before(self) -> int:
        """Files that are merged."""
        return sum(len(files) for m in self.merges for files in m.files.values())

    @property
    def files_after(self) -> int:
        """Files after the merge."""
        return sum(m.pieces * len(m.files) for m in self.merges)

    @property
    def overlaid(self) -> int:
        """Files that are merged because they override cells of others, or are overridden."""
        return sum(m.overlaid for m in self.merges)

    @property
    def rows_before(self) -> int:
        """Rows in the files that are merged."""
        return sum(m.rows for m in self.merges)

    @property
    def bytes_before(self) -> int:
        """Size of the files that are merged."""
        return sum(m.bytes for m in self.merges)

    def files(self) -> list[str]:
        """Keys of the files that are merged."""
        return [key for m in self.merges for keys in m.files.values() for key in keys]

    def explain(self, format: str = "text") -> str:  # noqa: A002 - the name users know from data frames
        """Explain the selection and the merges, as ``"text"``, ``"html"`` or ``"json"``.

        JSON has all partitions and files, the other formats the first few.

        Raises
        ------
        InvalidInput
            For another format.
        """
        return render(_explanation(self, (), None if format == "json" else _SHOWN_PARTITIONS), format)

    def __len__(self) -> int:
        return len(self.merges)

    def __repr__(self) -> str:
        return f"CompactionPlan({self.uuid!r}: {_summary(self)})"

    def _repr_html_(self) -> str:
        return self.explain("html")


@dataclass(frozen=True, slots=True, eq=False)
class CompactionReport:
    """The result of a compaction, or of its ``dry_run``.

    Attributes
    ----------
    plan : CompactionPlan
        The files that were merged.
    dry_run : bool
        Nothing was written.
    commit : str or None
        Id of the commit; None if nothing was written, or there was nothing to do.
    rows_after, bytes_after : int or None
        Rows and size of the new files; None if none was written.

    Examples
    --------
    >>> CompactionReport(CompactionPlan("sales", 1_000_000, (), 12, 12, 0), dry_run=False)
    CompactionReport('sales': nothing to do for 12 partitions)
    """

    plan: CompactionPlan
    dry_run: bool
    commit: str | None = None
    rows_after: int | None = None
    bytes_after: int | None = None

    @property
    def partitions(self) -> list[str]:
        """Folders of the physical partitions that changed; one, ``""``, without partition keys."""
        return self.plan.partitions

    @property
    def files_before(self) -> int:
        """Files that were merged."""
        return self.plan.files_before

    @property
    def files_after(self) -> int:
        """Files after the merge."""
        return self.plan.files_after

    @property
    def rows_before(self) -> int:
        """Rows in the files that were merged."""
        return self.plan.rows_before

    @property
    def bytes_before(self) -> int:
        """Size of the files that were merged."""
        return self.plan.bytes_before

    def explain(self, format: str = "text") -> str:  # noqa: A002 - the name users know from data frames
        """Explain the plan, as `CompactionPlan.explain` does, and its result."""
        if self.commit is None:
            outcome = [("commit", "none, a dry run" if self.dry_run else "none, nothing to do")]
        else:
            outcome = [("commit", self.commit), ("rows after", f"{self.rows_after:,}")]
            outcome.append(("bytes after", f"{self.bytes_after:,}"))
        return render(_explanation(self.plan, outcome, None if format == "json" else _SHOWN_PARTITIONS), format)

    def __repr__(self) -> str:
        text = f"{'would be ' if self.dry_run and self.plan.merges else ''}{_summary(self.plan)}"
        if self.bytes_after is not None:
            text = f"{text}, {self.bytes_before:,} → {self.bytes_after:,} bytes; commit {self.commit}"
        return f"CompactionReport({self.plan.uuid!r}: {text})"

    def _repr_html_(self) -> str:
        return self.explain("html")


# --- what to say about it -------------------------------------------------------------------------


def _summary(plan: CompactionPlan) -> str:
    if not plan.merges:
        return f"nothing to do for {pluralize(plan.total, 'partition')}"
    partitions = pluralize(len(plan.partitions), "physical partition")
    return f"{plan.files_before:,} files → {plan.files_after:,} in {partitions}, {pluralize(plan.rows_before, 'row')}"


def _explanation(plan: CompactionPlan, outcome: Sequence[tuple[str, str]], shown: int | None) -> Explanation:
    facts = (
        ("rows per file", f"at most {plan.target_rows:,}"),
        *([("order of rows", str(plan.clustering))] if plan.clustering else []),
        ("rows", f"{plan.rows_before:,}"),
        ("bytes", f"{plan.bytes_before:,}"),
        *outcome,
    )
    merged, overlaid = sum(len(m.inputs) for m in plan.merges), plan.overlaid
    half = f"with less than {-(-plan.target_rows // 2):,} rows, beside another such one"
    small = StepRow("small", plan.neighbouring - overlaid, merged - overlaid, half)
    if plan.clustering:
        note = "without a note in the footer, overlapping, or small"
        small = StepRow("not clustered", plan.neighbouring - overlaid, merged - overlaid, note)
    search = (
        StepRow("asked for", plan.total, plan.selected, "whole physical partitions"),
        *(
            [StepRow("neighbours", plan.selected, plan.neighbouring, "beside one of the same physical partition")]
            * (plan.clustering is None)
        ),
        *(
            [StepRow("overlaid", plan.neighbouring, overlaid, "share cells, of which the newest row stays")]
            * bool(overlaid)
        ),
        small,
    )
    steps = (Step("Search", "stored partitions", search), Step("Merging", "files", _merge_rows(plan, shown)))
    return Explanation(f"Compaction of dataset {plan.uuid!r}", facts, steps, tuple(plan.files()))


def _merge_rows(plan: CompactionPlan, shown: int | None) -> tuple[StepRow, ...]:
    folders: dict[str, list[Merge]] = {}
    for merge in plan.merges:
        folders.setdefault(merge.folder, []).append(merge)
    rows = []
    for folder, merges in list(folders.items())[:shown]:
        before, after = (
            sum(sum(map(len, m.files.values())) for m in merges),
            sum(m.pieces * len(m.files) for m in merges),
        )
        note = f"{pluralize(sum(m.rows for m in merges), 'row')}, {sum(m.bytes for m in merges):,} bytes"
        rows.append(StepRow(folder or "all rows", before, after, note))
    more = len(folders) - len(rows)
    rest = [StepRow(f"… and {more:,} more", None, None)] if more else []
    return (*rows, *rest)
