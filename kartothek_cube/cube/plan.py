"""The plan of a query: which files each group reads and how they are joined. A picklable value without a store.

What shows a plan is imported when it is shown: plans travel to executors by the thousand.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa

from kartothek_cube.core.explain import Step
from kartothek_cube.core.rowkeys import IntArray
from kartothek_cube.cube.align import Aligned
from kartothek_cube.cube.groups import AlignedFiles, GroupContext, Groups
from kartothek_cube.cube.intention import Intention
from kartothek_cube.cube.partitions import DatasetPartitions

__all__ = ["QueryPlan"]


@dataclass(frozen=True, slots=True, eq=False)
class QueryPlan:
    """Which files each group of a query reads, and how they are joined.

    The plan pins exact file keys, so that everyone who runs it sees the same state of the cube. Making it reads no data
    file.

    Attributes
    ----------
    intention : Intention
        The checked query.
    context : GroupContext
        What the groups share.
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
        What planning did, for `explain`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, build_cube, open_store
    >>> cube, store = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales"), open_store("hmemory://")
    >>> _ = build_cube(pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]}), cube, store)
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

    @property
    def groups(self) -> Groups:
        """The groups, made on demand."""
        return Groups(self._aligned_files(), self.group_offsets)

    @property
    def slices(self) -> Groups:
        """The same work cut by the cube's partition columns alone: every seed file is read once."""
        return Groups(self._aligned_files(), self.slice_offsets, self.slice_order)

    def _aligned_files(self) -> AlignedFiles:
        return AlignedFiles(self.context, self.aligned, self.partitions, self.file_columns, self.value_columns)

    @property
    def schema(self) -> pa.Schema:
        """Columns and types of the result."""
        return self.context.schema

    def group_keys(self) -> pa.Table:
        """One row a group: the values that `Group.key` has."""
        names = list(self.context.partition_by or self.context.partition_columns)
        return self.aligned.keys.select(names).take(pa.array(self.group_offsets[:-1]))

    def file_counts(self) -> dict[str, int]:
        """Number of distinct files of each dataset that the query reads."""
        return {r.id: len(self.file_columns[r.id]) for r in self.context.roles}

    def files(self) -> dict[str, list[str]]:
        """Keys of the files of each dataset that the query reads, each once."""
        return {r.id: self.file_columns[r.id].to_pylist() for r in self.context.roles}

    def reads(self, datasets: Collection[str] | None = None) -> int:
        """Number of file reads, of all or some datasets, if every group were loaded alone."""
        chosen = {i: p for i, p in self.aligned.parts.items() if datasets is None or i in datasets}
        return sum(int(np.diff(self.partitions[i].offsets)[parts[parts >= 0]].sum()) for i, parts in chosen.items())

    def amplification(self) -> float:
        """Reads per file if every group were loaded alone."""
        files = sum(self.file_counts().values())
        return self.reads() / files if files else 1.0

    def explain(self, format: str = "text") -> str:  # noqa: A002 - the name users know from data frames
        """What was asked for, every step of planning with what was there before and after it, and the files that are read.

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
        from kartothek_cube.cube.steps import explanation

        return render(explanation(self.intention, self.steps, chain.from_iterable(self.files().values())), format)

    def __repr__(self) -> str:
        return f"QueryPlan(cube={self.context.uuid_prefix!r}, groups={len(self.groups)}, files={sum(self.file_counts().values())})"

    def to_svg(self) -> str:
        """The plan as a drawing: datasets are columns, aligned partitions are rows; what is read of them, what is lacking, and what was dropped.

        Neighbouring partitions are drawn as bands where there are many, so that the drawing does not grow with them. It adapts to light and dark.

        Returns
        -------
        str
            A document of its own, which can also stand inside a page of HTML. Equal plans give equal drawings.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from kartothek_cube import C, Cube, build_cube, open_store, plan_cube_query
        >>> store, cube = open_store("hmemory://"), Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
        >>> _ = build_cube(pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]}), cube, store)
        >>> plan_cube_query(cube, store, C("COUNTRY_CODE") == "DE").to_svg()[:4]
        '<svg'
        """
        from kartothek_cube.cube.drawing import draw
        from kartothek_cube.cube.picture import picture_of

        order, offsets = self.slice_order, self.slice_offsets
        return draw(picture_of(self.intention, self.aligned, order, offsets, self.partitions, self.file_counts(), len(self.groups)))

    def _repr_html_(self) -> str:
        from kartothek_cube.core.markup import Markup, details

        drawing = details("drawing", Markup(self.to_svg()))
        return f'{self.explain("html")}<div class="kartothek-cube">{drawing}</div>'
