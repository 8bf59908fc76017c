from collections.abc import Iterator, Sequence
from typing import Any

from pyarrow import RecordBatch, Schema
from pyarrow.csv import ConvertOptions, ParseOptions, ReadOptions

class Dataset:
    @property
    def schema(self) -> Schema: ...
    def scanner(self, columns: Any = ..., filter: Any = ..., **options: Any) -> Any: ...

class FileFormat: ...

class ParquetFileFormat(FileFormat):
    def __init__(self) -> None: ...

class CsvFileFormat(FileFormat):
    def __init__(
        self, *, parse_options: ParseOptions = ..., read_options: ReadOptions, convert_options: ConvertOptions
    ) -> None: ...

class PartitioningFactory: ...

class HivePartitioning:
    @staticmethod
    def discover() -> PartitioningFactory: ...

class FileSystemFactoryOptions:
    partitioning_factory: PartitioningFactory
    partition_base_dir: str

class FileSystemDataset(Dataset):
    @property
    def files(self) -> list[str]: ...
    def to_batches(self, **options: Any) -> Iterator[RecordBatch]: ...

class FileSystemDatasetFactory:
    def __init__(
        self, filesystem: Any, paths: Sequence[str], file_format: FileFormat, options: FileSystemFactoryOptions
    ) -> None: ...
    def inspect_schemas(self) -> list[Schema]: ...
    def finish(self, schema: Schema) -> FileSystemDataset: ...
