"""The log of a Delta table as values: schema, actions, versions, checkpoints. Pure.

In order:

- keys and the record in the document
- the header: schema, partition columns, features; what Delta cannot have is refused
- files: partition values, statistics
- versions: what one says, what the next one has to say
- checkpoints
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, TypeAlias
from urllib.parse import quote as _url_quote
from urllib.parse import unquote as _url_unquote

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt
from msgspec import Struct
from msgspec.structs import replace

from kartothek_cube.core.io.formats import DATA_SUFFIX
from kartothek_cube.core.metadata.commit_log import fingerprint
from kartothek_cube.core.metadata.document import DELTA_KEY, Document
from kartothek_cube.core.metadata.naming import DELTA_FOLDER, quote
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.metadata.statistics import FileStatistics
from kartothek_cube.errors import CorruptData, Unsupported

# A writer has to know all features that a log names, so whoever is not this library writes nothing.
FEATURE = "kartothek_cube"
CHECKPOINT_EVERY = 50
_APPLICATION = "kartothek_cube:"
_NAMED = re.compile(r"([0-9]{20})\.(json|checkpoint\.parquet)")


# --- keys and the record in the document ----------------------------------------------------------


def log_folder(uuid: str, table: str) -> str:
    """The prefix of all keys of the log of one table."""
    return f"{uuid}/{table}/{DELTA_FOLDER}/"


def version_key(folder: str, version: int) -> str:
    """Key of the actions of one version."""
    return f"{folder}{version:020d}.json"


def checkpoint_key(folder: str, version: int) -> str:
    """Key of the whole state at one version."""
    return f"{folder}{version:020d}.checkpoint.parquet"


def last_checkpoint_key(folder: str) -> str:
    """Key of the object that names the newest checkpoint."""
    return f"{folder}_last_checkpoint"


class LogListing(Struct, frozen=True):
    """What the folder of a log has: numbers of versions, and of checkpoints, ascending."""

    versions: tuple[int, ...]
    checkpoints: tuple[int, ...]

    @classmethod
    def of(cls, keys: Iterable[str]) -> LogListing:
        """The listing of some keys; others are left out."""
        found = [match.groups() for key in keys if (match := _NAMED.fullmatch(key.rpartition("/")[2]))]
        versions = sorted(int(n) for n, kind in found if kind == "json")
        checkpoints = sorted(int(n) for n, kind in found if kind != "json")
        return cls(tuple(versions), tuple(checkpoints))

    @property
    def last(self) -> int:
        """The newest version, -1 if there is none."""
        return max((*self.versions, *self.checkpoints), default=-1)

    def start_of(self, version: int) -> int | None:
        """The checkpoint from which a version is read, -1 without; None if objects are missing."""
        start = max((n for n in self.checkpoints if n <= version), default=-1)
        present = {*self.versions}
        return start if all(n in present for n in range(start + 1, version + 1)) else None

    def until(self, version: int) -> LogListing:
        """What the folder has of the versions up to one."""
        versions, checkpoints = ([n for n in numbers if n <= version] for numbers in (self.versions, self.checkpoints))
        return LogListing(tuple(versions), tuple(checkpoints))

    @property
    def readable(self) -> list[int]:
        """The versions that can be read, ascending."""
        found = {*self.checkpoints}
        found.update(n for n in self.versions if n == 0)
        for n in self.versions:
            if n - 1 in found:
                found.add(n)
        return [n for n in self.versions if n in found]


def is_always_published(document: Document) -> bool:
    """Whether each commit is to be published."""
    try:
        return json.loads(document.metadata[DELTA_KEY])["always"] is True
    except (LookupError, TypeError, ValueError, RecursionError):
        return False


def with_record(document: Document, always: bool | None) -> Document:
    """The document with the record that it is published, and whether always; None: without."""
    metadata = {k: v for k, v in document.metadata.items() if k != DELTA_KEY}
    record = {} if always is None else {DELTA_KEY: json.dumps({"always": always})}
    return replace(document, metadata={**metadata, **record})


def state_id(snapshot: Snapshot) -> str:
    """The name of a state in the log: its commit; after a foreign one a hash of its partitions."""
    return snapshot.commit or f"foreign-{fingerprint(snapshot.partitions)}"


# --- the header -----------------------------------------------------------------------------------


_TYPES: dict[pa.DataType, str] = {
    pa.bool_(): "boolean",
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "integer",
    pa.int64(): "long",
    # As engines read them from Parquet.
    pa.uint8(): "short",
    pa.uint16(): "integer",
    pa.uint32(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
}
_ADVICE = (
    (pt.is_unsigned_integer, "Store int64, or decimal128(20, 0) for values of 2**63 and more."),
    (pt.is_time, "Store the text, or the microseconds since midnight as int64."),
    (pt.is_duration, "Store the microseconds as int64."),
    (pt.is_null, "Store a value in the column, which gives it a type, or drop it with drop_columns."),
    (pt.is_decimal, "Store a scale between 0 and the number of digits."),
)
# Names with these need a mapping of columns, which files of this library do not have.
_FORBIDDEN = re.compile(r"[ ,;{}()\n\t=]")
_NTZ = "timestampNtz"

DeltaType: TypeAlias = str | dict[str, Any]


class DeltaHeader(Struct, frozen=True):
    """What the log says of a table beside its files.

    Attributes
    ----------
    schema : str
        The schema in Delta's JSON.
    partition_columns : tuple of str
        Columns outside of the files.
    features : tuple of str
        What a reader has to know.
    """

    schema: str
    partition_columns: tuple[str, ...]
    features: tuple[str, ...] = ()

    def protocol(self) -> dict[str, Any]:
        """The action that says who may read and write."""
        reader: dict[str, Any] = {"minReaderVersion": 1}
        if self.features:
            reader = {"minReaderVersion": 3, "readerFeatures": list(self.features)}
        return {**reader, "minWriterVersion": 7, "writerFeatures": [*self.features, FEATURE]}


def header_of(snapshot: Snapshot, table: str) -> DeltaHeader:
    """The header of one table of a dataset.

    Raises
    ------
    Unsupported
        If Delta has no such type or name of a column, or the dataset is of a form that it cannot
        have; the message says what helps.
    """
    return snapshot.partitions.derived(("delta", table), snapshot.document, lambda: _header(snapshot, table))


def _header(snapshot: Snapshot, table: str) -> DeltaHeader:
    schema, owner = snapshot.schemas[table], f"Dataset {snapshot.uuid!r} cannot be published as a Delta table"
    if snapshot.document.partitions is None:
        raise Unsupported(f"{owner}: its document lists no partitions. Store its rows as a new dataset.")
    files = snapshot.partitions.file_column(table).drop_null()
    outside = files.filter(pc.invert(pc.starts_with(files, f"{snapshot.uuid}/{table}/")))
    if len(outside):
        raise Unsupported(f"{owner}: it has files elsewhere, e.g. {outside[0].as_py()!r}. Copy it with copy_dataset.")
    others = files.filter(pc.invert(pc.ends_with(files, DATA_SUFFIX)))
    if len(others):
        raise Unsupported(f"{owner}: it has files that are not Parquet, e.g. {others[0].as_py()!r}. Store Parquet.")
    _check_names(schema, owner)
    features = {_NTZ} if any(_has_local_moments(field.type) for field in schema) else set()
    fields = [_delta_field(f, f"{owner}: column {f.name!r}") for f in schema]
    for key in snapshot.partition_keys:
        if quote(key) != key:
            raise Unsupported(
                f"{owner}: partition column {key!r} is {quote(key)!r} in paths, which some readers take "
                "for its name. Store it under another name."
            )
        if pt.is_binary(schema.field(key).type):
            raise Unsupported(
                f"{owner}: partition column {key!r} is binary; engines read that differently. Store text."
            )
    text = json.dumps({"type": "struct", "fields": fields}, ensure_ascii=False, separators=(",", ":"))
    return DeltaHeader(text, tuple(snapshot.partition_keys), tuple(sorted(features)))


def _check_names(schema: pa.Schema, owner: str) -> None:
    odd = [name for name in schema.names if _FORBIDDEN.search(name) or not name]
    if odd:
        raise Unsupported(
            f"{owner}: column {odd[0]!r} has a name with a blank or one of ,;{{}}()= or a line end, which Delta has "
            "only by a mapping. Store it under another name."
        )
    folded: dict[str, str] = {}
    for name in schema.names:
        other = folded.setdefault(name.lower(), name)
        if other != name:
            raise Unsupported(f"{owner}: columns {other!r} and {name!r} differ by case only. Rename one of them.")


def _has_local_moments(data_type: pa.DataType) -> bool:
    if pt.is_timestamp(data_type):
        return data_type.tz is None
    return any(_has_local_moments(data_type.field(i).type) for i in range(data_type.num_fields))


def _delta_field(field: pa.Field, owner: str) -> dict[str, Any]:
    return {"name": field.name, "type": _delta_type(field.type, owner), "nullable": True, "metadata": {}}


def _delta_type(data_type: pa.DataType, owner: str) -> DeltaType:
    if (plain := _TYPES.get(data_type)) is not None:
        return plain
    if pt.is_timestamp(data_type):
        return "timestamp_ntz" if data_type.tz is None else "timestamp"
    if pt.is_decimal(data_type) and 0 <= data_type.scale <= data_type.precision:
        return f"decimal({data_type.precision},{data_type.scale})"
    if pt.is_list(data_type):
        return {"type": "array", "elementType": _delta_type(data_type.value_type, owner), "containsNull": True}
    if pt.is_map(data_type):
        _check_map_keys(data_type.key_type, owner)
        key, value = (_delta_type(child, owner) for child in (data_type.key_type, data_type.item_type))
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    if pt.is_struct(data_type):
        _check_names(pa.schema(list(data_type)), f"{owner} is a struct")
        fields = [_delta_field(child, f"{owner}, field {child.name!r},") for child in data_type]
        return {"type": "struct", "fields": fields}
    advice = next((text for is_type, text in _ADVICE if is_type(data_type)), "Cast it to another type.")
    raise Unsupported(f"{owner} is {data_type}, which Delta or its readers do not have. {advice}")


def _check_map_keys(data_type: pa.DataType, owner: str) -> None:
    """Refuse keys whose type differs in the log: some readers convert values, and no keys."""
    advice = None
    if pt.is_unsigned_integer(data_type):
        advice = "Store keys of a signed type."
    elif pt.is_timestamp(data_type) and data_type.tz not in (None, "UTC"):
        advice = "Store keys in UTC."
    if advice is not None:
        raise Unsupported(f"{owner} is a map with keys of {data_type}, which some readers of Delta refuse. {advice}")


# --- files ----------------------------------------------------------------------------------------


class NewFile(Struct, frozen=True):
    """A file that a version adds."""

    key: str
    partition_values: dict[str, str]
    size: int
    stats: str | None

    def action(self, folder: str, now: int) -> dict[str, Any]:
        """The action of the log; ``now`` in milliseconds."""
        added = {
            "path": path_of(self.key, folder),
            "partitionValues": self.partition_values,
            "size": self.size,
            "modificationTime": now,
            "dataChange": True,
        }
        return added if self.stats is None else {**added, "stats": self.stats}


def path_of(key: str, folder: str) -> str:
    """The path of a file in the log: relative to the folder of the table, URL-encoded.

    Examples
    --------
    >>> path_of("sales/table/CITY=K%C3%B6ln/1.parquet", "sales/table/_delta_log/")
    'CITY=K%25C3%25B6ln/1.parquet'
    """
    return _url_quote(key[len(folder) - len(DELTA_FOLDER) - 1 :], safe="/=")


def key_of(path: str, folder: str) -> str:
    """The reverse of `path_of`."""
    return folder[: -len(DELTA_FOLDER) - 1] + _url_unquote(path)


def partition_values(snapshot: Snapshot, positions: pa.Array) -> list[dict[str, str]]:
    """The partition values of some partitions, as Delta spells them.

    Raises
    ------
    Unsupported
        For values that readers take for null, and paths that spell them in another way than Hive.
    """
    keys = snapshot.partition_keys
    _check_folders(snapshot, positions)
    texts = [_value_texts(snapshot.values.column(key).take(positions), key, snapshot.uuid) for key in keys]
    return [dict(zip(keys, row, strict=True)) for row in zip(*texts, strict=True)] if keys else [{}] * len(positions)


def _check_folders(snapshot: Snapshot, positions: pa.Array) -> None:
    """Refuse paths with a slash in a value, which kartothek leaves as it is."""
    folders = 2 + len(snapshot.partition_keys)
    for files in snapshot.partitions.files.values():
        named = files.take(positions).drop_null()
        odd = named.filter(pc.not_equal(pc.count_substring(named, "/"), folders))
        if len(odd):
            raise Unsupported(
                f"Dataset {snapshot.uuid!r} cannot be published as a Delta table: the folders of {odd[0].as_py()!r} "
                "are not its partition values one by one, and some readers of Delta take them from there. Write such "
                f"files anew: compact_dataset({snapshot.uuid!r}, store, rewrite=True)."
            )


# What folders of Hive are called for a null.
_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


def _value_texts(values: pa.ChunkedArray, column: str, uuid: str) -> list[str]:
    data_type, distinct = values.type, pc.unique(values)
    if pt.is_timestamp(data_type) or pt.is_date(data_type):
        texts = distinct.cast(pa.string()).to_pylist()
    elif pt.is_floating(data_type):
        spelled = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
        texts = [spelled.get(text, text) for text in map(repr, distinct.to_pylist())]
    elif pt.is_boolean(data_type):
        texts = ["true" if value else "false" for value in distinct.to_pylist()]
    else:
        texts = [str(value) for value in distinct.to_pylist()]
    unreadable = ("", _HIVE_NULL) if pt.is_string(data_type) else ("NaN",)
    bad = next((text for text in texts if text in unreadable), None)
    if bad is not None:
        raise Unsupported(
            f"Dataset {uuid!r} cannot be published as a Delta table: partition column {column!r} has the value {bad!r} "
            "that readers of Delta take for null. Store another value, or partition by another column."
        )
    return [texts[i] for i in pc.index_in(values, value_set=distinct).to_pylist()]


# Decimals in JSON are numbers, which some readers take for floats.
_EXACT_DIGITS = 15
_ENCODER = msgspec.json.Encoder(decimal_format="number")
_YEARS = (1, 9999)


def stats_of(statistics: FileStatistics, schema: pa.Schema, partition_keys: Sequence[str]) -> list[str | None]:
    """The text of statistics of each file, a row of ``statistics`` each; None without rows.

    Bounds are left out where they are not exact in Delta's sense: of columns with NaN, and of
    values that JSON or the calendars of engines cannot tell. Those of texts may be cut.
    """
    rows = statistics.rows.to_pylist()
    every: list[dict[str, Any]] = [{"numRecords": n, "minValues": {}, "maxValues": {}, "nullCount": {}} for n in rows]
    for column in (f for f in schema if f.name not in partition_keys):
        nulls = statistics.nulls(column.name)
        if pt.is_floating(column.type):  # NaN counts as null here, and as a value in Delta
            nulls = pc.if_else(pc.equal(nulls, 0), nulls, pa.scalar(None, nulls.type))
        sides = _bounds(statistics, column, nulls)
        for name, values in (("nullCount", nulls.to_pylist()), *sides.items()):
            for stats, value in zip(every, values, strict=True):
                if value is not None:
                    stats[name][column.name] = value
    return [None if n is None else _ENCODER.encode(stats).decode() for n, stats in zip(rows, every, strict=True)]


def _bounds(statistics: FileStatistics, column: pa.Field, nulls: pa.Array) -> dict[str, list[Any]]:
    """The least and greatest values as JSON has them, None where they are left out."""
    data_type, unknown = column.type, [None] * len(nulls)
    if column.name not in statistics.columns or pt.is_boolean(data_type):
        return {}
    bounds, sides = statistics.bounds(column.name, data_type), dict[str, list[Any]]()
    for name, ends in (("minValues", bounds.minimum), ("maxValues", bounds.maximum)):
        if pt.is_floating(data_type):
            # Some readers order -0.0 before 0.0.
            zero = -0.0 if name == "minValues" else 0.0
            known = zip(ends.to_pylist(), nulls.is_valid().to_pylist(), strict=True)
            sides[name] = [(v or zero) if ok and v is not None and math.isfinite(v) else None for v, ok in known]
        elif pt.is_timestamp(data_type) or pt.is_date(data_type):
            sides[name] = _moments(ends)
        elif pt.is_decimal(data_type):
            sides[name] = ends.to_pylist() if data_type.precision <= _EXACT_DIGITS else unknown
        else:
            sides[name] = ends.to_pylist()
    return sides


def with_smaller_scale(statistics: FileStatistics, column: pa.Field) -> pa.Array:
    """The files that have a decimal with a smaller scale than it has now, by their statistics."""
    families = [f"lower/decimal{scale}/{column.name}" for scale in range(-38, column.type.scale)]
    known = [statistics.table.column(name).is_valid() for name in families if name in statistics.table.column_names]
    masks = [mask.combine_chunks() for mask in known]
    return reduce(pc.or_, masks, pa.array(np.zeros(len(statistics), dtype=bool)))


def _moments(ends: pa.Array) -> list[str | None]:
    years = pc.year(ends)
    first, last = _YEARS
    is_sure = pc.and_(pc.greater_equal(years, first), pc.less_equal(years, last))
    sure = pc.if_else(pc.fill_null(is_sure, False), ends, pa.scalar(None, ends.type))
    if pt.is_date(ends.type):
        return list(sure.cast(pa.string()).to_pylist())
    zone = "" if ends.type.tz is None else "Z"
    texts = sure.cast(pa.timestamp("us", ends.type.tz and "UTC")).cast(pa.timestamp("us")).cast(pa.string())
    return [None if text is None else text.replace(" ", "T") + zone for text in texts.to_pylist()]


# --- versions -------------------------------------------------------------------------------------


class LogState(Struct, frozen=True):
    """What a version of a log says.

    Attributes
    ----------
    version : int
        The version.
    state : str
        The state of the dataset, as of `state_id`.
    table_id, name : str
        The id and the name of the table.
    created : int
        When the table was created, in milliseconds.
    header : DeltaHeader
        Schema, partition columns and features.
    files : pyarrow.Array
        The keys of its files.
    """

    version: int
    state: str
    table_id: str
    name: str
    created: int
    header: DeltaHeader
    files: pa.Array

    def metadata(self) -> dict[str, Any]:
        """The action with schema and partition columns."""
        return {
            "id": self.table_id,
            "name": self.name,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": self.header.schema,
            "partitionColumns": list(self.header.partition_columns),
            "configuration": {},
            "createdTime": self.created,
        }

    def txn(self, now: int) -> dict[str, Any]:
        """The action that names the state; ``now`` in milliseconds."""
        return {"appId": f"{_APPLICATION}{self.state}", "version": self.version, "lastUpdated": now}


class _Path(Struct):
    path: str


class _Add(Struct, omit_defaults=True):
    path: str
    partitionValues: dict[str, str | None]  # noqa: N815 - Delta's name
    size: int
    modificationTime: int  # noqa: N815 - Delta's name
    dataChange: bool  # noqa: N815 - Delta's name
    stats: str | None = None


class _Txn(Struct):
    appId: str  # noqa: N815 - Delta's name


class _MetaData(Struct):
    id: str
    name: str | None = None
    schemaString: str = ""  # noqa: N815 - Delta's name
    partitionColumns: list[str] = []  # noqa: N815 - Delta's name
    createdTime: int = 0  # noqa: N815 - Delta's name


class _Protocol(Struct):
    readerFeatures: list[str] | None = None  # noqa: N815 - Delta's name


class _Line(Struct):
    add: _Add | None = None
    remove: _Path | None = None
    txn: _Txn | None = None
    metaData: _MetaData | None = None  # noqa: N815 - Delta's name
    protocol: _Protocol | None = None


_LINES = msgspec.json.Decoder(_Line)


class LogReplay:
    """The state of a log, action by action."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.adds: dict[str, _Add] = {}
        self.state, self.features = "", tuple[str, ...]()
        self.metadata: _MetaData | None = None

    def apply(self, data: bytes, key: str) -> None:
        """Apply the actions of a version.

        Raises
        ------
        CorruptData
            If they cannot be parsed.
        """
        try:
            lines = _LINES.decode_lines(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise CorruptData(f"The version {key!r} of a Delta table cannot be read: {error}") from error
        # The files that a version removes are never those that it adds.
        for line in lines:
            if line.remove is not None:
                self.adds.pop(line.remove.path, None)
        for line in lines:
            if line.add is not None:
                self.adds[line.add.path] = line.add
            self._set(line)

    def _set(self, line: _Line) -> None:
        if line.txn is not None and line.txn.appId.startswith(_APPLICATION):
            self.state = line.txn.appId.removeprefix(_APPLICATION)
        if line.metaData is not None:
            self.metadata = line.metaData
        if line.protocol is not None:
            self.features = tuple(line.protocol.readerFeatures or ())

    def apply_checkpoint(self, data: bytes, key: str) -> None:
        """Begin with a checkpoint; errors as of `apply`."""
        try:
            rows = pq.read_table(pa.BufferReader(data), columns=["add", "txn", "metaData", "protocol"]).to_pylist()
            found = [add for row in rows if (add := row.pop("add")) is not None]
            adds = [msgspec.convert({**add, "partitionValues": dict(add["partitionValues"])}, _Add) for add in found]
            lines = [msgspec.convert({k: v for k, v in row.items() if v}, _Line) for row in rows]
        except (pa.ArrowException, OSError, KeyError, TypeError, ValueError, msgspec.ValidationError) as error:
            raise CorruptData(f"The checkpoint {key!r} of a Delta table cannot be read: {error}") from error
        self.adds = {add.path: add for add in adds}
        for line in lines:
            self._set(line)

    def actions(self) -> list[dict[str, Any]]:
        """The files now, as actions of a checkpoint."""
        return [msgspec.to_builtins(add) for add in self.adds.values()]

    def at(self, version: int) -> LogState:
        """The state now, at a version; `CorruptData` if actions are missing."""
        if self.metadata is None or not self.state:
            raise CorruptData(f"The log {self.folder!r} has no schema, or another program wrote it.")
        header = DeltaHeader(self.metadata.schemaString, tuple(self.metadata.partitionColumns), self.features)
        files = pa.array([key_of(path, self.folder) for path in self.adds], type=pa.string())
        table = self.metadata
        return LogState(version, self.state, table.id, table.name or "", table.createdTime, header, files)


class LogChange(Struct, frozen=True):
    """The files of a snapshot that the log does not have, and the reverse.

    Attributes
    ----------
    added : numpy.ndarray
        Positions of partitions.
    removed : pyarrow.Array
        Keys.
    """

    added: np.ndarray[Any, np.dtype[np.int64]]
    removed: pa.Array


def change_since(last: LogState | None, files: pa.Array, again: pa.Array) -> LogChange:
    """What a version with these files changes; files ``again`` are added whether they are there."""
    present = np.flatnonzero(files.is_valid().to_numpy(zero_copy_only=False))
    if last is None:
        return LogChange(present, pa.array([], type=pa.string()))
    named = files.take(pa.array(present))
    is_new = pc.or_(pc.invert(pc.is_in(named, value_set=last.files)), pc.is_in(named, value_set=again))
    removed = last.files.filter(pc.invert(pc.is_in(last.files, value_set=named)))
    return LogChange(present[is_new.to_numpy(zero_copy_only=False)], removed)


def encode_version(
    state: LogState, last: LogState | None, adds: Iterable[Mapping[str, Any]], removed: pa.Array, folder: str, now: int
) -> bytes:
    """The actions of a version; ``now`` in milliseconds, ``last`` the version before.

    Without ``last`` it says everything, whatever the versions before say.
    """
    operation = {"operation": "WRITE", "operationParameters": {}, "engineInfo": "kartothek_cube"}
    info = {"timestamp": now, **operation, "kartothekCubeCommit": state.state}
    actions: list[dict[str, Any]] = [{"commitInfo": info}]
    if last is None or last.header.features != state.header.features:
        actions.append({"protocol": state.header.protocol()})
    if last is None or last.header != state.header:
        actions.append({"metaData": state.metadata()})
    actions.append({"txn": state.txn(now)})
    gone = ({"path": path_of(key, folder), "deletionTimestamp": now, "dataChange": True} for key in removed.to_pylist())
    actions += ({"remove": each} for each in gone)
    actions += ({"add": add} for add in adds)
    return b"\n".join(map(msgspec.json.encode, actions)) + b"\n"


def names_some(data: bytes, paths: Collection[str]) -> bool:
    """Whether a version adds or removes one of some files; False if it cannot be read."""
    try:
        lines = _LINES.decode_lines(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return any(each is not None and each.path in paths for line in lines for each in (line.add, line.remove))


# --- checkpoints ----------------------------------------------------------------------------------


_MAP = pa.map_(pa.string(), pa.string())
_CHECKPOINT = pa.schema(
    {
        "txn": pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
        "add": pa.struct(
            {
                "path": pa.string(),
                "partitionValues": _MAP,
                "size": pa.int64(),
                "modificationTime": pa.int64(),
                "dataChange": pa.bool_(),
                "stats": pa.string(),
            }
        ),
        "remove": pa.struct({"path": pa.string(), "deletionTimestamp": pa.int64(), "dataChange": pa.bool_()}),
        "metaData": pa.struct(
            {
                "id": pa.string(),
                "name": pa.string(),
                "description": pa.string(),
                "format": pa.struct({"provider": pa.string(), "options": _MAP}),
                "schemaString": pa.string(),
                "partitionColumns": pa.list_(pa.string()),
                "configuration": _MAP,
                "createdTime": pa.int64(),
            }
        ),
        "protocol": pa.struct(
            {
                "minReaderVersion": pa.int32(),
                "minWriterVersion": pa.int32(),
                "readerFeatures": pa.list_(pa.string()),
                "writerFeatures": pa.list_(pa.string()),
            }
        ),
    }
)


def encode_checkpoint(state: LogState, adds: Iterable[Mapping[str, Any]], now: int) -> bytes:
    """The whole state at a version: what was removed is not in it."""
    rows: list[dict[str, Any]] = [
        {"protocol": state.header.protocol()},
        {"metaData": state.metadata()},
        {"txn": state.txn(now)},
        *({"add": {**add, "dataChange": False}} for add in adds),
    ]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema=_CHECKPOINT), sink, compression="snappy")
    return sink.getvalue().to_pybytes()


def encode_last_checkpoint(version: int, files: int) -> bytes:
    """The object that names the newest checkpoint, which has so many files."""
    return msgspec.json.encode({"version": version, "size": files + 3})


# --- results --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PublishedDelta:
    """What `publish_delta` has published.

    Attributes
    ----------
    version : int
        The version of the Delta table; of several tables, the newest.
    commit : str | None
        The commit of the dataset; None after one of another library.
    added, removed : int
        The files that the version adds and removes; 0 if it was published already.
    bytes : int
        The bytes that were written to the log.
    versions : Mapping[str, int]
        The version of each table.

    Examples
    --------
    >>> PublishedDelta(3, "0f", 1, 0, 812).version
    3
    """

    version: int
    commit: str | None
    added: int
    removed: int
    bytes: int
    versions: Mapping[str, int] = field(default_factory=dict)
