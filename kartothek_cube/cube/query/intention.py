"""A validated query: all errors in the arguments of a query are raised here. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import product

import pyarrow as pa
from msgspec import Struct

from kartothek_cube.core.arguments import converter_str_set_optional, converter_str_tupleset, did_you_mean, join_names
from kartothek_cube.core.expressions.conditions import Conjunction, conjunction_of
from kartothek_cube.core.expressions.literals import check_literal
from kartothek_cube.core.expressions.predicates import Clause, constants_of, is_null
from kartothek_cube.cube.consistent_read import DatasetInfo
from kartothek_cube.cube.cube import Cube, get_payload_subset
from kartothek_cube.errors import InvalidInput, InvalidType
from kartothek_cube.typing import Columns, CubeState, IntoConditions, IntoDatasets


class QueryArguments(Struct, frozen=True):
    """The arguments of a query as the user passed them, unchecked: those of `query_cube`."""

    cube: Cube
    conditions: IntoConditions = None
    datasets: IntoDatasets = None
    dimension_columns: Columns = None
    partition_by: Columns = None
    payload_columns: Columns = None
    as_of: CubeState | None = None
    changed_since: CubeState | None = None


class DatasetRole(Struct, frozen=True):
    """The part of one dataset in a query.

    Attributes
    ----------
    id : str
        The dataset.
    is_seed, restricts : bool
        The seed decides which cells exist. A restricting dataset is joined inner, any other left.
    dimensions : tuple of str
        The cube's dimension columns that the dataset has, in the order of the cube: the key of its
        cells.
    partition_keys : tuple of str
        The partition keys of the dataset, in order.
    columns : tuple of str
        The columns to load, in alphabetical order.
    clauses : tuple of Clause
        Conditions on columns of the dataset.
    schema : pyarrow.Schema
        Types of all columns of the dataset.
    """

    id: str
    is_seed: bool
    restricts: bool
    dimensions: tuple[str, ...]
    partition_keys: tuple[str, ...]
    columns: tuple[str, ...]
    clauses: tuple[Clause, ...]
    schema: pa.Schema


class Intention(Struct, frozen=True):
    """A query whose arguments have been checked against the datasets of the cube.

    ``roles`` has the seed first, then the restricting datasets, then the others, each in the order
    of the datasets. ``left_out`` has the datasets that contribute nothing to this query.
    """

    cube: Cube
    dimension_columns: tuple[str, ...]
    partition_by: tuple[str, ...]
    output_columns: tuple[str, ...]
    conjunction: Conjunction
    roles: tuple[DatasetRole, ...]
    left_out: tuple[str, ...]

    @property
    def schema(self) -> pa.Schema:
        """Columns and types of the result."""
        fields = {f.name: f for role in reversed(self.roles) for f in role.schema}
        return pa.schema([fields[c] for c in self.output_columns])


def make_intention(arguments: QueryArguments, infos: Mapping[str, DatasetInfo]) -> Intention:
    """Check the arguments of a query in kartothek's order and resolve them.

    Raises
    ------
    InvalidInput
        For columns that are unknown, not indexed, or cannot be kept in a projection.
    InvalidType
        For a constant that does not fit its column, or a set where an order is needed.
    """
    cube, conditions = arguments.cube, arguments.conditions
    available = {c for info in infos.values() for c in info.columns}
    # The checks come in kartothek's order: of several faults it raises the same one.
    given = arguments.dimension_columns
    dims = cube.dimension_columns if given is None else converter_str_tupleset(given)
    missing = sorted(set(dims) - set(cube.dimension_columns))
    if missing:
        raise InvalidInput(
            f"Following dimension columns were requested but are missing from the cube: {', '.join(missing)}"
        )
    if not dims:
        raise InvalidInput("Dimension columns cannot be empty.")
    by = _partition_by(infos, available, cube, arguments.partition_by)
    conjunction = conjunction_of(conditions, {f.name: f.type for info in infos.values() for f in info.schema})
    _check_conditions(cube, conjunction, infos, available)
    payload = _payload_columns(cube, dims, available, arguments.payload_columns)
    output = tuple(sorted({*by, *dims, *payload, *cube.partition_columns}))
    roles = [r for i, info in infos.items() if (r := _role(cube, info, dims, by, output, conjunction)) is not None]
    # Inner joins come first: rows that they drop need no match in the left joins.
    roles.sort(key=lambda r: (not r.is_seed, not r.restricts))
    left_out = tuple(i for i in infos if i not in {r.id for r in roles})
    return Intention(cube, dims, by, output, conjunction, tuple(roles), left_out)


def _partition_by(
    infos: Mapping[str, DatasetInfo], available: Collection[str], cube: Cube, given: object
) -> tuple[str, ...]:
    by = converter_str_tupleset(given)
    missing = sorted(set(by) - set(available))
    if missing:
        text = f"Following partition-by columns were requested but are missing from the cube: {', '.join(missing)}."
        raise InvalidInput(f"{text} {_columns_of(cube, available, missing)}")
    unindexed = sorted(c for c in by if not _is_groupable(c, infos, cube))
    if unindexed:
        indexed = join_names(c for c in available if _is_groupable(c, infos, cube))
        raise InvalidInput(
            f"Following partition-by columns are not indexed and cannot be used: {', '.join(unindexed)}. "
            f"Indexed are: {indexed}."
        )
    return by


def _columns_of(cube: Cube, available: Collection[str], missing: Collection[str]) -> str:
    return f"The cube {cube.uuid_prefix!r} has: {join_names(available)}.{did_you_mean(missing, available)}"


def _is_groupable(column: str, infos: Mapping[str, DatasetInfo], cube: Cube) -> bool:
    # The index of an enrichment knows only the enrichment's cells: the values of a dimension are
    # those of the seed.
    owners = [infos[cube.seed_dataset]] if column in cube.dimension_columns else infos.values()
    return any(column in info.secondary or column in info.partition_keys for info in owners)


def _check_conditions(
    cube: Cube, conjunction: Conjunction, infos: Mapping[str, DatasetInfo], available: Collection[str]
) -> None:
    missing = sorted(set(conjunction.columns) - set(available))
    if missing:
        raise InvalidInput(
            f"Following condition columns are required but are missing from the cube: {', '.join(missing)}. "
            f"{_columns_of(cube, available, missing)}"
        )
    constants = ((clause, value) for clause in conjunction.clauses for value in constants_of(clause))
    for (clause, value), (name, info) in product(constants, sorted(infos.items())):
        if clause.column not in info.schema.names or is_null(value):
            continue
        data_type = info.schema.field(clause.column).type
        try:
            check_literal(value, data_type, clause.column, f' of dataset "{name}"')
        except InvalidType as error:
            reason = str(error).removeprefix("Unexpected type for predicate: ")
            text = f"{clause.column} {clause.op} {clause.value}"
            raise InvalidType(f"Condition `{text}` has wrong type. {reason}") from None


def _payload_columns(cube: Cube, dims: tuple[str, ...], available: Collection[str], given: object) -> frozenset[str]:
    if given is None:
        return frozenset(get_payload_subset(available, cube))
    payload = converter_str_set_optional(given) or frozenset()
    missing = sorted(payload - set(available))
    if missing:
        raise InvalidInput(
            f"Cannot find the following requested payload columns: {', '.join(missing)}. "
            f"{_columns_of(cube, available, missing)}"
        )
    dropped = sorted((payload & set(cube.dimension_columns)) - set(dims))
    if dropped:
        raise InvalidInput(
            f"Cannot give the dimension columns {', '.join(dropped)} as payload of a projection to {', '.join(dims)}: "
            "a projected cell has many values of them. Add them to dimension_columns."
        )
    return payload


def _role(
    cube: Cube,
    info: DatasetInfo,
    dims: tuple[str, ...],
    by: tuple[str, ...],
    output: tuple[str, ...],
    conjunction: Conjunction,
) -> DatasetRole | None:
    """The part of a dataset in the query; None if it contributes no payload and no condition."""
    is_seed = info.id == cube.seed_dataset
    columns = set(info.columns)
    clauses = tuple(c for c in conjunction.clauses if c.column in columns)
    # A condition on payload, or a group by payload, keeps only cells that the dataset has.
    restricting = get_payload_subset({c.column for c in clauses} | (set(by) & columns), cube)
    needed = columns & {*output, *dims, *restricting}
    payload = get_payload_subset(needed, cube)
    if not is_seed and not payload:
        return None
    dimensions = tuple(c for c in cube.dimension_columns if c in columns)
    if payload and not set(dimensions) <= set(dims):
        raise InvalidInput(
            f'Cannot project dataset "{info.id}" with dimensionality [{", ".join(sorted(dimensions))}] '
            f"to [{', '.join(sorted(dims))}] "
            f"while keeping the following payload intact: {', '.join(sorted(payload))}"
        )
    # Partition columns come from the seed alone.
    load = {*dimensions, *((needed if is_seed else payload) & set(output))}
    return DatasetRole(
        id=info.id,
        is_seed=is_seed,
        restricts=bool(restricting) and not is_seed,
        dimensions=dimensions,
        partition_keys=info.partition_keys,
        columns=tuple(sorted(load)),
        clauses=clauses,
        schema=info.schema,
    )
