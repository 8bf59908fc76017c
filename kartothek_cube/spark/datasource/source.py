"""The class that Spark knows: names, schema, and which reader or writer does the work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from kartothek_cube.spark.datasource.options import parse_options
from kartothek_cube.spark.errors import task_errors

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamWriter, DataSourceWriter
    from pyspark.sql.types import StructType

    from kartothek_cube.spark.datasource.plan import View

__all__ = ["KartothekCubeSource"]


class KartothekCubeSource(DataSource):
    """Cubes and datasets as a data source of Spark; `register` makes it known to a session.

    ``cores`` says how many tasks run at once, where nobody says so in the option ``parallelism``.
    """

    cores: int | None = None
    # Spark keeps the source of a ``load()`` as it is after `schema`, and makes each reader from a copy of it.
    _view: View | None = None

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "kartothek_cube"

    def schema(self) -> StructType:
        """Columns and types of what is read. All plans that Spark makes later are of the state that was found here."""
        from kartothek_cube.spark.datasource.plan import view_of
        from kartothek_cube.spark.datasource.read import source_schema

        with task_errors():
            options = parse_options(self.options, "read")
            self._view = view_of(options)
            return source_schema(options, self._view)

    def reader(self, schema: StructType) -> DataSourceReader:
        """The batch reader."""
        from kartothek_cube.spark.datasource.read import make_reader

        # The reader leaves it behind when it travels to the tasks; so must the source, which travels along.
        view, self._view = self._view, None
        with task_errors():
            return make_reader(parse_options(self.options, "read"), schema, self.cores, view)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The batch writer."""
        from kartothek_cube.spark.datasource.write import make_writer

        with task_errors():
            return make_writer(parse_options(self.options, "write"), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        """The streaming writer."""
        from kartothek_cube.spark.datasource.stream import make_stream_writer

        with task_errors():
            return make_stream_writer(parse_options(self.options, "stream"), schema, overwrite)
