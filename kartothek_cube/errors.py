"""The error tree: one base, one class for each reaction of a caller.

The second base of each class is the builtin that kartothek raised.
"""

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
    "HistoryUnavailable",
    "IncompleteCubeWarning",
    "InvalidInput",
    "InvalidRequest",
    "InvalidType",
    "KartothekCubeDeprecationWarning",
    "KartothekCubeError",
    "KeyNotFound",
    "MissingExtra",
    "MultiTableCommitAborted",
    "PublicationWarning",
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
        Stable, machine-readable name of the category. It also crosses process boundaries, e.g. out
        of a Spark task.

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
    >>> sales = pa.table({"PRODUCT_ID": [1], "UNITS": [3]})
    >>> _ = store_dataframes_as_dataset("hfs://errors", "sales", [sales], overwrite=True)
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
    """A call contradicts the dataset or itself, e.g. an index on a partition column.

    Nothing was written.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset
    >>> sales = pa.table({"COUNTRY_CODE": ["DE"], "UNITS": [3]})
    >>> keys = {"partition_on": "COUNTRY_CODE", "secondary_indices": "COUNTRY_CODE"}
    >>> store_dataframes_as_dataset("hmemory://", "sales", [sales], **keys)
    Traceback (most recent call last):
        ...
    kartothek_cube.errors.InvalidRequest: ...COUNTRY_CODE...
    """

    kind = "invalid_request"


class HistoryUnavailable(InvalidInput):
    """History does not reach back to a state that is asked for.

    It has expired, or kartothek or plateau, which keep no history, have committed since. Whoever
    follows a dataset by its changes has to begin again with all of it.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.api.dataset import read_table, store_dataframes_as_dataset
    >>> sales = pa.table({"PRODUCT_ID": [1], "UNITS": [3]})
    >>> _ = store_dataframes_as_dataset("hfs://errors", "sales", [sales], overwrite=True)
    >>> read_table("sales", "hfs://errors", as_of="1f0a7c")
    Traceback (most recent call last):
        ...
    kartothek_cube.errors.HistoryUnavailable: ...'1f0a7c'...
    """

    kind = "history_unavailable"


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
    """The store lacks a key that a document names or a call asks for.

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
    """Another writer changed the dataset in between. Our change is certainly not visible.

    Of a write to several datasets of a cube nothing is visible in any of them.

    Examples
    --------
    Another writer replaces the rows that we want to remove; we remove the new ones instead.

    >>> import pyarrow as pa
    >>> from kartothek_cube import open_store
    >>> from kartothek_cube.api.dataset import DatasetFactory, store_dataframes_as_dataset
    >>> from kartothek_cube.api.dataset import update_dataset_from_dataframes as update
    >>> store, scope = open_store("hmemory://"), [{"COUNTRY_CODE": "DE"}]
    >>> germany = pa.table({"COUNTRY_CODE": ["DE"], "UNITS": [3]})
    >>> _ = store_dataframes_as_dataset(store, "sales", [germany], partition_on="COUNTRY_CODE")
    >>> ours = DatasetFactory("sales", store).load_all_indices()
    >>> _ = update([germany], store, "sales", delete_scope=scope)
    >>> try:
    ...     _ = update(None, factory=ours, delete_scope=scope)
    ... except CommitConflict:
    ...     _ = update(None, store, "sales", delete_scope=scope)
    """

    kind = "commit_conflict"


class StagedFilesLost(KartothekCubeError, RuntimeError):
    """Files that were written for a commit were removed before the commit.

    The change is certainly not visible.

    Examples
    --------
    Write the rows again: no reader has seen them.

    >>> StagedFilesLost.kind, issubclass(StagedFilesLost, RuntimeError)
    ('staged_files_lost', True)
    """

    kind = "staged_files_lost"


class CommitOutcomeUnknown(KartothekCubeError, RuntimeError):
    """The store did not answer whether the commit landed. Nothing was deleted.

    A write to several datasets of a cube has landed in all of them, or in none.

    Examples
    --------
    Check before you write the same rows a second time.

    >>> import pyarrow as pa
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset
    >>> from kartothek_cube import open_store
    >>> from kartothek_cube.testing.stores import FaultyStore
    >>> swaps = []
    >>> def fail_after_swap(call):
    ...     if call.operation == "put_if" and call.key.endswith("metadata.json"):
    ...         swaps.append(call)
    ...     return "before" if swaps else None
    >>> store = FaultyStore(open_store("hmemory://"), fail_after_swap)
    >>> sales = pa.table({"UNITS": [3]})
    >>> try:
    ...     _ = store_dataframes_as_dataset(store, "sales", [sales])
    ... except CommitOutcomeUnknown as error:
    ...     print(error.kind)
    commit_outcome_unknown
    """

    kind = "commit_outcome_unknown"


class MultiTableCommitAborted(KartothekCubeError, RuntimeError):
    """A write to several datasets of a cube was aborted. None of it is visible, nor will be.

    A check that spans datasets failed, or the store did not answer before the moment of the write.
    Only of the subclass `CubeCommitIncomplete`, which no write of rows raises, a part is visible.

    Examples
    --------
    Nothing was changed, so the write can be repeated.

    >>> MultiTableCommitAborted.kind, issubclass(CubeCommitIncomplete, MultiTableCommitAborted)
    ('multi_table_commit_aborted', True)
    """

    kind = "multi_table_commit_aborted"


class CubeCommitIncomplete(MultiTableCommitAborted):
    """Of the datasets of a cube some have been compacted or copied, and others not.

    Raised by `compact_cube`, and by `copy_cube` if the target has no seed: their datasets have
    commits of their own. The message lists what landed.

    Examples
    --------
    Repeat the call; that of `copy_cube` with ``overwrite=True``.

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
    >>> store.put(*(key for key in store.keys() if key.endswith(".parquet")), b"damaged")
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
    """A type, a format version or an operation is not supported. The message names it.

    Examples
    --------
    >>> from kartothek_cube import open_store
    >>> from kartothek_cube.api.dataset import read_table
    >>> store = open_store("hmemory://")
    >>> document = b'{"dataset_metadata_version": 5, "dataset_uuid": "sales"}'
    >>> store.put("sales.by-dataset-metadata.json", document)
    >>> read_table("sales", store)
    Traceback (most recent call last):
        ...
    kartothek_cube.errors.Unsupported: ...5...
    """

    kind = "unsupported"


class MissingExtra(Unsupported, ImportError):
    """A package of an extra of this library is not installed.

    The message names the extra and the command that installs it.

    Examples
    --------
    >>> issubclass(MissingExtra, ImportError)
    True
    """

    kind = "missing_extra"


class ForeignWriterWarning(UserWarning):
    """A library without commit ids (kartothek, plateau) has changed a dataset.

    Commits that landed while that library worked are lost.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", ForeignWriterWarning)  # stop instead of going on
    """


class IncompleteCubeWarning(UserWarning):
    """A write to several datasets of a cube may have reached some of them only.

    It is of an older version of this library, or another library has removed or overtaken what
    tells whether it has committed. Writes of this version alone never cause it.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", IncompleteCubeWarning)  # do not read such a cube
    """


class PublicationWarning(UserWarning):
    """A commit has landed that could not be published as a new version of its Delta table.

    The table stays at an older version. The next commit, or `publish_delta`, catches up.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", PublicationWarning)  # a nightly job publishes
    """


class KartothekCubeDeprecationWarning(DeprecationWarning):
    """A function, an argument or a value will be removed.

    The message names the version that removes it, and the replacement.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", KartothekCubeDeprecationWarning)  # in your tests
    """


def one_line(error: BaseException) -> str:
    """The text of an error; its type if the text is empty."""
    return str(error).strip() or type(error).__name__
