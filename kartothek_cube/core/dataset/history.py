"""The commits of a dataset as a frame."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, overload

import pyarrow as pa

from kartothek_cube.core.compat.factory import DatasetFactory
from kartothek_cube.core.dataset.arguments import source_of
from kartothek_cube.core.frames import to_frame
from kartothek_cube.core.history import State, states
from kartothek_cube.core.journal import verb
from kartothek_cube.core.metadata.chain import Commit
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.options import Overrides
from kartothek_cube.core.snapshots import load_snapshot
from kartothek_cube.core.store import Store
from kartothek_cube.errors import CorruptDocument
from kartothek_cube.typing import StoreLike

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["history"]

_SCHEMA = pa.schema(
    [
        ("commit", pa.string()),
        ("parent", pa.string()),
        ("time", pa.timestamp("us", "UTC")),
        ("added", pa.int64()),
        ("removed", pa.int64()),
        ("cube", pa.string()),
        ("kept", pa.bool_()),
    ]
)


@overload
def history(dataset_uuid: str, store: StoreLike, *, options: Overrides | None = None) -> pd.DataFrame: ...


@overload
def history(*, factory: DatasetFactory, options: Overrides | None = None) -> pd.DataFrame: ...


def history(
    dataset_uuid: str | None = None, store: StoreLike | None = None, *, factory: DatasetFactory | None = None, options: Overrides | None = None
) -> pd.DataFrame:
    """The commits of a dataset that are still known, the newest first.

    Parameters
    ----------
    dataset_uuid : str
        The dataset.
    store : str, path, store or callable
        Where it lies; everything that `open_store` takes.
    factory : DatasetFactory, optional
        Instead of ``dataset_uuid`` and ``store``. The newest state counts, whatever the factory has read.
    options : optional
        What `options` returns: settings for this call.

    Returns
    -------
    pandas.DataFrame
        - ``commit``, ``parent``: ids; the parent is null for the first commit, and for the first one after a library without commit ids.
        - ``time``: when the commit was made, by the writer's clock (UTC); null if it is not known.
        - ``added``, ``removed``: numbers of partitions, ``Int64``; null if they are not known any more. One that was replaced counts in both.
        - ``cube``: id of the write to several datasets of a cube that the commit is a part of, or null.
        - ``kept``: whether the state after the commit can be read with ``as_of=``.

    Raises
    ------
    DatasetNotFound
        If the dataset does not exist.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import open_store
    >>> from kartothek_cube.api.dataset import history, store_dataframes_as_dataset, update_dataset_from_dataframes
    >>> store = open_store("hmemory://")
    >>> sales = pd.DataFrame({"COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = store_dataframes_as_dataset(store, "sales", [sales], partition_on=["COUNTRY_CODE"])
    >>> _ = update_dataset_from_dataframes([sales[:1]], store, "sales", delete_scope=[{"COUNTRY_CODE": "DE"}])
    >>> history("sales", store)[["added", "removed", "kept"]]
       added  removed  kept
    0      1        1  True
    1      2        0  True
    """
    with verb("history", options):
        source = source_of(dataset_uuid, store, factory)
        newest = load_snapshot(source.store, source.uuid)
        known = {state.commit: state for state in _known(source.store, newest) if state.commit is not None}
        older = [c for c in reversed(newest.chain) if c.id not in known]
        return _frame([*map(_row, known.values()), *map(_forgotten, older)])


def _known(store: Store, newest: Snapshot) -> Iterator[State]:
    """The states that can be read; an entry that cannot ends them."""
    try:
        yield from states(store, newest)
    except CorruptDocument:
        return


def _row(state: State) -> dict[str, object]:
    entry, parent = state.entry, state.parent
    numbers = (None, None) if entry is None else (len(entry.added), len(entry.removed))
    return _named(state.commit, parent, state.time, *numbers, None if state.cube is None else state.cube.id, True)


def _forgotten(commit: Commit) -> dict[str, object]:
    return _named(commit.id, commit.parent, commit.time, None, None, None if commit.cube is None else commit.cube.id, False)


def _named(*values: object) -> dict[str, object]:
    return dict(zip(_SCHEMA.names, values, strict=True))


def _frame(rows: Iterable[dict[str, object]]) -> pd.DataFrame:
    frame = to_frame(pa.Table.from_pylist(list(rows), schema=_SCHEMA))
    return frame.astype({"added": "Int64", "removed": "Int64"})
