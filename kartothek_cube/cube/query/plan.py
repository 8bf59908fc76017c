"""The plan of a query as a picklable value without a store. Pure.

Modules that show a plan are imported when it is shown: an executor that loads groups needs none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import pyarrow as pa

from kartothek_cube.core.arrow.keys import IntArray
from kartothek_cube.core.display import Step
from kartothek_cube.cube.query.align import Aligned
from kartothek_cube.cube.query.groups import AlignedFiles, GroupContext, Groups
from kartothek_cube.cube.query.intention import Intention
from kartothek_cube.cube.query.partitions import DatasetPartitions
from kartothek_cube.typing import GroupKey

__all__ = ["QueryPlan"]


@dataclass(frozen=True, slots=True, eq=False)
class QueryPlan:
    """The files that each group of a query reads, and how they are joined.

    The plan pins exact file keys: every execution sees the same state of the cube. Planning reads
    no data file.

    Attributes
    ----------
    intention : Intention
        The checked query.
    context : GroupContext
        The values that the groups share.
    aligned : Aligned
        Partitions of all datasets side by side, in the order of the groups.
    group_offsets : numpy.ndarray
        Group *i* has the aligned partitions ``group_offsets[i]`` to ``group_offsets[i + 1]``.
    slice_order, slice_offsets : numpy.ndarray
        The same aligned partitions by the cube's partition columns.
    partitions : Mapping[str, DatasetPartitions]
        The partitions of each dataset.
    file_columns, value_columns : Mapping
        Keys and partition values of the files of each dataset that the query reads.
    steps : tuple of Step
        The steps of planning, for `explain`.
    commits : Mapping[str, str or None]
        The last commit of each dataset in the state that the plan reads, None after a writer that
        keeps no history. ``as_of=``, ``changed_since=`` and ``since=`` of queries of the same
        datasets take it; it depends on no clock.
    removed : pyarrow.Table, optional
        Of a plan with ``changed_since``: the keys of `removed_group_keys`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, build_cube, open_store
    >>> cube, store = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales"), open_store("hmemory://")
    >>> sales = pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = build_cube(sales, cube, store)
    >>> from kartothek_cube import C, plan_cube_query
    >>> plan = plan_cube_query(cube, store, C("COUNTRY_CODE") == "DE")
    >>> len(plan.groups), len(plan.files()["seed"]), plan.schema.names
    (1, 1, ['COUNTRY_CODE', 'PRODUCT_ID', 'UNITS'])
    >>> print(plan.explain().splitlines()[0])
    Query of cube 'sales'
    """

    intention: Intention
    context: GroupContext
    aligned: Aligned
    group_offsets: IntArray
    slice_order: IntArray
    slice_offsets: IntArray
    partitions: Mapping[str, DatasetPartitions]
    file_columns: Mapping[str, pa.Array]
    value_columns: Mapping[str, pa.Table]
    steps: tuple[Step, ...]
    commits: Mapping[str, str | None] = field(default_factory=dict)
    removed: pa.Table | None = None

    @property
    def groups(self) -> Groups:
        """The groups, created on demand."""
        return Groups(self._aligned_files(), self.group_offsets)

    @property
    def slices(self) -> Groups:
        """The same work cut by the cube's partition columns alone: each seed file is read once."""
        return Groups(self._aligned_files(), self.slice_offsets, self.slice_order)

    def _aligned_files(self) -> AlignedFiles:
        return AlignedFiles(self.context, self.aligned, self.partitions, self.file_columns, self.value_columns)

    @property
    def schema(self) -> pa.Schema:
        """Columns and types of the result."""
        return self.context.schema

    def group_keys(self) -> pa.Table:
        """The values of `Group.key`, one row per group."""
        names = list(self.context.partition_by or self.context.partition_columns)
        return self.aligned.keys.select(names).take(pa.array(self.group_offsets[:-1]))

    def removed_group_keys(self) -> list[GroupKey]:
        """Keys of the groups that this query had at ``changed_since`` and does not have any more.

        A group is in a plan if it has files to read. A group whose rows are gone, but not its
        files, is among ``groups`` and is loaded empty.

        Returns
        -------
        list of dict
            Values as in `Group.key`; empty for a plan without ``changed_since``.
        """
        keys: list[GroupKey] = [] if self.removed is None else self.removed.to_pylist()
        return keys

    def file_counts(self) -> dict[str, int]:
        """Number of distinct files of each dataset that the query reads."""
        return {r.id: len(self.file_columns[r.id]) for r in self.context.roles}

    def files(self) -> dict[str, list[str]]:
        """Keys of the files of each dataset that the query reads, each once."""
        return {r.id: self.file_columns[r.id].to_pylist() for r in self.context.roles}

    def reads(self, datasets: Collection[str] | None = None) -> int:
        """Number of file reads, of all or some datasets, if every group were loaded alone."""
        selected = {i: p for i, p in self.aligned.parts.items() if datasets is None or i in datasets}
        return sum(int(np.diff(self.partitions[i].offsets)[parts[parts >= 0]].sum()) for i, parts in selected.items())

    def amplification(self) -> float:
        """Reads per file if every group were loaded alone."""
        files = sum(self.file_counts().values())
        return self.reads() / files if files else 1.0

    def explain(self, format: str = "text") -> str:  # noqa: A002 - the name users know from data frames
        """The query, the steps of planning with counts before and after each, the files to read.

        Parameters
        ----------
        format : {"text", "html", "json"}
            JSON lists all files, the other formats the first few.

        Raises
        ------
        InvalidInput
            For another format.
        """
        from kartothek_cube.core.display import render
        from kartothek_cube.cube.query.explain_steps import explanation

        return render(explanation(self.intention, self.steps, chain.from_iterable(self.files().values())), format)

    def __repr__(self) -> str:
        files = sum(self.file_counts().values())
        return f"QueryPlan(cube={self.context.uuid_prefix!r}, groups={len(self.groups)}, files={files})"

    def to_svg(self) -> str:
        """The plan as a drawing: datasets are columns, aligned partitions are rows.

        It shows which partitions are read, which are missing, and which were dropped. Many
        neighbouring partitions are drawn as bands, so the drawing does not grow with their number.
        It adapts to light and dark.

        Returns
        -------
        str
            An SVG document, which can also be embedded in HTML. Equal plans give equal drawings.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from kartothek_cube import C, Cube, build_cube, open_store, plan_cube_query
        >>> store, cube = open_store("hmemory://"), Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
        >>> sales = pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]})
        >>> _ = build_cube(sales, cube, store)
        >>> plan_cube_query(cube, store, C("COUNTRY_CODE") == "DE").to_svg()[:4]
        '<svg'
        """
        from kartothek_cube.cube.query.plan_chart import picture_of
        from kartothek_cube.cube.query.plan_svg import draw

        order, offsets = self.slice_order, self.slice_offsets
        counts, groups = self.file_counts(), len(self.groups)
        return draw(picture_of(self.intention, self.aligned, order, offsets, self.partitions, counts, groups))

    def _repr_html_(self) -> str:
        from kartothek_cube.core.display import Markup, details

        drawing = details("drawing", Markup(self.to_svg()))
        return f'{self.explain("html")}<div class="kartothek-cube">{drawing}</div>'
