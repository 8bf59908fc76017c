"""Calls as users write them, read by mypy and never run; `# error: code` says what mypy has to
refuse.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import assert_type

import pandas as pd
import pyarrow as pa
from duckdb import DuckDBPyRelation

import kartothek_cube
from kartothek_cube import (
    C,
    Cube,
    api,
    append_to_cube,
    build_cube,
    compact_cube,
    connect,
    count_cube,
    cube_history,
    extend_cube,
    iter_cube,
    open_cube,
    open_store,
    plan_cube_query,
    query_cube,
    query_cube_arrow,
    remove_partitions,
    stream_cube,
    undo_cube,
    update_cube,
)
from kartothek_cube.api.dataset import (
    DatasetFactory,
    DatasetMetadata,
    commit_receipts,
    create_empty_dataset_header,
    delete_dataset,
    garbage_collect_dataset,
    hash_dataset,
    history,
    read_dataset_as_dataframes,
    read_table,
    read_table_arrow,
    stage_partitions,
    store_dataframes_as_dataset,
    stream_table,
    undo,
    update_dataset_from_dataframes,
    verify_dataset,
)
from kartothek_cube.api.serialization import ParquetSerializer
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.cube.query.plan import QueryPlan
from kartothek_cube.typing import AsOf, Columns, GroupKey, IntoConditions, IntoCubeData, StoreLike


def cubes(frame: pd.DataFrame, table: pa.Table, cube: Cube, store: Store) -> None:
    assert_type(build_cube(frame, cube, store), dict[str, DatasetMetadata])
    build_cube(
        {"seed": table, "prices": table},
        cube,
        "hfs:///data",
        partition_on={"prices": ["q"]},
        metadata={"seed": {"source": "till"}},
    )
    build_cube((table for _ in range(2)), cube, Path("data"), df_serializer=ParquetSerializer(compression="ZSTD"))
    extend_cube({"prices": table.to_reader()}, cube, lambda: "hmemory://", on_conflict="reapply")
    append_to_cube([{"seed": table}, {"seed": frame}], cube, store)
    update_cube(frame, cube, store, C("p") == "DE", ktk_cube_dataset_ids=["seed"])
    remove_partitions(cube, store, [C("p") == "DE", C("q") > 1])
    compact_cube(cube, store, conditions=None)
    assert_type(cube_history(cube, store), pd.DataFrame)
    cube_history("sales", store)
    assert_type(undo_cube(cube, store, "0f1e2d"), dict[str, DatasetMetadata])
    undo_cube("sales", store)
    undo_cube(cube, store, 7)  # error: arg-type
    build_cube(18, cube, store)  # error: arg-type
    build_cube(frame, "sales", store)  # error: arg-type
    build_cube(frame, cube, 18)  # error: arg-type
    build_cube(frame, cube, store, partition_on=["q"])  # error: arg-type
    extend_cube({"prices": "a.parquet"}, cube, store)  # error: arg-type
    extend_cube(frame, cube, store, on_conflict="overwrite")  # error: arg-type
    update_cube(frame, cube, store, ("p", "==", "DE"))  # error: arg-type


def queries(cube: Cube, store: Store, conditions: IntoConditions, data: dict[str, DatasetMetadata]) -> None:
    assert_type(query_cube(cube, store), list[pd.DataFrame])
    assert_type(query_cube_arrow(cube, store, C("x") > 1, payload_columns="v1"), pa.Table)
    assert_type(iter_cube(cube, store, partition_by=["i1"]), Iterator[tuple[GroupKey, pa.Table]])
    assert_type(stream_cube(cube, store, limit=10), pa.RecordBatchReader)
    assert_type(count_cube(cube, store, conditions), int)
    assert_type(plan_cube_query(cube, store, datasets=data), QueryPlan)
    assert_type(open_cube("sales", "hfs:///data", as_of=dt.datetime(2024, 5, 1)), Cube)
    query_cube(cube, store, (C("x") > 1) & C("p").isin(["DE"]), {"seed"}, ("x",), "i1", ["v1"], as_of="2024-05-01")
    query_cube(cube, store, "x > 1 AND p IN ('DE', 'AT')", as_of="2024-05-01")
    query_cube(cube, store, 18)  # error: arg-type
    query_cube(cube, store, payload_columns=18)  # error: arg-type
    query_cube(cube, store, as_of=2024)  # error: arg-type
    query_cube(cube, store, columns=["v1"])  # error: call-arg


def datasets(frame: pd.DataFrame, table: pa.Table, store: Store, factory: DatasetFactory) -> None:
    assert_type(
        store_dataframes_as_dataset(store, "sales", [frame, table], metadata={"weeks": [18, 19]}), DatasetMetadata
    )
    store_dataframes_as_dataset(
        store, "sales", {"label": "a", "data": {"table": frame}}, metadata=lambda: {"source": "till"}
    )
    update_dataset_from_dataframes(
        [("table", frame)], store, "sales", delete_scope=[{"p": "DE"}], metadata_merger=lambda parts: parts[0]
    )
    commit_receipts([stage_partitions(frame, store, "sales")], store, "sales", txn=("weekly sales", 18))
    create_empty_dataset_header(store, "sales", {"table": table.schema})
    assert_type(
        read_table("sales", store, columns=["v1"], predicates=[[("x", "in", [1, 2]), ("p", "==", "DE")]]), pd.DataFrame
    )
    assert_type(read_table_arrow("sales", store), pa.Table)
    assert_type(stream_table("sales", store), pa.RecordBatchReader)
    assert_type(read_dataset_as_dataframes(factory=factory), list[dict[str, pd.DataFrame]])
    assert_type(hash_dataset(store, "sales"), "pd.Series[int]")
    store_dataframes_as_dataset(store, "sales", [frame], metadata={"when": {1, 2}})  # error: dict-item
    store_dataframes_as_dataset(store, "sales", [frame], df_serializer="parquet")  # error: arg-type
    store_dataframes_as_dataset(store, "sales", 18)  # error: arg-type
    read_table("sales", store, predicates=[("x", "==", 1)])  # error: list-item
    read_table("sales", store, factory="sales")  # error: arg-type
    commit_receipts([frame], store, "sales")  # error: list-item


def named_or_held(store: Store, factory: DatasetFactory) -> None:
    assert_type(history("sales", store), pd.DataFrame)
    history(factory=factory)
    verify_dataset("sales", store, deep=True)
    verify_dataset(factory=factory)
    delete_dataset("sales", "hfs:///data")
    delete_dataset(factory=factory)
    garbage_collect_dataset("sales", store, dry_run=True)
    undo("sales", store, "0f1e2d")
    undo(factory=factory)
    history("sales")  # error: call-overload
    history("sales", factory=factory)  # error: call-overload
    verify_dataset("sales", store, factory=factory)  # error: call-overload
    delete_dataset()  # error: call-overload
    garbage_collect_dataset(store=store)  # error: call-overload
    undo(store=store, factory=factory)  # error: call-overload


def changes_in_sql(store: Store) -> None:
    with connect(store) as connection:
        assert_type(connection.changes("sales", "0f1e2d", on="x"), DuckDBPyRelation)
        assert_type(connection.sql("FROM sales"), DuckDBPyRelation)
        connection.changes("sales")  # error: call-arg


def stores(x: StoreLike) -> None:
    assert_type(open_store(x), Store)
    open_store("s3://bucket", region="eu-central-1", readonly=True)
    open_store(lambda: Path("data"))
    open_store(18)  # error: arg-type
    open_store("s3://bucket", regoin="eu-central-1")  # error: call-arg
    open_store("s3://bucket", readonly="yes")  # error: arg-type


def sales_of(
    country: str, store: StoreLike, data: IntoCubeData, columns: Columns = None, as_of: AsOf | None = None
) -> pd.DataFrame:
    """A function of a user that passes arguments on."""
    cube = Cube(["x"], ["p"], "sales")
    build_cube(data, cube, store)
    return query_cube(cube, store, C("p") == country, payload_columns=columns, as_of=as_of)[0]


def names_that_there_are_not() -> None:
    api.dataset.read_tables()  # error: attr-defined
    kartothek_cube.build_cubes()  # error: attr-defined
