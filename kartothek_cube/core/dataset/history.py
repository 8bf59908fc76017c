"""The commits of a dataset as a frame."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, overload

import pyarrow as pa

from kartothek_cube.core.compat.factory import DatasetFactory
from kartothek_cube.core.dataset.arguments import source_of
from kartothek_cube.core.frames import to_frame
from kartothek_cube.core.history import PastState, states
from kartothek_cube.core.metadata.chain import Commit
from kartothek_cube.core.options import Overrides
from kartothek_cube.core.snapshots import load_snapshot
from kartothek_cube.core.telemetry import operation
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
    with operation("history", options):
        source = source_of(dataset_uuid, store, factory)
        newest = load_snapshot(source.store, source.uuid)
        known: list[PastState] = []
        with suppress(CorruptDocument):  # an entry that cannot be read ends what is kept
            for state in states(source.store, newest):
                if state.commit is not None:
                    known.append(state)  # noqa: PERF401 - those before the error count
        kept = {state.commit for state in known}
        forgotten = [commit for commit in reversed(newest.chain) if commit.id not in kept]
        rows = [*map(_row_of_state, known), *map(_row_of_commit, forgotten)]
        frame = to_frame(pa.Table.from_pylist([dict(zip(_SCHEMA.names, row, strict=True)) for row in rows], schema=_SCHEMA))
        return frame.astype({"added": "Int64", "removed": "Int64"})


def _row_of_state(state: PastState) -> tuple[object, ...]:
    numbers = (None, None) if state.entry is None else (len(state.entry.added), len(state.entry.removed))
    return state.commit, state.parent, state.time, *numbers, None if state.cube is None else state.cube.id, True


def _row_of_commit(commit: Commit) -> tuple[object, ...]:
    return commit.id, commit.parent, commit.time, None, None, None if commit.cube is None else commit.cube.id, False
