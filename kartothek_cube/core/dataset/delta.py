"""A dataset as a Delta table that other engines read in place."""

from __future__ import annotations

from kartothek_cube.core.arguments import check_flag
from kartothek_cube.core.dataset.reference import dataset_ref
from kartothek_cube.core.delta.log import PublishedDelta
from kartothek_cube.core.delta.publication import publish, unpublish
from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.typing import StoreLike


def publish_delta(
    dataset_uuid: str, store: StoreLike, *, always: bool = False, options: Overrides | None = None
) -> PublishedDelta:
    """Make a dataset a Delta table, or add its newest state as a version.

    A log is written beside the data files, which stay as they are: engines that know Delta read
    them in place, from the folder ``<dataset_uuid>/<table>``. Only this library writes them. See
    the page *Read it from Trino, Snowflake, Databricks, Fabric*.

    Parameters
    ----------
    dataset_uuid : str
        The dataset. Of several tables each is a Delta table of its own.
    store : store
        URL, `open_store` result, simplekv store, or a function that returns one.
    always : bool, default False
        Publish after each later commit of this library, too. This is kept with the dataset until
        `unpublish_delta`. A publication that fails then is a `PublicationWarning`; the next one
        catches up.
    options : optional
        Settings for this call, from `options`.

    Returns
    -------
    PublishedDelta
        The version, its commit, and what was written: nothing, if the state was published.

    Raises
    ------
    DatasetNotFound
        If the dataset does not exist.
    Unsupported
        If Delta or its readers cannot have a column, type or partition value, or the dataset has
        files of CSV or no list of partitions. Nothing was written.
    InvalidRequest
        If it is a dataset of a cube in which newer files override cells: readers would see both
        rows. Compact it first. With ``always`` a table that is there stays at its version until
        then, with a `PublicationWarning`.
    CommitConflict
        If others published more often than ``options(commit_retries=...)`` meanwhile.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import open_store, publish_delta
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset
    >>> store = open_store("hmemory://")
    >>> sales = pd.DataFrame({"COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = store_dataframes_as_dataset(store, "sales", [sales], partition_on=["COUNTRY_CODE"])
    >>> published = publish_delta("sales", store, always=True)
    >>> published.version, published.added
    (0, 2)
    """
    with operation("publish_delta", options):
        source = dataset_ref(dataset_uuid, store, None)
        return publish(source.store, source.uuid, always=check_flag(always, "always"))


def unpublish_delta(dataset_uuid: str, store: StoreLike, *, options: Overrides | None = None) -> None:
    """Remove the log of a Delta table, and stop publishing after each commit.

    The data files stay. Readers of the Delta table fail from now on.

    Parameters
    ----------
    dataset_uuid : str
        The dataset.
    store : store
        URL, `open_store` result, simplekv store, or a function that returns one.
    options : optional
        Settings for this call, from `options`.

    Raises
    ------
    DatasetNotFound
        If the dataset does not exist.
    CommitConflict
        If other writers came first more often than ``options(commit_retries=...)``.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import open_store, publish_delta, unpublish_delta
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset
    >>> store = open_store("hmemory://")
    >>> _ = store_dataframes_as_dataset(store, "sales", [pd.DataFrame({"UNITS": [3, 4]})])
    >>> _ = publish_delta("sales", store)
    >>> unpublish_delta("sales", store)
    >>> store.keys("sales/table/_delta_log/")
    []
    """
    with operation("unpublish_delta", options):
        source = dataset_ref(dataset_uuid, store, None)
        unpublish(source.store, source.uuid)
