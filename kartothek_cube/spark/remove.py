"""Removing partitions of a cube: the verb for who works in Spark. There is no file to touch, so it is done by the driver alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kartothek_cube.core.change import OnConflict
from kartothek_cube.core.compat.dataset_metadata import DatasetMetadata
from kartothek_cube.core.journal import verb
from kartothek_cube.core.metadata.txn import parse_txn
from kartothek_cube.core.options import Overrides
from kartothek_cube.core.stores import open_store
from kartothek_cube.cube.cube import Cube
from kartothek_cube.cube.verbs.append import remove_from_members
from kartothek_cube.typing import Columns, IntoConditions, IntoTxn, StoreLike, UserMetadata

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["remove_partitions_spark"]


def remove_partitions_spark(
    cube: Cube,
    store: StoreLike,
    conditions: IntoConditions = None,
    ktk_cube_dataset_ids: Columns = None,
    metadata: Mapping[str, UserMetadata] | None = None,
    *,
    on_conflict: OnConflict = "raise",
    txn: IntoTxn | None = None,
    spark: SparkSession | None = None,
    parallelism: int | None = None,
    options: Overrides | None = None,
) -> dict[str, DatasetMetadata]:
    """Remove the physical partitions in which conditions on the cube's partition columns hold.

    Arguments, results and errors are those of `kartothek_cube.api.cube.remove_partitions`. Only documents and indices change, so no Spark job runs;
    ``spark`` and ``parallelism`` are accepted, as by the other verbs, and have no effect. ``txn`` is as in `build_cube_from_spark`.

    Examples
    --------
    >>> from kartothek_cube.api.cube import C, Cube
    >>> from kartothek_cube.spark import build_cube_from_spark, remove_partitions_spark
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> rows = spark.sql("SELECT 1L AS PRODUCT_ID, 'DE' AS COUNTRY_CODE UNION SELECT 2L, 'FR'")
    >>> _ = build_cube_from_spark(rows, cube, "hfs://fewer", shuffle=True)
    >>> remove_partitions_spark(cube, "hfs://fewer", C("COUNTRY_CODE") == "DE")
    {'seed': DatasetMetadata(uuid='sales++seed', partitions=1, partition_keys=['COUNTRY_CODE'])}
    """
    del spark, parallelism
    with verb("remove_partitions_spark", options, cube=cube):
        return remove_from_members(cube, open_store(store), conditions, ktk_cube_dataset_ids, metadata, on_conflict, parse_txn(txn))
