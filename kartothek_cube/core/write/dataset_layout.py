"""The layout on record: how later writes sort, cut and compress the files of a dataset. Pure.

Also the record of dropped columns, which older files still have.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import pyarrow as pa

from kartothek_cube.core.arguments import pluralize
from kartothek_cube.core.arrow.types import unify
from kartothek_cube.core.io.formats import AdaptiveParquetFormat, FileFormat, ParquetFormat
from kartothek_cube.core.metadata.document import DROPPED_KEY, LAYOUT_KEY
from kartothek_cube.core.metadata.snapshot import embedded_schemas, parse_embedded_schemas
from kartothek_cube.errors import CorruptDocument, InvalidInput

__all__ = [
    "NO_LAYOUT",
    "DatasetLayout",
    "check_types_of_dropped",
    "dropped_after",
    "dropped_columns",
    "layout_of",
]


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
