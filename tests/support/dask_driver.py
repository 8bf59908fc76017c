"""The verbs of dask as a driver, so that `DriverTests` runs on any scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import dask.bag as db
import dask.dataframe as dd
import pandas as pd
import pyarrow as pa

from kartothek_cube.api import cube as cubes
from kartothek_cube.api import dataset as datasets
from kartothek_cube.cube.cube import Cube
from kartothek_cube.dask import bag, bag_cube, dataframe, dataframe_cube, delayed
from kartothek_cube.dask.tasks import DaskExecutor
from kartothek_cube.testing.driver import InBetween, Tables, Written
from kartothek_cube.typing import IntoConditions, StoreLike

__all__ = ["DaskDriver"]


class Travelling(InBetween):
    """`InBetween` in whatever process commits."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (Travelling, (self._url, self._action[0])) if self._action else super().__reduce__()


def travelling(store: Any) -> Any:
    return Travelling(store._url, store._action[0]) if isinstance(store, InBetween) else store


class DaskDriver:
    """Runs the verbs in dask's tasks.

    Parameters
    ----------
    compute : Callable
        Computes a lazy value, e.g. on a cluster.
    frames : bool
        Whether rows come in frames of dask and not in bags.
    """

    def __init__(self, compute: Callable[[Any], Any], *, frames: bool = True, shuffle: bool = False) -> None:
        self._compute, self._frames, self._shuffle = compute, frames, shuffle

    def build_cube(self, data: Tables, cube: Cube, store: StoreLike, **arguments: Any) -> Written:
        if not self._frames:
            return self._first(
                bag_cube.build_cube_from_bag(self._bag(data), cube, travelling(store), list(data), **arguments)
            )
        frames = self._ddfs(data)
        built = dataframe_cube.build_cube_from_dataframe(
            frames, cube, travelling(store), **arguments, shuffle=self._shuffle
        )
        return self._compute(built)

    def extend_cube(self, data: Tables, cube: Cube, store: StoreLike, **arguments: Any) -> Written:
        if not self._frames:
            return self._first(
                bag_cube.extend_cube_from_bag(self._bag(data), cube, travelling(store), list(data), **arguments)
            )
        return self._compute(
            dataframe_cube.extend_cube_from_dataframe(self._ddfs(data), cube, travelling(store), **arguments)
        )

    def append_to_cube(self, data: Tables, cube: Cube, store: StoreLike, **arguments: Any) -> Written:
        if not self._frames:
            rows = self._bag(data)
            return self._first(bag_cube.append_to_cube_from_bag(rows, cube, travelling(store), list(data), **arguments))
        return self._compute(
            dataframe_cube.append_to_cube_from_dataframe(self._ddfs(data), cube, travelling(store), **arguments)
        )

    def update_cube(
        self, data: Tables, cube: Cube, store: StoreLike, remove_conditions: IntoConditions, **arguments: Any
    ) -> Written:
        update = partial(bag_cube.update_cube_from_bag, self._bag(data), cube, travelling(store), remove_conditions)
        return self._first(update(list(data), **arguments))

    def remove_partitions(self, cube: Cube, store: StoreLike, conditions: IntoConditions, **arguments: Any) -> Written:
        return cubes.remove_partitions(cube, store, conditions, **arguments)

    def query_cube(self, cube: Cube, store: StoreLike, **arguments: Any) -> pa.Table:
        schema = cubes.query_cube_arrow(
            cube, store, **{k: v for k, v in arguments.items() if k != "partition_by"}
        ).schema
        if self._frames:
            frame = self._compute(
                dataframe_cube.query_cube_dataframe(cube, store, **arguments, dtype_backend="pyarrow")
            )
            frames = [frame]
        else:
            frames = self._compute(bag_cube.query_cube_bag(cube, store, **arguments, dtype_backend="pyarrow"))
        tables = [pa.Table.from_pandas(f, schema, preserve_index=False).replace_schema_metadata(None) for f in frames]
        return pa.concat_tables([schema.empty_table(), *tables])

    def map_groups(
        self,
        func: Callable[[dict[str, Any], pa.Table], pa.Table],
        schema: pa.Schema,
        cube: Cube,
        store: StoreLike,
        **arguments: Any,
    ) -> pa.Table:
        by = arguments["partition_by"]
        results = bag_cube.query_cube_bag(cube, store, **arguments).map(partial(called, func, by))
        return pa.concat_tables(
            [schema.empty_table(), *(r.select(schema.names).cast(schema) for r in self._compute(results))]
        )

    def collect_stats(self, cube: Cube, store: StoreLike) -> dict[str, dict[str, int]]:
        return self._first(bag_cube.collect_stats_bag(cube, store))

    def copy_cube(self, cube: Cube, source: StoreLike, target: StoreLike, **arguments: Any) -> None:
        self._compute(bag_cube.copy_cube_bag(cube, source, target, **arguments))

    def delete_cube(self, cube: Cube, store: StoreLike) -> None:
        self._compute(bag_cube.delete_cube_bag(cube, store))

    def cleanup_cube(self, cube: Cube, store: StoreLike) -> Any:
        return self._first(bag_cube.cleanup_cube_bag(cube, store))

    def compact_cube(self, cube: Cube, store: StoreLike, **arguments: Any) -> Any:
        return cubes.compact_cube(cube, store, **arguments, executor=DaskExecutor())

    def store_dataset(self, table: pa.Table, store: StoreLike, dataset_uuid: str, **arguments: Any) -> Any:
        if not self._frames:
            rows = db.from_sequence([table], npartitions=1)
            return self._compute(bag.store_bag_as_dataset(rows, travelling(store), dataset_uuid, **arguments))
        return self._compute(
            dataframe.store_dataset_from_ddf(
                self._ddf(table), travelling(store), dataset_uuid, **arguments, shuffle=self._shuffle
            )
        )

    def update_dataset(self, table: pa.Table, store: StoreLike, dataset_uuid: str, **arguments: Any) -> Any:
        if not self._frames:
            half = table.num_rows // 2
            rows = [table.slice(0, half), table.slice(half)]
            return self._compute(
                delayed.update_dataset_from_delayed(rows, travelling(store), dataset_uuid, **arguments)
            )
        return self._compute(
            dataframe.update_dataset_from_ddf(
                self._ddf(table), travelling(store), dataset_uuid, **arguments, shuffle=self._shuffle
            )
        )

    def delete_rows(self, dataset_uuid: str, store: StoreLike, predicates: Any, **arguments: Any) -> Any:
        return datasets.delete_rows(dataset_uuid, store, predicates, **arguments, executor=DaskExecutor())

    def merge_dataset(self, table: pa.Table, store: StoreLike, dataset_uuid: str, on: Any, **arguments: Any) -> Any:
        return datasets.merge_dataset([table], store, dataset_uuid, on, **arguments)

    def read_dataset(self, dataset_uuid: str, store: StoreLike, **arguments: Any) -> pa.Table:
        schema = None
        if self._frames:
            frame = self._compute(
                dataframe.read_dataset_as_ddf(dataset_uuid, store, **arguments, dtype_backend="pyarrow")
            )
        else:
            parts = self._compute(
                bag.read_dataset_as_dataframe_bag(dataset_uuid, store, **arguments, dtype_backend="pyarrow")
            )
            frame = pd.concat([part["table"] for part in parts]) if parts else None
        schema = datasets.read_table_arrow(dataset_uuid, store, **arguments).schema
        if frame is None:
            return schema.empty_table()
        return pa.Table.from_pandas(frame, schema, preserve_index=False).replace_schema_metadata(None)

    def build_indices(self, store: StoreLike, dataset_uuid: str, columns: Iterable[str]) -> Any:
        return self._compute(bag.build_dataset_indices__bag(store, dataset_uuid, columns))

    def compact_dataset(self, dataset_uuid: str, store: StoreLike, **arguments: Any) -> Any:
        return datasets.compact_dataset(dataset_uuid, store, **arguments, executor=DaskExecutor())

    def collect_dataset_metadata(self, store: StoreLike, dataset_uuid: str) -> pa.Table:
        frame = self._compute(dataframe.collect_dataset_metadata(store, dataset_uuid))
        return pa.Table.from_pandas(frame, preserve_index=False)

    def hash_dataset(self, store: StoreLike, dataset_uuid: str, **arguments: Any) -> dict[Any, int]:
        return dict(self._compute(dataframe.hash_dataset(store, dataset_uuid, **arguments)).items())

    def garbage_collect_dataset(self, dataset_uuid: str, store: StoreLike) -> Any:
        (report,) = delayed.garbage_collect_dataset__delayed(dataset_uuid, store)
        return self._compute(report)

    def copy_dataset(self, dataset_uuid: str, store: StoreLike, target_dataset_uuid: str) -> Any:
        return datasets.copy_dataset(dataset_uuid, store, target_dataset_uuid, executor=DaskExecutor())

    def delete_dataset(self, dataset_uuid: str, store: StoreLike) -> None:
        self._compute(delayed.delete_dataset__delayed(dataset_uuid, store))

    def _first(self, lazy: db.Bag) -> Any:
        (found,) = self._compute(lazy)
        return found

    def _bag(self, data: Tables) -> db.Bag:
        """Two elements: one with half of the rows of each dataset, one with the other half."""
        first = {i: t.slice(0, t.num_rows // 2) for i, t in data.items()}
        second = {i: t.slice(t.num_rows // 2) for i, t in data.items()}
        return db.from_sequence([first, second], npartitions=2)

    def _ddfs(self, data: Tables) -> dict[str, dd.DataFrame]:
        return {name: self._ddf(table) for name, table in data.items()}

    def _ddf(self, table: pa.Table) -> dd.DataFrame:
        """Two partitions, with the types of Arrow: pandas has no others for some columns."""
        frame = table.to_pandas(types_mapper=pd.ArrowDtype)
        return dd.from_map(partial(half_of, frame), [0, 1], meta=frame.iloc[:0])


def half_of(frame: pd.DataFrame, i: int) -> pd.DataFrame:
    return frame.iloc[: len(frame) // 2] if i == 0 else frame.iloc[len(frame) // 2 :]


def called(func: Callable[[dict[str, Any], pa.Table], pa.Table], by: Any, frame: pd.DataFrame) -> pa.Table:
    table = pa.Table.from_pandas(frame, preserve_index=False)
    names = [by] if isinstance(by, str) else list(by)
    return func({name: table.column(name)[0].as_py() for name in names}, table)
