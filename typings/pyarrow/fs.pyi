from collections.abc import Sequence
from datetime import datetime
from enum import IntEnum

from pyarrow import NativeFile

class FileType(IntEnum):
    NotFound = 0
    Unknown = 1
    File = 2
    Directory = 3

class FileInfo:
    path: str
    type: FileType
    size: int | None
    mtime: datetime | None

class FileSelector:
    def __init__(self, base_dir: str, allow_not_found: bool = ..., recursive: bool = ...) -> None: ...

class FileSystem:
    def open_input_file(self, path: str) -> NativeFile: ...
    def get_file_info(self, paths_or_selector: FileSelector) -> Sequence[FileInfo]: ...

class LocalFileSystem(FileSystem):
    def __init__(self, *, use_mmap: bool = ...) -> None: ...
