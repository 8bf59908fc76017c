"""Staged files that have waited long: garbage collection may delete them, so commits copy them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from kartothek_cube.core.commit.change import Change
from kartothek_cube.core.io.formats import file_suffix
from kartothek_cube.core.metadata.naming import new_id
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.runtime.options import current_options
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.write.receipt import Receipt
from kartothek_cube.errors import KeyNotFound, StagedFilesLost

__all__ = ["check_staged", "is_copy", "with_fresh_copies"]

# Characters of a name that a copy keeps: a segment of a key has at most 255.
_READABLE = 200


def check_staged(store: Store, change: Change, *, also_young: bool = False) -> None:
    """Raise `StagedFilesLost` if files of the change are gone.

    No file is checked unless one of them is old, or ``also_young``.
    """
    if also_young or _old_receipts(change):
        keys = [receipt.key for receipt in change.receipts]
        exist = map_in_threads(store.contains, keys, store=store)
        _check_none_lost(change, [key for key, exists in zip(keys, exist, strict=True) if not exists])


def with_fresh_copies(store: Store, change: Change) -> Change:
    """The change with new copies instead of files that have waited long.

    Garbage collection may have decided to delete the old files already, even if they still exist.

    Raises
    ------
    StagedFilesLost
        If some of the old files are gone.
    """
    old = _old_receipts(change)
    if not old or not current_options().grace:  # without a grace period no file is safe
        return change
    # Another name in the same folder, since the path has the partition values.
    copies = {r.key: f"{_stem(r.key)}-{new_id()}{file_suffix(r.key)}" for r in old}
    now = datetime.now(UTC)

    def copy(pair: tuple[str, str]) -> bool:
        try:
            store.copy(*pair)
        except KeyNotFound:
            return False
        return True

    done = map_in_threads(copy, copies.items())
    _check_none_lost(change, [key for key, copied in zip(copies, done, strict=True) if not copied])
    receipts = (replace(r, key=copies[r.key], staged=now) if r.key in copies else r for r in change.receipts)
    return replace(change, receipts=tuple(receipts))


def _old_receipts(change: Change) -> list[Receipt]:
    late = datetime.now(UTC) - current_options().grace / 2
    return [receipt for receipt in change.receipts if receipt.staged < late]


def is_copy(key: str, original: str) -> bool:
    """Whether a key is that of a copy that `with_fresh_copies` made of another file."""
    return key.startswith(f"{_stem(original)}-") and "/" not in key[len(_stem(original)) :]


def _stem(key: str) -> str:
    folder, slash, name = key.removesuffix(file_suffix(key)).rpartition("/")
    return f"{folder}{slash}{name[:_READABLE]}"


def _check_none_lost(change: Change, lost: Sequence[str]) -> None:
    if lost:
        raise StagedFilesLost(
            f"Dataset {change.uuid!r}: {len(lost)} of {len(change.receipts)} files of {change.describe()} are not in "
            f"the store any more, e.g. {lost[0]!r}: they waited longer than the grace period of garbage collection, or "
            "a deletion of the dataset removed them. Nothing of it is visible. Write the rows again."
        )
