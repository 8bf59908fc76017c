"""Renaming of a dataset: a copy, then the deletion of the original, safe to repeat."""

from __future__ import annotations

from collections.abc import Mapping

from kartothek_cube.core.commit.commit import check_store_can_commit
from kartothek_cube.core.commit.cube_writes import abort_pending
from kartothek_cube.core.maintenance.convert import lock_for_move
from kartothek_cube.core.maintenance.copy import copy_snapshot
from kartothek_cube.core.maintenance.delete import delete_dataset
from kartothek_cube.core.metadata.commit_log import MOVING_KEY, chain_of, fingerprint
from kartothek_cube.core.metadata.naming import check_uuid
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.snapshots.documents import StoredDocument, document_keys, find_document, find_documents
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.stores.contract import Store, VersionMismatch
from kartothek_cube.errors import CommitConflict, InvalidInput

__all__ = ["is_nearly_renamed", "rename_dataset"]


def rename_dataset(store: Store, uuid: str, new_uuid: str, renamed: Mapping[str, str] | None = None) -> Snapshot:
    """Copy a dataset inside its store, then delete the original; return the renamed snapshot.

    If it is one of the datasets of a cube that are ``renamed``, the tags of the cube go with it.

    Raises
    ------
    InvalidInput
        If both names are the same.
    DatasetNotFound
        If the dataset does not exist.
    AlreadyExists
        If the new name is taken.
    CommitConflict
        If the original was changed since it was copied. It stays.
    """
    if uuid == check_uuid(new_uuid):
        raise InvalidInput(f"Cannot rename dataset {uuid!r} to itself.")
    if not is_nearly_renamed(store, uuid, new_uuid):
        check_store_can_commit(store)
        snapshot = load_snapshot(store, uuid)
        if snapshot.undecided is not None:  # its writer must not commit to a dataset that is gone
            abort_pending(store, uuid)
            snapshot = load_snapshot(store, uuid)
        copied = copy_snapshot(store, snapshot, store, new_uuid, renamed=renamed)
        state = copied.chain[-1].id if copied.chain else fingerprint(copied.document.partitions)
        try:
            # From here on nobody can commit to the original: no commit is lost with it.
            original = StoredDocument(snapshot.key, snapshot.token, snapshot.document)
            lock_for_move(store, original, _mark(new_uuid, state))
        except VersionMismatch as error:
            raise CommitConflict(
                f"Dataset {uuid!r} was changed while it was being renamed, so it stays; "
                f"{new_uuid!r} is a copy of its older state. Delete {new_uuid!r} and rename again."
            ) from error
    delete_dataset(store, uuid)
    return load_snapshot(store, new_uuid)


def is_nearly_renamed(store: Store, uuid: str, new_uuid: str) -> bool:
    """Whether an earlier rename was interrupted after its copy was complete.

    The copy may have later commits.
    """
    original, _ = find_documents(store, uuid)
    copies = [stored.document for key in document_keys(new_uuid) if (stored := find_document(store, key)) is not None]
    states = [state for d in copies[:1] for state in (*(c.id for c in chain_of(d.metadata)), fingerprint(d.partitions))]
    return original.document.metadata.get(MOVING_KEY) in [_mark(new_uuid, state) for state in states]


def _mark(new_uuid: str, state: str) -> str:
    """The mark of a renamed original: ``state`` is a commit of the copy, else its fingerprint."""
    return f"renamed to {new_uuid}: {state}"
