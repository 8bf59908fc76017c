"""The verbs of Spark as a driver, so that `DriverTests` runs on any session."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kartothek_cube import spark as verbs
from kartothek_cube.cube.cube import Cube
from kartothek_cube.spark.types import spark_schema, wire_schema
from kartothek_cube.testing.driver import Tables, Written
from kartothek_cube.typing import IntoConditions, StoreLike

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SparkDriver"]


class SparkDriver:
    """Runs the verbs in the tasks of a Spark session, classic or Connect.

    Parameters
    ----------
    session : SparkSession
        Where they run.
    shuffle : bool, default False
        Whether the verbs that write shuffle.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.api.cube import C, Cube
    >>> from tests.support.spark_driver import SparkDriver
    >>> driver, cube = SparkDriver(spark), Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> seed = pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]})
    >>> _ = driver.build_cube({"seed": seed}, cube, "hfs://driven")
    >>> driver.query_cube(cube, "hfs://driven", conditions=C("PRODUCT_ID") > 1).to_pylist()
    [{'COUNTRY_CODE': 'FR', 'PRODUCT_ID': 2}]
    """

    def __init__(self, session: SparkSession, shuffle: bool = False) -> None:
        self._session = session
        self._shuffle = shuffle

    def build_cube(self, data: Tables, cube: Cube, store: StoreLike, **arguments: Any) -> Written:
        return verbs.build_cube_from_spark(self._frames(data), cube, store, **arguments, shuffle=self._shuffle)

    def extend_cube(self, data: Tables, cube: Cube, store: StoreLike, **arguments: Any) -> Written:
        return verbs.extend_cube_from_spark(self._frames(data), cube, store, **arguments, shuffle=self._shuffle)

    def append_to_cube(self, data: Tables, cube: Cube, store: StoreLike, **arguments: Any) -> Written:
        return verbs.append_to_cube_from_spark(self._frames(data), cube, store, **arguments, shuffle=self._shuffle)

    def update_cube(
        self, data: Tables, cube: Cube, store: StoreLike, remove_conditions: IntoConditions, **arguments: Any
    ) -> Written:
        return verbs.update_cube_from_spark(
            self._frames(data), cube, store, remove_conditions, **arguments, shuffle=self._shuffle
        )

    def remove_partitions(self, cube: Cube, store: StoreLike, conditions: IntoConditions, **arguments: Any) -> Written:
        return verbs.remove_partitions_spark(cube, store, conditions, **arguments, spark=self._session)

    def query_cube(self, cube: Cube, store: StoreLike, **arguments: Any) -> pa.Table:
        return _rows(verbs.query_cube_spark(cube, store, **arguments, spark=self._session))

    def map_groups(
        self,
        func: Callable[[dict[str, Any], pa.Table], pa.Table],
        schema: pa.Schema,
        cube: Cube,
        store: StoreLike,
        **arguments: Any,
    ) -> pa.Table:
        return _rows(verbs.map_cube_groups(func, schema, cube, store, **arguments, spark=self._session))

    def collect_stats(self, cube: Cube, store: StoreLike) -> dict[str, dict[str, int]]:
        return verbs.collect_stats_spark(cube, store, spark=self._session)

    def copy_cube(self, cube: Cube, source: StoreLike, target: StoreLike, **arguments: Any) -> None:
        verbs.copy_cube_spark(cube, source, target, **arguments, spark=self._session)

    def delete_cube(self, cube: Cube, store: StoreLike) -> None:
        verbs.delete_cube_spark(cube, store, spark=self._session)

    def cleanup_cube(self, cube: Cube, store: StoreLike) -> Any:
        return verbs.cleanup_cube_spark(cube, store, spark=self._session)

    def compact_cube(self, cube: Cube, store: StoreLike, **arguments: Any) -> Any:
        return verbs.compact_cube_spark(cube, store, **arguments, spark=self._session)

    def store_dataset(self, table: pa.Table, store: StoreLike, dataset_uuid: str, **arguments: Any) -> Any:
        return verbs.store_dataset_from_spark(
            self._frame(table), store, dataset_uuid, **arguments, shuffle=self._shuffle
        )

    def update_dataset(self, table: pa.Table, store: StoreLike, dataset_uuid: str, **arguments: Any) -> Any:
        return verbs.update_dataset_from_spark(
            self._frame(table), store, dataset_uuid, **arguments, shuffle=self._shuffle
        )

    def delete_rows(self, dataset_uuid: str, store: StoreLike, predicates: Any, **arguments: Any) -> Any:
        return verbs.delete_rows_spark(dataset_uuid, store, predicates, **arguments, spark=self._session)

    def merge_dataset(self, table: pa.Table, store: StoreLike, dataset_uuid: str, on: Any, **arguments: Any) -> Any:
        return verbs.merge_dataset_from_spark(self._frame(table), store, dataset_uuid, on, **arguments)

    def read_dataset(self, dataset_uuid: str, store: StoreLike, **arguments: Any) -> pa.Table:
        return _rows(verbs.read_dataset_as_spark(dataset_uuid, store, **arguments, spark=self._session))

    def build_indices(self, store: StoreLike, dataset_uuid: str, columns: Iterable[str]) -> Any:
        return verbs.build_dataset_indices_spark(store, dataset_uuid, columns, spark=self._session)

    def compact_dataset(self, dataset_uuid: str, store: StoreLike, **arguments: Any) -> Any:
        return verbs.compact_dataset_spark(dataset_uuid, store, **arguments, spark=self._session)

    def collect_dataset_metadata(self, store: StoreLike, dataset_uuid: str) -> pa.Table:
        return pa.Table.from_pandas(
            verbs.collect_dataset_metadata_spark(store, dataset_uuid, spark=self._session), preserve_index=False
        )

    def hash_dataset(self, store: StoreLike, dataset_uuid: str, **arguments: Any) -> dict[Any, int]:
        return dict(verbs.hash_dataset_spark(store, dataset_uuid, **arguments, spark=self._session).items())

    def garbage_collect_dataset(self, dataset_uuid: str, store: StoreLike) -> Any:
        return verbs.garbage_collect_dataset_spark(dataset_uuid, store, spark=self._session)

    def copy_dataset(self, dataset_uuid: str, store: StoreLike, target_dataset_uuid: str) -> Any:
        return verbs.copy_dataset_spark(dataset_uuid, store, target_dataset_uuid, spark=self._session)

    def delete_dataset(self, dataset_uuid: str, store: StoreLike) -> None:
        verbs.delete_dataset_spark(dataset_uuid, store, spark=self._session)

    def _frames(self, data: Tables) -> dict[str, DataFrame]:
        return {name: self._frame(table) for name, table in data.items()}

    def _frame(self, table: pa.Table) -> DataFrame:
        """The rows with a schema: without a schema Spark guesses, and shifts times.

        A column without a type stays one.
        """
        wire = wire_schema(table.schema, "the rows")
        kinds = [
            pa.field(f.name, f.type if pa.types.is_null(f.type) else wire.field(f.name).type) for f in table.schema
        ]
        return self._session.createDataFrame(table, spark_schema(pa.schema(kinds)))


def _rows(frame: DataFrame) -> pa.Table:
    with verbs.driver_errors():
        return frame.toArrow()
