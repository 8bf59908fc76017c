from typing import Any

from pyarrow import Schema

class Dataset:
    @property
    def schema(self) -> Schema: ...
    def scanner(self, columns: Any = ..., filter: Any = ..., **options: Any) -> Any: ...
