"""The verb `cube_report`: reads documents, indices, listings and footers, and renders a page."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.arguments import check_flag, pluralize
from kartothek_cube.core.arrow.keys import IntArray
from kartothek_cube.core.delta.publication import describe_publication
from kartothek_cube.core.display import changed_rows
from kartothek_cube.core.io.reader import file_rows
from kartothek_cube.core.maintenance.inspection import DAMAGE, Inspection
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.metadata.statistics import column_ranges
from kartothek_cube.core.runtime.executor import map_files
from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.snapshots.statistics import statistics_of_files
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.stores.open import open_instrumented
from kartothek_cube.cube.consistent_read import cube_tags, latest_state, state_text
from kartothek_cube.cube.cube import Cube
from kartothek_cube.cube.members import check_state
from kartothek_cube.cube.report.facts import (
    ChangeFacts,
    CubeStatistics,
    ReportFacts,
    TagFacts,
    changed_partitions,
    dataset_facts,
    growth_of,
    heat_map,
    histogram,
    index_facts,
)
from kartothek_cube.cube.report.page import advice_of, article, page
from kartothek_cube.cube.verbs.describe import changes_between
from kartothek_cube.cube.verbs.verify import Verified, verified
from kartothek_cube.errors import HistoryUnavailable
from kartothek_cube.typing import CubeState, StoreLike

# By default rows are counted up to this number of files: each costs the read of a footer.
_COUNTED_FILES = 2_000
_SHOWN_CHANGES = 10


class CubeReport(str):
    """The report of a cube: an HTML page as text, which notebooks show and `save` writes.

    Attributes
    ----------
    facts : ReportFacts
        Everything that the page shows, as values. ``facts.to_json()`` is for programs.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, build_cube, open_store
    >>> cube, store = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales"), open_store("hmemory://")
    >>> sales = pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = build_cube(sales, cube, store)
    >>> report = cube_report(cube, store)
    >>> report.startswith("<!doctype html>"), [dataset.files for dataset in report.facts.datasets]
    (True, [2])
    >>> report.save("sales.html").name
    'sales.html'
    """

    __slots__ = ("facts",)

    facts: ReportFacts

    def __new__(cls, facts: ReportFacts) -> Self:
        """Render the page of these facts."""
        report = super().__new__(cls, page(facts))
        report.facts = facts
        return report

    def __reduce__(self) -> tuple[object, ...]:
        return CubeReport, (self.facts,)

    def to_html(self) -> str:
        """The page as a plain text."""
        return str.__str__(self)

    def save(self, path: str | Path) -> Path:
        """Write the page to a file and return its path.

        Raises
        ------
        OSError
            If the file cannot be written.
        """
        target = Path(path)
        target.write_text(self, encoding="utf-8")
        return target

    def __repr__(self) -> str:
        facts = self.facts
        files, size = sum(d.files for d in facts.datasets), sum(d.bytes for d in facts.datasets)
        faults = sum(a.count for a in facts.advice if a.severity != "info")
        extent = f"{pluralize(len(facts.datasets), 'dataset')}, {pluralize(files, 'file')}, {size:,} bytes"
        return f"CubeReport({facts.uuid_prefix!r}: {extent}, {faults:,} errors and warnings)"

    def _repr_html_(self) -> str:
        return article(self.facts)


def cube_report(
    cube: Cube | str,
    store: StoreLike,
    *,
    deep: bool = False,
    rows: bool | None = None,
    now: datetime | None = None,
    changed_since: CubeState | None = None,
    options: Overrides | None = None,
) -> CubeReport:
    """Report the structure, sizes and health of a cube as one self-contained HTML page.

    Nothing is changed.

    The page shows the datasets with their columns, bytes and rows by partition and dataset, file
    sizes, the selectivity of indices, the growth of the datasets from commit to commit, and the
    findings of `verify_cube`, each with the call and the command that mend it.

    Parameters
    ----------
    cube : Cube or str
        The cube, or its uuid prefix.
    store : str, path, store or callable
        The store of the cube; everything that `open_store` takes.
    deep : bool, default False
        Verify the data, too; reads all of it.
    rows : bool, optional
        Whether to count rows of files without statistics, which reads their footers. By default in
        cubes of up to 2,000 files.
    now : datetime, optional
        The moment that the page names; by default the present.
    changed_since : str, datetime or dict, optional
        Show what changed since this state, as ``since`` of `describe_cube_changes`.
    options : optional
        What `options` returns: settings for this call.

    Returns
    -------
    CubeReport
        The page as text; ``save("report.html")`` writes it, ``facts`` has the figures. A damaged
        cube has a report, too.

    Raises
    ------
    DatasetNotFound
        If the cube has no dataset in the store.
    OSError
        If the store cannot be read.
    HistoryUnavailable
        If history does not reach back to ``changed_since``.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, build_cube, cube_report, open_store
    >>> store = open_store("hmemory://")
    >>> sales = pa.table({"PRODUCT_ID": [1, 2, 3], "COUNTRY_CODE": ["DE", "DE", "FR"]})
    >>> _ = build_cube(sales, Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales"), store)
    >>> report = cube_report("sales", store)
    >>> report
    CubeReport('sales': 1 dataset, 2 files, ... bytes, 0 errors and warnings)
    >>> report.facts.heat.labels, report.facts.heat.rows
    (('DE', 'FR'), ((2,), (1,)))
    >>> report.startswith("<!doctype html>")
    True
    """
    with operation("cube_report", options, cube=cube):
        check_state(changed_since, "changed_since")
        opened = open_instrumented(store)
        verification = verified(cube, opened, deep=check_flag(deep, "deep"))
        files = sum(len(s.partitions) for s in verification.members.values())
        count = files <= _COUNTED_FILES if rows is None else check_flag(rows, "rows")
        statistics = _read_statistics(opened, verification, count=count)
        changes = None if changed_since is None else _changes(opened, verification.cube, changed_since)
        return CubeReport(_facts(opened, verification, statistics, now or datetime.now(UTC), changes))


def _changes(store: Store, cube: Cube | None, since: CubeState) -> ChangeFacts:
    """What changed since a state; a note where the cube is too damaged to tell."""
    if cube is None:
        return ChangeFacts(state_text(since), note="The metadata describe no cube.")
    try:
        found, plans = changes_between(cube, store, since, None, _SHOWN_CHANGES)
    except HistoryUnavailable:
        raise
    except DAMAGE as error:
        return ChangeFacts(state_text(since), note=str(error))
    columns = {field.name: str(field.type) for field in plans[1].plan.schema}
    first = changed_rows(found.first)
    return ChangeFacts(found.since, tuple(found.totals()), columns, first, changed_partitions(*plans))


# --- figures ------------------------------------------------------------------------------------


def _read_statistics(store: Store, verification: Verified, *, count: bool) -> dict[str, CubeStatistics]:
    """Statistics of the readable datasets; ``count`` asks footers for rows that are unknown."""

    def rows_of(file: tuple[str, str | None]) -> int:
        dataset, key = file
        try:
            return 0 if key is None else file_rows(store, key, dataset)
        except DAMAGE:
            return 0  # the verification reports it

    members, statistics = verification.members, dict[str, CubeStatistics]()
    subjects = {i: result.subject for i, result in verification.passes.items() if result.subject is not None}
    sizes = {i: _file_sizes(store, subjects[i], ask=count) for i in members}
    known = {i: statistics_of_files(store, s, _files(s), None) for i, s in members.items()}
    # Statistics also know files that are gone; those have no size.
    has_rows = {i: known[i].rows.is_valid().to_numpy(zero_copy_only=False) & (sizes[i] > 0) for i in members}
    files = [(s.uuid, key) for i, s in members.items() for key in _files(s).filter(pa.array(~has_rows[i])).to_pylist()]
    with closing(map_files(rows_of, files if count else [], store=store)) as counts:
        for name, snapshot in members.items():
            unknown, result = ~has_rows[name], verification.passes[name]
            rows = pc.fill_null(known[name].rows, 0).to_numpy(zero_copy_only=False).copy()
            n = int(np.count_nonzero(unknown))
            rows[unknown] = np.fromiter(islice(counts, n), dtype=np.int64, count=n) if count else 0
            statistics[name] = CubeStatistics(
                snapshot,
                sizes[name],
                rows if count or not n else None,
                result.indices.loaded,
                result.history.entries,
                column_ranges(known[name], snapshot.schema),
            )
    return statistics


def _files(snapshot: Snapshot) -> pa.Array:
    """The file of each partition; nulls if a damaged document names none."""
    n = len(snapshot.partitions)
    return snapshot.files if len(snapshot.files) == n else pa.nulls(n, pa.string())


def _file_sizes(store: Store, subject: Inspection, *, ask: bool) -> IntArray:
    """The size of each file; 0 if the file is missing or its size unknown.

    ``ask`` asks the store for each size that the listing lacks.
    """
    entries, files = subject.entries.values(), _files(subject.snapshot)
    keys = pa.array([e.key for e in entries], type=pa.string())
    positions = pc.index_in(files, value_set=keys)
    unlisted = {e.key for e in entries if e.size is None} if ask else set()
    tail_sizes = {key: store.tail(key, 1)[1] for key in files.to_pylist() if key in unlisted}
    listed = pa.array([tail_sizes.get(e.key) if e.size is None else e.size for e in entries], type=pa.int64())
    sizes: IntArray = pc.fill_null(listed.take(positions), 0).to_numpy(zero_copy_only=False)
    return sizes


def _facts(
    store: Store,
    verification: Verified,
    statistics: Mapping[str, CubeStatistics],
    now: datetime,
    changes: ChangeFacts | None,
) -> ReportFacts:
    cube = verification.cube
    columns = cube.partition_columns if cube is not None else ()
    types = {f.name: str(f.type) for s in statistics.values() for f in s.snapshot.schema}
    order = sorted(statistics, key=lambda name: (cube is not None and name != cube.seed_dataset, name))
    ordered = {name: statistics[name] for name in order}
    tags = () if cube is None else cube_tags(store, cube.ktk_dataset_uuid(cube.seed_dataset))
    states = [(tag, latest_state(tag.members)) for tag in tags]
    return ReportFacts(
        uuid_prefix=verification.prefix,
        store=store.name,
        made=now.astimezone(UTC),
        dimensions={c: types.get(c, "?") for c in (cube.dimension_columns if cube is not None else ())},
        partitions={c: types.get(c, "?") for c in columns},
        datasets=tuple(dataset_facts(name, s, cube) for name, s in ordered.items()),
        heat=heat_map(ordered, columns),
        sizes=histogram(np.concatenate([np.zeros(0, np.int64), *(s.sizes for s in ordered.values())])),
        indices=tuple(i for name, s in ordered.items() for i in index_facts(name, s)),
        growth=tuple(growth_of(name, s) for name, s in ordered.items()),
        advice=advice_of(
            verification.prefix,
            cube,
            store.name,
            verification.report.findings,
            ordered,
            readable=cube is not None and len(statistics) == len(verification.passes),
        ),
        changes=changes,
        tags=tuple(TagFacts(t.name, state.commit, state.time, len(t.members)) for t, state in states),
        delta={i: line for i, s in ordered.items() if (line := describe_publication(store, s.snapshot)) is not None},
    )
