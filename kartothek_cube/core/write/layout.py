"""Which partitions an update removes, the layout on record, and what staging follows. Pure.

In order:

- the layout on record: how later writes sort, cut and compress; dropped columns
- the request of one staging
- delete scopes
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import numpy as np
import pyarrow as pa

from kartothek_cube.core.arguments import as_list, pluralize
from kartothek_cube.core.arrow.types import unify
from kartothek_cube.core.expressions.predicates import Clause, Mask, is_null
from kartothek_cube.core.io.formats import AdaptiveParquetFormat, FileFormat, ParquetFormat
from kartothek_cube.core.metadata.document import DROPPED_KEY, LAYOUT_KEY
from kartothek_cube.core.metadata.naming import SINGLE_TABLE
from kartothek_cube.core.metadata.snapshot import Snapshot, embedded_schemas, parse_embedded_schemas, type_of_column
from kartothek_cube.core.runtime.options import current_options
from kartothek_cube.core.scan.plan import index_mask, partition_mask
from kartothek_cube.errors import CorruptDocument, InvalidInput, InvalidRequest, InvalidType


@dataclass(frozen=True, slots=True)
class DatasetLayout:
    """How writes arrange the rows of a dataset in files, unless a call says otherwise.

    The page *Layout* says which write obeys what.

    Attributes
    ----------
    sort_by : tuple of str
        Columns that sort the rows of each file, nulls last.
    bucket_by : tuple of str
        Columns whose hash chooses the file, in shuffled writes of Spark.
    num_buckets : int | None
        The number of these files for each combination of partition values.
    target_file_bytes : int | None
        The size at which files are cut.
    compression : str | None
        The codec of Parquet files.
    row_group_rows : int | None
        Rows of a row group.

    Examples
    --------
    >>> print(DatasetLayout(sort_by=("SALES_DATE",), compression="ZSTD"))
    sorted by SALES_DATE; ZSTD
    """

    sort_by: tuple[str, ...] = ()
    bucket_by: tuple[str, ...] = ()
    num_buckets: int | None = None
    target_file_bytes: int | None = None
    compression: str | None = None
    row_group_rows: int | None = None

    def __bool__(self) -> bool:
        return self != NO_LAYOUT

    def __str__(self) -> str:
        return "; ".join(self._phrases()) or "(none)"

    def _phrases(self) -> Iterator[str]:
        if self.sort_by:
            yield f"sorted by {', '.join(self.sort_by)}"
        if self.num_buckets:
            yield pluralize(self.num_buckets, "bucket") + (f" by {', '.join(self.bucket_by)}" if self.bucket_by else "")
        if self.target_file_bytes:
            yield f"files of {pluralize(self.target_file_bytes, 'byte')}"
        if self.compression:
            yield self.compression
        if self.row_group_rows:
            yield f"row groups of {pluralize(self.row_group_rows, 'row')}"

    def over(self, other: DatasetLayout) -> DatasetLayout:
        """These settings, and those of another layout where this one has none."""
        missing = {f.name: getattr(other, f.name) for f in fields(self) if not getattr(self, f.name)}
        if self.num_buckets:
            missing.pop("bucket_by", None)  # both are one setting
        return replace(self, **missing)

    def within(self, columns: Collection[str]) -> DatasetLayout:
        """The layout for files with these columns: without an order or buckets by others."""
        lacks_bucket = not {*columns}.issuperset(self.bucket_by)
        return replace(
            self,
            sort_by=self.sort_by if {*columns}.issuperset(self.sort_by) else (),
            bucket_by=() if lacks_bucket else self.bucket_by,
            num_buckets=None if lacks_bucket else self.num_buckets,
        )

    def format(self, default: FileFormat) -> FileFormat:
        """The format of new files; ``default`` has what the layout leaves open."""
        if not isinstance(default, ParquetFormat):
            return default
        chosen = default
        # A codec that somebody chose is not left out where files are small.
        if self.compression and (self.compression != default.compression or type(default) is AdaptiveParquetFormat):
            chosen = ParquetFormat(self.compression, default.chunk_size)
        return replace(chosen, chunk_size=self.row_group_rows) if self.row_group_rows else chosen

    def record(self) -> dict[str, str | None]:
        """The entry of a document; an empty layout has none."""
        given = {name: value for name, value in asdict(self).items() if value}
        return {LAYOUT_KEY: json.dumps(given) if given else None}


NO_LAYOUT = DatasetLayout()


def layout_of(metadata: Mapping[str, Any], uuid: str) -> DatasetLayout:
    """The layout in the metadata of a document.

    Raises
    ------
    CorruptDocument
        If the entry is damaged.

    Examples
    --------
    >>> layout_of({"kartothek_cube.layout": '{"sort_by": ["SALES_DATE"]}'}, "sales").sort_by
    ('SALES_DATE',)
    """
    text = metadata.get(LAYOUT_KEY)
    if text is None:
        return NO_LAYOUT
    try:
        stored = dict(json.loads(text).items())
        # Settings of a later version are passed over.
        given = {f.name: stored[f.name] for f in fields(DatasetLayout) if f.name in stored}
        for name in ("sort_by", "bucket_by"):
            given[name] = tuple(given.get(name, ()))
        layout = DatasetLayout(**given)
        numbers = (layout.num_buckets, layout.target_file_bytes, layout.row_group_rows)
        if all(isinstance(c, str) for c in (*layout.sort_by, *layout.bucket_by, layout.compression or "")) and all(
            n is None or (type(n) is int and n > 0) for n in numbers
        ):
            return layout
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        pass
    raise CorruptDocument(
        f"The metadata {LAYOUT_KEY!r} of dataset {uuid!r} should be a JSON map of the settings of a layout, but are "
        f"{text!r:.200}."
    )


# --- dropped columns ------------------------------------------------------------------------------


def dropped_columns(metadata: Mapping[str, Any], uuid: str) -> dict[str, pa.Schema]:
    """Table → the columns that were dropped and that files may still have, with their types."""
    text = metadata.get(DROPPED_KEY)
    return {} if text is None else parse_embedded_schemas(str(text), uuid)


def dropped_after(
    before: Mapping[str, pa.Schema],
    old: Mapping[str, pa.Schema],
    new: Mapping[str, pa.Schema],
    dropped: Collection[str],
) -> str | None:
    """The record after a commit that makes ``new`` of the schemas ``old``; None if it is empty.

    ``before`` is the record before. A column that is back is in it no more.
    """
    record = {}
    for table, schema in new.items():
        known = [*before.get(table, ()), *(f for f in old.get(table, ()) if f.name in dropped)]
        gone = pa.schema([f for f in known if f.name not in schema.names])
        if len(gone):
            record[table] = gone
    return embedded_schemas(record) if record else None


def check_types_of_dropped(dropped: pa.Schema, schema: pa.Schema, uuid: str) -> pa.Schema:
    """The schema, with columns that were dropped before in a type that holds their old values, too.

    Raises
    ------
    InvalidInput
        If there is none.
    """
    for old in dropped:
        if old.name not in schema.names:
            continue
        position, new = schema.get_field_index(old.name), schema.field(old.name)
        try:
            [both] = unify([pa.schema([old]), pa.schema([new])], "")
        except InvalidInput:
            raise InvalidInput(
                f"Column {old.name!r} of dataset {uuid!r} was dropped as {old.type} and cannot return as {new.type}: "
                "older files still have its values. Give it that type, choose another name, or remove the old values "
                f"with compact_dataset({uuid!r}, store, rewrite=True)."
            ) from None
        schema = schema.set(position, both)
    return schema


@dataclass(frozen=True, slots=True)
class StageRequest:
    """How the files of one dataset are staged; picklable, so that it can travel to an executor.

    A receipt lists the distinct values of ``index_columns``, and the first and last row of
    ``sort_columns``. ``fresh`` means that the labels are new and random. A label that the user
    chose names the partition, not the file: if its key is taken, the file gets another key.
    ``statistics`` is the option of that name. Rows that would make a file of more than
    ``target_file_bytes`` are cut into several.
    """

    uuid: str
    partition_on: tuple[str, ...]
    index_columns: tuple[str, ...]
    sort_columns: tuple[str, ...]
    serializer: FileFormat
    table: str = SINGLE_TABLE
    fresh: bool = True
    statistics: bool | Sequence[str] = field(default_factory=lambda: current_options().statistics)
    target_file_bytes: int | None = None


# --- delete scopes --------------------------------------------------------------------------------


Scope = tuple[tuple[Clause, ...], ...]


def parse_scope(delete_scope: object, base: Snapshot | None) -> Scope:
    """Check ``[{column: value, ...}, ...]`` against the dataset; cast values to column types.

    Raises
    ------
    InvalidInput, InvalidType
        If it is no list of dicts, a dict is empty, a column is unknown or has no index, or a value
        does not fit its column.
    """
    items = as_list(delete_scope, "delete_scope")
    if base is None:
        return ()
    scope: list[tuple[Clause, ...]] = []
    for item in items:
        if not isinstance(item, Mapping):
            raise InvalidType(
                f"delete_scope of dataset {base.uuid!r} is a list of dicts column → value; one item is {item!r}."
            )
        if not item:
            raise InvalidInput(
                f"delete_scope of dataset {base.uuid!r} has an empty dict, which would remove every partition. "
                "Name the partitions, or overwrite."
            )
        clauses = []
        for column, value in ((str(c), value) for c, value in item.items()):
            data_type = type_of_column(base.schemas, column, base.uuid)
            if column not in base.indexed_columns:
                raise InvalidRequest(
                    f"delete_scope of dataset {base.uuid!r}: column {column!r} is neither a partition key "
                    "nor has it a secondary index, so it selects no partitions. "
                    f"Indexed are {sorted(base.indexed_columns)}."
                )
            if is_null(value) or isinstance(value, (list, tuple, set, frozenset, dict, np.ndarray)):
                raise InvalidType(
                    f"delete_scope of dataset {base.uuid!r}: {column!r} needs one value, not {value!r}. "
                    "Give one dict for each value."
                )
            try:
                clauses.append(Clause(column, "==", _cast(value, data_type)))
            except (pa.ArrowException, UnicodeDecodeError, OverflowError, TypeError) as error:
                raise InvalidInput(
                    f"delete_scope of dataset {base.uuid!r}: {value!r} is no value of column {column!r}, "
                    f"which is {data_type}: {error}"
                ) from None
        scope.append(tuple(clauses))
    return tuple(scope)


def _cast(value: object, data_type: pa.DataType) -> Any:
    """The value in a column's type: as lenient as kartothek, but never another value.

    "1" is 1, as in kartothek. 1.9 is not.
    """
    plain: Any = value.as_py() if isinstance(value, pa.Scalar) else value
    if isinstance(plain, np.datetime64):
        # The item of a datetime64 in nanoseconds would be an integer.
        moment = plain.astype("datetime64[us]")
        if moment != plain:
            raise pa.ArrowInvalid("a moment between two microseconds")
        plain = moment
    elif isinstance(plain, np.generic):
        plain = plain.item()
    is_number = isinstance(plain, (int, float))
    if is_number and (pa.types.is_temporal(data_type) or (pa.types.is_boolean(data_type) and plain not in (0, 1))):
        raise pa.ArrowInvalid("a number")
    if pa.types.is_string(data_type):
        return plain.decode("utf-8") if isinstance(plain, bytes) else str(plain)
    if pa.types.is_binary(data_type):
        return plain.encode("utf-8") if isinstance(plain, str) else plain
    if pa.types.is_null(data_type):
        return plain
    if isinstance(plain, int) and pa.types.is_integer(data_type):
        # Without a type Arrow takes an integer for int64, which is too narrow for uint64.
        return pa.scalar(int(plain), data_type).as_py()
    if pa.types.is_date(data_type):
        return _day(plain)
    return pa.scalar(plain).cast(data_type).as_py()


def _day(value: Any) -> dt.date:
    """The date that a date, its text, or a midnight without a zone is."""
    moment: dt.datetime = pa.scalar(value).cast(pa.timestamp("us")).as_py()
    if getattr(value, "tzinfo", None) is not None or moment.time() != dt.time():
        raise pa.ArrowInvalid("a moment")
    return moment.date()


def labels_in_scope(snapshot: Snapshot, scope: Scope) -> pa.Array:
    """Labels of the partitions that contain all values of one of the dicts.

    The indices on its columns must be loaded.
    """
    result: Mask = np.zeros(len(snapshot.partitions), dtype=bool)
    for clauses in scope:
        mask = partition_mask(snapshot, clauses)
        for clause in clauses:
            if clause.column not in snapshot.partition_keys:
                mask &= index_mask(snapshot.indices[clause.column], [clause], snapshot.partitions)
        result |= mask
    return snapshot.partitions.labels.filter(pa.array(result))
