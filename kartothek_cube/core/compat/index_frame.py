"""Several index objects at once: the labels that hold given values, and the frame of all indices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kartothek_cube.core.compat.index_base import IndexBase
from kartothek_cube.core.evaluate import Mask, matching_rows
from kartothek_cube.core.frames import to_frame
from kartothek_cube.core.index import SecondaryIndex
from kartothek_cube.core.predicates import Predicates, check_constants, columns_of, parse_predicates
from kartothek_cube.core.rowkeys import IntArray, expand_ranges, pack_one, take_rows
from kartothek_cube.errors import InvalidInput, UnknownColumn
from kartothek_cube.typing import IntoPredicates

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["indices_as_frame", "query_labels"]


def query_labels(labels: Sequence[str], indices: Mapping[str, IndexBase], /, **values: object) -> list[str]:
    """The labels of partitions that hold all these values, in the order of ``labels``.

    Parameters
    ----------
    labels : list of str
        All partitions of the dataset.
    indices : mapping of str to IndexBase
        Loaded indices by column.
    **values
        Column → value; the value may have any type that `IndexBase.normalize_value` takes.

    Raises
    ------
    UnknownColumn
        If there is no index on a column.
    InvalidInput
        If an index is not loaded, or a value cannot be taken for its type.

    Examples
    --------
    >>> from kartothek_cube.core.compat.indices import ExplicitSecondaryIndex
    >>> brands = ExplicitSecondaryIndex("BRAND", {"Acme": ["DE/0", "FR/0"], "Umbra": ["FR/0"]})
    >>> query_labels(["FR/0", "DE/0", "NL/0"], {"BRAND": brands}, BRAND="Acme")
    ['FR/0', 'DE/0']
    """
    _refuse_unknown(values, indices)
    names = pa.array(labels, type=pa.string())
    mask = np.ones(len(names), dtype=bool)
    for column, value in values.items():
        mask &= _mask(indices[column].find(value), names)
    found: list[str] = names.filter(pa.array(mask)).to_pylist()
    return found


def _mask(pairs: SecondaryIndex, names: pa.Array) -> Mask:
    mask = np.zeros(len(names) + 1, dtype=bool)  # one more for labels that the dataset does not have (-1)
    mask[pairs.positions(names)] = True
    return mask[:-1]


def _refuse_unknown(columns: Iterable[str], indices: Mapping[str, IndexBase]) -> None:
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
    """One row for each combination of a partition's indexed values.

    Parameters
    ----------
    labels : list of str
        All partitions of the dataset; rows come in their order, then by value. What an index says of other labels is left out.
    indices : mapping of str to IndexBase
        Loaded indices by column.
    columns : list of str, optional
        Columns of the frame, in this order; by default all indices, by name. Without columns the frame has one row a label.
    date_as_object : bool, default True
        Dates as `datetime.date` objects and not as ``datetime64``.
    predicates : list of list of tuple, optional
        Rows to keep. Clauses on columns without an index count as true.

    Returns
    -------
    pandas.DataFrame
        Its index, called ``partition``, has the labels. A partition that an index does not know, as its rows are all null there, has a null in
        that column; integers and booleans are of pandas' nullable types then.

    Raises
    ------
    UnknownColumn
        If there is no index on a column.
    InvalidInput
        If an index is not loaded.

    Examples
    --------
    >>> from kartothek_cube.core.compat.indices import ExplicitSecondaryIndex
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
    _refuse_unknown(chosen, indices)
    if len(set(chosen)) != len(chosen):
        raise InvalidInput(f"A column is asked for twice: {chosen}.")
    asked = _answerable(parse_predicates(predicates), indices)
    extra = sorted(columns_of(asked) - set(chosen))
    names = pa.array(labels, type=pa.string())
    joined = _matching(_join(names, [indices[c].pairs() for c in [*chosen, *extra]]), asked)
    return _frame(names, _distinct(joined, chosen) if extra else joined, chosen, date_as_object)


def _answerable(predicates: Predicates | None, indices: Mapping[str, IndexBase]) -> Predicates | None:
    """The clauses on indexed columns; None if one of the conjunctions has none of them, so that it is true."""
    known = tuple(tuple(clause for clause in conjunction if clause.column in indices) for conjunction in predicates or ())
    check_constants(chain.from_iterable(known), pa.schema([(c, indices[c].known().values.type) for c in columns_of(known)]))
    return known if known and all(known) else None


@dataclass(frozen=True, slots=True)
class _Joined:
    """Rows of the frame: the position of the label, and the values."""

    label: IntArray
    values: pa.Table


def _join(names: pa.Array, indices: Sequence[SecondaryIndex]) -> _Joined:
    """For each label every combination of its values; null where it has none."""
    label = np.arange(len(names))
    picked: list[IntArray] = []  # for each index the pair of a row, -1 where there is none
    for index in indices:
        rows, pair = _matches(index.positions(names), label, len(names))
        label, picked = label[rows], [*(earlier[rows] for earlier in picked), pair]
    arrays = [i.values.take(pa.array(np.maximum(pair, 0), mask=pair < 0)) for i, pair in zip(indices, picked, strict=True)]
    return _Joined(label, pa.table(arrays, names=[i.column for i in indices]))


def _matches(positions: IntArray, label: IntArray, n: int) -> tuple[IntArray, IntArray]:
    """For each row all pairs of its label, or -1: the number of the row, and the pair."""
    order = np.argsort(positions, kind="stable")
    order = order[np.searchsorted(positions[order], 0) :]
    counts = np.bincount(positions[order], minlength=n)
    slots = np.append(order, -1)  # where the rows without a pair point to
    first = np.where(counts > 0, np.cumsum(counts) - counts, len(order))
    rows, slot = expand_ranges(first[label], np.maximum(counts, 1)[label])
    return rows, slots[slot]


def _matching(joined: _Joined, predicates: Predicates | None) -> _Joined:
    if predicates is None:
        return joined
    return _taken(joined, np.flatnonzero(matching_rows(joined.values, predicates)))


def _distinct(joined: _Joined, columns: Sequence[str]) -> _Joined:
    """The first of the rows that agree in label and columns."""
    keys = pack_one(pa.table([pa.array(joined.label), *joined.values.select(columns).columns], names=["", *columns]), ["", *columns])
    _, first = np.unique(keys, return_index=True)
    return _taken(joined, np.sort(first))


def _taken(joined: _Joined, rows: IntArray) -> _Joined:
    return _Joined(joined.label[rows], take_rows(joined.values, rows))


def _frame(names: pa.Array, joined: _Joined, columns: Sequence[str], date_as_object: bool) -> pd.DataFrame:
    import pandas as pd

    table = joined.values.select(list(columns))
    frame = to_frame(table, dates_as_object=date_as_object, nullable=True) if columns else pd.DataFrame(index=range(len(joined.label)))
    frame.index = pd.Index(names.take(pa.array(joined.label)).to_pandas(), name="partition" if columns else None)
    return frame
