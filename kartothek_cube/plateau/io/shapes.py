"""plateau's shapes: frames instead of dicts table → frame, and one table for each dataset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kartothek_cube.core.arrow.pandas import is_block
from kartothek_cube.core.dataset.reference import dataset_ref
from kartothek_cube.core.dataset.write import StagedPartitions
from kartothek_cube.core.metadata.naming import SINGLE_TABLE
from kartothek_cube.errors import InvalidInput, InvalidRequest, InvalidType
from kartothek_cube.typing import StoreLike

if TYPE_CHECKING:
    from kartothek_cube.core.kartothek.dataset_metadata import DatasetFactory


def only_table(dataset_uuid: str | None, store: StoreLike | None, factory: DatasetFactory | None) -> str:
    """The name of the table of a dataset.

    Raises
    ------
    InvalidRequest
        If the dataset has several.
    """
    source = dataset_ref(dataset_uuid, store, factory)
    tables = source.snapshot().tables
    if len(tables) > 1:
        raise InvalidRequest(
            f"Dataset {source.uuid!r} has the tables {list(tables)}, and read support for multi tabled dataset was "
            "dropped in plateau. Read it by kartothek_cube.api.dataset."
        )
    return next(iter(tables), SINGLE_TABLE)


def with_table(item: object, table: str, dataset: object) -> Any:
    """An item of rows as one of a table: a frame, partitions that are written, None, or a list.

    Raises
    ------
    InvalidInput
        For the dicts and pairs that kartothek knows.
    """
    if item is None or isinstance(item, StagedPartitions):
        return item
    if isinstance(item, (Mapping, tuple, str, bytes)):
        raise InvalidInput(
            f"Unexpected type during parsing encountered: {type(item).__name__}. Dataset {dataset!r} takes frames, "
            "lists of frames, and what write_single_partition returns."
        )
    if isinstance(item, list):
        return [with_table(part, table, dataset) for part in item]
    return {table: item}


def items_of(data: object, table: str, dataset: object) -> list[Any]:
    """All items of rows of an argument that is a list.

    Raises
    ------
    InvalidType
        For anything but an iterable of items.
    """
    if isinstance(data, (Mapping, str, bytes)) or not isinstance(data, Iterable) or is_block(data):
        raise InvalidType(f"The rows of dataset {dataset!r} are a list of frames, not {type(data).__name__}.")
    return [with_table(item, table, dataset) for item in data]
