"""Tags of a dataset: give a state a name, list the names, drop one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, overload

import pyarrow as pa

from kartothek_cube.core.arrow.pandas import to_frame
from kartothek_cube.core.commit.commit import check_store_can_commit
from kartothek_cube.core.dataset.reference import dataset_ref
from kartothek_cube.core.kartothek.factory import DatasetFactory
from kartothek_cube.core.metadata.tag import TaggedState, check_tag_name, tag_key
from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.snapshots.time_travel import check_as_of, known_tag, list_tags, remove_tag, tag_state
from kartothek_cube.errors import CorruptDocument, InvalidRequest
from kartothek_cube.typing import AsOf, StoreLike

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["drop_dataset_tag", "list_dataset_tags", "tag_dataset", "tags_frame"]

_SCHEMA = pa.schema([("name", pa.string()), ("commit", pa.string()), ("time", pa.timestamp("us", "UTC"))])


@overload
def tag_dataset(
    dataset_uuid: str, store: StoreLike, name: str, *, as_of: AsOf | None = None, options: Overrides | None = None
) -> None: ...


@overload
def tag_dataset(
    *, name: str, as_of: AsOf | None = None, factory: DatasetFactory, options: Overrides | None = None
) -> None: ...


def tag_dataset(
    dataset_uuid: str | None = None,
    store: StoreLike | None = None,
    name: str | None = None,
    *,
    as_of: AsOf | None = None,
    factory: DatasetFactory | None = None,
    options: Overrides | None = None,
) -> None:
    """Give a state of a dataset a name, which keeps it: ``as_of=name`` reads it from then on.

    Garbage collection leaves the files of the state alone until the tag is dropped, whatever
    ``options(retain=...)`` says. The document is not touched: nothing conflicts with a tag. See the
    page *Tags*.

    Parameters
    ----------
    dataset_uuid : str
        The dataset.
    store : str, path, store or callable
        The store, in any form that `open_store` takes.
    name : str
        The name: 1 to 200 printable characters without ``/``, which read neither as a moment nor
        as the id of a commit.
    as_of : str or datetime, optional
        The state: a commit, a moment, or another tag; by default the newest state.
    factory : DatasetFactory, optional
        Instead of ``dataset_uuid`` and ``store``. The newest state counts, whatever the factory has
        read.
    options : optional
        Settings for this call, from `options`.

    Raises
    ------
    DatasetNotFound
        If the dataset does not exist.
    InvalidInput
        If the name is not allowed.
    AlreadyExists
        If the dataset has a tag of this name. Nothing was changed.
    HistoryUnavailable
        If history does not reach back to ``as_of``, or its files were removed meanwhile. There is
        no new tag.
    CommitOutcomeUnknown
        If the store does not answer. The tag may exist.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import open_store
    >>> from kartothek_cube.api.dataset import read_table, store_dataframes_as_dataset, tag_dataset
    >>> from kartothek_cube.api.dataset import update_dataset_from_dataframes
    >>> store = open_store("hmemory://")
    >>> sales = pd.DataFrame({"COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = store_dataframes_as_dataset(store, "sales", [sales])
    >>> tag_dataset("sales", store, "audit-2024")
    >>> _ = update_dataset_from_dataframes([sales], store, "sales")
    >>> len(read_table("sales", store)), len(read_table("sales", store, as_of="audit-2024"))
    (4, 2)
    """
    with operation("tag_dataset", options):
        checked, state = check_tag_name(name), check_as_of(as_of)
        source = dataset_ref(dataset_uuid, store, factory)
        check_store_can_commit(source.store)
        tag_state(source.store, source.uuid, checked, state)


@overload
def list_dataset_tags(dataset_uuid: str, store: StoreLike, *, options: Overrides | None = None) -> pd.DataFrame: ...


@overload
def list_dataset_tags(*, factory: DatasetFactory, options: Overrides | None = None) -> pd.DataFrame: ...


def list_dataset_tags(
    dataset_uuid: str | None = None,
    store: StoreLike | None = None,
    *,
    factory: DatasetFactory | None = None,
    options: Overrides | None = None,
) -> pd.DataFrame:
    """The tags of a dataset by name, those of its cube included.

    Parameters
    ----------
    dataset_uuid, store, factory, options
        As in `tag_dataset`.

    Returns
    -------
    pandas.DataFrame
        ``name``; ``commit``, the last commit of the state, and ``time``, that of the commit (UTC).
        Both are null where a library without commit ids (kartothek, plateau) came last.

    Raises
    ------
    DatasetNotFound
        If the dataset does not exist.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import open_store
    >>> from kartothek_cube.api.dataset import list_dataset_tags, store_dataframes_as_dataset
    >>> from kartothek_cube.api.dataset import tag_dataset
    >>> store = open_store("hmemory://")
    >>> _ = store_dataframes_as_dataset(store, "sales", [pd.DataFrame({"UNITS": [3, 4]})])
    >>> tag_dataset("sales", store, "audit-2024")
    >>> list_dataset_tags("sales", store)["name"].to_list()
    ['audit-2024']
    """
    with operation("list_dataset_tags", options):
        source = dataset_ref(dataset_uuid, store, factory)
        load_snapshot(source.store, source.uuid)
        return tags_frame(tag.state for tag in list_tags(source.store, source.uuid))


def tags_frame(states: Iterable[TaggedState]) -> pd.DataFrame:
    """A list of tags as a table."""
    rows = [{"name": state.name, "commit": state.commit, "time": state.time} for state in states]
    return to_frame(pa.Table.from_pylist(rows, schema=_SCHEMA))


@overload
def drop_dataset_tag(dataset_uuid: str, store: StoreLike, name: str, *, options: Overrides | None = None) -> None: ...


@overload
def drop_dataset_tag(*, name: str, factory: DatasetFactory, options: Overrides | None = None) -> None: ...


def drop_dataset_tag(
    dataset_uuid: str | None = None,
    store: StoreLike | None = None,
    name: str | None = None,
    *,
    factory: DatasetFactory | None = None,
    options: Overrides | None = None,
) -> None:
    """Drop a tag. What only this tag kept, the next garbage collection removes.

    Parameters
    ----------
    dataset_uuid, store, factory, options
        As in `tag_dataset`.
    name : str
        The tag.

    Raises
    ------
    DatasetNotFound
        If the dataset does not exist.
    HistoryUnavailable
        If the dataset has no such tag.
    InvalidRequest
        If it is a tag of the cube, which `drop_cube_tag` drops.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import open_store
    >>> from kartothek_cube.api.dataset import drop_dataset_tag, list_dataset_tags
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset, tag_dataset
    >>> store = open_store("hmemory://")
    >>> _ = store_dataframes_as_dataset(store, "sales", [pd.DataFrame({"UNITS": [3, 4]})])
    >>> tag_dataset("sales", store, "audit-2024")
    >>> drop_dataset_tag("sales", store, "audit-2024")
    >>> len(list_dataset_tags("sales", store))
    0
    """
    with operation("drop_dataset_tag", options):
        source = dataset_ref(dataset_uuid, store, factory)
        load_snapshot(source.store, source.uuid)
        check_store_can_commit(source.store)
        try:
            found = known_tag(source.store, source.uuid, str(name))
        except CorruptDocument:
            # What such a tag names is unknown, so it keeps every tagged state until it is dropped.
            source.store.delete(tag_key(source.uuid, str(name)))
            return
        if found.seed is not None:
            raise InvalidRequest(
                f"Tag {found.name!r} of dataset {source.uuid!r} belongs to its cube: drop_cube_tag drops it. "
                "Nothing was changed."
            )
        remove_tag(source.store, found)
