"""Verifying a dataset."""

from __future__ import annotations

from typing import overload

from kartothek_cube.core.compat.factory import DatasetFactory
from kartothek_cube.core.dataset.arguments import check_flag, source_of
from kartothek_cube.core.maintenance.verify import verify, verify_rows
from kartothek_cube.core.maintenance.verify_report import VerifyReport, report_of
from kartothek_cube.core.options import Overrides
from kartothek_cube.core.telemetry import operation
from kartothek_cube.typing import StoreLike

__all__ = ["verify_dataset"]


@overload
def verify_dataset(dataset_uuid: str, store: StoreLike, deep: bool = False, *, options: Overrides | None = None) -> VerifyReport: ...


@overload
def verify_dataset(*, deep: bool = False, factory: DatasetFactory, options: Overrides | None = None) -> VerifyReport: ...


def verify_dataset(
    dataset_uuid: str | None = None,
    store: StoreLike | None = None,
    deep: bool = False,
    *,
    factory: DatasetFactory | None = None,
    options: Overrides | None = None,
) -> VerifyReport:
    """Say what is wrong with a dataset, and what of it reads differently here than in kartothek. Nothing is changed.

    Documents, schema files and index files are read and the dataset's folder is listed; with ``deep=True`` all data, too, in threads and
    with bounded memory. Damage of the dataset is a finding and no error.

    Parameters
    ----------
    dataset_uuid : str
        The dataset.
    store : str, path, store or callable
        Where it lies; everything that `open_store` takes.
    deep : bool, default False
        Read the data: whether every file can be read, has the columns and types of the dataset, agrees with its path, and has the values that
        the secondary indices say.
    factory : DatasetFactory, optional
        Instead of ``dataset_uuid`` and ``store``. The newest state of the dataset counts, whatever the factory has read.
    options : optional
        What `options` returns: settings for this call.

    Returns
    -------
    VerifyReport
        The findings, errors first; ``ok`` says that there is no error, ``clean`` that there is no warning either.

    Raises
    ------
    DatasetNotFound
        If the dataset has no document.
    OSError
        If the store cannot be read.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import open_store
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset, verify_dataset
    >>> store = open_store("hmemory://")
    >>> sales = pd.DataFrame({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]})
    >>> _ = store_dataframes_as_dataset(store, "sales", [sales], partition_on=["COUNTRY_CODE"], secondary_indices=["PRODUCT_ID"])
    >>> verify_dataset("sales", store, deep=True).clean
    True
    >>> for key in store.list("sales/table/COUNTRY_CODE=FR/", recursive=True).keys:
    ...     store.delete(key)
    >>> [(finding.severity, finding.check) for finding in verify_dataset("sales", store).findings]
    [('error', 'missing-file')]
    """
    with operation("verify_dataset", options):
        source = source_of(dataset_uuid, store, factory)
        is_deep = check_flag(deep, "deep")
        look = verify(source.store, source.uuid, deep=is_deep)
        look = verify_rows(source.store, look) if is_deep else look
        return report_of(f"dataset {source.uuid!r}", look.findings, look.counts, deep=is_deep)
