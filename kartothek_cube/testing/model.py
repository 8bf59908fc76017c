"""The naive reference model of a cube: nested loops over lists of dicts, slow and obviously right.

A test writes the same rows to the library and to a `NaiveCube`, runs the same query on both, and
compares the rows. The model has no index pruning, alignment or join order: a query filters, groups,
projects and sorts the whole joined table.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from kartothek_cube.errors import InvalidInput, MultiTableCommitAborted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from kartothek_cube.cube.cube import Cube

__all__ = ["NaiveCube", "NaiveDataset", "Row", "matches"]

Row: TypeAlias = dict[str, Any]
"""One row: column name to a plain Python value, or ``None``."""

ABSENT = object()
"""The value of a payload column whose dataset lacks the cell."""

_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda value, choices: value in choices,
    "not in": lambda value, choices: value not in choices,
}


@dataclass(frozen=True, slots=True)
class NaiveDataset:
    """The rows of one dataset of a cube, in the order in which they were written.

    Attributes
    ----------
    dimensions
        The dimension columns of the dataset, in the order of the cube.
    payload
        The columns that are neither dimension nor partition columns of the cube.
    partition_on
        The partition columns of the dataset.
    indexed
        The columns by which `NaiveCube.query` may form groups: those of `partition_on` and those
        with a secondary index; dimensions in the seed only.
    files
        The rows of each write call and physical partition. Later files override earlier files, cell
        by cell.

    Examples
    --------
    >>> from kartothek_cube import Cube
    >>> model = NaiveCube(Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales"))
    >>> model.build({"seed": [{"COUNTRY_CODE": "DE", "PRODUCT_ID": 1, "UNITS": 3}]})
    >>> len(model.datasets["seed"].files)
    1
    """

    dimensions: tuple[str, ...]
    payload: frozenset[str]
    partition_on: tuple[str, ...]
    indexed: frozenset[str]
    files: tuple[tuple[Row, ...], ...] = ()

    @property
    def columns(self) -> frozenset[str]:
        """All columns of the dataset."""
        return self.payload | set(self.dimensions) | set(self.partition_on)

    def written(self, rows: Iterable[Row]) -> NaiveDataset:
        """Return the dataset after one more write call."""
        files: dict[tuple[Any, ...], list[Row]] = {}
        for row in rows:
            files.setdefault(_values(row, self.partition_on), []).append(dict(row))
        return replace(self, files=self.files + tuple(tuple(file) for file in files.values()))

    def without(self, conditions: Iterable[Any]) -> NaiveDataset:
        """Return the dataset without files that match the conditions on partition columns."""
        relevant = [condition for condition in conditions if condition.column in self.partition_on]
        kept = [file for file in self.files if not all(matches(file[0], condition) for condition in relevant)]
        return replace(self, files=tuple(kept))

    def key(self, cube: Cube) -> tuple[str, ...]:
        """Return the columns of a cell: dimensions, and the cube's partition columns."""
        return (*self.dimensions, *(column for column in cube.partition_columns if column in self.partition_on))

    def newest_rows(self, cube: Cube) -> list[Row]:
        """Return the visible rows: of each cell the row in the last file."""
        newest: dict[tuple[Any, ...], Row] = {}
        for file in self.files:
            for row in file:
                newest[_values(row, self.key(cube))] = row
        return list(newest.values())


class NaiveCube:
    """A cube as lists of dicts, with verbs to change and query it.

    Parameters
    ----------
    cube
        The specification, as for the library's verbs.

    Examples
    --------
    >>> from kartothek_cube import Cube
    >>> from kartothek_cube.testing.model import NaiveCube
    >>> model = NaiveCube(Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales"))
    >>> model.build({"seed": [{"COUNTRY_CODE": "DE", "PRODUCT_ID": 2, "UNITS": 3}]})
    >>> model.extend({"prices": [{"PRODUCT_ID": 2, "PRICE": 0.5}]}, partition_on={"prices": []})
    >>> model.query(payload_columns=["PRICE"])
    [[{'COUNTRY_CODE': 'DE', 'PRICE': 0.5, 'PRODUCT_ID': 2}]]
    """

    def __init__(self, cube: Cube) -> None:
        self.cube = cube
        self.datasets: dict[str, NaiveDataset] = {}

    def build(self, data: Mapping[str, Sequence[Row]], partition_on: Mapping[str, Sequence[str]] | None = None) -> None:
        """Start with these datasets. All rows of a dataset have the same columns."""
        self.datasets = {}
        self.extend(data, partition_on)

    def extend(
        self, data: Mapping[str, Sequence[Row]], partition_on: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        """Add datasets, or replace datasets of the same name."""
        for name, rows in data.items():
            columns, keys = set(rows[0]), tuple((partition_on or {}).get(name, self.cube.partition_columns))
            dimensions = tuple(column for column in self.cube.dimension_columns if column in columns)
            # A query takes dimension values from the seed, so an enrichment's index on a dimension
            # does not count.
            indexed = (set(keys) | (self.cube.index_columns & columns)) - set(dimensions)
            if name == self.cube.seed_dataset:
                indexed |= set(dimensions) - self.cube.suppress_index_on
            payload = frozenset(columns - set(dimensions) - set(self.cube.partition_columns))
            self.datasets[name] = NaiveDataset(dimensions, payload, keys, frozenset(indexed)).written(rows)

    def append(self, data: Mapping[str, Sequence[Row]]) -> None:
        """Add rows to existing datasets; the new row of a cell replaces the old one."""
        for name, rows in data.items():
            self.datasets[name] = self.datasets[name].written(rows)

    def remove_partitions(self, conditions: object = None, datasets: Iterable[str] | None = None) -> None:
        """Remove matching physical partitions from these datasets, by default from all.

        Raises
        ------
        InvalidInput
            If a dataset that is not named has none of the conditions' columns as partition columns.
        """
        where = _active(conditions)
        self.datasets |= {
            name: self.datasets[name].without(where) for name in self._concerned(where, datasets, self.datasets)
        }

    def update(
        self, data: Mapping[str, Sequence[Row]], conditions: object, datasets: Iterable[str] | None = None
    ) -> None:
        """Remove matching partitions and add rows; conditions of None remove nothing.

        ``datasets`` are by default those in ``data``.

        Raises
        ------
        InvalidInput
            As `remove_partitions`.
        MultiTableCommitAborted
            If a dataset would lose all its rows.
        """
        names = list(data if datasets is None else datasets)
        where = _active(conditions)
        concerned = [] if conditions is None else self._concerned(where, None if datasets is None else names, names)
        changed = {
            name: self.datasets[name].without(where) if name in concerned else self.datasets[name] for name in names
        }
        changed |= {name: changed[name].written(rows) for name, rows in data.items()}
        if empty := sorted(
            name for name, dataset in changed.items() if not dataset.files and self.datasets[name].files
        ):
            raise MultiTableCommitAborted(f"Nothing would be left of {empty}.")
        self.datasets |= changed

    def build_index(self, column: str, datasets: Iterable[str] | None = None) -> None:
        """Add an index on a column to these datasets, by default to all that have the column."""
        for name in list(self.datasets if datasets is None else datasets):
            dataset = self.datasets[name]
            if column in dataset.columns and (
                name == self.cube.seed_dataset or column not in self.cube.dimension_columns
            ):
                self.datasets[name] = replace(dataset, indexed=dataset.indexed | {column})

    def _concerned(self, where: Sequence[Any], named: Iterable[str] | None, otherwise: Iterable[str]) -> list[str]:
        if named is not None:
            return list(named)
        columns = {condition.column for condition in where}
        if lost := sorted(
            name for name in otherwise if columns and not columns & set(self.datasets[name].partition_on)
        ):
            raise InvalidInput(f"Datasets {lost} would lose everything, and are not named.")
        return list(otherwise)

    def query(
        self,
        conditions: object = None,
        datasets: Iterable[str] | None = None,
        dimension_columns: Sequence[str] | None = None,
        partition_by: Sequence[str] | None = None,
        payload_columns: Iterable[str] | None = None,
    ) -> list[list[Row]]:
        """Return the groups of a query, each a list of rows; one group without ``partition_by``.

        No group is empty.

        Raises
        ------
        InvalidInput
            For a column or dataset that does not exist or does not fit the argument.
        """
        visible = self._visible(datasets)
        where = _active(conditions)
        dimensions = self.cube.dimension_columns if dimension_columns is None else tuple(dimension_columns)
        if not dimensions or len(set(dimensions)) < len(dimensions) or set(dimensions) - {*self.cube.dimension_columns}:
            known = self.cube.dimension_columns
            raise InvalidInput(f"Dimension columns {dimensions} are not different columns among {known}.")
        by = tuple(partition_by or ())
        _check_known(visible, by)
        unindexed = [column for column in by if not any(column in dataset.indexed for dataset in visible.values())]
        if unindexed or len(set(by)) < len(by):
            raise InvalidInput(
                f"partition_by {by} must name different columns with an index; without one: {unindexed}."
            )
        payload = _checked_payload(self.cube, visible, dimensions, payload_columns)
        _check_known(visible, [condition.column for condition in where])
        _check_projection(visible, dimensions, payload | set(by) | {condition.column for condition in where})
        groups: dict[tuple[Any, ...], list[Row]] = {}
        for row in self._wide_rows(visible):
            if all(matches(row, condition) for condition in where):
                filled = {column: None if value is ABSENT else value for column, value in row.items()}
                # A null is the key of no group, as in pandas.
                if None not in (key := _values(filled, by)):
                    groups.setdefault(key, []).append(filled)
        output = sorted({*by, *dimensions, *payload, *self.cube.partition_columns})
        order = (*dimensions, *self.cube.partition_columns)
        return [_projected(group, output, order) for _, group in sorted(groups.items())]

    def _visible(self, names: Iterable[str] | None) -> dict[str, NaiveDataset]:
        chosen = set(self.datasets if names is None else names)
        if unknown := chosen - self.datasets.keys():
            raise InvalidInput(f"Datasets {sorted(unknown)} do not exist, there are {sorted(self.datasets)}.")
        if self.cube.seed_dataset not in chosen:
            raise InvalidInput(f'Seed data ("{self.cube.seed_dataset}") is missing.')
        return {name: self.datasets[name] for name in chosen}

    def _wide_rows(self, visible: Mapping[str, NaiveDataset]) -> Iterator[Row]:
        # Left joins only: no condition matches an absent cell, and no group has the key None, so
        # datasets with conditions need no inner join.
        enrichments = [dataset for name, dataset in visible.items() if name != self.cube.seed_dataset]
        for seed_row in visible[self.cube.seed_dataset].newest_rows(self.cube):
            wide = dict(seed_row)
            for dataset in enrichments:
                key = dataset.key(self.cube)
                partners = (
                    row for row in dataset.newest_rows(self.cube) if _values(row, key) == _values(seed_row, key)
                )
                partner = next(partners, {})
                wide |= {column: partner.get(column, ABSENT) for column in dataset.payload}
            yield wide


def matches(row: Row, condition: Any) -> bool:
    """Tell whether a row satisfies one condition.

    A stored ``None`` satisfies ``!=`` and ``not in`` only, an absent cell satisfies no condition.

    Examples
    --------
    >>> from kartothek_cube import C
    >>> matches({"UNITS": 3}, C("UNITS") > 2), matches({"UNITS": None}, C("UNITS") > 2)
    (True, False)
    """
    value = row[condition.column]
    if value is None or value is ABSENT:
        return value is None and getattr(condition, "OP", "") in ("!=", "not in")
    if hasattr(condition, "OP"):
        return bool(_COMPARISONS[condition.OP](value, condition.value))
    return (condition.start is None or value >= condition.start) and (condition.stop is None or value < condition.stop)


def _values(row: Row, columns: Iterable[str]) -> tuple[Any, ...]:
    return tuple(row[column] for column in columns)


def _active(conditions: Any) -> list[Any]:
    if conditions is None:
        return []
    inside = getattr(conditions, "conditions", conditions)
    listed = [inside] if hasattr(inside, "column") else list(inside)
    return [
        condition
        for condition in listed
        if hasattr(condition, "OP") or (condition.start, condition.stop) != (None, None)
    ]


def _available(visible: Mapping[str, NaiveDataset]) -> set[str]:
    return {column for dataset in visible.values() for column in dataset.columns}


def _check_known(visible: Mapping[str, NaiveDataset], columns: Iterable[str]) -> None:
    if unknown := set(columns) - _available(visible):
        raise InvalidInput(f"Columns {sorted(unknown)} do not exist, there are {sorted(_available(visible))}.")


def _checked_payload(
    cube: Cube, visible: Mapping[str, NaiveDataset], dimensions: Sequence[str], payload: Iterable[str] | None
) -> set[str]:
    checked = _available(visible) - set(cube.dimension_columns) if payload is None else set(payload)
    _check_known(visible, checked)
    if dropped := (checked & set(cube.dimension_columns)) - set(dimensions):
        raise InvalidInput(
            f"Dimensions {sorted(dropped)} are dropped by the projection to {tuple(dimensions)} and cannot be payload."
        )
    return checked


def _check_projection(visible: Mapping[str, NaiveDataset], dimensions: Sequence[str], columns: set[str]) -> None:
    for name, dataset in visible.items():
        if dataset.payload & columns and not set(dataset.dimensions) <= set(dimensions):
            raise InvalidInput(
                f'Payload {sorted(dataset.payload & columns)} of "{name}" has dimensions {dataset.dimensions}, '
                f"not only {tuple(dimensions)}."
            )


def _projected(rows: Iterable[Row], output: Sequence[str], order: Sequence[str]) -> list[Row]:
    distinct: list[Row] = []
    for row in rows:
        short = {column: row[column] for column in output}
        if short not in distinct:
            distinct.append(short)
    return sorted(distinct, key=lambda row: _values(row, order))
