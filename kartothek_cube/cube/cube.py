"""The value `Cube`: which columns address a cell, how the seed is partitioned, what is indexed, and how the datasets are called."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields
from typing import Any

from kartothek_cube.cube.constants import KTK_CUBE_UUID_SEPERATOR
from kartothek_cube.cube.converters import converter_str, converter_str_set, converter_str_tupleset
from kartothek_cube.errors import InvalidInput, InvalidType

__all__ = ["Cube", "require_cube"]

Columns = str | bytes | Iterable[str | bytes]

_NAME = re.compile(r"[a-zA-Z0-9+\-_]+")


@dataclass(frozen=True, order=True, init=False)
class Cube:
    """What makes several datasets one cube. The value is immutable, hashable and picklable and is checked when it is made.

    Wherever columns are expected, one text or an iterable of texts will do; bytes are decoded as UTF-8.

    Parameters
    ----------
    dimension_columns : str or iterable of str
        The columns that address a cell, in the order in which results are sorted. Every one is in the seed dataset.
    partition_columns : str or iterable of str
        The columns by which the seed dataset is physically partitioned, outermost first. None of them is a dimension column.
    uuid_prefix : str
        First part of the uuid of every dataset of the cube: ASCII letters, digits, ``+``, ``-`` and ``_``, without ``++``.
    seed_dataset : str
        Id of the dataset whose rows say which cells exist.
    index_columns : str or iterable of str, optional
        Further columns for which every dataset that has them gets a secondary index.
    suppress_index_on : str or iterable of str, optional
        Dimension columns for which the seed gets no secondary index.

    Raises
    ------
    InvalidInput
        If a value breaks one of these rules.
    InvalidType
        If something is not text, or ordered columns are given as a set or a dict.

    Examples
    --------
    >>> cube = Cube(
    ...     dimension_columns=["SALES_DATE", "PRODUCT_ID"],
    ...     partition_columns="COUNTRY_CODE",
    ...     uuid_prefix="sales",
    ...     index_columns=["BRAND"],
    ... )
    >>> cube.dimension_columns, cube.partition_columns
    (('SALES_DATE', 'PRODUCT_ID'), ('COUNTRY_CODE',))
    >>> cube.ktk_dataset_uuid("prices")
    'sales++prices'
    """

    __slots__ = ("dimension_columns", "index_columns", "partition_columns", "seed_dataset", "suppress_index_on", "uuid_prefix")

    dimension_columns: tuple[str, ...]
    partition_columns: tuple[str, ...]
    uuid_prefix: str
    seed_dataset: str
    index_columns: frozenset[str]
    suppress_index_on: frozenset[str]

    def __init__(
        self,
        dimension_columns: Columns,
        partition_columns: Columns,
        uuid_prefix: str | bytes,
        seed_dataset: str | bytes = "seed",
        index_columns: Columns | None = None,
        suppress_index_on: Columns | None = None,
    ) -> None:
        converted: dict[str, Any] = {
            "dimension_columns": converter_str_tupleset(dimension_columns),
            "partition_columns": converter_str_tupleset(partition_columns),
            "uuid_prefix": converter_str(uuid_prefix),
            "seed_dataset": converter_str(seed_dataset),
            "index_columns": converter_str_set(index_columns),
            "suppress_index_on": converter_str_set(suppress_index_on),
        }
        for name, value in converted.items():
            object.__setattr__(self, name, value)
        self._check()

    def _check(self) -> None:
        _check_not_empty("dimension_columns", self.dimension_columns)
        _check_not_empty("partition_columns", self.partition_columns)
        _check_disjoint("partition_columns", self.partition_columns, "dimension_columns", self.dimension_columns)
        _check_name("uuid_prefix", self.uuid_prefix)
        _check_dataset_id("seed_dataset", self.seed_dataset)
        _check_disjoint("index_columns", self.index_columns, "dimension_columns", self.dimension_columns)
        _check_disjoint("index_columns", self.index_columns, "partition_columns", self.partition_columns)
        _check_subset("suppress_index_on", self.suppress_index_on, "dimension_columns", self.dimension_columns)

    def __reduce__(self) -> tuple[type[Cube], tuple[Any, ...]]:
        return type(self), tuple(getattr(self, field.name) for field in fields(self))

    @property
    def ktk_index_columns(self) -> set[str]:
        """All columns that can have an index: partition columns, index columns and dimension columns that are not suppressed.

        Examples
        --------
        >>> sorted(Cube(["SALES_DATE", "PRODUCT_ID"], "COUNTRY_CODE", "sales", suppress_index_on="PRODUCT_ID").ktk_index_columns)
        ['COUNTRY_CODE', 'SALES_DATE']
        """
        return set(self.partition_columns) | self.index_columns | (set(self.dimension_columns) - self.suppress_index_on)

    def ktk_dataset_uuid(self, ktk_cube_dataset_id: str | bytes) -> str:
        """The uuid under which the store knows a dataset of this cube.

        Parameters
        ----------
        ktk_cube_dataset_id : str
            Name of the dataset inside the cube. It follows the rules of the prefix and does not begin with ``+``, so that
            a uuid is split in one way only: ``a+++b`` is dataset ``b`` of the cube ``a+``.

        Raises
        ------
        InvalidInput
            If the id breaks these rules.
        InvalidType
            If it is not text.

        Examples
        --------
        >>> Cube("PRODUCT_ID", "COUNTRY_CODE", "sales").ktk_dataset_uuid("stock")
        'sales++stock'
        """
        dataset_id = _check_dataset_id("ktk_cube_dataset_id", converter_str(ktk_cube_dataset_id))
        return f"{self.uuid_prefix}{KTK_CUBE_UUID_SEPERATOR}{dataset_id}"

    def copy(self, **kwargs: object) -> Cube:
        """A cube in which the named attributes have other values; everything is checked again.

        Examples
        --------
        >>> Cube("PRODUCT_ID", "COUNTRY_CODE", "sales").copy(uuid_prefix="sales2").uuid_prefix
        'sales2'
        """
        return Cube(**{field.name: getattr(self, field.name) for field in fields(self)} | kwargs)


def _check_not_empty(name: str, columns: Collection[str]) -> None:
    if not columns:
        raise InvalidInput(f"{name} must not be empty")


def _check_disjoint(name: str, columns: Iterable[str], other: str, other_columns: Iterable[str]) -> None:
    shared = sorted(set(columns) & set(other_columns))
    if shared:
        raise InvalidInput(f"{name} cannot share columns with {other}, but share the following: {', '.join(shared)}")


def _check_subset(name: str, columns: Iterable[str], other: str, other_columns: Iterable[str]) -> None:
    extra = sorted(set(columns) - set(other_columns))
    if extra:
        raise InvalidInput(f"{name} must be a subset of {other}, but it has additional values: {', '.join(extra)}")


def _check_name(name: str, text: str) -> str:
    if _NAME.fullmatch(text) is None:
        raise InvalidInput(f'{name} ("{text}") is not compatible with kartothek: it takes ASCII letters, digits, "+", "-" and "_", at least one')
    if KTK_CUBE_UUID_SEPERATOR in text:
        raise InvalidInput(f'{name} ("{text}") must not contain UUID separator {KTK_CUBE_UUID_SEPERATOR}')
    return text


def _check_dataset_id(name: str, text: str) -> str:
    # "a" + "++" + "+b" is also "a+" + "++" + "b". The second reading is the one that is kept, so prefixes may end in "+".
    if _check_name(name, text).startswith("+"):
        raise InvalidInput(f'{name} ("{text}") must not begin with "+": its uuid would be that of dataset "{text[1:]}" in a cube whose prefix ends in "+"')
    return text


def require_cube(cube: object) -> Cube:
    """The cube, or `InvalidType` if it is none: the verbs take it where kartothek's users may have given its prefix."""
    if not isinstance(cube, Cube):
        raise InvalidType(f"Expected a Cube, got {cube!r} ({type(cube).__name__}). open_cube(uuid_prefix, store) makes one from a stored cube.")
    return cube
