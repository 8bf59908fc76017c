"""Type aliases for the arguments of the public functions.

Importing this module imports neither pandas nor pyarrow. Each alias is a real type at run time,
so that ``StoreLike | None`` and `typing.get_type_hints` work.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ForwardRef, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from pandas import DataFrame
    from pyarrow import Schema, Table

    from kartothek_cube.core.expressions.conditions import Condition, Conjunction
    from kartothek_cube.core.kartothek.dataset_metadata import DatasetFactory, DatasetMetadata
    from kartothek_cube.core.kartothek.schema_wrapper import SchemaWrapper
    from kartothek_cube.core.metadata.commit_log import Txn
    from kartothek_cube.core.runtime.executor import MaybeRemote, Task
    from kartothek_cube.core.stores.contract import Store

    _Again: TypeAlias = "StoreLike"
    _Json: TypeAlias = "JSONValue"
    _Item: TypeAlias = "IntoItem"
else:

    def _later(module: str, name: str) -> ForwardRef:
        # Imported only when the type is resolved, as by `typing.get_type_hints`.
        return ForwardRef(f"__import__({module!r}, fromlist=[{name!r}]).{name}")

    DataFrame = _later("pandas", "DataFrame")
    Schema = _later("pyarrow", "Schema")
    Table = _later("pyarrow", "Table")
    DatasetMetadata = _later("kartothek_cube.core.kartothek.dataset_metadata", "DatasetMetadata")
    DatasetFactory = _later("kartothek_cube.core.kartothek.dataset_metadata", "DatasetFactory")
    SchemaWrapper = _later("kartothek_cube.core.kartothek.schema_wrapper", "SchemaWrapper")
    Txn = _later("kartothek_cube.core.metadata.commit_log", "Txn")
    MaybeRemote = _later("kartothek_cube.core.runtime.executor", "MaybeRemote")
    Task = _later("kartothek_cube.core.runtime.executor", "Task")
    Store = _later("kartothek_cube.core.stores.contract", "Store")
    Condition = _later("kartothek_cube.core.expressions.conditions", "Condition")
    Conjunction = _later("kartothek_cube.core.expressions.conditions", "Conjunction")
    _Again = _later("kartothek_cube.typing", "StoreLike")
    _Json = _later("kartothek_cube.typing", "JSONValue")
    _Item = _later("kartothek_cube.typing", "IntoItem")

__all__ = [
    "ArrowStream",
    "AsOf",
    "Columns",
    "ColumnsByTable",
    "CubeState",
    "DeleteScope",
    "Executor",
    "GroupFunction",
    "GroupKey",
    "IntoConditions",
    "IntoCubeData",
    "IntoDatasets",
    "IntoItem",
    "IntoItems",
    "IntoMetadata",
    "IntoPredicates",
    "IntoRows",
    "IntoSchema",
    "IntoTxn",
    "JSONValue",
    "MetadataMerger",
    "StoreLike",
    "SupportsArrowFiles",
    "SupportsFsspec",
    "SupportsKeyValue",
    "UserMetadata",
]


@runtime_checkable
class SupportsKeyValue(Protocol):
    """A store of simplekv or minimalkv: any object with these four methods.

    Examples
    --------
    >>> from simplekv.memory import DictStore
    >>> isinstance(DictStore(), SupportsKeyValue)
    True
    """

    def get(self, key: str, /) -> bytes:
        """The bytes under a key."""

    def put(self, key: str, data: bytes, /) -> str:
        """Write bytes under a key."""

    def delete(self, key: str, /) -> object:
        """Remove a key."""

    def iter_keys(self, prefix: str = "", /) -> Iterator[str]:
        """All keys that begin with ``prefix``."""


@runtime_checkable
class SupportsArrowFiles(Protocol):
    """A ``pyarrow.fs.FileSystem``: any object with these two methods.

    Examples
    --------
    >>> from pyarrow.fs import LocalFileSystem
    >>> isinstance(LocalFileSystem(), SupportsArrowFiles)
    True
    """

    def open_input_file(self, path: str) -> Any:
        """An open file."""

    def get_file_info(self, paths_or_selector: Any) -> Any:
        """Type and size of files."""


@runtime_checkable
class SupportsFsspec(Protocol):
    """A file system of fsspec: any object with these three methods.

    Examples
    --------
    >>> isinstance("hfs:///data/cubes", SupportsFsspec)
    False
    """

    def cat_file(self, path: str) -> bytes:
        """The bytes of a file."""

    def info(self, path: str) -> dict[str, Any]:
        """Type and size of a file or folder."""

    def unstrip_protocol(self, name: str) -> str:
        """The URL of a path."""


@runtime_checkable
class ArrowStream(Protocol):
    """Rows of pyarrow, Polars, DuckDB and others that export the Arrow C stream interface.

    Examples
    --------
    >>> import pyarrow as pa
    >>> isinstance(pa.table({"WEEK": [18]}), ArrowStream)
    True
    """

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """A capsule with the stream."""


class Executor(Protocol):
    """What runs the work of a maintenance verb on files: threads, tasks of Spark, or your own.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> import pandas as pd
    >>> from kartothek_cube import open_store
    >>> from kartothek_cube.api.dataset import compact_dataset, store_dataframes_as_dataset
    >>> class Pool:
    ...     def map(self, task, items, store=None):
    ...         print(f"{task.phase.name}: {len(items)} item(s)")
    ...         with ThreadPoolExecutor(4) as pool:  # or processes: all of it can be pickled
    ...             yield from pool.map(task.func, items)
    >>> store = open_store("hmemory://")
    >>> sales = pd.DataFrame({"COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = store_dataframes_as_dataset(store, "sales", [sales[:1], sales[1:]])
    >>> report = compact_dataset("sales", store, executor=Pool())
    read: 2 item(s)
    write: 1 item(s)
    """

    def map(self, task: Task, items: Sequence[Any], store: MaybeRemote | None = None) -> Generator[Any, None, None]:
        """The results of ``task.func(item)`` in the order of the items; the first error is raised.

        ``task.heavy`` says that an item takes seconds, and not one call of the store. A function
        may be called twice for one item.
        """


JSONValue: TypeAlias = str | int | float | bool | Sequence[_Json] | Mapping[str, _Json] | None
UserMetadata: TypeAlias = Mapping[str, JSONValue]
IntoMetadata: TypeAlias = UserMetadata | Callable[[], UserMetadata] | None
MetadataMerger: TypeAlias = Callable[[list[dict[str, JSONValue]]], UserMetadata]

StoreLike: TypeAlias = (
    str | os.PathLike[str] | Store | SupportsKeyValue | SupportsFsspec | SupportsArrowFiles | Callable[[], _Again]
)
AsOf: TypeAlias = str | datetime
# The last element is what the attribute `commits` of a plan has: the commit of each dataset.
CubeState: TypeAlias = str | datetime | Mapping[str, str | None]
IntoTxn: TypeAlias = tuple[str, int] | Txn

Columns: TypeAlias = str | Iterable[str] | None
ColumnsByTable: TypeAlias = Iterable[str] | Mapping[str, Iterable[str]] | None
IntoPredicates: TypeAlias = Sequence[Sequence[tuple[str, str, object]]]
DeleteScope: TypeAlias = Iterable[Mapping[str, object]]

IntoRows: TypeAlias = DataFrame | ArrowStream
IntoItem: TypeAlias = IntoRows | Mapping[str, object] | Sequence[tuple[str, IntoRows | None]] | Sequence[_Item] | None
IntoItems: TypeAlias = IntoItem | Iterable[IntoItem]
IntoSchema: TypeAlias = Schema | SchemaWrapper | IntoRows

IntoCubeData: TypeAlias = IntoRows | Mapping[str, IntoRows | None] | Iterable[IntoRows | Mapping[str, IntoRows | None]]
IntoConditions: TypeAlias = str | Condition | Conjunction | Iterable[Condition] | None
IntoDatasets: TypeAlias = str | Iterable[str] | Mapping[str, DatasetMetadata] | None
# A value has the type of its column, which is known at run time only.
GroupKey: TypeAlias = dict[str, Any]
_Rows: TypeAlias = IntoRows | Iterable[IntoRows] | None
GroupFunction: TypeAlias = Callable[[GroupKey, Table], _Rows] | Callable[[GroupKey, DataFrame], _Rows]
