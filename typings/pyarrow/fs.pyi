from pyarrow import NativeFile

class FileSystem:
    def open_input_file(self, path: str) -> NativeFile: ...

class LocalFileSystem(FileSystem):
    def __init__(self, *, use_mmap: bool = ...) -> None: ...
