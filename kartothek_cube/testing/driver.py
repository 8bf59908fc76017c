"""What `DriverTests` run on: the protocol `Driver`, `EagerDriver`, and the small cube of the tests.

A driver here runs the verbs on some engine. It is not Spark's driver process. Tasks import this
module, so it must not need pytest.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from kartothek_cube.api import cube as cubes
from kartothek_cube.api import dataset as datasets
from kartothek_cube.api.cube import Cube, query_cube_arrow
from kartothek_cube.core.runtime.options import Overrides, options
from kartothek_cube.core.stores.contract import StoreView
from kartothek_cube.core.stores.open import open_store
from kartothek_cube.testing.model import NaiveCube, Row
from kartothek_cube.typing import IntoConditions, StoreLike

__all__ = ["Driver", "EagerDriver", "Tables", "Written"]


Tables: TypeAlias = Mapping[str, pa.Table]
"""Dataset id → rows."""
Written: TypeAlias = dict[str, datasets.DatasetMetadata]
"""Dataset id → the committed dataset."""


class Driver(Protocol):
    """One way to run the verbs: eager, on Spark, or on an engine of yours.

    Not to be confused with Spark's driver process. Rows go in and come out as Arrow tables. Stores
    are URLs or picklable stores. ``arguments`` are further keyword arguments of the eager verb of
    the same name, with the same meaning and errors. A verb returns what the eager verb returns,
    except for rows.

    Examples
    --------
    >>> driver: Driver = EagerDriver(threads=2)
    """

    def build_cube(self, data: Tables, cube: Cube, store: StoreLike, **arguments: object) -> Written: ...

    def extend_cube(self, data: Tables, cube: Cube, store: StoreLike, **arguments: object) -> Written: ...

    def append_to_cube(self, data: Tables, cube: Cube, store: StoreLike, **arguments: object) -> Written: ...

    def update_cube(
        self, data: Tables, cube: Cube, store: StoreLike, remove_conditions: IntoConditions, **arguments: object
    ) -> Written: ...

    def remove_partitions(
        self, cube: Cube, store: StoreLike, conditions: IntoConditions, **arguments: object
    ) -> Written: ...

    def query_cube(self, cube: Cube, store: StoreLike, **arguments: object) -> pa.Table:
        """All rows; with ``partition_by``, group by group."""
        ...

    def map_groups(
        self,
        func: Callable[[dict[str, Any], pa.Table], pa.Table],
        schema: pa.Schema,
        cube: Cube,
        store: StoreLike,
        **arguments: object,
    ) -> pa.Table:
        """The results of a function on every group of a query, as one table of this schema."""
        ...

    def collect_stats(self, cube: Cube, store: StoreLike) -> dict[str, dict[str, int]]: ...

    def copy_cube(self, cube: Cube, source: StoreLike, target: StoreLike, **arguments: object) -> None: ...

    def delete_cube(self, cube: Cube, store: StoreLike) -> None: ...

    def cleanup_cube(self, cube: Cube, store: StoreLike) -> Any: ...

    def compact_cube(self, cube: Cube, store: StoreLike, **arguments: object) -> Any: ...

    def store_dataset(
        self, table: pa.Table, store: StoreLike, dataset_uuid: str, **arguments: object
    ) -> datasets.DatasetMetadata: ...

    def update_dataset(
        self, table: pa.Table, store: StoreLike, dataset_uuid: str, **arguments: object
    ) -> datasets.DatasetMetadata: ...

    def delete_rows(self, dataset_uuid: str, store: StoreLike, predicates: object, **arguments: object) -> Any: ...

    def merge_dataset(
        self, table: pa.Table, store: StoreLike, dataset_uuid: str, on: object, **arguments: object
    ) -> Any: ...

    def read_dataset(self, dataset_uuid: str, store: StoreLike, **arguments: object) -> pa.Table: ...

    def build_indices(self, store: StoreLike, dataset_uuid: str, columns: Iterable[str]) -> Any: ...

    def compact_dataset(self, dataset_uuid: str, store: StoreLike, **arguments: object) -> Any: ...

    def collect_dataset_metadata(self, store: StoreLike, dataset_uuid: str) -> pa.Table:
        """The eager verb's frame as a table, with rows in any order."""
        ...

    def hash_dataset(self, store: StoreLike, dataset_uuid: str, **arguments: object) -> dict[Any, int]:
        """Group → hash."""
        ...

    def garbage_collect_dataset(self, dataset_uuid: str, store: StoreLike) -> Any: ...

    def copy_dataset(self, dataset_uuid: str, store: StoreLike, target_dataset_uuid: str) -> Any: ...

    def delete_dataset(self, dataset_uuid: str, store: StoreLike) -> None: ...


class EagerDriver:
    """The driver that runs the verbs in this process.

    Parameters
    ----------
    threads : int
        The number of threads of each call.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.api.cube import C, Cube
    >>> from kartothek_cube.testing.drivers import EagerDriver
    >>> driver, cube = EagerDriver(threads=2), Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> sales = pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]})
    >>> _ = driver.build_cube({"seed": sales}, cube, "hfs://sales")
    >>> driver.query_cube(cube, "hfs://sales", conditions=C("PRODUCT_ID") > 1).to_pylist()
    [{'COUNTRY_CODE': 'FR', 'PRODUCT_ID': 2}]
    """

    def __init__(self, threads: int = 1) -> None:
        self._options: Overrides = options(threads=threads)

    def build_cube(self, data: Tables, cube: Cube, store: StoreLike, **arguments: Any) -> Written:
        return cubes.build_cube(data, cube, store, **arguments, options=self._options)

    def extend_cube(self, data: Tables, cube: Cube, store: StoreLike, **arguments: Any) -> Written:
        return cubes.extend_cube(data, cube, store, **arguments, options=self._options)

    def append_to_cube(self, data: Tables, cube: Cube, store: StoreLike, **arguments: Any) -> Written:
        return cubes.append_to_cube(data, cube, store, **arguments, options=self._options)

    def update_cube(
        self, data: Tables, cube: Cube, store: StoreLike, remove_conditions: IntoConditions, **arguments: Any
    ) -> Written:
        return cubes.update_cube(data, cube, store, remove_conditions, **arguments, options=self._options)

    def remove_partitions(self, cube: Cube, store: StoreLike, conditions: IntoConditions, **arguments: Any) -> Written:
        return cubes.remove_partitions(cube, store, conditions, **arguments, options=self._options)

    def query_cube(self, cube: Cube, store: StoreLike, **arguments: Any) -> pa.Table:
        if "partition_by" not in arguments:
            return cubes.query_cube_arrow(cube, store, **arguments, options=self._options)
        groups = cubes.iter_cube(cube, store, **arguments, options=self._options)
        return pa.concat_tables([table for _, table in groups])

    def map_groups(
        self,
        func: Callable[[dict[str, Any], pa.Table], pa.Table],
        schema: pa.Schema,
        cube: Cube,
        store: StoreLike,
        **arguments: Any,
    ) -> pa.Table:
        groups = cubes.iter_cube(cube, store, **arguments, options=self._options)
        results = [func(key, table).select(schema.names).cast(schema) for key, table in groups]
        return pa.concat_tables([schema.empty_table(), *results])

    def collect_stats(self, cube: Cube, store: StoreLike) -> dict[str, dict[str, int]]:
        return cubes.collect_stats(cube, store, options=self._options)

    def copy_cube(self, cube: Cube, source: StoreLike, target: StoreLike, **arguments: Any) -> None:
        cubes.copy_cube(cube, source, target, **arguments, options=self._options)

    def delete_cube(self, cube: Cube, store: StoreLike) -> None:
        cubes.delete_cube(cube, store, options=self._options)

    def cleanup_cube(self, cube: Cube, store: StoreLike) -> Any:
        return cubes.cleanup_cube(cube, store, options=self._options)

    def compact_cube(self, cube: Cube, store: StoreLike, **arguments: Any) -> Any:
        return cubes.compact_cube(cube, store, **arguments, options=self._options)

    def store_dataset(
        self, table: pa.Table, store: StoreLike, dataset_uuid: str, **arguments: Any
    ) -> datasets.DatasetMetadata:
        return datasets.store_dataframes_as_dataset(store, dataset_uuid, [table], **arguments, options=self._options)

    def update_dataset(
        self, table: pa.Table, store: StoreLike, dataset_uuid: str, **arguments: Any
    ) -> datasets.DatasetMetadata:
        return datasets.update_dataset_from_dataframes([table], store, dataset_uuid, **arguments, options=self._options)

    def delete_rows(self, dataset_uuid: str, store: StoreLike, predicates: Any, **arguments: Any) -> Any:
        return datasets.delete_rows(dataset_uuid, store, predicates, **arguments, options=self._options)

    def merge_dataset(self, table: pa.Table, store: StoreLike, dataset_uuid: str, on: Any, **arguments: Any) -> Any:
        return datasets.merge_dataset([table], store, dataset_uuid, on, **arguments, options=self._options)

    def read_dataset(self, dataset_uuid: str, store: StoreLike, **arguments: Any) -> pa.Table:
        return datasets.read_table_arrow(dataset_uuid, store, **arguments, options=self._options)

    def build_indices(self, store: StoreLike, dataset_uuid: str, columns: Iterable[str]) -> Any:
        return datasets.build_dataset_indices(store, dataset_uuid, columns, options=self._options)

    def compact_dataset(self, dataset_uuid: str, store: StoreLike, **arguments: Any) -> Any:
        return datasets.compact_dataset(dataset_uuid, store, **arguments, options=self._options)

    def collect_dataset_metadata(self, store: StoreLike, dataset_uuid: str) -> pa.Table:
        frame = datasets.collect_dataset_metadata(store, dataset_uuid, options=self._options)
        return pa.Table.from_pandas(frame, preserve_index=False)

    def hash_dataset(self, store: StoreLike, dataset_uuid: str, **arguments: Any) -> dict[Any, int]:
        return dict(datasets.hash_dataset(store, dataset_uuid, **arguments, options=self._options).items())

    def garbage_collect_dataset(self, dataset_uuid: str, store: StoreLike) -> Any:
        return datasets.garbage_collect_dataset(dataset_uuid, store, options=self._options)

    def copy_dataset(self, dataset_uuid: str, store: StoreLike, target_dataset_uuid: str) -> Any:
        return datasets.copy_dataset(dataset_uuid, store, target_dataset_uuid, options=self._options)

    def delete_dataset(self, dataset_uuid: str, store: StoreLike) -> None:
        datasets.delete_dataset(dataset_uuid, store, options=self._options)


CUBE = Cube(["x", "y"], ["p"], "cube", index_columns=["i1"])
PARTITION_ON: dict[str, Any] = {"e": []}
TOTALS = pa.schema([("x", pa.int64()), ("total", pa.float64())])
_DOCUMENT = ".by-dataset-metadata."


def seed(partitions: Iterable[int] = (0, 1), add: float = 0.0) -> pa.Table:
    """Eight rows for each ``p``: four ``x``, two ``y``; ``i1`` is ``10 * p`` or one more."""
    rows = [
        (x, y, p, 10 * p + x % 2, add + 10.0 * p + x + y / 2) for p in partitions for x in range(4) for y in range(2)
    ]
    return pa.table(dict(zip(("x", "y", "p", "i1", "v1"), map(list, zip(*rows, strict=True)), strict=True)))


def enrichment() -> pa.Table:
    """Rows for some ``x``, one of them without a partner in the seed."""
    return pa.table({"x": [0, 1, 2, 9], "v2": ["a", None, "c", "z"]})


def every_type() -> pa.Table:
    """Three rows with a column of each type that all engines have, with nulls and a NaN."""
    columns: dict[str, tuple[pa.DataType, list[Any]]] = {
        "x": (pa.int64(), [1, 2, 3]),
        "p": (pa.string(), ["DE", "ä/b", "DE"]),
        "boolean": (pa.bool_(), [True, None, False]),
        "small": (pa.int8(), [-1, None, 127]),
        "int": (pa.int32(), [-1, None, 2**31 - 1]),
        "float": (pa.float32(), [0.5, None, float("nan")]),
        "text": (pa.string(), ["", None, "ä"]),
        "bytes": (pa.binary(), [b"", None, b"\0\xff"]),
        "date": (pa.date32(), [dt.date(1969, 12, 31), None, dt.date(2024, 2, 29)]),
        # The first is a local time that New York's clocks skipped.
        "time": (
            pa.timestamp("us"),
            [
                dt.datetime.fromisoformat("2024-03-10T02:30"),
                None,
                dt.datetime.fromisoformat("1969-12-31T23:59:59.999999"),
            ],
        ),
        "price": (pa.decimal128(10, 2), [Decimal("1.20"), None, Decimal("-99999999.99")]),
        "nothing": (pa.null(), [None, None, None]),
    }
    return pa.table([pa.array(values, data_type) for data_type, values in columns.values()], names=list(columns))


def model() -> NaiveCube:
    """The reference model with `seed` and `enrichment`."""
    naive = NaiveCube(CUBE)
    naive.build({"seed": seed().to_pylist(), "e": enrichment().to_pylist()}, PARTITION_ON)
    return naive


def expected(naive: NaiveCube, **query: Any) -> list[Row]:
    """The rows of a query of the model, sorted."""
    return ordered(row for group in naive.query(**query) for row in group)


def ordered(rows: pa.Table | Iterable[Row]) -> list[Row]:
    """Rows sorted by ``x``, ``y``, ``p``, then by all other columns; nulls first."""
    listed = rows.to_pylist() if isinstance(rows, pa.Table) else list(rows)

    def key(row: Row) -> list[tuple[bool, Any]]:
        names = sorted(row, key=lambda name: (name not in ("x", "y", "p"), name))
        return [(row[name] is not None, row[name]) for name in names]

    return sorted(listed, key=key)


def rows_in(store: StoreLike, cube: Cube = CUBE) -> list[Row]:
    """All rows of a cube, read eagerly; none without a cube."""
    return ordered(query_cube_arrow(cube, store)) if documents(store) else []


def documents(store: StoreLike) -> list[str]:
    """The keys of all metadata documents."""
    return sorted(key for key in open_store(store).list(recursive=True).keys if _DOCUMENT in key and "/" not in key)


def data_files(store: StoreLike) -> list[str]:
    """The keys of all data files, referenced or not."""
    return sorted(
        key
        for key in open_store(store).list(recursive=True).keys
        if key.endswith(".parquet") and "/indices/" not in key
    )


def total(key: dict[str, Any], table: pa.Table) -> pa.Table:
    """A group function: ``x`` and the sum of ``v1``."""
    return pa.table({"x": [key["x"]], "total": [sum(table.column("v1").to_pylist())]})


class InBetween(StoreView):
    """A store with a concurrent commit: right before the test's first commit, another one lands.

    Planning and staging of the test are done by then. In other processes it is the plain store.

    Parameters
    ----------
    url : str
        The store.
    action : Callable
        The other commit.
    """

    def __init__(self, url: str, action: Callable[[], object]) -> None:
        super().__init__(open_store(url))
        self._url, self._action = url, [action]

    def __reduce__(self) -> tuple[Any, ...]:
        return open_store, (self._url,)

    def put_if(self, key: str, data: Any, version: Any) -> Any:
        """Run the other commit first, once."""
        while _DOCUMENT in key and self._action:
            self._action.pop()()
        return super().put_if(key, data, version)
