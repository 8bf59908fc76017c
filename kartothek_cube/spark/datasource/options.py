"""Options and filters of the data source.

No I/O.

In order:

- options: Spark's texts, checked and parsed
- filters as clauses. Spark has types of its own, and hands old dates on as others
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
)
from pyspark.sql.datasource import Filter as SparkFilter

from kartothek_cube.core.arguments import did_you_mean
from kartothek_cube.core.expressions.filters import Filter, Unknown, implied_clauses, is_alike
from kartothek_cube.core.expressions.filters import Not as Negation
from kartothek_cube.core.expressions.predicates import Clause, Constants, constants_of, is_null, parse_predicates
from kartothek_cube.core.snapshots.time_travel import check_as_of
from kartothek_cube.core.stores.urls import LOCAL_SCHEMES, looks_like_url, names_object_store, parse_url
from kartothek_cube.errors import InvalidInput, KartothekCubeError

Use = Literal["read", "read a stream", "write", "stream"]

# Spark passes names in lower case. These are spelled as those of other sources of streams.
_SPELLED = {
    "starting_commit": "startingCommit",
    "starting_timestamp": "startingTimestamp",
    "max_files_per_trigger": "maxFilesPerTrigger",
    "skip_change_commits": "skipChangeCommits",
}
_FIELDS = {spelled.lower(): name for name, spelled in _SPELLED.items()}
_FOLLOWING = frozenset(_SPELLED)
_ONE_STATE = frozenset({"as_of", "push_down"})
_READING = frozenset({"columns", "conditions", "blocksize", "parallelism", *_ONE_STATE, *_FOLLOWING})
_NEW_CUBE = frozenset({"dimension_columns", "partition_columns", "index_columns"})
_BATCH = frozenset({"txn", "overwrite_partitions", "delete_scope", "if_exists"})
_WRITING = frozenset({"partition_on", "secondary_indices", "timestamps", *_BATCH, *_NEW_CUBE})
_USELESS: dict[Use, frozenset[str]] = {
    "read": _WRITING | _FOLLOWING,
    "read a stream": _WRITING | _ONE_STATE,
    "write": _READING,
    "stream": _READING | _BATCH,
}
# Spark's own options of a stream or of a table in its catalog, passed along with ours.
_OF_SPARK = frozenset({"checkpointlocation", "provider", "owner"})
# Spark puts this before the options of a table that is created in the catalog, and passes no
# options to readers of the table (PySpark 4.3).
_PREFIX = "option."


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The parsed options of a reader or writer.

    None is an option that was not given, ``()`` an empty list.

    Attributes
    ----------
    store : str
        URL or absolute path, since processes in other directories open it. ``path`` is another
        word for it: ``load(path)`` and ``save(path)`` give it, and views of Sail need it.
    cube, dataset : str, optional
        At least one. With both, ``dataset`` is the id of a dataset of the cube. ``dataset`` alone
        is the uuid of any dataset.
    table : str
        Table of a dataset.
    columns : tuple of str, optional
        Columns to read, in this order.
    conditions : str, optional
        Conditions on the rows to read, as text for `Conjunction.from_string`.
    as_of : str, optional
        A commit, a tag or a moment: the state to read.
    blocksize, parallelism : int, optional
        Groups or files in one task; tasks at once.
    push_down : bool
        Whether filters of Spark exclude files.
    starting_commit : str, optional
        The first commit of a stream, or ``latest`` for those to come.
    starting_timestamp : datetime, optional
        A stream begins with the first commit at this moment or later.
    max_files_per_trigger : int, optional
        The most files in one micro-batch.
    skip_change_commits : bool
        Whether a stream passes over commits that remove or replace rows.
    partition_on, secondary_indices : tuple of str, optional
        Columns of the dataset to write.
    dimension_columns, partition_columns, index_columns : tuple of str, optional
        Columns of a cube that the first write creates.
    timestamps : {"refuse", "utc"}
        What to do with columns of type ``timestamp``.
    txn : tuple of str and int, optional
        Application and number of the write. A number that is stored already is skipped.
    overwrite_partitions : bool
        Whether an overwrite replaces the partitions that get rows, and no others.
    delete_scope : tuple of dict
        What an append removes: partitions with these values of indexed columns.
    if_exists : {"append", "error", "ignore"}, optional
        What an append to an existing dataset does; by default it appends, on Sail it is refused.
    """

    store: str
    cube: str | None = None
    dataset: str | None = None
    table: str = "table"
    columns: tuple[str, ...] | None = None
    conditions: str | None = None
    as_of: str | None = None
    blocksize: int | None = None
    parallelism: int | None = None
    push_down: bool = False
    starting_commit: str | None = None
    starting_timestamp: datetime | None = None
    max_files_per_trigger: int | None = None
    skip_change_commits: bool = False
    partition_on: tuple[str, ...] | None = None
    secondary_indices: tuple[str, ...] | None = None
    dimension_columns: tuple[str, ...] | None = None
    partition_columns: tuple[str, ...] | None = None
    index_columns: tuple[str, ...] | None = None
    timestamps: Literal["refuse", "utc"] = "refuse"
    txn: tuple[str, int] | None = None
    overwrite_partitions: bool = False
    delete_scope: tuple[Mapping[str, object], ...] = ()
    if_exists: Literal["append", "error", "ignore"] | None = None


def dataset_uuid(options: SourceOptions) -> str:
    """The uuid of the dataset that the options name."""
    return f"{options.cube}++{options.dataset}" if options.cube is not None else str(options.dataset)


def use_of_schema(options: Mapping[str, str]) -> Use:
    """What the columns are asked for: Spark does not tell a batch from a stream then."""
    return "read a stream" if {_name(key) for key in options} & _FOLLOWING else "read"


def parse_options(options: Mapping[str, str], use: Use = "read") -> SourceOptions:
    """Check and parse options from Spark: names in lower case, values as texts.

    A list is ``"a,b"``, or JSON for names with commas; a transaction is ``"application,number"``.

    Parameters
    ----------
    options : mapping of str to str
        The options.
    use : {"read", "read a stream", "write", "stream"}
        The purpose; ``stream`` writes one. Options without a meaning for it are refused.

    Raises
    ------
    InvalidInput
        If an option is unknown, missing, without meaning here, contradicted by another, or has a
        malformed value; the message names it.

    Examples
    --------
    >>> parse_options({"store": "hfs:///data", "cube": "sales", "columns": "BRAND,UNITS"}).columns
    ('BRAND', 'UNITS')
    """
    given = {name: value for key, value in options.items() if (name := _name(key)) not in _OF_SPARK}
    path = given.pop("path", None)
    _check_names(given, use)
    if path is not None and given.setdefault("store", path) != path:
        raise InvalidInput(
            f"The options store={given['store']!r} and path={path!r} are two words for one thing: the URL or path "
            "of the store. Give one of them. The name of a cube or dataset goes into the option cube or dataset."
        )
    if not given.get("store"):
        raise InvalidInput(
            'The option store is missing: the URL or path of the store, e.g. .option("store", "hfs:///data/store").'
        )
    values = {name: _PARSERS.get(name, _text)(_SPELLED.get(name, name), value) for name, value in given.items()}
    parsed = SourceOptions(**values)
    _check_together(parsed, given)
    if use == "read a stream":
        _check_stream(parsed)
    return parsed


def _name(key: str) -> str:
    """The field of an option."""
    return _FIELDS.get(key.lower(), key.lower())


def _check_names(given: Mapping[str, str], use: Use) -> None:
    names = [f.name for f in fields(SourceOptions)]
    useful = ", ".join(sorted(_SPELLED.get(name, name) for name in set(names) - _USELESS[use]))
    if any(name.startswith(_PREFIX) for name in given):
        raise InvalidInput(
            "Spark does not hand the options of a table of its catalog to those who read it. "
            "Use CREATE TEMPORARY VIEW ... USING kartothek_cube."
        )
    if "native" in given:
        raise InvalidInput(
            "A data source cannot hand over to Spark's own reader. "
            "Call read_dataset_as_spark or query_cube_spark with native=True."
        )
    for name in given:
        if name not in names:
            raise InvalidInput(
                f"The data source kartothek_cube has no option {name!r}."
                f"{did_you_mean([name], [_SPELLED.get(n, n) for n in names])} "
                f"To {use} there are: {useful}."
            )
        if name in _USELESS[use]:
            # A stream makes its own transactions.
            is_txn = (name, use) == ("txn", "stream")
            why = ", where the query and the number of the batch are the transaction" if is_txn else ""
            spelled = _SPELLED.get(name, name)
            raise InvalidInput(f"The option {spelled} means nothing to {use}{why}. To {use} there are: {useful}.")


def _check_together(options: SourceOptions, given: Mapping[str, str]) -> None:
    if options.cube is None and options.dataset is None:
        raise InvalidInput(
            "Give the option cube (the uuid prefix of a cube), dataset (the uuid of a dataset), "
            "or both: cube and the id of one of its datasets."
        )
    if options.cube is None and (surplus := sorted(_NEW_CUBE & set(given))):
        raise InvalidInput(
            f"The option {surplus[0]} describes a new cube, but there is no option cube, "
            f"only dataset={options.dataset!r}."
        )
    if options.cube is not None and "secondary_indices" in given:
        raise InvalidInput(
            f"The indices of a cube are the option index_columns, not secondary_indices (cube {options.cube!r})."
        )
    if options.cube is not None and "table" in given:
        raise InvalidInput(
            f"The datasets of a cube have one table; leave the option table out (cube {options.cube!r})."
        )


def _check_stream(options: SourceOptions) -> None:
    if options.dataset is None:
        raise InvalidInput(
            f"A stream reads one dataset, and cube={options.cube!r} names a whole cube. "
            'Name a dataset of it, too, e.g. .option("dataset", "seed").'
        )
    if options.starting_commit is not None and options.starting_timestamp is not None:
        raise InvalidInput("The options startingCommit and startingTimestamp contradict each other: give one.")


def _text(name: str, value: str) -> str:
    if not value:
        raise InvalidInput(f"The option {name} is empty.")
    return value


def absolute_store(name: str, value: str) -> str:
    """The URL or path of a store, refused if it depends on the current directory."""
    if looks_like_url(value):
        url = None if names_object_store(value) else parse_url(value)
        path = url.path if url is not None and url.scheme in LOCAL_SCHEMES else None
    else:
        path = value
    # A relative path would be another directory in each of Spark's processes.
    if path and not Path(path).expanduser().is_absolute():
        raise InvalidInput(
            f"The option {name}={value!r} is a relative path, but Spark's processes run in other directories: "
            f"give {str(Path(path).absolute())!r}."
        )
    return value


def _names(name: str, value: str) -> tuple[str, ...]:
    """``a,b``, or a JSON list for names with commas; an empty text is an empty list."""
    if value.strip().startswith("["):
        try:
            names = json.loads(value)
        except ValueError as error:
            raise InvalidInput(
                f'The option {name}={value!r} is no JSON list: {error}. Names without commas can be written "a,b".'
            ) from None
        if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
            raise InvalidInput(f'The option {name}={value!r} is no list of names. Write "a,b" or \'["a", "b"]\'.')
    else:
        names = [part.strip() for part in value.split(",")] if value.strip() else []
    if "" in names:
        raise InvalidInput(f"The option {name}={value!r} has an empty name.")
    if len(set(names)) < len(names):
        raise InvalidInput(f"The option {name}={value!r} names a column twice.")
    return tuple(names)


def _columns(name: str, value: str) -> tuple[str, ...]:
    names = _names(name, value)
    if not names:
        raise InvalidInput("The option columns is empty: name at least one column, or leave it out for all.")
    return names


def _number(name: str, value: str) -> int:
    try:
        number = int(value)
    except ValueError:
        number = 0
    if number < 1:
        raise InvalidInput(f"The option {name}={value!r} is no positive whole number.")
    return number


def _flag(name: str, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise InvalidInput(f'The option {name}={value!r} is neither "true" nor "false".')
    return value.lower() == "true"


def _moment(name: str, value: str) -> datetime:
    moment = check_as_of(value)
    if not isinstance(moment, datetime):
        raise InvalidInput(f'The option {name}={value!r} is no moment: write "2024-05-01" or "2024-05-01 12:00:00".')
    return moment


def _one_of(*words: str) -> Callable[[str, str], str]:
    def check(name: str, value: str) -> str:
        if value not in words:
            raise InvalidInput(f"The option {name}={value!r} is none of {', '.join(words)}.")
        return value

    return check


def _scope(name: str, value: str) -> tuple[dict[str, object], ...]:
    """A JSON list of objects column → value."""

    def distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
        if len(dict(pairs)) < len(pairs):
            raise ValueError("a column is named twice")
        return dict(pairs)

    expected = 'a JSON list of objects column → value, e.g. [{"COUNTRY_CODE": "DE"}, {"COUNTRY_CODE": "FR"}]'
    try:
        objects = json.loads(value, object_pairs_hook=distinct)
    except ValueError as error:
        raise InvalidInput(f"The option {name}={value!r} is no JSON: {error}. Write {expected}.") from None
    if not isinstance(objects, list) or not all(isinstance(each, dict) and each for each in objects):
        raise InvalidInput(f"The option {name}={value!r} is not {expected}.")
    for column, given in ((c, v) for each in objects for c, v in each.items()):
        if given is None or isinstance(given, (list, dict)):
            raise InvalidInput(
                f"The option {name} needs one value of column {column!r}, not {given!r}. Write an object for each "
                "value."
            )
    return tuple(objects)


def _txn(name: str, value: str) -> tuple[str, int]:
    application, _, number = value.rpartition(",")
    if not application.strip() or not number.strip().isdecimal():
        raise InvalidInput(
            f'The option {name}={value!r} is no transaction: write "application,number", e.g. "nightly,20260131".'
        )
    return application.strip(), int(number)


_PARSERS: dict[str, Callable[[str, str], Any]] = {
    "store": absolute_store,
    "columns": _columns,
    "blocksize": _number,
    "parallelism": _number,
    "push_down": _flag,
    "starting_timestamp": _moment,
    "max_files_per_trigger": _number,
    "skip_change_commits": _flag,
    "timestamps": _one_of("refuse", "utc"),
    "txn": _txn,
    "overwrite_partitions": _flag,
    "delete_scope": _scope,
    "if_exists": _one_of("append", "error", "ignore"),
    **dict.fromkeys(
        ("partition_on", "secondary_indices", "dimension_columns", "partition_columns", "index_columns"), _names
    ),
}


# --- filters as clauses ---------------------------------------------------------------------------


_COMPARISONS: dict[type[SparkFilter], str] = {
    EqualTo: "==",
    EqualNullSafe: "==",
    LessThan: "<",
    LessThanOrEqual: "<=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    In: "in",
}
# Constants come through Java's calendar, which has ten days less before 1582-10-15.
_FIRST_DAY = dt.date(1582, 10, 25)


@dataclass(frozen=True, slots=True)
class Pushed:
    """The filters of a query: clauses for this library, and the filters left to Spark."""

    clauses: tuple[Clause, ...]
    rest: tuple[SparkFilter, ...]


def push(filters: Iterable[SparkFilter], types: Mapping[str, pa.DataType], *, cube: bool = False) -> Pushed:
    """Divide filters between this library and Spark.

    A filter with inexact clauses goes to both: the clauses exclude files, Spark filters rows.

    Parameters
    ----------
    filters : iterable of Filter
        The filters that Spark offers.
    types : mapping of str to pyarrow.DataType
        The stored types of the columns.
    cube : bool
        The clauses become conditions of a cube, which have no null.
    """
    filters = list(filters)
    schema = pa.schema([(name, _value_type(stored)) for name, stored in types.items() if comparable(stored)])

    def accepts(clause: Clause) -> bool:
        return not (cube and clause.value is None) and _means_the_same(clause, schema.field(clause.column).type)

    implied = implied_clauses([filter_of(each, schema) for each in filters], schema, accepts)
    clauses = dict.fromkeys(chain.from_iterable(each.clauses for each in implied))
    return Pushed(tuple(clauses), tuple(f for f, each in zip(filters, implied, strict=True) if not each.exact))


def filter_of(given: SparkFilter, schema: pa.Schema) -> Filter:
    """What a filter of Spark says; `Unknown` for what is not understood."""
    if isinstance(given, Not) and not isinstance(given.child, EqualNullSafe):  # true for null
        return Negation(filter_of(given.child, schema))
    path: tuple[str, ...] = getattr(given, "attribute", ())
    if len(path) != 1 or path[0] not in schema.names:
        return Unknown()
    [column] = path
    if isinstance(given, (IsNull, IsNotNull)):
        return Clause(column, "==" if isinstance(given, IsNull) else "!=", None)
    op, value = _COMPARISONS.get(type(given)), getattr(given, "value", ())
    # A null in a list equals nothing.
    values = [v for v in value if v is not None] if isinstance(given, In) else [value]
    if op is None or any(map(is_null, values)):
        return Unknown()
    # Unsigned 64-bit integers are decimals in Spark.
    is_whole = pt.is_integer(schema.field(column).type)
    constants = [int(v) if is_whole and isinstance(v, Decimal) and v == v.to_integral_value() else v for v in values]
    return Clause(column, op, Constants(constants) if op == "in" else constants[0])


def _means_the_same(clause: Clause, data_type: pa.DataType) -> bool:
    """Whether a read takes the clause, and compares as Spark does."""
    is_old = any(type(value) is dt.date and value < _FIRST_DAY for value in constants_of(clause))
    if is_old or not is_alike(clause, data_type):
        return False
    try:
        parse_predicates([[(clause.column, clause.op, clause.value)]])
    except KartothekCubeError:
        return False
    return True


def _value_type(data_type: pa.DataType) -> pa.DataType:
    return data_type.value_type if pt.is_dictionary(data_type) else data_type


def comparable(data_type: pa.DataType) -> bool:
    """Whether values of a type reach Spark unchanged: not nanoseconds, zones or nested types."""
    data_type = _value_type(data_type)
    if pt.is_timestamp(data_type):
        return data_type.tz is None and data_type.unit != "ns"
    plain = (
        pt.is_boolean,
        pt.is_integer,
        pt.is_float32,
        pt.is_float64,
        pt.is_string,
        pt.is_large_string,
        pt.is_binary,
        pt.is_date32,
        pt.is_decimal128,
    )
    return any(applies(data_type) for applies in plain)
