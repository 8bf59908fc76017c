"""Staged files that waited for long: garbage collection may take them, so they are looked for, and copied before they are committed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from kartothek_cube.core.change import Change, Receipt
from kartothek_cube.core.naming import DATA_SUFFIX, fresh_id
from kartothek_cube.core.options import current_options
from kartothek_cube.core.parallel import map_in_threads
from kartothek_cube.core.store import Store
from kartothek_cube.errors import KeyNotFound, StagedFilesLost

__all__ = ["check_staged", "is_copy", "renewed"]

_READABLE = 200  # characters of a name that a copy keeps; a part of a key has at most 255


def check_staged(store: Store, change: Change) -> None:
    """Files that lay around for long may have been taken for garbage."""
    if _old_receipts(change):
        keys = [receipt.key for receipt in change.receipts]
        _refuse_lost(change, [key for key, there in zip(keys, map_in_threads(store.contains, keys, store=store), strict=True) if not there])


def renewed(store: Store, change: Change) -> Change:
    """The change with young copies in place of files that lay around for long.

    Whoever collects garbage may have decided already to delete those; that they are still there means nothing.

    Raises
    ------
    StagedFilesLost
        If some of them are gone.
    """
    old = _old_receipts(change)
    if not old or not current_options().grace:  # without a grace period nobody is safe
        return change
    keys = {receipt.key: _fresh_key(receipt.key) for receipt in old}
    now = datetime.now(UTC)
    done = map_in_threads(lambda pair: _copied(store, *pair), keys.items())
    _refuse_lost(change, [key for key, copied in zip(keys, done, strict=True) if not copied])
    return replace(change, receipts=tuple(replace(r, key=keys[r.key], staged=now) if r.key in keys else r for r in change.receipts))


def _old_receipts(change: Change) -> list[Receipt]:
    late = datetime.now(UTC) - current_options().grace / 2
    return [receipt for receipt in change.receipts if receipt.staged < late]


def is_copy(key: str, original: str) -> bool:
    """Whether a key is that of a copy that `renewed` made of another file."""
    return key.startswith(f"{_stem(original)}-") and "/" not in key[len(_stem(original)) :]


def _fresh_key(key: str) -> str:
    """Another name in the same folder, whose path says the partition values."""
    return f"{_stem(key)}-{fresh_id()}{_suffix(key)}"


def _stem(key: str) -> str:
    folder, slash, name = key.removesuffix(_suffix(key)).rpartition("/")
    return f"{folder}{slash}{name[:_READABLE]}"


def _suffix(key: str) -> str:
    return next(suffix for suffix in (DATA_SUFFIX, ".csv.gz", ".csv", "") if key.endswith(suffix))


def _copied(store: Store, source: str, target: str) -> bool:
    try:
        store.copy(source, target)
    except KeyNotFound:
        return False
    return True


def _refuse_lost(change: Change, lost: Sequence[str]) -> None:
    if lost:
        raise StagedFilesLost(
            f"Dataset {change.uuid!r}: {len(lost)} of {len(change.receipts)} files of {change.describe()} are not in the store any more, e.g. {lost[0]!r}: "
            "they waited longer than the grace period of garbage collection. Nothing of it is visible. Write the rows again."
        )
