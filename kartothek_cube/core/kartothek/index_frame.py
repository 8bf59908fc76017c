"""Queries of several indices: labels that have given values, and the frame of all indices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kartothek_cube.core.arrow.pandas import to_frame
from kartothek_cube.core.arrow.sort_keys import IntArray, expand_ranges, pack_one, take_rows
from kartothek_cube.core.expressions.evaluate import matching_rows
from kartothek_cube.core.expressions.predicates import Predicates, check_constants, columns_of, parse_predicates
from kartothek_cube.core.kartothek.index_base import IndexBase
from kartothek_cube.core.metadata.index import SecondaryIndex
from kartothek_cube.errors import InvalidInput, UnknownColumn
from kartothek_cube.typing import IntoPredicates

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["indices_as_frame", "query_labels"]


def query_labels(labels: Sequence[str], indices: Mapping[str, IndexBase], /, **values: object) -> list[str]:
    """Labels of the partitions that have all these values, in the order of ``labels``.

    Parameters
    ----------
    labels : list of str
        All partitions of the dataset.
    indices : mapping of str to IndexBase
        Loaded indices by column.
    **values
        Column → value of any type that `IndexBase.normalize_value` takes.

    Raises
    ------
    UnknownColumn
        If there is no index on a column.
    InvalidInput
        If an index is not loaded, or a value cannot be converted to its type.

    Examples
    --------
    >>> from kartothek_cube.core.kartothek.indices import ExplicitSecondaryIndex
    >>> brands = ExplicitSecondaryIndex("BRAND", {"Acme": ["DE/0", "FR/0"], "Umbra": ["FR/0"]})
    >>> query_labels(["FR/0", "DE/0", "NL/0"], {"BRAND": brands}, BRAND="Acme")
    ['FR/0', 'DE/0']
    """
    _check_indexed(values, indices)
    names = pa.array(labels, type=pa.string())
    mask = np.ones(len(names), dtype=bool)
    for column, value in values.items():
        # The last position, -1, is for labels that the dataset does not have.
        has_value = np.zeros(len(names) + 1, dtype=bool)
        has_value[indices[column].find(value).positions(names)] = True
        mask &= has_value[:-1]
    matching: list[str] = names.filter(pa.array(mask)).to_pylist()
    return matching


def _check_indexed(columns: Iterable[str], indices: Mapping[str, IndexBase]) -> None:
    unknown = sorted(set(columns) - set(indices))
    if unknown:
        raise UnknownColumn(f"Unknown index columns: {', '.join(unknown)}. There are indices on {sorted(indices)}.")


def indices_as_frame(
    labels: Sequence[str],
    indices: Mapping[str, IndexBase],
    columns: Iterable[str] | None = None,
    date_as_object: bool = True,
    predicates: IntoPredicates | None = None,
) -> pd.DataFrame:
    """One row per combination of the indexed values of a partition.

    Parameters
    ----------
    labels : list of str
        All partitions of the dataset, in the order of the rows; then rows are by value. Other
        labels in an index are ignored.
    indices : mapping of str to IndexBase
        Loaded indices by column.
    columns : list of str, optional
        Columns of the frame, in this order; by default all indices, by name. With no columns the
        frame has one row per label.
    date_as_object : bool, default True
        Dates as `datetime.date` objects and not as ``datetime64``.
    predicates : list of list of tuple, optional
        Keep matching rows. Clauses on columns without an index count as true.

    Returns
    -------
    pandas.DataFrame
        The frame's index ``partition`` has the labels. A partition that is missing in an index (all
        its rows are null there) has a null in that column; integers and booleans then have pandas'
        nullable types.

    Raises
    ------
    UnknownColumn
        If there is no index on a column.
    InvalidInput
        If an index is not loaded.

    Examples
    --------
    >>> from kartothek_cube.core.kartothek.indices import ExplicitSecondaryIndex
    >>> brands = ExplicitSecondaryIndex("BRAND", {"Acme": ["DE/0", "FR/0"], "Umbra": ["FR/0"]})
    >>> indices_as_frame(["DE/0", "FR/0", "NL/0"], {"BRAND": brands}).fillna("-")
               BRAND
    partition
    DE/0        Acme
    FR/0        Acme
    FR/0       Umbra
    NL/0           -
    """
    chosen = sorted(indices) if columns is None else list(columns)
    _check_indexed(chosen, indices)
    if len(set(chosen)) != len(chosen):
        raise InvalidInput(f"A column is asked for twice: {chosen}.")
    filters = _clauses_on_indices(parse_predicates(predicates), indices)
    extra = sorted(columns_of(filters) - set(chosen))
    names = pa.array(labels, type=pa.string())
    joined = _join(names, [indices[c].pairs() for c in [*chosen, *extra]])
    if filters is not None:
        joined = joined.take(np.flatnonzero(matching_rows(joined.values, filters)))
    # Columns that only the predicates need have multiplied the rows.
    return _frame(names, _distinct(joined, chosen) if extra else joined, chosen, date_as_object)


def _clauses_on_indices(predicates: Predicates | None, indices: Mapping[str, IndexBase]) -> Predicates | None:
    """The clauses on indexed columns; None if a conjunction has no such clause, so it is true."""
    indexed = tuple(
        tuple(clause for clause in conjunction if clause.column in indices) for conjunction in predicates or ()
    )
    schema = pa.schema([(c, indices[c].known().values.type) for c in columns_of(indexed)])
    check_constants(chain.from_iterable(indexed), schema)
    return indexed if indexed and all(indexed) else None


@dataclass(frozen=True, slots=True)
class _Joined:
    """Rows of the frame: the position of the label, and the values."""

    label: IntArray
    values: pa.Table

    def take(self, rows: IntArray) -> _Joined:
        return _Joined(self.label[rows], take_rows(self.values, rows))


def _join(names: pa.Array, indices: Sequence[SecondaryIndex]) -> _Joined:
    """Every combination of the values of each label; null where a label has no value."""
    label = np.arange(len(names))
    picked: list[IntArray] = []  # per index: the pair of each row, or -1
    for index in indices:
        rows, pair = _matches(index.positions(names), label, len(names))
        label, picked = label[rows], [*(earlier[rows] for earlier in picked), pair]
    arrays = [
        i.values.take(pa.array(np.maximum(pair, 0), mask=pair < 0)) for i, pair in zip(indices, picked, strict=True)
    ]
    return _Joined(label, pa.table(arrays, names=[i.column for i in indices]))


def _matches(positions: IntArray, label: IntArray, n: int) -> tuple[IntArray, IntArray]:
    """All pairs of the label of each row, or -1: the number of the row, and the pair."""
    order = np.argsort(positions, kind="stable")
    order = order[np.searchsorted(positions[order], 0) :]
    counts = np.bincount(positions[order], minlength=n)
    slots = np.append(order, -1)  # rows without a pair point to the last slot
    # Rows of one label are neighbours in `order`: a range per label, of length 1 if it has no pair.
    first = np.where(counts > 0, np.cumsum(counts) - counts, len(order))
    rows, slot = expand_ranges(first[label], np.maximum(counts, 1)[label])
    return rows, slots[slot]


def _distinct(joined: _Joined, columns: Sequence[str]) -> _Joined:
    """The first of the rows with equal label and columns."""
    names = ["", *columns]
    keys = pa.table([pa.array(joined.label), *joined.values.select(columns).columns], names=names)
    _, first = np.unique(pack_one(keys, names), return_index=True)
    return joined.take(np.sort(first))


def _frame(names: pa.Array, joined: _Joined, columns: Sequence[str], date_as_object: bool) -> pd.DataFrame:
    import pandas as pd

    table = joined.values.select(list(columns))
    frame = (
        to_frame(table, dates_as_object=date_as_object, nullable=True)
        if columns
        else pd.DataFrame(index=range(len(joined.label)))
    )
    # kartothek gives the index no name if there are no columns.
    frame.index = pd.Index(names.take(pa.array(joined.label)).to_pandas(), name="partition" if columns else None)
    return frame
