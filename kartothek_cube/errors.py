"""The error tree: one base, one category per thing that a caller would do, the builtin that kartothek raised as second base."""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "AlreadyExists",
    "AtomicityRequired",
    "CommitConflict",
    "CommitOutcomeUnknown",
    "CorruptData",
    "CorruptDocument",
    "CubeCommitIncomplete",
    "DatasetNotFound",
    "ForeignWriterWarning",
    "IncompleteCubeWarning",
    "InvalidInput",
    "InvalidRequest",
    "InvalidType",
    "KartothekCubeError",
    "KeyNotFound",
    "MissingExtra",
    "MultiTableCommitAborted",
    "ReadOnlyStore",
    "StagedFilesLost",
    "UnknownColumn",
    "Unsupported",
]


class KartothekCubeError(Exception):
    """Base of every error that this library raises on purpose.

    Attributes
    ----------
    kind : str
        Stable, machine-readable name of the category. It is what crosses process boundaries, e.g.
        out of a Spark task.

    Examples
    --------
    >>> from kartothek_cube import open_cube
    >>> try:
    ...     open_cube("sales", "hmemory://")
    ... except KartothekCubeError as error:
    ...     print(error.kind)
    invalid_input
    """

    kind: ClassVar[str] = "error"


class InvalidInput(KartothekCubeError, ValueError):
    """An argument, a condition or a frame has a value that cannot be used. Nothing was written.

    Examples
    --------
    >>> from kartothek_cube import Cube
    >>> Cube(["PRODUCT_ID"], ["PRODUCT_ID"], "sales")
    Traceback (most recent call last):
        ...
    kartothek_cube.errors.InvalidInput: ...PRODUCT_ID...
    """

    kind = "invalid_input"


class UnknownColumn(InvalidInput, KeyError):
    """An argument names a column that the data or the dataset does not have. Nothing was written.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.api.dataset import read_table, store_dataframes_as_dataset
    >>> _ = store_dataframes_as_dataset("hfs://errors", "sales", [pa.table({"PRODUCT_ID": [1], "UNITS": [3]})], overwrite=True)
    >>> read_table("sales", "hfs://errors", columns=["PRICE"])
    Traceback (most recent call last):
        ...
    kartothek_cube.errors.UnknownColumn: ...PRICE...
    """

    kind = "unknown_column"

    def __str__(self) -> str:
        # KeyError shows the repr of its argument; a sentence should read as a sentence.
        return str(self.args[0]) if self.args else ""


class InvalidRequest(InvalidInput, RuntimeError):
    """A call that contradicts the dataset or itself, e.g. an index on a partition column.

    Nothing was written.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset
    >>> sales = pa.table({"COUNTRY_CODE": ["DE"], "UNITS": [3]})
    >>> store_dataframes_as_dataset("hmemory://", "sales", [sales], partition_on="COUNTRY_CODE", secondary_indices="COUNTRY_CODE")
    Traceback (most recent call last):
        ...
    kartothek_cube.errors.InvalidRequest: ...COUNTRY_CODE...
    """

    kind = "invalid_request"


class InvalidType(KartothekCubeError, TypeError):
    """An argument, a condition or a frame has a type that cannot be used. Nothing was written.

    Examples
    --------
    >>> from kartothek_cube import C
    >>> (C("UNITS") > 3) | (C("PRICE") < 1)
    Traceback (most recent call last):
        ...
    kartothek_cube.errors.InvalidType: Conditions cannot be joined by `|`...
    """

    kind = "invalid_type"


class KeyNotFound(KartothekCubeError, KeyError):
    """A key that is named by a document, or asked for, is not in the store.

    Examples
    --------
    >>> from kartothek_cube import open_store
    >>> open_store("hmemory://").get("sales/table/1.parquet")
    Traceback (most recent call last):
        ...
    kartothek_cube.errors.KeyNotFound: ...sales/table/1.parquet...
    """

    kind = "key_not_found"

    def __str__(self) -> str:
        # KeyError shows the repr of its argument; a sentence should read as a sentence.
        return str(self.args[0]) if self.args else ""


class DatasetNotFound(KeyNotFound):
    """The dataset has no metadata document in this store.

    Examples
    --------
    >>> from kartothek_cube.api.dataset import read_table
    >>> read_table("sales", "hmemory://")
    Traceback (most recent call last):
        ...
    kartothek_cube.errors.DatasetNotFound: ...sales...
    """

    kind = "dataset_not_found"


class AlreadyExists(KartothekCubeError, RuntimeError):
    """The dataset exists and ``overwrite=True`` was not given. Nothing was written.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import open_store
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset
    >>> store = open_store("hmemory://")
    >>> _ = store_dataframes_as_dataset(store, "sales", [pa.table({"UNITS": [3]})])
    >>> store_dataframes_as_dataset(store, "sales", [pa.table({"UNITS": [4]})])
    Traceback (most recent call last):
        ...
    kartothek_cube.errors.AlreadyExists: ...sales...
    """

    kind = "already_exists"


class CommitConflict(KartothekCubeError, RuntimeError):
    """Somebody else changed the dataset in between. The change is certainly not visible.

    Examples
    --------
    Somebody replaces the rows that we want to remove; we decide on the newest state instead.

    >>> import pyarrow as pa
    >>> from kartothek_cube import open_store
    >>> from kartothek_cube.api.dataset import DatasetFactory, store_dataframes_as_dataset, update_dataset_from_dataframes
    >>> store, germany = open_store("hmemory://"), pa.table({"COUNTRY_CODE": ["DE"], "UNITS": [3]})
    >>> _ = store_dataframes_as_dataset(store, "sales", [germany], partition_on="COUNTRY_CODE")
    >>> ours = DatasetFactory("sales", store).load_all_indices()
    >>> _ = update_dataset_from_dataframes([germany], store, "sales", delete_scope=[{"COUNTRY_CODE": "DE"}])
    >>> try:
    ...     _ = update_dataset_from_dataframes(None, factory=ours, delete_scope=[{"COUNTRY_CODE": "DE"}])
    ... except CommitConflict:
    ...     _ = update_dataset_from_dataframes(None, store, "sales", delete_scope=[{"COUNTRY_CODE": "DE"}])
    """

    kind = "commit_conflict"


class StagedFilesLost(KartothekCubeError, RuntimeError):
    """Files that were written for a commit have been removed before it.

    The change is certainly not visible.

    Examples
    --------
    Write the rows again: nobody has seen them.

    >>> StagedFilesLost.kind, issubclass(StagedFilesLost, RuntimeError)
    ('staged_files_lost', True)
    """

    kind = "staged_files_lost"


class CommitOutcomeUnknown(KartothekCubeError, RuntimeError):
    """The store did not say whether the commit landed, and cannot be asked. Nothing was deleted.

    Examples
    --------
    Look before you write the same rows a second time.

    >>> import pyarrow as pa
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset
    >>> from kartothek_cube.core.stores.memory import MemoryStore
    >>> from kartothek_cube.testing.stores import FaultyStore
    >>> swapped = []
    >>> def silent(call):  # from the swap of the document on
    ...     swapped.extend([call] if call.operation == "put_if" and call.key.endswith("metadata.json") else [])
    ...     return "before" if swapped else None
    >>> try:
    ...     _ = store_dataframes_as_dataset(FaultyStore(MemoryStore(), silent), "sales", [pa.table({"UNITS": [3]})])
    ... except CommitOutcomeUnknown as error:
    ...     print(error.kind)
    commit_outcome_unknown
    """

    kind = "commit_outcome_unknown"


class MultiTableCommitAborted(KartothekCubeError, RuntimeError):
    """A write to several datasets of a cube was given up. Nothing is visible of it.

    Examples
    --------
    Nothing was changed, so the write can be repeated; its child `CubeCommitIncomplete` says that it
    stopped halfway.

    >>> issubclass(CubeCommitIncomplete, MultiTableCommitAborted)
    True
    """

    kind = "multi_table_commit_aborted"


class CubeCommitIncomplete(MultiTableCommitAborted):
    """A write to several datasets of a cube stopped between two commits.

    The message lists what landed.

    Examples
    --------
    `undo` takes back what landed, or the write is repeated.

    >>> CubeCommitIncomplete.kind, issubclass(CubeCommitIncomplete, RuntimeError)
    ('cube_commit_incomplete', True)
    """

    kind = "cube_commit_incomplete"


class CorruptDocument(KartothekCubeError, ValueError):
    """A metadata document cannot be read or contradicts itself.

    Examples
    --------
    >>> from kartothek_cube import open_store
    >>> from kartothek_cube.api.dataset import read_table
    >>> store = open_store("hmemory://")
    >>> store.put("sales.by-dataset-metadata.json", b"{")
    >>> read_table("sales", store)
    Traceback (most recent call last):
        ...
    kartothek_cube.errors.CorruptDocument: ...sales...
    """

    kind = "corrupt_document"


class CorruptData(KartothekCubeError, ValueError):
    """A data or index file cannot be read or contradicts its dataset.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import open_store
    >>> from kartothek_cube.api.dataset import read_table, store_dataframes_as_dataset
    >>> store = open_store("hmemory://")
    >>> sales = store_dataframes_as_dataset(store, "sales", [pa.table({"UNITS": [3]})])
    >>> store.put(next(key for key in store.list(recursive=True).keys if key.endswith(".parquet")), b"damaged")
    >>> read_table("sales", store)
    Traceback (most recent call last):
        ...
    kartothek_cube.errors.CorruptData: ...sales...
    """

    kind = "corrupt_data"


class ReadOnlyStore(KartothekCubeError, OSError):
    """The store cannot be written to.

    Examples
    --------
    >>> ReadOnlyStore.kind, issubclass(ReadOnlyStore, OSError)
    ('read_only_store', True)
    """

    kind = "read_only_store"


class AtomicityRequired(KartothekCubeError, RuntimeError):
    """The store has no conditional put, and ``options(require_atomic=False)`` was not given.

    Examples
    --------
    >>> AtomicityRequired.kind, issubclass(AtomicityRequired, RuntimeError)
    ('atomicity_required', True)
    """

    kind = "atomicity_required"


class Unsupported(KartothekCubeError, NotImplementedError):
    """A type, a format version or a missing extra. The message says which.

    Examples
    --------
    >>> from kartothek_cube import open_store
    >>> from kartothek_cube.api.dataset import read_table
    >>> store = open_store("hmemory://")
    >>> store.put("sales.by-dataset-metadata.json", b'{"dataset_metadata_version": 5, "dataset_uuid": "sales"}')
    >>> read_table("sales", store)
    Traceback (most recent call last):
        ...
    kartothek_cube.errors.Unsupported: ...5...
    """

    kind = "unsupported"


class MissingExtra(Unsupported, ImportError):
    """A package that only an extra of this library installs is not there.

    The message says which extra, and how it is installed.

    Examples
    --------
    >>> issubclass(MissingExtra, ImportError)
    True
    """

    kind = "missing_extra"


class ForeignWriterWarning(UserWarning):
    """A library without commit ids (kartothek, plateau) has changed a dataset of ours; what others committed while it worked is gone.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", ForeignWriterWarning)  # whoever does not want to go on
    """


class IncompleteCubeWarning(UserWarning):
    """A write to several datasets of a cube is in some of them and not in the others: it takes long, or has stopped halfway.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", IncompleteCubeWarning)  # whoever does not want to read such a cube
    """
