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
        Stable, machine-readable name of the category. It is what crosses process boundaries, e.g. out of a Spark task.
    """

    kind: ClassVar[str] = "error"


class InvalidInput(KartothekCubeError, ValueError):
    """An argument, a condition or a frame has a value that cannot be used. Nothing was written."""

    kind = "invalid_input"


class UnknownColumn(InvalidInput, KeyError):
    """An argument names a column that the data or the dataset does not have. Nothing was written."""

    kind = "unknown_column"

    def __str__(self) -> str:
        # KeyError shows the repr of its argument; a sentence should read as a sentence.
        return str(self.args[0]) if self.args else ""


class InvalidRequest(InvalidInput, RuntimeError):
    """A call that contradicts the dataset or itself, e.g. an index on a partition column. Nothing was written."""

    kind = "invalid_request"


class InvalidType(KartothekCubeError, TypeError):
    """An argument, a condition or a frame has a type that cannot be used. Nothing was written."""

    kind = "invalid_type"


class KeyNotFound(KartothekCubeError, KeyError):
    """A key that is named by a document, or asked for, is not in the store."""

    kind = "key_not_found"

    def __str__(self) -> str:
        # KeyError shows the repr of its argument; a sentence should read as a sentence.
        return str(self.args[0]) if self.args else ""


class DatasetNotFound(KeyNotFound):
    """The dataset has no metadata document in this store."""

    kind = "dataset_not_found"


class AlreadyExists(KartothekCubeError, RuntimeError):
    """The dataset exists and ``overwrite=True`` was not given. Nothing was written."""

    kind = "already_exists"


class CommitConflict(KartothekCubeError, RuntimeError):
    """Somebody else changed the dataset in between. The change is certainly not visible."""

    kind = "commit_conflict"


class StagedFilesLost(KartothekCubeError, RuntimeError):
    """Files that were written for a commit have been removed before it. The change is certainly not visible."""

    kind = "staged_files_lost"


class CommitOutcomeUnknown(KartothekCubeError, RuntimeError):
    """The store did not say whether the commit landed, and cannot be asked. Nothing was deleted."""

    kind = "commit_outcome_unknown"


class MultiTableCommitAborted(KartothekCubeError, RuntimeError):
    """A write to several datasets of a cube was given up. Nothing is visible of it."""

    kind = "multi_table_commit_aborted"


class CubeCommitIncomplete(MultiTableCommitAborted):
    """A write to several datasets of a cube stopped between two commits. The message lists what landed."""

    kind = "cube_commit_incomplete"


class CorruptDocument(KartothekCubeError, ValueError):
    """A metadata document cannot be read or contradicts itself."""

    kind = "corrupt_document"


class CorruptData(KartothekCubeError, ValueError):
    """A data or index file cannot be read or contradicts its dataset."""

    kind = "corrupt_data"


class ReadOnlyStore(KartothekCubeError, OSError):
    """The store cannot be written to."""

    kind = "read_only_store"


class AtomicityRequired(KartothekCubeError, RuntimeError):
    """The store has no conditional put, and ``options(require_atomic=False)`` was not given."""

    kind = "atomicity_required"


class Unsupported(KartothekCubeError, NotImplementedError):
    """A type, a format version or a missing extra. The message says which."""

    kind = "unsupported"


class ForeignWriterWarning(UserWarning):
    """A library without commit ids (kartothek, plateau) has changed a dataset of ours; what others committed while it worked is gone."""


class IncompleteCubeWarning(UserWarning):
    """A write to several datasets of a cube is in some of them and not in the others: it takes long, or has stopped halfway."""
