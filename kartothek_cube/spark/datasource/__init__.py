"""The data source that Spark knows as ``kartothek_cube``: batch, stream, SQL; its registration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from kartothek_cube.errors import Unsupported
from kartothek_cube.spark.datasource.options import parse_options, use_of_schema
from kartothek_cube.spark.session import cores, find_session, is_sail
from kartothek_cube.spark.tasks import NO_STREAMS, task_errors

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from kartothek_cube.spark.datasource.read import ReadTarget


class KartothekCubeSource(DataSource):
    """Cubes and datasets as a data source of Spark; `register` makes it known to a session.

    ``cores`` is the number of tasks that run at once, unless the option ``parallelism`` is set;
    ``on_sail`` says whether Sail runs them.
    """

    cores: int | None = None
    on_sail: bool = False
    # Spark keeps the source of a `load()` as it is after `schema`, and makes each reader from a
    # copy. So all readers have the state that `schema` found.
    _view: ReadTarget | None = None

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "kartothek_cube"

    def schema(self) -> StructType:
        """Columns and types of a read.

        The state found here is the one that all later plans of this frame read.
        """
        from kartothek_cube.spark.datasource.read import source_schema, view_of

        with task_errors():
            use = use_of_schema(self.options)
            if use == "read a stream" and self.on_sail:
                # Without this, Sail starts a query that reads nothing, and says nothing.
                raise Unsupported(NO_STREAMS)
            options = parse_options(self.options, use)
            self._view = view_of(options)
            return source_schema(options, self._view)

    def reader(self, schema: StructType | pa.Schema) -> DataSourceReader:
        """The batch reader. Sail passes the schema as one of Arrow."""
        from kartothek_cube.spark.datasource.read import make_reader

        # The state must not travel to the tasks. The reader's pickle drops it; the source, which
        # travels along, drops it here.
        view, self._view = self._view, None
        with task_errors():
            return make_reader(parse_options(self.options, "read"), schema, self.cores, view)

    def writer(self, schema: StructType | pa.Schema, overwrite: bool) -> DataSourceWriter:
        """The batch writer. Sail passes the schema as one of Arrow."""
        from kartothek_cube.spark.datasource.write import make_writer

        with task_errors():
            return make_writer(parse_options(self.options, "write"), schema, overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """The streaming reader."""
        from kartothek_cube.spark.datasource.stream import make_stream_reader

        # A stream goes on from its own offsets, whatever state `schema` found.
        self._view = None
        with task_errors():
            return make_stream_reader(parse_options(self.options, "read a stream"), schema, self.cores)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        """The streaming writer."""
        from kartothek_cube.spark.datasource.write import make_stream_writer

        with task_errors():
            return make_stream_writer(parse_options(self.options, "stream"), schema, overwrite)


_PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession | None = None) -> None:
    """Register the format ``kartothek_cube`` and the table functions ``kartothek_...`` of SQL.

    Spark finds the format by itself. Only with this call, the session allows the option
    ``push_down``, and reads know its number of cores. A second call has no further effect.

    Parameters
    ----------
    spark : SparkSession, optional
        By default the active session; classic or Connect.

    Raises
    ------
    InvalidInput
        If there is no session.

    Examples
    --------
    >>> from pathlib import Path
    >>> import pandas as pd
    >>> from kartothek_cube.api.cube import Cube, build_cube
    >>> from kartothek_cube.spark import register
    >>> store = f"hfs://{Path.cwd()}/store"
    >>> sales = pd.DataFrame({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = build_cube(sales, Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales"), store)
    >>> register(spark)
    >>> reader = spark.read.format("kartothek_cube").options(store=store, cube="sales")
    >>> reader.option("conditions", "UNITS > 3").load().collect()
    [Row(COUNTRY_CODE='FR', PRODUCT_ID=2, UNITS=4)]
    """
    from kartothek_cube.spark.datasource.read import register_functions

    session = find_session(spark)
    # Without this setting Spark refuses every read with the option push_down.
    session.conf.set(_PUSH_DOWN, "true")
    # Spark plans a read in a process that knows neither session nor cluster, so what is to be known
    # of them travels in the class.
    known = {"cores": cores(session, None), "on_sail": is_sail(session)}
    session.dataSource.register(type("KartothekCubeSource", (KartothekCubeSource,), known))
    register_functions(session)
