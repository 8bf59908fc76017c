"""Which datasets a store holds."""

from __future__ import annotations

from kartothek_cube.core.naming import JSON_SUFFIX, MSGPACK_SUFFIX
from kartothek_cube.core.stores import open_instrumented
from kartothek_cube.typing import StoreLike

__all__ = ["list_datasets"]

_DOCUMENTS = (JSON_SUFFIX, MSGPACK_SUFFIX)


def list_datasets(store: StoreLike) -> list[str]:
    """Uuids of the datasets that a store holds, sorted; one listing of the top level, no document is read.

    The datasets of a cube are among them, as ``<uuid_prefix>++<dataset>``. A dataset exists if and only if its document does, see
    *The format* in the documentation.

    Parameters
    ----------
    store : str, path, store or callable
        Everything that `open_store` takes.

    Returns
    -------
    list of str
        Uuids, e.g. ``["prices", "sales++seed"]``.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset
    >>> _ = store_dataframes_as_dataset("hfs://listed", "sales", [pa.table({"PRODUCT_ID": [1], "UNITS": [3]})], overwrite=True)
    >>> list_datasets("hfs://listed")
    ['sales']
    """
    keys = (entry.key for entry in open_instrumented(store).list("").entries)
    return sorted({key.removesuffix(end) for key in keys for end in _DOCUMENTS if key.endswith(end)})
