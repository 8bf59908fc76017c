"""The `Cube` as a value, and the arguments that cube verbs share. Pure.

In order:

- the cube, its keys in user metadata, the columns that a query shows
- dataset ids, given datasets, conditions on partition columns
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kartothek_cube.core.arguments import converter_str, converter_str_set, converter_str_tupleset
from kartothek_cube.core.expressions.conditions import Conjunction, conjunction_of
from kartothek_cube.core.expressions.predicates import Clause
from kartothek_cube.core.metadata.snapshot import (
    Snapshot,
)
from kartothek_cube.core.scan.plan import check_predicate_columns
from kartothek_cube.errors import InvalidInput, InvalidType
from kartothek_cube.typing import IntoConditions

if TYPE_CHECKING:
    from kartothek_cube.core.kartothek.dataset_metadata import DatasetMetadata


# Compression of the data files that cube verbs write where no df_serializer is given.
KTK_CUBE_COMPRESSION: Final = "ZSTD"

KTK_CUBE_METADATA_STORAGE_FORMAT: Final = "json"
KTK_CUBE_METADATA_VERSION: Final = 4

# Keys of the user metadata from which `open_cube` recovers the `Cube`.
KTK_CUBE_METADATA_SUPPRESS_INDEX_ON: Final = "ktk_cube_suppress_index_on"

# Between the prefix of a cube and the id of a dataset. The spelling is kartothek's.
KTK_CUBE_UUID_SEPERATOR: Final = "++"

# Written by kartothek's predecessor: read, never written. The column is hidden in every query.
LEGACY_TIMESTAMP_PAYLOAD: Final = "KLEE_TS"

Columns = str | bytes | Iterable[str | bytes]

_NAME = re.compile(r"[a-zA-Z0-9+\-_]+")


@dataclass(frozen=True, order=True, init=False)
class Cube:
    """The columns, the prefix and the seed that make several datasets one cube.

    The value is immutable, hashable and picklable. It is checked when it is created.

    Wherever columns are expected, one text or an iterable of texts will do; bytes are decoded as
    UTF-8.

    Parameters
    ----------
    dimension_columns : str or iterable of str
        The columns that address a cell, in the order in which results are sorted. Every one is in
        the seed dataset.
    partition_columns : str or iterable of str
        The columns by which the seed dataset is physically partitioned, outermost first. None of
        them is a dimension column.
    uuid_prefix : str
        First part of the uuid of every dataset of the cube: ASCII letters, digits, ``+``, ``-`` and
        ``_``, without ``++``.
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

    __slots__ = (
        "dimension_columns",
        "index_columns",
        "partition_columns",
        "seed_dataset",
        "suppress_index_on",
        "uuid_prefix",
    )

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
        if any(type(name) is not str for name in converted["partition_columns"]):
            from kartothek_cube.core.write.prepare import refuse_derived

            refuse_derived(converted["partition_columns"], "partition_columns of a cube")
        for name, value in converted.items():
            # The only way to set a field of a frozen dataclass.
            object.__setattr__(self, name, value)
        _check_not_empty("dimension_columns", self.dimension_columns)
        _check_not_empty("partition_columns", self.partition_columns)
        _check_disjoint("partition_columns", self.partition_columns, "dimension_columns", self.dimension_columns)
        _check_name("uuid_prefix", self.uuid_prefix)
        _check_dataset_id("seed_dataset", self.seed_dataset)
        _check_disjoint("index_columns", self.index_columns, "dimension_columns", self.dimension_columns)
        _check_disjoint("index_columns", self.index_columns, "partition_columns", self.partition_columns)
        extra = sorted(self.suppress_index_on - set(self.dimension_columns))
        if extra:
            raise InvalidInput(
                "suppress_index_on must be a subset of dimension_columns, "
                f"but it has additional values: {', '.join(extra)}"
            )

    # With __slots__ and no __dict__, the default would restore the fields by assignment.
    def __reduce__(self) -> tuple[type[Cube], tuple[Any, ...]]:
        return type(self), tuple(getattr(self, field.name) for field in fields(self))

    @property
    def ktk_index_columns(self) -> set[str]:
        """All columns that can have an index.

        These are partition columns, index columns, and dimension columns that are not suppressed.

        Examples
        --------
        >>> cube = Cube("SALES_DATE", "COUNTRY_CODE", "sales").copy(index_columns=["BRAND"])
        >>> sorted(cube.ktk_index_columns)
        ['BRAND', 'COUNTRY_CODE', 'SALES_DATE']
        """
        return set(self.partition_columns) | self.index_columns | (set(self.dimension_columns) - self.suppress_index_on)

    def ktk_dataset_uuid(self, ktk_cube_dataset_id: str | bytes) -> str:
        """The uuid of a dataset of this cube in the store.

        Parameters
        ----------
        ktk_cube_dataset_id : str
            Name of the dataset inside the cube. It follows the rules of the prefix and does not
            begin with ``+``, so that a uuid is split in one way only: ``a+++b`` is dataset ``b`` of
            the cube ``a+``.

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
        """A copy with other values of the named attributes; everything is checked again.

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


def _check_name(name: str, text: str) -> str:
    if _NAME.fullmatch(text) is None:
        raise InvalidInput(
            f'{name} ("{text}") is not compatible with kartothek: '
            'it takes ASCII letters, digits, "+", "-" and "_", at least one'
        )
    if KTK_CUBE_UUID_SEPERATOR in text:
        raise InvalidInput(f'{name} ("{text}") must not contain UUID separator {KTK_CUBE_UUID_SEPERATOR}')
    return text


def _check_dataset_id(name: str, text: str) -> str:
    # "a" + "++" + "+b" is also "a+" + "++" + "b". The second reading holds: prefixes may end so.
    if _check_name(name, text).startswith("+"):
        raise InvalidInput(
            f'{name} ("{text}") must not begin with "+": '
            f'its uuid would be that of dataset "{text[1:]}" in a cube whose prefix ends in "+"'
        )
    return text


def require_cube(cube: object) -> Cube:
    """The cube itself; `InvalidType` for anything else."""
    # Some of kartothek's functions take the prefix instead, so that users may pass it here.
    if not isinstance(cube, Cube):
        raise InvalidType(
            f"Expected a Cube or its prefix, got {cube!r} ({type(cube).__name__}). "
            "open_cube(uuid_prefix, store) makes a Cube from a stored one; a new one needs "
            "Cube(dimension_columns, partition_columns, uuid_prefix)."
        )
    return cube


def prefix_of(cube: Cube | str) -> str:
    """The prefix of a cube, which may be given instead of the cube."""
    if not isinstance(cube, str):
        return require_cube(cube).uuid_prefix
    if not _NAME.fullmatch(cube):
        # Not shown: a misplaced store may be a URL with a password.
        raise InvalidInput(
            "Expected a Cube or its prefix, but the text that was given can be no prefix, which has ASCII letters, "
            "digits, '+', '-' and '_'. If it is the store: the cube comes before it, as in query_cube('sales', store)."
        )
    return cube


def visible_columns(names: Iterable[str]) -> list[str]:
    """Column names without the hidden ones: a leading ``__``, and kartothek's old time stamp."""
    return [n for n in names if not n.startswith("__") and n != LEGACY_TIMESTAMP_PAYLOAD]


def get_payload_subset(columns: Collection[str], cube: Cube) -> set[str]:
    """The payload columns among ``columns``: neither dimension nor partition columns of the cube.

    Examples
    --------
    >>> cube = Cube(["PRODUCT_ID", "SALES_DATE"], ["COUNTRY_CODE"], "sales")
    >>> sorted(get_payload_subset({"PRODUCT_ID", "COUNTRY_CODE", "UNITS"}, cube))
    ['UNITS']
    """
    return set(columns) - set(cube.dimension_columns) - set(cube.partition_columns)


# --- dataset ids ----------------------------------------------------------------------------------


T = TypeVar("T")


def check_dataset_ids(cube: Cube, ids: Iterable[str], members: Collection[str]) -> None:
    """Raise `InvalidInput` for ids that no dataset of the cube has."""
    unknown = sorted(set(ids) - set(members))
    if unknown:
        raise InvalidInput(
            f"Unknown ktk_cube_dataset_ids: {', '.join(unknown)}. "
            f"Datasets of the cube {cube.uuid_prefix!r}: {', '.join(sorted(members))}."
        )


def chosen_members(cube: Cube, members: Mapping[str, T], ids: Collection[str] | None) -> dict[str, T]:
    """The datasets with the given ids, in the order of the cube; all of them for None."""
    check_dataset_ids(cube, ids or (), members)
    return {i: member for i, member in members.items() if ids is None or i in ids}


def partition_conditions(
    cube: Cube, conditions: IntoConditions, members: Mapping[str, Snapshot], action: str
) -> Conjunction:
    """Conditions that select whole physical partitions; the types of a text are those of members.

    ``action`` is the verb of the error message: "remove" or "compact" partitions.

    Raises
    ------
    InvalidInput
        For conditions on other columns than the cube's partition columns, and for an empty text.
    """
    if isinstance(conditions, str) and not conditions.strip():
        raise InvalidInput(
            f"The conditions are an empty text, which would {action} every partition of cube {cube.uuid_prefix!r}. "
            "If all are meant, the empty list [] says so."
        )
    conjunction = conjunction_of(conditions, {f.name: f.type for s in members.values() for f in s.schema})
    foreign = sorted(set(conjunction.columns) - set(cube.partition_columns))
    if foreign:
        raise InvalidInput(
            f"Can only {action} partitions with conditions concerning cubes physical partition columns, "
            f"not {', '.join(foreign)}. Partition columns: {', '.join(cube.partition_columns)}. "
            "append_to_cube corrects single cells, delete_cells removes them."
        )
    return conjunction


def partition_clauses(conjunction: Conjunction, snapshot: Snapshot) -> tuple[Clause, ...]:
    """The conditions on partition keys of a dataset, checked against the types of the keys."""
    clauses = tuple(c for c in conjunction.clauses if c.column in snapshot.partition_keys)
    check_predicate_columns((clauses,) if clauses else None, snapshot.schema, snapshot.uuid)
    return clauses


def given_datasets(datasets: Mapping[str, object]) -> dict[str, DatasetMetadata]:
    """Datasets that the user passed as a dict; `InvalidType` for values that are no datasets."""
    if not datasets:
        return {}
    from kartothek_cube.core.kartothek.dataset_metadata import DatasetMetadata

    wrong = [f"{i!r}: {type(d).__name__}" for i, d in datasets.items() if not isinstance(d, DatasetMetadata)]
    if wrong:
        raise InvalidType(f"datasets should be a dict dataset id → DatasetMetadata, but has {', '.join(wrong)}.")
    return {converter_str(i): d for i, d in datasets.items() if isinstance(d, DatasetMetadata)}


def check_not_loaded(as_of: object) -> None:
    """Refuse ``as_of`` for datasets that the user has loaded: their state is fixed."""
    if as_of is not None:
        raise InvalidInput(
            "as_of cannot go together with datasets that are loaded already: give their ids, or load them with as_of."
        )


def check_belong_to_cube(datasets: Mapping[str, DatasetMetadata], cube: Cube) -> None:
    """Refuse datasets under the id of another dataset of the cube, or of another cube."""
    # A verb finds files by id: it would change another dataset than the one that was passed.
    wrong = [f"{i!r}: {d.uuid}" for i, d in datasets.items() if d.uuid != cube.ktk_dataset_uuid(i)]
    if wrong:
        raise InvalidInput(
            f"datasets has datasets that do not belong to cube {cube.uuid_prefix!r} under these ids: "
            f"{', '.join(wrong)}."
        )
