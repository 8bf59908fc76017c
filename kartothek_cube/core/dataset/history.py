"""The history of a dataset as a frame."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, overload

import pyarrow as pa

from kartothek_cube.core.arrow.pandas import to_frame
from kartothek_cube.core.dataset.reference import dataset_ref
from kartothek_cube.core.kartothek.factory import DatasetFactory
from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.snapshots.time_travel import states
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
    dataset_uuid: str | None = None,
    store: StoreLike | None = None,
    *,
    factory: DatasetFactory | None = None,
    options: Overrides | None = None,
) -> pd.DataFrame:
    """The known commits of a dataset, newest first. See the page *History*.

    Parameters
    ----------
    dataset_uuid : str
        The dataset.
    store : str, path, store or callable
        The store, in any form that `open_store` takes.
    factory : DatasetFactory, optional
        Instead of ``dataset_uuid`` and ``store``. The newest state counts, whatever the factory has
        read.
    options : optional
        Settings for this call, from `options`.

    Returns
    -------
    pandas.DataFrame
        - ``commit``, ``parent``: ids. The parent is null for the first commit, and for the first
          commit after a library without commit ids.
        - ``time``: time of the commit by the writer's clock (UTC), or null.
        - ``added``, ``removed``: numbers of partitions, ``Int64``; null once history has expired. A
          replaced partition counts in both.
        - ``cube``: id of the cube write that contains the commit, or null.
        - ``kept``: whether ``as_of=`` can read the state after the commit.

    Raises
    ------
    DatasetNotFound
        If the dataset does not exist.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import open_store
    >>> from kartothek_cube.api.dataset import history, store_dataframes_as_dataset
    >>> from kartothek_cube.api.dataset import update_dataset_from_dataframes
    >>> store = open_store("hmemory://")
    >>> sales = pd.DataFrame({"COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = store_dataframes_as_dataset(store, "sales", [sales], partition_on=["COUNTRY_CODE"])
    >>> scope = [{"COUNTRY_CODE": "DE"}]
    >>> _ = update_dataset_from_dataframes([sales[:1]], store, "sales", delete_scope=scope)
    >>> history("sales", store)[["added", "removed", "kept"]]
       added  removed  kept
    0      1        1  True
    1      2        0  True
    """
    with operation("history", options):
        source = dataset_ref(dataset_uuid, store, factory)
        newest = load_snapshot(source.store, source.uuid)
        rows: list[tuple[object, ...]] = []
        # History ends at the first entry that cannot be read.
        with suppress(CorruptDocument):
            for state in states(source.store, newest):
                if state.commit is not None:
                    entry = state.entry
                    counts = (None, None) if entry is None else (len(entry.added), len(entry.removed))
                    cube = state.cube and state.cube.id
                    rows.append((state.commit, state.parent, state.time, *counts, cube, True))
        kept = {row[0] for row in rows}
        # The document's chain of commits reaches further back than the history entries.
        rows.extend(
            (commit.id, commit.parent, commit.time, None, None, commit.cube and commit.cube.id, False)
            for commit in reversed(newest.chain)
            if commit.id not in kept
        )
        columns = [dict(zip(_SCHEMA.names, row, strict=True)) for row in rows]
        frame = to_frame(pa.Table.from_pylist(columns, schema=_SCHEMA))
        # Nullable integers: with nulls, pandas would return floats.
        return frame.astype({"added": "Int64", "removed": "Int64"})
