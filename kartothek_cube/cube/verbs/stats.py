"""Count the partitions, files, bytes and rows of the datasets of a cube."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from functools import partial
from itertools import islice

import numpy as np
import pyarrow.compute as pc

from kartothek_cube.core.display import in_notebook, show_bytes, show_count, table
from kartothek_cube.core.io.reader import file_rows
from kartothek_cube.core.metadata.naming import SINGLE_TABLE
from kartothek_cube.core.runtime.executor import THREADS, Executor, map_files, map_in_threads
from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.snapshots.statistics import extents_of_files
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.cube.arguments import check_not_loaded
from kartothek_cube.cube.cube import Cube
from kartothek_cube.cube.members.discovery import cube_and_store, read_members
from kartothek_cube.typing import AsOf, IntoDatasets, StoreLike

__all__ = ["CubeStats", "collect_stats", "collect_stats_on"]


class CubeStats(dict[str, dict[str, int]]):
    """Dataset id → figures: a dict that notebooks show as a table.

    Examples
    --------
    >>> CubeStats(seed={"blobsize": 1_234, "files": 2, "partitions": 2, "rows": 12})["seed"]["rows"]
    12
    """

    __slots__ = ()

    def _repr_html_(self) -> str:
        rows = [_table_row(name, stats) for name, stats in self.items()]
        figures = ("blobsize", "files", "partitions", "rows")
        total = {figure: sum(stats[figure] for stats in self.values()) for figure in figures}
        foot = _table_row("total", total) if len(self) > 1 else ()
        head = ("dataset", "partitions", "files", "rows", "size", "mean file")
        return in_notebook(table(head, rows, numbers=range(1, 6), foot=foot))


def _table_row(name: str, stats: Mapping[str, int]) -> tuple[str, ...]:
    mean = show_bytes(stats["blobsize"] / stats["files"]) if stats["files"] else ""
    counts = map(show_count, (stats["partitions"], stats["files"], stats["rows"]))
    return (name, *counts, show_bytes(stats["blobsize"]), mean)


def collect_stats(
    cube: Cube | str,
    store: StoreLike,
    datasets: IntoDatasets = None,
    *,
    as_of: AsOf | None = None,
    options: Overrides | None = None,
) -> CubeStats:
    """Count the partitions, files, bytes and rows of each dataset.

    Parameters
    ----------
    cube, store
        As in `query_cube`.
    datasets : str, iterable of str, or dict, optional
        The datasets to count; unknown ids are skipped. By default all.
    as_of : str or datetime, optional
        As in `query_cube`.
    options : optional
        The result of `options`: settings for this call.

    Returns
    -------
    CubeStats
        A dict, shown as a table in notebooks: dataset id → ``{"blobsize": bytes of the data files,
        "files": ..., "partitions": ..., "rows": ...}``. Rows are stored rows, including those that
        a later append overrides. A partitioned dataset without partitions is left out.

    Raises
    ------
    KeyNotFound
        If a data file without statistics is missing, or the schema file of a dataset that needs
        one. To count without a broken dataset, name the others in ``datasets``.
    CorruptDocument
        If the document of a dataset cannot be read.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, build_cube, collect_stats, open_store
    >>> store = open_store("hmemory://")
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> _ = build_cube(pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]}), cube, store)
    >>> stats = collect_stats(cube, store)["seed"]
    >>> stats["partitions"], stats["files"], stats["rows"]
    (2, 2, 2)
    """
    with operation("collect_stats", options, cube=cube):
        return collect_stats_on(THREADS, cube, store, datasets, as_of)


def collect_stats_on(
    executor: Executor, cube: Cube | str, store: StoreLike, datasets: IntoDatasets, as_of: AsOf | None
) -> CubeStats:
    """Count as `collect_stats` inside an operation; the executor reads needed footers."""
    cube, opened = cube_and_store(cube, store, as_of)
    if isinstance(datasets, Mapping):
        check_not_loaded(as_of)
        members = {str(i): d.snapshot for i, d in datasets.items()}
    else:
        members = read_members(cube.uuid_prefix, opened, datasets, as_of=as_of)
    counted = {i: s for i, s in members.items() if len(s.partitions) or not s.partition_keys}
    extents = map_in_threads(lambda s: extents_of_files(opened, s, s.files), counted.values(), store=opened)
    known = dict(zip(counted, extents, strict=True))
    unknown = {i: s.files.filter(known[i].rows.is_null()).to_pylist() for i, s in counted.items()}
    files = [(counted[i].uuid, key) for i, keys in unknown.items() for key in keys]
    stats = {}
    # One pass over the files of all datasets: footers of the next load while one is summed up.
    with closing(map_files(partial(_rows, opened), files, executor=executor, store=opened)) as counts:
        for name, snapshot in counted.items():
            rows = pc.sum(known[name].rows, min_count=0).as_py() + sum(islice(counts, len(unknown[name])))
            blobs = pc.sum(known[name].sizes, min_count=0).as_py()
            unsized = snapshot.files.filter(known[name].sizes.is_null()).to_pylist()
            # One listing has the sizes of nearly all files; the others take a request each.
            listing = opened.list(f"{snapshot.uuid}/{SINGLE_TABLE}/", recursive=True).entries if unsized else ()
            sizes = {e.key: e.size for e in listing}
            blobs += sum(size if (size := sizes.get(key)) is not None else opened.tail(key, 1)[1] for key in unsized)
            partitions = len(np.unique(snapshot.physical_partitions())) if snapshot.partition_keys else 1
            stats[name] = {"blobsize": blobs, "files": len(snapshot.files), "partitions": partitions, "rows": rows}
    return CubeStats(stats)


def _rows(store: Store, file: tuple[str, str]) -> int:
    dataset, key = file
    return file_rows(store, key, dataset)
