"""The datasets of a cube, and the writes to it.

In order:

- the datasets, and the `Cube` that their metadata describe
- the writes of the past, merged from the commits of the datasets
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from msgspec import Struct

from kartothek_cube.core.arguments import converter_str, converter_str_set_optional, did_you_mean, join_names
from kartothek_cube.core.metadata.commit_log import Commit
from kartothek_cube.core.metadata.naming import JSON_SUFFIX, MSGPACK_SUFFIX, document_key
from kartothek_cube.core.metadata.snapshot import (
    KTK_CUBE_METADATA_DIMENSION_COLUMNS,
    KTK_CUBE_METADATA_KEY_IS_SEED,
    KTK_CUBE_METADATA_PARTITION_COLUMNS,
    LEGACY_DIMENSION_COLUMNS,
    LEGACY_IS_SEED,
    LEGACY_PARTITION_COLUMNS,
    Snapshot,
)
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.snapshots.loader import find_snapshot, load_snapshot, remembered
from kartothek_cube.core.snapshots.time_travel import AsOf, PastCommit, check_as_of
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.stores.open import open_instrumented
from kartothek_cube.cube.consistent_read import (
    check_infos,
    infos_of,
    members_at,
    members_between,
    read_consistent,
    state_text,
)
from kartothek_cube.cube.cube import (
    KTK_CUBE_METADATA_SUPPRESS_INDEX_ON,
    KTK_CUBE_UUID_SEPERATOR,
    LEGACY_TIMESTAMP_PAYLOAD,
    Cube,
    prefix_of,
    require_cube,
)
from kartothek_cube.errors import (
    AlreadyExists,
    DatasetNotFound,
    HistoryUnavailable,
    InvalidInput,
    InvalidType,
    KartothekCubeError,
    KeyNotFound,
    Unsupported,
)
from kartothek_cube.typing import CubeState, StoreLike

_PREFIX = re.compile(r"(.*?)\+\+(?!\+)")
_LOGGER = logging.getLogger(__name__)


def dataset_ids(uuid_prefix: str, store: Store) -> set[str]:
    """Ids of the datasets whose uuid starts with ``<uuid_prefix>++``, from one listing."""
    start = uuid_prefix + KTK_CUBE_UUID_SEPERATOR
    keys = (entry.key.removeprefix(start) for entry in store.list(start).entries)
    ids = {key.removesuffix(s) for key in keys for s in (JSON_SUFFIX, MSGPACK_SUFFIX) if key.endswith(s)}
    # "a+++s" is dataset "s" of cube "a+", not "+s" of cube "a": no id begins with a plus.
    return {i for i in ids if not i.startswith("+")}


def list_cube_prefixes(store: Store) -> list[str]:
    """Prefixes of all cubes in a store; one listing."""
    return prefixes_of(e.key for e in store.list("").entries if e.key.endswith((JSON_SUFFIX, MSGPACK_SUFFIX)))


def prefixes_of(uuids: Iterable[str]) -> list[str]:
    """The prefixes of cubes among the uuids of datasets."""
    # "a+++s" is dataset "s" of cube "a+": the separator is the last two of a run of plus signs.
    return sorted({match[1] for uuid in uuids if (match := _PREFIX.match(uuid))})


def load_members(
    uuid_prefix: str, store: Store, only: Iterable[str] | str | None = None, *, skip_broken: bool = False
) -> dict[str, Snapshot]:
    """Snapshots of the datasets of a cube by id, in the order of the ids.

    With ``skip_broken`` a dataset whose files are incomplete is left out with a warning in the log,
    as in kartothek; without, the error says which dataset is broken and why.
    """
    names = converter_str_set_optional(only)
    # In a far store, documents that this process knows need not wait for the listing: it only says
    # which count.
    start, seen = uuid_prefix + KTK_CUBE_UUID_SEPERATOR, remembered(store) if store.is_remote else []
    known = sorted(uuid.removeprefix(start) for uuid in seen if uuid.startswith(start))
    guess = [i for i in known if (names is None or i in names) and not i.startswith("+")]
    loads = [partial(_load, uuid_prefix, store, i) for i in guess]
    tasks: list[Callable[[], Any]] = [partial(dataset_ids, uuid_prefix, store), *loads]
    ids, *outcomes = map_in_threads(lambda task: task(), tasks, store=store)
    # What is not listed is no dataset; what is listed, but was not there, may have been made since.
    pairs = zip(guess, outcomes, strict=True)
    found = {i: outcome for i, outcome in pairs if i in ids and not isinstance(outcome, DatasetNotFound)}
    rest = sorted(i for i in ids if i not in found and (names is None or i in names))
    found.update(zip(rest, map_in_threads(partial(_load, uuid_prefix, store), rest, store=store), strict=True))
    return _loaded(uuid_prefix, found, skip_broken=skip_broken)


def load_named(uuid_prefix: str, store: Store, ids: Iterable[str], *, skip_broken: bool = False) -> dict[str, Snapshot]:
    """Snapshots of the datasets with these ids, as `load_members`, but without a listing."""
    names = sorted(ids)
    outcomes = map_in_threads(partial(_load, uuid_prefix, store), names, store=store)
    return _loaded(uuid_prefix, dict(zip(names, outcomes, strict=True)), skip_broken=skip_broken)


def _load(uuid_prefix: str, store: Store, name: str) -> Snapshot | KartothekCubeError:
    try:
        return load_snapshot(store, f"{uuid_prefix}{KTK_CUBE_UUID_SEPERATOR}{name}")
    except KartothekCubeError as error:
        return error


def _loaded(
    uuid_prefix: str, outcomes: Mapping[str, Snapshot | KartothekCubeError], *, skip_broken: bool
) -> dict[str, Snapshot]:
    """The snapshots among what `_load` returned, in the order of their names."""
    found: dict[str, Snapshot] = {}
    for name, outcome in sorted(outcomes.items()):
        if isinstance(outcome, Snapshot):
            found[name] = outcome
        elif isinstance(outcome, KeyNotFound) and skip_broken and not isinstance(outcome, DatasetNotFound):
            uuid = f"{uuid_prefix}{KTK_CUBE_UUID_SEPERATOR}{name}"
            _LOGGER.warning('Ignore dataset "%s" because it is incomplete: %s', uuid, outcome)
        elif not isinstance(outcome, DatasetNotFound):
            raise outcome
        # else deleted since the listing, or the write that makes it has not committed
    return found


def check_state(state: object, argument: str) -> AsOf | dict[str, str | None] | None:
    """A state of a cube: as by `check_as_of`, or the commit of each dataset.

    Raises
    ------
    InvalidType
        If it is neither, naming the ``argument``.
    """
    if not isinstance(state, Mapping):
        if not isinstance(state, str | datetime | None):
            raise InvalidType(
                f"{argument} is the id of a commit or a tag (text), a moment (datetime), or a dict with the "
                f"commit of each dataset, not {type(state).__name__}: {state!r}."
            )
        return check_as_of(state, argument)
    wrong = [
        f"{i!r}: {c!r}" for i, c in state.items() if not (isinstance(i, str | bytes) and isinstance(c, str | None))
    ]
    if wrong:
        raise InvalidType(f"{argument} as a dict has the id of a commit for each dataset, but {', '.join(wrong)}.")
    return {converter_str(i): commit for i, commit in state.items()}


def check_known(uuid_prefix: str, newest: Collection[str], state: object, argument: str) -> None:
    """Raise `HistoryUnavailable` if a state has commits of datasets that are gone from the cube."""
    gone = sorted(set(state) - set(newest)) if isinstance(state, Mapping) and newest else []
    if gone:
        raise HistoryUnavailable(
            f"Cube {uuid_prefix!r}: {argument} has commits of datasets that the cube does not have any more: "
            f"{join_names(gone)}. What a deleted dataset held is not known."
        )


def read_members(
    uuid_prefix: str,
    store: Store,
    only: Iterable[str] | str | None = None,
    *,
    skip_broken: bool = False,
    as_of: object = None,
) -> dict[str, Snapshot]:
    """Snapshots as `load_members`, but for a reader: of a write to several datasets all or nothing.

    With ``as_of``, an older state. Documents are read again until they fit together: each retry
    needs a write that landed meanwhile.

    Raises
    ------
    InvalidInput
        If the history of a dataset does not reach back to ``as_of``.
    """
    past = check_state(as_of, "as_of")
    if past is None:
        members = load_members(uuid_prefix, store, only, skip_broken=skip_broken)
        return read_consistent(uuid_prefix, store, members, is_whole=only is None)
    names = converter_str_set_optional(only)
    # All of them: the id of a commit may be of a dataset that `only` leaves out, and what the seed
    # says of the others is needed.
    newest = load_members(uuid_prefix, store, skip_broken=skip_broken)
    newest = read_consistent(uuid_prefix, store, newest, is_whole=True)
    if names is None:
        check_known(uuid_prefix, newest, past, "as_of")
    return {i: s for i, s in members_at(uuid_prefix, store, newest, past).items() if names is None or i in names}


def load_cube(
    cube: Cube, store: Store, only: Iterable[str] | str | None = None, *, as_of: object = None
) -> dict[str, Snapshot]:
    """Snapshots of the datasets of a valid cube.

    Raises
    ------
    InvalidInput
        If a dataset in ``only`` is missing, the datasets do not fit together, or the history of one
        does not reach back to ``as_of``.
    """
    members = read_members(require_cube(cube).uuid_prefix, store, only, as_of=as_of)
    _check_found(members, only, as_of)
    check_infos(infos_of(members), cube)
    return members


def valid_members(cube: Cube, store: Store, newest: Mapping[str, Snapshot]) -> dict[str, Snapshot]:
    """All datasets of a cube, which have just been loaded, as `load_cube` returns them."""
    members = read_consistent(cube.uuid_prefix, store, newest, is_whole=True)
    check_infos(infos_of(members), cube)
    return members


def _check_found(members: Collection[str], only: Iterable[str] | str | None, as_of: object) -> None:
    missing = sorted((converter_str_set_optional(only) or frozenset()) - set(members))
    if missing:
        when = "" if as_of is None else f" as of {as_of}"
        raise InvalidInput(f"Could not find the following requested datasets{when}: {', '.join(missing)}")


def existing_for_build(cube: Cube, store: Store) -> dict[str, Snapshot]:
    """The datasets that a build would replace; an error if one of them cannot be read."""

    def is_broken(name: str) -> bool:
        try:
            return load_snapshot(store, cube.ktk_dataset_uuid(name)) is None
        except DatasetNotFound:
            return False  # no reader sees it: the write that was to make it has not committed
        except KeyNotFound:
            return True

    # What cannot be read cannot be replaced: the commit compares the stored state.
    ids = dataset_ids(cube.uuid_prefix, store)
    existing = load_named(cube.uuid_prefix, store, ids, skip_broken=True)
    broken = sorted(i for i in ids - set(existing) if is_broken(i))
    if broken:
        keys = ", ".join(document_key(cube.ktk_dataset_uuid(i)) for i in broken)
        raise AlreadyExists(
            f"Dataset {', '.join(broken)} already exists, but its schema file is missing, "
            f"so that it cannot be replaced. Restore it, or remove {keys}."
        )
    return existing


def load_states(
    cube: Cube,
    store: Store,
    only: Iterable[str] | str | None,
    since: CubeState,
    as_of: object = None,
    names: tuple[str, str] = ("since", "until"),
) -> tuple[dict[str, Snapshot], dict[str, Snapshot]]:
    """Snapshots of the datasets of a cube at ``since``, and ``as_of`` a later moment.

    ``names`` are those of both arguments in errors.

    Raises
    ------
    InvalidInput
        As in `load_cube` for the later state, or if ``as_of`` comes before ``since``.
    HistoryUnavailable
        If history does not reach back to one of them.
    """
    prefix, ids = require_cube(cube).uuid_prefix, converter_str_set_optional(only)
    start, until = check_state(since, names[0]), check_state(as_of, names[1])
    if start is None:
        raise InvalidType(f"{names[0]} is a commit, a moment, or the commit of each dataset, not None.")
    if isinstance(start, Mapping) and cube.seed_dataset not in start:
        raise InvalidInput(
            f"Cube {prefix!r}: {names[0]} has no commit of the seed {cube.seed_dataset!r}, only of "
            f"{join_names(start)}. Its keys are the ids of datasets, as in the commits of a plan."
        )
    # All of them, as in `read_members`.
    newest = read_consistent(prefix, store, load_members(prefix, store), is_whole=True)
    if ids is None:
        check_known(prefix, newest, start, names[0])
        check_known(prefix, newest, until, names[1])
    before, after = members_between(prefix, store, newest, start, until, names)
    if before and cube.seed_dataset in after and cube.seed_dataset not in before:
        raise HistoryUnavailable(
            f"Cube {prefix!r}: at {state_text(start)} its seed {cube.seed_dataset!r} did not exist, but other datasets "
            "did. It has been built again since, and what it held before is not known."
        )
    now = {i: snapshot for i, snapshot in after.items() if ids is None or i in ids}
    _check_found(now, ids, as_of)
    check_infos(infos_of(now), cube)
    return {i: snapshot for i, snapshot in before.items() if i in now}, now


def cube_and_store(cube: Cube | str, store: StoreLike, as_of: object = None) -> tuple[Cube, Store]:
    """The cube, or the one that is stored under a prefix, and its opened store.

    Every verb that takes a cube begins with this. A cube under a prefix is found as by
    `discover_cube`, in its state ``as_of``.

    Raises
    ------
    InvalidType
        If the first is neither a cube nor a prefix. The message says if both have changed places.
    InvalidInput
        If there is no such cube. The message says what the store has.
    """
    opened, prefix = open_instrumented(store), prefix_of(cube)
    if isinstance(cube, Cube):
        return cube, opened
    return cube_of(prefix, require_members(prefix, opened, as_of)), opened


def require_members(uuid_prefix: str, store: Store, as_of: object = None) -> dict[str, Snapshot]:
    """Snapshots as `read_members`, of a cube that has to be there.

    Raises
    ------
    InvalidInput
        If there is no such cube. The message says what the store has.
    """
    members = read_members(uuid_prefix, store, as_of=as_of)
    if not members:
        raise _no_cube(uuid_prefix, store)
    return members


def _no_cube(uuid_prefix: str, store: Store) -> InvalidInput:
    """The error for a prefix without datasets: it names what the store has."""
    match = _PREFIX.match(uuid_prefix)
    if match is not None:
        return InvalidInput(
            f"{uuid_prefix!r} is the uuid of a dataset. Its cube is {match[1]!r}, as in "
            f"query_cube({match[1]!r}, store); read_table({uuid_prefix!r}, store) reads the dataset alone."
        )
    if find_snapshot(store, uuid_prefix) is not None:
        return InvalidInput(
            f"{uuid_prefix!r} is a dataset and no cube: read_table({uuid_prefix!r}, store) reads it, "
            f"open_dataset({uuid_prefix!r}, store) opens it, and the other verbs for datasets take it."
        )
    # What is under the prefix itself, no reader sees.
    others = [prefix for prefix in list_cube_prefixes(store) if prefix != uuid_prefix]
    names = _names(others, uuid_prefix)
    return InvalidInput(f"There is no cube {uuid_prefix!r} in the store {store.name}. It has: {names}")


def other_cubes(uuid_prefix: str, store: Store) -> str:
    """The end of other errors about a missing cube; empty if there are datasets of it.

    It costs a listing of the store, so only an error may ask for it.
    """
    prefixes = list_cube_prefixes(store)
    return "" if uuid_prefix in prefixes else f" Cubes of this store: {_names(prefixes, uuid_prefix)}"


def _names(prefixes: list[str], unknown: str) -> str:
    return f"{join_names(prefixes)}.{did_you_mean([unknown], prefixes)}"


def valid_cube(uuid_prefix: str, members: Mapping[str, Snapshot], store: Store | None = None) -> Cube:
    """The `Cube` as by `cube_of`, whose datasets fit together.

    Raises
    ------
    InvalidInput
        If they do not, or there is no seed.
    """
    cube = cube_of(uuid_prefix, members, store)
    check_infos(infos_of(members), cube)
    return cube


def cube_of(uuid_prefix: str, members: Mapping[str, Snapshot], store: Store | None = None) -> Cube:
    """Reconstruct the `Cube` from the metadata of its datasets.

    Without any dataset, the error names the cubes of the ``store``.
    """
    seeds = seeds_of(members)
    if not seeds:
        others = "" if members or store is None else other_cubes(uuid_prefix, store)
        raise InvalidInput(f'Could not find seed dataset for cube "{uuid_prefix}".{others}')
    if len(seeds) > 1:
        raise InvalidInput(f'Found multiple possible seed datasets for cube "{uuid_prefix}": {", ".join(seeds)}')
    seed = seeds[0]
    metadata = members[seed].document.metadata
    dimensions = _first(metadata, KTK_CUBE_METADATA_DIMENSION_COLUMNS, LEGACY_DIMENSION_COLUMNS)
    if dimensions is None:
        raise InvalidInput(f'Could not recover dimension columns from seed dataset ("{seed}") of cube "{uuid_prefix}".')
    partitions = _partition_columns(seed, members[seed])
    indexed = {c for s in members.values() for c in s.secondary_columns}
    index_columns = indexed - set(dimensions) - set(partitions) - {LEGACY_TIMESTAMP_PAYLOAD}
    suppressed = metadata.get(KTK_CUBE_METADATA_SUPPRESS_INDEX_ON) or ()
    return Cube(dimensions, partitions, uuid_prefix, seed, index_columns, suppressed)


def seeds_of(members: Mapping[str, Snapshot]) -> list[str]:
    """Ids of the datasets whose metadata say that they are seeds."""
    flags = {i: _first(s.document.metadata, KTK_CUBE_METADATA_KEY_IS_SEED, LEGACY_IS_SEED) for i, s in members.items()}
    return sorted(i for i, is_seed in flags.items() if is_seed)


def _first(metadata: Mapping[str, Any], key: str, legacy: str) -> Any:
    return metadata.get(key, metadata.get(legacy))


def _partition_columns(seed: str, snapshot: Snapshot) -> Any:
    stored = _first(snapshot.document.metadata, KTK_CUBE_METADATA_PARTITION_COLUMNS, LEGACY_PARTITION_COLUMNS)
    if stored is not None:
        return stored
    # The oldest cubes do not store them: their last partition key is a time stamp, added by the
    # library.
    keys = snapshot.partition_keys
    if not keys:
        raise InvalidInput(f'Seed dataset ("{seed}") has no partition keys.')
    if len(keys) == 1:
        raise InvalidInput(
            f'Seed dataset ("{seed}") has only a single partition key ({keys[0]}) but should have at least 2.'
        )
    if keys[-1] != LEGACY_TIMESTAMP_PAYLOAD:
        raise Unsupported(
            f"Can only read old cubes if the timestamp column is '{LEGACY_TIMESTAMP_PAYLOAD}', "
            f"but '{keys[-1]}' was detected."
        )
    return keys[:-1]


# --- the writes of the past -----------------------------------------------------------------------


C = TypeVar("C", bound=Commit)

_LATEST = datetime.max.replace(tzinfo=UTC)


class PastWrite(Struct, frozen=True):
    """One write to a cube: to several of its datasets, or a commit to one.

    Attributes
    ----------
    id : str
        The write, or the commit.
    time : datetime | None
        The time of the last of its commits in UTC, by the writer's clock.
    datasets : tuple of str
        The ids of the datasets that it changed.
    added, removed : int | None
        Numbers of partitions in all of these; None once the history of one of them has expired.
    kept : bool
        Whether history has the state of the whole cube after the write.
    """

    id: str
    time: datetime | None
    datasets: tuple[str, ...]
    added: int | None
    removed: int | None
    kept: bool


def write_id(commit: Commit) -> str:
    """The id of the write to a cube that a commit is a part of, or its own."""
    return commit.id if commit.cube is None else commit.cube.id


def writes_in_order(chains: Mapping[str, Sequence[C]]) -> Iterator[dict[str, C]]:
    """The commits of each write by dataset, the newest write first.

    A write comes after all later commits of each of its datasets, whatever their clocks say; else
    times decide.

    Parameters
    ----------
    chains
        Dataset → its commits, newest first.
    """
    writes: dict[str, dict[str, C]] = defaultdict(dict)
    for name, chain in chains.items():
        for commit in chain:
            writes[write_id(commit)].setdefault(name, commit)
    left = {name: deque(chain) for name, chain in chains.items() if chain}

    def is_next(write: str) -> bool:
        return all(name in left and write_id(left[name][0]) == write for name in writes[write])

    while left:
        candidates = {write_id(commits[0]) for commits in left.values()}
        # Writers without one order may have crossed each other: then times alone decide.
        ready = [write for write in candidates if is_next(write)] or candidates
        newest = max(ready, key=lambda write: (max(c.time or _LATEST for c in writes[write].values()), write))
        yield writes.pop(newest)
        for commits in left.values():
            while commits and write_id(commits[0]) not in writes:
                commits.popleft()
        left = {name: commits for name, commits in left.items() if commits}


def past_writes(histories: Mapping[str, Sequence[PastCommit]], uuids: Mapping[str, str], seed: str) -> list[PastWrite]:
    """The writes to a cube, newest first.

    Parameters
    ----------
    histories
        Dataset → its commits, newest first.
    uuids
        Dataset → its uuid.
    seed
        Without it, there is no state of the cube.
    """
    first_kept = {
        name: min((c.time for c in commits if c.kept and c.time is not None), default=_LATEST)
        for name, commits in histories.items()
    }
    # A dataset that did not exist yet is no gap.
    whole = {name for name, commits in histories.items() if name != seed and any(c.creates for c in commits)}

    def described(commits: Mapping[str, PastCommit]) -> PastWrite:
        parts, times = list(commits.values()), [c.time for c in commits.values() if c.time is not None]
        when = max(times, default=None)
        others = [name for name in histories if name not in commits]
        known = when is not None and all(name in whole or first_kept[name] <= when for name in others)
        listed = [name for name, c in commits.items() if c.cube is None or uuids[name] in c.cube.datasets] or commits
        # A dataset that was only touched, so that the write could be seen as one, is not meant.
        changed = [name for name in listed if not commits[name].is_empty] or listed
        added, removed = [c.added for c in parts], [c.removed for c in parts]
        return PastWrite(
            write_id(parts[0]),
            when,
            tuple(sorted(changed)),
            None if None in added else sum(n for n in added if n is not None),
            None if None in removed else sum(n for n in removed if n is not None),
            all(c.kept for c in parts) and (known or not others),
        )

    return [described(commits) for commits in writes_in_order(histories)]
