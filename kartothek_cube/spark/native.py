"""Files of a plan as scans of Spark's own Parquet reader. For the driver alone."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from itertools import chain
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from pyspark.sql import functions as F
from pyspark.sql import types as st

from kartothek_cube.core.arguments import check_flag
from kartothek_cube.core.arrow.keys import IntArray
from kartothek_cube.core.expressions.predicates import Bounds, columns_of
from kartothek_cube.core.io.formats import DATA_SUFFIX, may_have_nan
from kartothek_cube.core.io.parquet import open_file
from kartothek_cube.core.io.reader import FileRequest
from kartothek_cube.core.metadata.naming import unquote
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.scan.plan import FilePlan
from kartothek_cube.core.snapshots.statistics import statistics_of_files
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.stores.urls import names_object_store, parse_location
from kartothek_cube.cube.query.plan import QueryPlan
from kartothek_cube.errors import InvalidInput, Unsupported
from kartothek_cube.spark.session import is_sail
from kartothek_cube.spark.types import constant, quoted, row_filter, spark_schema, wire_schema

if TYPE_CHECKING:
    import pyarrow.parquet as pq
    from pyspark.sql import DataFrame, SparkSession


# Settings of a session that would hide missing rows, or shift times before 1900.
_OPTIONS = {
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "recursiveFileLookup": "false",
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
}
# Statistics of other writers, and of this library before 0.2, leave NaN out, and dictionaries tell
# -0.0 from 0.0: Spark would pass over row groups with rows that its filters select.
_FLOAT_OPTIONS = {
    f"parquet.filter.{part}.enabled": "false"
    for part in ("stats", "dictionary", "columnindex", "bloom", "record-level")
}
# Spark takes longer for the plan of so many scans than for reading.
_MOST_SCANS = 32
_GLOB = re.compile(r"[{}\[\]*?\\]")
_NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
_THRESHOLD = "spark.sql.sources.parallelPartitionDiscovery.threshold"
# Two threads would put back each other's setting.
_LISTING = Lock()
_INSTEAD = "Read it with native=False."

_INTEGERS = ["INT32 Int 8 True", "INT32 Int 16 True", "INT32 None", "INT32 Int 32 True"]
# How Parquet may store the values of a type so that Spark reads the same.
_STORED: dict[pa.DataType, Sequence[str]] = {
    pa.bool_(): ["BOOLEAN None"],
    pa.int8(): _INTEGERS[:1],
    pa.int16(): _INTEGERS[:2],
    pa.int32(): _INTEGERS,
    pa.int64(): [*_INTEGERS, "INT64 None", "INT64 Int 64 True"],
    pa.float32(): ["FLOAT None"],
    pa.float64(): ["FLOAT None", "DOUBLE None"],
    pa.string(): ["BYTE_ARRAY String"],
    pa.large_string(): ["BYTE_ARRAY String"],
    pa.binary(): ["BYTE_ARRAY None"],
    pa.large_binary(): ["BYTE_ARRAY None"],
    pa.date32(): ["INT32 Date"],
}


@dataclass(frozen=True, slots=True)
class Scan:
    """What the files of one scan have in common.

    Attributes
    ----------
    base : str
        The folder above those of partition values; empty where they tell Spark nothing.
    folders : tuple of str
        The columns of these folders, in order.
    constants : tuple
        Pairs of partition column and value that folders tell otherwise.
    nulls : tuple of str
        Columns without any value, which may have no type in the files.
    """

    base: str
    folders: tuple[str, ...]
    constants: tuple[tuple[str, Any], ...]
    nulls: tuple[str, ...]


def is_native(native: object, others: Mapping[str, object]) -> bool:
    """The flag ``native``, checked together with other arguments by name and value.

    Raises
    ------
    InvalidType, InvalidInput
        If ``native`` is no flag, or an argument is given that contradicts it.
    """
    if not check_flag(native, "native"):
        return False
    for name, value in others.items():
        if value is not None:
            raise InvalidInput(
                f"{name}={value!r} and native=True exclude each other: Spark's own reader makes the tasks."
            )
    return True


def native_frame(session: SparkSession, store: Store, plan: FilePlan, wire: pa.Schema) -> DataFrame:
    """The rows of a plan as a lazy data frame of Spark's own reader.

    Partition columns are columns of folders where Spark reads a folder's text as our value, else
    literals. ``wire`` has the columns of the result as of `wire_schema`.

    Raises
    ------
    Unsupported
        If Spark cannot reach the store, or would read other values or types; the message names
        column and file. On Sail always.
    """
    if is_sail(session):
        raise Unsupported(f"native=True is for Spark: Sail's own reader would lose partition values. {_INSTEAD}")
    if not len(plan):
        return session.createDataFrame([], spark_schema(wire))
    request, context = plan.request, f"dataset {plan.request.dataset!r}"
    names = tuple(dict.fromkeys((*request.columns, *sorted(columns_of(request.predicates)))))
    used = wire_schema(pa.schema([request.schema.field(c) for c in names]), context)
    _check_names(names, (*request.schema.names, *plan.values.column_names), context)
    keys: list[str] = plan.files.to_pylist()
    stored = {c: stored_forms(request.schema.field(c), context) for c in names if c not in plan.values.column_names}
    uris = [spark_uri(store, key) for key in keys]
    nulls = map_in_threads(partial(nulls_of, store, request.dataset, stored), keys, store=store)
    values = partition_values(plan, used)
    scans: dict[Scan, list[str]] = {}
    for key, uri, empty, of_file in zip(keys, uris, nulls, values, strict=True):
        scans.setdefault(scan_of(key, uri, plan.values.column_names, of_file, empty), []).append(uri)
    if len(scans) > _MOST_SCANS:
        pairs = ((c, v.as_py()) for scan in scans for c, v in scan.constants)
        column, value = next(pairs, (next((c for scan in scans for c in scan.nulls), ""), None))
        raise Unsupported(
            f"Spark's reader needs {len(scans)} scans for {context}, more than {_MOST_SCANS}: its folders do not tell "
            f"Spark values such as {column}={value!r}. {_INSTEAD}"
        )
    try:
        with listing_by_driver(session, uris[0]):
            frames = [_read(session, scan, files, used) for scan, files in scans.items()]
    except Unsupported:
        raise
    except Exception as error:
        if "S3AFileSystem" not in str(error):
            raise
        raise Unsupported(
            f"Spark cannot read s3a://: the session needs the package org.apache.hadoop:hadoop-aws. {_INSTEAD}"
        ) from error
    frame = reduce(lambda a, b: a.unionAll(b), frames)
    if request.predicates is not None:
        frame = frame.where(row_filter(request.predicates, request.schema))
    return frame.select(*(quoted(c) for c in request.columns))


def _check_names(used: Sequence[str], every: Sequence[str], context: str) -> None:
    """Spark's reader does not tell upper from lower case."""
    for name in used:
        twins = sorted({other for other in every if other.lower() == name.lower()} - {name})
        if twins:
            raise Unsupported(
                f"Spark's reader takes the columns {name!r} and {twins[0]!r} of {context} for one. {_INSTEAD}"
            )


def stored_forms(field: pa.Field, context: str) -> Sequence[str]:
    """How files may store a column."""
    data_type = field.type
    if pt.is_null(data_type):
        return []
    if pt.is_decimal128(data_type):
        kinds = ("INT32", "INT64", "FIXED_LEN_BYTE_ARRAY")
        return [f"{kind} Decimal {data_type.precision} {data_type.scale}" for kind in kinds]
    if pt.is_timestamp(data_type):
        return [f"INT64 Timestamp {bool(data_type.tz)} {unit}seconds" for unit in ("milli", "micro")]
    if data_type not in _STORED:
        raise Unsupported(
            f"Column {field.name!r} of {context} is {data_type}, which Spark's reader does not read as this library "
            f"does. Leave it out of the columns, or read with native=False."
        )
    return _STORED[data_type]


def spark_uri(store: Store, key: str) -> str:
    """The place of a file for Spark.

    Raises
    ------
    Unsupported
        If Spark cannot reach the store, or would pass over the file.
    """
    path, uri = store.local_path(key), None
    if path is not None:
        uri = f"file:{path}"
    elif names_object_store(store.name):
        place = parse_location(store.name)
        if place.kind == "s3":
            uri = "s3a://" + "/".join(filter(None, (place.bucket, place.prefix, key)))
    if uri is None:
        raise Unsupported(
            f"Spark's reader reads local directories and S3 (as s3a://), not the store {store.name}. {_INSTEAD}"
        )
    file = key.rpartition("/")[2]
    # Spark reads no hidden files, and takes some characters for patterns.
    if not key.endswith(DATA_SUFFIX) or file[0] in "._" or _GLOB.search(uri):
        raise Unsupported(
            f"Spark's reader reads no file of the key {key!r} in store {store.name}: it needs Parquet files whose "
            f"names begin neither with '_' nor '.', and paths without any of {{}}[]*?\\. {_INSTEAD}"
        )
    return uri


def nulls_of(store: Store, dataset: str, stored: Mapping[str, Sequence[str]], key: str) -> tuple[str, ...]:
    """The columns that a file stores without a type, since they have no value.

    Raises
    ------
    Unsupported
        If it stores a column so that Spark would read another type or value.
    """
    nulls = []
    with open_file(store, key, dataset) as source:
        columns, layout = source.positions, source.metadata.schema
        _check_names(tuple(stored), tuple(columns), f"the file {key!r}")
        chunks = chain.from_iterable(source.chunks(range(source.metadata.num_row_groups), set(stored)))
        if any(chunk.compression == "BROTLI" for chunk in chunks):
            raise Unsupported(f"Spark has no codec for BROTLI, in which the file {key!r} is compressed. {_INSTEAD}")
        for name, expected in stored.items():
            if not expected:
                nulls.append(name)
                continue
            if name not in columns:
                continue
            found = form_of(layout.column(columns[name][0]))
            if found == "INT32 Null":
                nulls.append(name)
            elif found not in expected:
                raise Unsupported(
                    f"Column {name!r} of the file {key!r} is stored as {found}, and Spark's reader needs "
                    f"{' or '.join(expected)}. {_INSTEAD} compact_dataset rewrites files."
                )
    return tuple(nulls)


def form_of(column: pq.ColumnSchema) -> str:
    """How a column is stored: physical type, logical type and its details."""
    logical: Any = column.logical_type
    details = json.loads(logical.to_json())
    known = ("Type", "bitWidth", "isSigned", "precision", "scale", "isAdjustedToUTC", "timeUnit")
    repeated = ["repeated"] if column.max_repetition_level else []
    return " ".join([column.physical_type, *(str(details[k]) for k in known if k in details), *repeated])


def partition_values(plan: FilePlan, used: pa.Schema) -> list[dict[str, pa.Scalar]]:
    """The partition values of each file that are used, in Spark's types."""
    names = [c for c in plan.values.column_names if c in used.names]
    try:
        columns = [plan.values.column(c).cast(used.field(c).type) for c in names]
    except pa.ArrowInvalid as error:
        raise Unsupported(
            f"A partition value of dataset {plan.request.dataset!r} is none of Spark's: {error}. {_INSTEAD}"
        ) from None
    rows = zip(*columns, strict=True) if columns else [()] * len(plan)
    return [dict(zip(names, row, strict=True)) for row in rows]


def scan_of(
    key: str, uri: str, partition_keys: Sequence[str], values: Mapping[str, pa.Scalar], nulls: tuple[str, ...]
) -> Scan:
    """The scan that reads a file."""
    folders = [folder.partition("=") for folder in key.split("/")[2:-1]]
    texts = {_spark_text(name): _spark_text(text) for name, _, text in folders}
    # Spark insists that all folders have the same columns, and no empty text.
    regular = (
        key.count("/") > 1
        and len(folders) == len(texts) == len(partition_keys)
        and {unquote(name) for name, _, _ in folders} == set(partition_keys) == set(texts)
        and all(texts.values())
    )
    if not regular:
        return Scan("", (), tuple(values.items()), nulls)
    constants = tuple((c, v) for c, v in values.items() if not reads_same(texts[c], v))
    inside = key.split("/", 2)[2]
    return Scan(uri.removesuffix(f"/{inside}"), tuple(texts), constants, nulls)


def _spark_text(text: str) -> str:
    """The text of a folder as Spark decodes it: byte by byte."""
    return re.sub("%([0-9A-Fa-f]{2})", lambda match: chr(int(match[1], 16)), text)


def reads_same(text: str, scalar: pa.Scalar) -> bool:
    """Whether Spark certainly reads the text of a folder as this value.

    Examples
    --------
    >>> reads_same("10", pa.scalar(10)), reads_same("MÃ¼nchen", pa.scalar("München"))
    (True, False)
    """
    value, data_type = scalar.as_py(), scalar.type
    if isinstance(value, str):
        return text not in ("", _NULL_FOLDER) and text == value
    if pt.is_boolean(data_type):
        return text in ("True", "False") and text == str(value)
    if pt.is_integer(data_type):
        return bool(re.fullmatch(r"-?\d{1,18}", text, re.ASCII)) and int(text) == value
    if pt.is_date(data_type):
        return bool(re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII)) and text == str(value)
    if pt.is_timestamp(data_type) and data_type.tz is None:
        is_moment = re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,6})?", text, re.ASCII)
        return bool(is_moment) and dt.datetime.fromisoformat(text) == value
    return False


@contextmanager
def listing_by_driver(session: SparkSession, uri: str) -> Iterator[None]:
    """Let the driver look up local files.

    For more than 32 Spark would start a job with a task for each, which takes longer than many
    reads. The setting of the session is back afterwards.
    """
    if not uri.startswith("file:"):
        yield
        return
    with _LISTING:
        before = str(session.conf.get(_THRESHOLD))
        session.conf.set(_THRESHOLD, str(2**31 - 1))
        try:
            yield
        finally:
            session.conf.set(_THRESHOLD, before)


def _read(session: SparkSession, scan: Scan, files: Sequence[str], used: pa.Schema) -> DataFrame:
    """One scan, with the columns in the order of ``used``."""
    constants = dict(scan.constants)
    fields = {field.name: field for field in spark_schema(used)}
    inside = [field for name, field in fields.items() if name not in scan.nulls and name not in constants]
    # Spark would guess the type of a folder's column that it is not told.
    folders = [st.StructField(c, st.StringType()) for c in scan.folders if c not in fields or c in constants]
    options = _OPTIONS | (_FLOAT_OPTIONS if any(map(may_have_nan, used.types)) else {})
    reader = session.read.options(**options).schema(st.StructType([*inside, *folders]))
    if scan.base:
        reader = reader.option("basePath", scan.base)
    frame = reader.parquet(*files)
    if len(frame.inputFiles()) != len(files):
        raise Unsupported(
            f"Spark finds {len(frame.inputFiles())} of {len(files)} files, e.g. of {files[0]}. {_INSTEAD}"
        )
    return frame.select(
        *(
            # A literal alone would be a column that cannot be null.
            F.nullif(constant(constants[name]), F.lit(None)).alias(name)
            if name in constants
            else F.lit(None).cast(field.dataType).alias(name)
            if name in scan.nulls
            else F.col(quoted(name))
            for name, field in fields.items()
        )
    )


# --- cubes: a query that one dataset answers ------------------------------------------------------


def native_files(store: Store, plan: QueryPlan, seed: Snapshot) -> FilePlan:
    """The files of the seed that answer a query without join and without overridden rows.

    Of several files in one partition, statistics have to show that they have no cell in common.

    Raises
    ------
    Unsupported
        If the query needs a join, a projection, or rows that a later file overrides; the message
        says which.
    """
    role, *others = plan.context.roles
    cube = f"cube {plan.context.uuid_prefix!r}"
    if others:
        raise Unsupported(
            f"Spark's reader does not join, and this query of {cube} needs {role.id!r} and "
            f"{', '.join(repr(other.id) for other in others)}. Name fewer payload_columns and conditions, or datasets; "
            "or query it with native=False."
        )
    if projected := sorted(set(role.dimensions) - set(plan.context.cell_columns)):
        raise Unsupported(
            f"Without the dimension columns {projected} only one row of each cell counts in {cube}. "
            "Query it with native=False."
        )
    files, values = plan.file_columns[role.id], plan.value_columns[role.id]
    of_dataset, parts = plan.partitions[role.id], plan.aligned.parts[role.id]
    counts = np.diff(of_dataset.offsets)[parts]
    shared = np.flatnonzero(counts > 1)
    if len(shared):
        positions, partition = of_dataset.files_of(parts[shared]), np.repeat(shared, counts[shared])
        keys = files.take(pa.array(positions))
        statistics = statistics_of_files(store, seed, keys, role.dimensions)
        bounds = [statistics.bounds(c, role.schema.field(c).type) for c in role.dimensions]
        doubtful = set(shared.tolist()).intersection(*(overlapping(partition, each) for each in bounds))
        if doubtful:
            some = keys.filter(pa.array(partition == min(doubtful))).to_pylist()[:2]
            raise Unsupported(
                f"{len(doubtful)} partitions of {cube} have several files that may override each other's cells, e.g. "
                f"{' and '.join(map(repr, some))}. compact_cube merges them; or query it with native=False."
            )
    predicates = (role.clauses,) if role.clauses else None
    request = FileRequest(seed.uuid, role.schema, tuple(plan.schema.names), predicates)
    return FilePlan(request, files, values, of_dataset.total)


def overlapping(partition: IntArray, bounds: Bounds) -> Collection[int]:
    """The partitions in which bounds of two files overlap or are unknown.

    Examples
    --------
    >>> import numpy as np, pyarrow as pa
    >>> bounds = Bounds(pa.array([1, 4, 1, 3]), pa.array([3, 5, 3, 4]), np.zeros(4, dtype=bool))
    >>> overlapping(np.array([0, 0, 1, 1]), bounds)
    {1}
    """
    unknown = bounds.has_null | ~bounds.minimum.is_valid().to_numpy(zero_copy_only=False)
    unknown |= ~bounds.maximum.is_valid().to_numpy(zero_copy_only=False)
    table = pa.table({"partition": partition, "low": bounds.minimum, "high": bounds.maximum})
    ordered = table.sort_by([("partition", "ascending"), ("low", "ascending")])
    numbers = ordered.column("partition").to_numpy()
    meets = pc.less_equal(ordered.column("low").slice(1), ordered.column("high").slice(0, len(numbers) - 1))
    together = (numbers[1:] == numbers[:-1]) & pc.fill_null(meets, True).to_numpy()
    return {*partition[unknown].tolist(), *numbers[1:][together].tolist()}
