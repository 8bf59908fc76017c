"""The protocol `Driver` of `DriverTests`, and `EagerDriver`, which runs the verbs in this process.

A driver here runs the verbs on some engine. It is not Spark's driver process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from kartothek_cube.api import cube as cubes
from kartothek_cube.api import dataset as datasets
from kartothek_cube.core.runtime.options import Overrides, options
from kartothek_cube.cube.cube import Cube
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
    >>> from kartothek_cube.testing.driver import EagerDriver
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
