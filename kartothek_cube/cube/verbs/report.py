"""The report of a cube: one look at its documents, indices, listings and footers, as a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.arguments import check_flag
from kartothek_cube.core.arrow.sort_keys import IntArray
from kartothek_cube.core.io.reader import file_rows
from kartothek_cube.core.maintenance.verify.inspection import DAMAGE, Inspection
from kartothek_cube.core.maintenance.verify.run import VerifyPass
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.runtime.executor import map_files
from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.stores.open import open_instrumented
from kartothek_cube.core.text import pluralize
from kartothek_cube.cube.cube import Cube
from kartothek_cube.cube.report.advice import advice_of
from kartothek_cube.cube.report.facts import ReportFacts
from kartothek_cube.cube.report.measure import (
    CubeStatistics,
    dataset_facts,
    growth_of,
    heat_map,
    histogram,
    index_facts,
)
from kartothek_cube.cube.report.page import article, page
from kartothek_cube.cube.verbs.verify import Verified, verified
from kartothek_cube.typing import StoreLike

__all__ = ["CubeReport", "cube_report"]

# More footers than that are read only if somebody asks for them.
_COUNTED_FILES = 2_000


class CubeReport(str):
    """A report of a cube: the text of one HTML page, which notebooks show and `save` writes.

    Attributes
    ----------
    facts : ReportFacts
        Everything that the page shows, as values; ``facts.to_json()`` is for programs.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, build_cube, open_store
    >>> cube, store = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales"), open_store("hmemory://")
    >>> _ = build_cube(pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]}), cube, store)
    >>> report = cube_report(cube, store)
    >>> report.startswith("<!doctype html>"), [dataset.files for dataset in report.facts.datasets]
    (True, [2])
    >>> report.save("sales.html").name
    'sales.html'
    """

    __slots__ = ("facts",)

    facts: ReportFacts

    def __new__(cls, facts: ReportFacts) -> Self:
        """The page of these facts."""
        report = super().__new__(cls, page(facts))
        report.facts = facts
        return report

    def __reduce__(self) -> tuple[object, ...]:
        return CubeReport, (self.facts,)

    def to_html(self) -> str:
        """The page."""
        return str.__str__(self)

    def save(self, path: str | Path) -> Path:
        """Write the page to a file and say where it is.

        Raises
        ------
        OSError
            If it cannot be written.
        """
        target = Path(path)
        target.write_text(self, encoding="utf-8")
        return target

    def __repr__(self) -> str:
        facts = self.facts
        files, size = sum(d.files for d in facts.datasets), sum(d.bytes for d in facts.datasets)
        found = sum(a.count for a in facts.advice if a.severity != "info")
        what = f"{pluralize(len(facts.datasets), 'dataset')}, {pluralize(files, 'file')}, {size:,} bytes, {found:,} errors and warnings"
        return f"CubeReport({facts.uuid_prefix!r}: {what})"

    def _repr_html_(self) -> str:
        return article(self.facts)


def cube_report(
    cube: Cube | str,
    store: StoreLike,
    *,
    deep: bool = False,
    rows: bool | None = None,
    now: datetime | None = None,
    options: Overrides | None = None,
) -> CubeReport:
    """What a cube is made of and how it fares, as one HTML page that needs nothing else.

    Nothing is changed.

    The page shows the datasets with their columns, bytes and rows by partition and dataset, the
    sizes of files, how well indices tell files apart, how the datasets grew from commit to commit,
    and what `verify_cube` finds, with the call and the command that mend it.

    Parameters
    ----------
    cube : Cube or str
        The cube, or its uuid prefix.
    store : str, path, store or callable
        Where it lies; everything that `open_store` takes.
    deep : bool, default False
        Verify the data, too; reads all of it.
    rows : bool, optional
        Whether to count rows, for which the footer of every file is read. By default where there
        are no more than 2,000 files.
    now : datetime, optional
        The moment that the page names, instead of the present one.
    options : optional
        What `options` returns: settings for this call.

    Returns
    -------
    CubeReport
        A text; ``save("report.html")`` writes it, ``facts`` has the figures. A damaged cube has a
        report, too.

    Raises
    ------
    DatasetNotFound
        If there is no dataset of such a cube.
    OSError
        If the store cannot be read.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, build_cube, cube_report, open_store
    >>> store = open_store("hmemory://")
    >>> sales = pa.table({"PRODUCT_ID": [1, 2, 3], "COUNTRY_CODE": ["DE", "DE", "FR"], "UNITS": [3, 4, 5]})
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
        opened = open_instrumented(store)
        found = verified(cube, opened, deep=check_flag(deep, "deep"))
        files = sum(len(s.partitions) for s in found.members.values())
        measured = _measured(opened, found, count=files <= _COUNTED_FILES if rows is None else check_flag(rows, "rows"))
        return CubeReport(_facts(opened, found, measured, now or datetime.now(UTC)))


# --- looking --------------------------------------------------------------------------------------


def _measured(store: Store, found: Verified, *, count: bool) -> dict[str, CubeStatistics]:
    """The datasets that can be read, with the sizes of their files by the listing, and the rows by the footers."""
    files = [(s.uuid, key) for s in found.members.values() for key in _files(s).to_pylist()] if count else []
    with closing(map_files(partial(_rows, store), files, store=store)) as rows:
        return {name: _measure(store, found.looks[name], rows if count else None) for name in found.members}


def _files(snapshot: Snapshot) -> pa.Array:
    """The file of each partition; of a damaged document, which names none at all, nulls."""
    return (
        snapshot.files
        if len(snapshot.files) == len(snapshot.partitions)
        else pa.nulls(len(snapshot.partitions), pa.string())
    )


def _rows(store: Store, file: tuple[str, str | None]) -> int:
    """Rows of a file; 0 of one that cannot be read, of which the verification tells."""
    dataset, key = file
    try:
        return 0 if key is None else file_rows(store, key, dataset)
    except DAMAGE:
        return 0


def _measure(store: Store, look: VerifyPass, rows: Iterator[int] | None) -> CubeStatistics:
    assert look.subject is not None
    snapshot = look.subject.snapshot
    sizes = _sizes(store, look.subject, ask=rows is not None)
    counted = (
        None
        if rows is None
        else np.fromiter(islice(rows, len(snapshot.partitions)), dtype=np.int64, count=len(snapshot.partitions))
    )
    return CubeStatistics(snapshot, sizes, counted, look.indices.loaded, look.history.entries)


def _sizes(store: Store, subject: Inspection, *, ask: bool) -> IntArray:
    """The size of each file; 0 where it is missing.

    Where a listing has no sizes, files whose footers are read anyway are asked for it.
    """
    entries, files = subject.entries.values(), _files(subject.snapshot)
    keys = pa.array([e.key for e in entries], type=pa.string())
    positions = pc.index_in(files, value_set=keys)
    unsaid = {e.key for e in entries if e.size is None} if ask else set()
    asked = {key: store.tail(key, 1)[1] for key in files.to_pylist() if key in unsaid}
    sizes = pa.array([asked.get(e.key) if e.size is None else e.size for e in entries], type=pa.int64())
    taken: IntArray = pc.fill_null(sizes.take(positions), 0).to_numpy(zero_copy_only=False)
    return taken


def _facts(store: Store, found: Verified, measured: Mapping[str, CubeStatistics], now: datetime) -> ReportFacts:
    cube = found.cube
    columns = cube.partition_columns if cube is not None else ()
    types = {f.name: str(f.type) for m in measured.values() for f in m.snapshot.schema}
    order = sorted(measured, key=lambda name: (cube is not None and name != cube.seed_dataset, name))
    ordered = {name: measured[name] for name in order}
    return ReportFacts(
        uuid_prefix=found.prefix,
        store=store.name,
        made=now.astimezone(UTC),
        dimensions={c: types.get(c, "?") for c in (cube.dimension_columns if cube is not None else ())},
        partitions={c: types.get(c, "?") for c in columns},
        datasets=tuple(dataset_facts(name, m, cube) for name, m in ordered.items()),
        heat=heat_map(ordered, columns),
        sizes=histogram(np.concatenate([np.zeros(0, np.int64), *(m.sizes for m in ordered.values())])),
        indices=tuple(i for name, m in ordered.items() for i in index_facts(name, m)),
        growth=tuple(growth_of(name, m) for name, m in ordered.items()),
        advice=advice_of(
            found.prefix,
            cube,
            store.name,
            found.report.findings,
            ordered,
            readable=cube is not None and len(measured) == len(found.looks),
        ),
    )
