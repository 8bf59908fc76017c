from collections.abc import Sequence
from typing import Any

from pyarrow import Schema
from pyarrow.fs import FileSystem

class Dataset:
    @property
    def schema(self) -> Schema: ...
    def scanner(self, columns: Any = ..., filter: Any = ..., **options: Any) -> Any: ...

class ParquetFragmentScanOptions:
    def __init__(self, **options: bool) -> None: ...

class ParquetFileFormat:
    def __init__(self, default_fragment_scan_options: ParquetFragmentScanOptions) -> None: ...
    def make_fragment(self, file: str, filesystem: FileSystem, *, row_groups: Sequence[int]) -> Any: ...

class FileSystemDataset(Dataset):
    def __init__(
        self, fragments: list[Any], schema: Schema, format: ParquetFileFormat, filesystem: FileSystem
    ) -> None: ...
