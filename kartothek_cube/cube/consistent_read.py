"""One state of a cube for a reader: each write to several datasets is in it whole or not at all.

In order:

- tags of a cube: found at its seed, with the states of all datasets
- which datasets make a valid cube: schemas, partition keys, dimensions, indices
- reading; `docs/design/007-cube-writes.md` says how
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial

import pyarrow as pa
from msgspec import Struct

from kartothek_cube.core.arguments import join_names, pluralize
from kartothek_cube.core.arrow.types import compatible
from kartothek_cube.core.metadata.commit_log import (
    LEDGER_KEY,
    CubeCommit,
    Fate,
    Ledger,
    fate_of,
    ledger_of,
    mark_of,
    pending_mark,
)
from kartothek_cube.core.metadata.document import Document
from kartothek_cube.core.metadata.naming import SINGLE_TABLE
from kartothek_cube.core.metadata.snapshot import KTK_CUBE_METADATA_KEY_IS_SEED, LEGACY_IS_SEED, Snapshot
from kartothek_cube.core.metadata.tag import Tag, TaggedState, may_be_tag, names_text
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.snapshots.loader import coordinator_document, find_snapshot
from kartothek_cube.core.snapshots.time_travel import (
    BeforeCreation,
    PastState,
    Target,
    find_tag,
    foreign_commits,
    is_wanted,
    list_tags,
    older_snapshot,
    snapshot_at,
    snapshots_between,
    states,
)
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.cube.cube import KTK_CUBE_UUID_SEPERATOR, Cube, get_payload_subset, visible_columns
from kartothek_cube.errors import HistoryUnavailable, IncompleteCubeWarning, InvalidInput, InvalidRequest
from kartothek_cube.typing import CubeState


def cube_tags(store: Store, seed: str) -> list[Tag]:
    """The tags of a cube by name; ``seed`` is the uuid of its seed."""
    return [tag for tag in list_tags(store, seed) if tag.seed == seed]


def known_cube_tag(uuid_prefix: str, store: Store, seed: str | None, name: str) -> Tag:
    """The tag of a cube.

    Raises
    ------
    HistoryUnavailable
        If there is none; the message has those that exist.
    """
    found = None if seed is None else find_tag(store, seed, name)
    if found is not None and found.seed == seed:
        return found
    names = [] if seed is None else [tag.name for tag in cube_tags(store, seed)]
    alone = "" if found is None else f" Only its seed {seed!r} has a tag of this name, from tag_dataset."
    raise HistoryUnavailable(
        f"Cube {uuid_prefix!r} has no tag {name!r}: {names_text(name, names)}{alone} "
        "A time is written as 2024-01-31 or 2024-01-31T12:00."
    )


def tag_of_members(uuid_prefix: str, store: Store, newest: Mapping[str, Snapshot], name: str) -> Tag:
    """The tag of the cube that has these datasets; errors as of `known_cube_tag`."""
    flags = (KTK_CUBE_METADATA_KEY_IS_SEED, LEGACY_IS_SEED)
    seeds = [s.uuid for s in newest.values() if any(s.document.metadata.get(flag) for flag in flags)]
    return known_cube_tag(uuid_prefix, store, next(iter(seeds), None), name)


def tagged_members(uuid_prefix: str, store: Store, newest: Mapping[str, Snapshot], name: str) -> dict[str, TaggedState]:
    """The states of a tag by the ids of the datasets.

    Raises
    ------
    HistoryUnavailable
        If the cube has no such tag, or a dataset of the tag was deleted since.
    """
    states = {state.uuid: state for state in tag_of_members(uuid_prefix, store, newest, name).members}
    gone = states.keys() - {snapshot.uuid for snapshot in newest.values()}
    if gone:
        raise HistoryUnavailable(
            f"Cube {uuid_prefix!r}: tag {name!r} has datasets that were deleted since: {join_names(gone)}."
        )
    return {i: states[snapshot.uuid] for i, snapshot in newest.items() if snapshot.uuid in states}


def latest_state(members: Iterable[TaggedState]) -> TaggedState:
    """The state with the last commit among those of a tag."""
    unknown = datetime.min.replace(tzinfo=UTC)
    return max(members, key=lambda state: (state.time or unknown, state.uuid))


# --- which datasets make a valid cube -------------------------------------------------------------


_GAPS = ' Whole numbers with missing values are floats in pandas: drop or fill the missing ones, then astype("int64").'


class DatasetInfo(Struct, frozen=True):
    """The properties of a dataset that the checks use, whether it is stored or planned."""

    id: str
    schema: pa.Schema
    partition_keys: tuple[str, ...]
    secondary: frozenset[str]
    tables: tuple[str, ...] = (SINGLE_TABLE,)

    @property
    def columns(self) -> list[str]:
        """The columns that a query can show."""
        return visible_columns(self.schema.names)


def info_of(dataset_id: str, snapshot: Snapshot) -> DatasetInfo:
    """The info of a stored dataset."""
    return DatasetInfo(
        dataset_id, snapshot.schema, snapshot.partition_keys, snapshot.secondary_columns, snapshot.tables
    )


def infos_of(snapshots: Mapping[str, Snapshot]) -> dict[str, DatasetInfo]:
    """The infos of several stored datasets."""
    return {i: info_of(i, s) for i, s in snapshots.items()}


def check_infos(infos: Mapping[str, DatasetInfo], cube: Cube) -> None:
    """Raise `InvalidInput` unless these datasets make a valid cube."""
    if cube.seed_dataset not in infos:
        names = ", ".join(sorted(infos)) or "none"
        hint = "" if infos else " Is it the right store? list_cubes(store) says which cubes it has."
        raise InvalidInput(
            f'Seed data ("{cube.seed_dataset}") is missing. Datasets of the cube "{cube.uuid_prefix}": {names}.{hint}'
        )
    check_members(infos, cube)


def check_members(infos: Mapping[str, DatasetInfo], cube: Cube) -> None:
    """Raise `InvalidInput` unless these datasets fit into one valid cube, even without its seed."""
    _check_tables(infos)
    _check_payload_overlap(infos, cube)
    _check_shared_types(infos)
    for name in sorted(infos):
        _check_partition_keys(infos[name], cube)
    for name in sorted(infos):
        _check_dimensions(infos[name], cube)
    for name in sorted(infos):
        _check_indices(infos[name], cube)


def each_fault(infos: Mapping[str, DatasetInfo], cube: Cube) -> Iterator[tuple[str, str | None, InvalidInput]]:
    """Every error that `check_members` could raise, not only the first.

    Each comes with the name of the check, and the id of the dataset if the check is about one.
    """
    yield from _faults("tables", None, partial(_check_tables, infos))
    yield from _faults("payload", None, partial(_check_payload_overlap, infos, cube))
    yield from _faults("types", None, partial(_check_shared_types, infos))
    for name, info in sorted(infos.items()):
        for check, of_one in {
            "partition-keys": _check_partition_keys,
            "dimensions": _check_dimensions,
            "indices": _check_indices,
        }.items():
            yield from _faults(check, name, partial(of_one, info, cube))


def _faults(check: str, name: str | None, run: Callable[[], None]) -> Iterator[tuple[str, str | None, InvalidInput]]:
    try:
        run()
    except InvalidInput as error:
        yield check, name, error


def _check_tables(infos: Mapping[str, DatasetInfo]) -> None:
    wrong = [
        f"{i} ({', '.join(info.tables)})" for i, info in sorted(infos.items()) if set(info.tables) != {SINGLE_TABLE}
    ]
    if wrong:
        raise InvalidInput(f"Invalid datasets because table is wrong. Expected {SINGLE_TABLE}: {', '.join(wrong)}")


def _check_payload_overlap(infos: Mapping[str, DatasetInfo], cube: Cube) -> None:
    owners: dict[str, list[str]] = {}
    for name, info in sorted(infos.items()):
        for column in get_payload_subset(info.columns, cube):
            owners.setdefault(column, []).append(name)
    shared = {c: names for c, names in sorted(owners.items()) if len(names) > 1}
    if shared:
        lines = "\n".join(f" - {c}: {', '.join(names)}" for c, names in shared.items())
        raise InvalidInput(f"Found columns present in multiple datasets:\n{lines}")


def _check_shared_types(infos: Mapping[str, DatasetInfo]) -> None:
    seen: dict[str, tuple[str, pa.DataType]] = {}
    for name, info in sorted(infos.items()):
        for field in info.schema:
            other, data_type = seen.setdefault(field.name, (name, field.type))
            if pa.types.is_null(data_type):
                seen[field.name] = (name, field.type)
            elif not compatible(data_type, field.type):
                types = (data_type, field.type)
                # The frequent cause: values are missing in one of two frames, so that pandas has
                # floats there.
                gaps = any(map(pa.types.is_integer, types)) and any(map(pa.types.is_floating, types))
                raise InvalidInput(
                    f'Found incompatible entries for column "{field.name}": '
                    f'{data_type} in dataset "{other}", {field.type} in dataset "{name}".{_GAPS if gaps else ""}'
                )


def _check_partition_keys(info: DatasetInfo, cube: Cube) -> None:
    if info.id == cube.seed_dataset:
        missing = sorted(set(cube.partition_columns) - set(info.partition_keys))
        if missing:
            raise InvalidInput(f'Seed dataset "{info.id}" has missing partition columns: {", ".join(missing)}')
    surplus = sorted((set(info.columns) - set(info.partition_keys)) & set(cube.partition_columns))
    if surplus:
        raise InvalidInput(f"Unspecified but provided partition columns in {info.id}: {', '.join(surplus)}")


def _check_dimensions(info: DatasetInfo, cube: Cube) -> None:
    missing = sorted(set(cube.dimension_columns) - set(info.columns))
    if info.id == cube.seed_dataset and missing:
        raise InvalidInput(f'Seed dataset "{info.id}" has missing dimension columns: {", ".join(missing)}')
    if len(missing) == len(cube.dimension_columns):
        dims = ", ".join(cube.dimension_columns)
        raise InvalidInput(f'Dataset "{info.id}" must have at least 1 of the following dimension columns: {dims}')


def _check_indices(info: DatasetInfo, cube: Cube) -> None:
    wrong = sorted(info.secondary & set(info.partition_keys))
    if wrong:
        raise InvalidInput(
            f'"{wrong[0]}" in dataset "{info.id}" is of type ExplicitSecondaryIndex but should be PartitionIndex.'
        )
    if info.id == cube.seed_dataset:
        dimensions = set(cube.dimension_columns) - cube.suppress_index_on - set(info.partition_keys)
        _check_none_missing("ExplicitSecondaryIndex", dimensions - info.secondary, info)
    missing = (cube.index_columns & set(info.columns)) - set(info.partition_keys) - info.secondary
    _check_none_missing("ExplicitSecondaryIndex or PartitionIndex", missing, info)


def _check_none_missing(index: str, columns: Collection[str], info: DatasetInfo) -> None:
    if columns:
        raise InvalidInput(f'{index} "{min(columns)}" is missing in dataset "{info.id}".')


# --- reading --------------------------------------------------------------------------------------


# Stores and writes for which there was a warning.
_warned: set[tuple[Hashable, str]] = set()
# Documents that were found to be the newest ones although the ledger names another write.
_agreed: set[tuple[Hashable, str, Hashable, str | None]] = set()
# Stores, datasets that a ledger names and that do not exist, and their last write.
_gone: set[tuple[Hashable, str, str]] = set()


# --- a state of the past --------------------------------------------------------------------------


def members_at(uuid_prefix: str, store: Store, newest: Mapping[str, Snapshot], as_of: CubeState) -> dict[str, Snapshot]:
    """Older snapshots of the datasets of a cube by id, without those that did not exist then.

    The id of a write to the cube selects each dataset as that write left it. The id of a commit to
    one dataset selects that commit. All other datasets are read as of the time of the commit, of
    several commits the latest. A tag, and the commits of several datasets, select exactly these.

    Raises
    ------
    HistoryUnavailable
        If the history of a dataset does not reach back so far, none has such a commit, or none
        existed then.
    """
    moments = _moments(uuid_prefix, store, newest, as_of)

    def load(name: str) -> Snapshot | None:
        with suppress(BeforeCreation):
            return snapshot_at(store, newest[name], moments[name])
        return None

    snapshots = zip(moments, map_in_threads(load, list(moments), store=store), strict=True)
    existing = {name: snapshot for name, snapshot in snapshots if snapshot is not None}
    if not isinstance(as_of, Mapping):
        existing = _aligned(uuid_prefix, store, newest, existing, moments)
    if newest and not existing:
        raise _before_creation(uuid_prefix, newest, as_of)
    return existing


def members_between(
    uuid_prefix: str,
    store: Store,
    newest: Mapping[str, Snapshot],
    since: CubeState,
    until: CubeState | None,
    names: tuple[str, str] = ("since", "until"),
) -> tuple[dict[str, Snapshot], dict[str, Snapshot]]:
    """The datasets of a cube at two moments, each without those that did not exist then.

    ``since`` and ``until`` as ``as_of`` of `members_at`. None: the newest state. In errors they
    have these ``names``.

    Raises
    ------
    InvalidInput
        If ``until`` comes before ``since``.
    HistoryUnavailable
        As in `members_at`.
    """
    from_each = _moments(uuid_prefix, store, newest, since)
    to_each: Mapping[str, Target | None]
    to_each = dict.fromkeys(newest) if until is None else _moments(uuid_prefix, store, newest, until)

    def load(name: str) -> tuple[Snapshot | None, Snapshot | None, int]:
        if name in from_each and name in to_each:
            with suppress(BeforeCreation):
                return snapshots_between(store, newest[name], from_each[name], to_each[name])
        then, now = state_at(name, from_each), state_at(name, to_each)
        return then, now, (then is not None) - (now is not None)

    def state_at(name: str, moments: Mapping[str, Target | None]) -> Snapshot | None:
        with suppress(BeforeCreation):
            if name in moments:
                as_of = moments[name]
                return newest[name] if as_of is None else snapshot_at(store, newest[name], as_of)
        return None

    pairs = dict(zip(newest, map_in_threads(load, list(newest), store=store), strict=True))
    before = {name: state for name, (state, _, _) in pairs.items() if state is not None}
    after = {name: state for name, (_, state, _) in pairs.items() if state is not None}
    if not isinstance(since, Mapping):
        before = _aligned(uuid_prefix, store, newest, before, from_each)
    if until is not None and not isinstance(until, Mapping):
        later = {name: moment for name, moment in to_each.items() if moment is not None}
        after = _aligned(uuid_prefix, store, newest, after, later)
    if newest and not after and until is not None:
        raise _before_creation(uuid_prefix, newest, until)
    if newest and not before:
        raise _before_creation(uuid_prefix, newest, since)
    # Clocks of two writers may differ: the datasets whose commits were not named may be reversed.
    orders = [order for _, _, order in pairs.values()]
    if max(orders, default=0) > 0 and min(orders) >= 0:
        raise InvalidInput(
            f"Cube {uuid_prefix!r}: {names[1]}={state_text(until)} comes before {names[0]}={state_text(since)}. "
            "Exchange them to see the changes."
        )
    return before, after


def state_text(state: CubeState | None) -> str:
    """A state of a cube in a line."""
    if isinstance(state, Mapping):
        return f"the commits of {pluralize(len(state), 'dataset')}"
    return state.isoformat() if isinstance(state, datetime) else str(state)


def _moments(uuid_prefix: str, store: Store, newest: Mapping[str, Snapshot], as_of: CubeState) -> dict[str, Target]:
    """The commit, moment or tagged state that ``as_of`` means for each dataset that existed."""
    if isinstance(as_of, Mapping):
        unknown = [newest[name].uuid for name, commit in as_of.items() if commit is None and name in newest]
        if unknown:
            raise HistoryUnavailable(
                f"Dataset {unknown[0]!r}: its last commit then was of a writer that keeps no history "
                "(kartothek, plateau), so its state then is not known."
            )
        return {name: commit for name, commit in as_of.items() if commit is not None and name in newest}
    if isinstance(as_of, datetime):
        return dict.fromkeys(newest, as_of)
    if not newest:  # whoever looks for the cube has a better error
        return {}
    if may_be_tag(as_of):
        return {**tagged_members(uuid_prefix, store, newest, as_of)}
    past = _states_of_commit(store, newest, as_of)
    times = [state.time for state in past.values() if state.time is not None]
    if not past or (not times and len(past) < len(newest)):
        raise HistoryUnavailable(
            f"Cube {uuid_prefix!r} cannot be read as of commit {as_of!r}: "
            f"none of the datasets {', '.join(sorted(newest))} has it in the history that is kept."
            f"{foreign_commits(store, newest.values())} `history` lists the commits of a dataset."
        )
    return {name: as_of if name in past else max(times) for name in newest}


def _before_creation(uuid_prefix: str, newest: Mapping[str, Snapshot], as_of: CubeState) -> HistoryUnavailable:
    names = ", ".join(sorted(newest))
    text = f"Cube {uuid_prefix!r} cannot be read as of {state_text(as_of)}: of its datasets {names} none existed then."
    return HistoryUnavailable(f"{text} `history` lists the commits of a dataset.")


def _states_of_commit(store: Store, newest: Mapping[str, Snapshot], commit: str) -> dict[str, PastState]:
    """The datasets that have a commit, as it left them."""

    def in_chain(snapshot: Snapshot) -> PastState | None:
        matching = [c for c in snapshot.chain if is_wanted(c, commit)]
        return PastState(matching[-1], snapshot.document) if matching and not snapshot.has_foreign_commit else None

    def in_history(name: str) -> PastState | None:
        return next((s for s in states(store, newest[name]) if is_wanted(s.last, commit)), None)

    past = {name: state for name, snapshot in newest.items() if (state := in_chain(snapshot)) is not None}
    # A chain holds the last few commits. Where it is too short to tell, the history is searched,
    # which takes requests: only of the datasets that took part, if another dataset names these.
    writes = [s.last.cube for s in past.values() if s.last and s.last.cube and s.last.cube.id == commit]
    parts = {uuid for write in writes for uuid in write.datasets}
    rest = [name for name, snapshot in newest.items() if name not in past and (not past or snapshot.uuid in parts)]
    searched = zip(rest, map_in_threads(in_history, rest, store=store), strict=True)
    return past | {name: state for name, state in searched if state is not None}


def _aligned(
    uuid_prefix: str,
    store: Store,
    newest: Mapping[str, Snapshot],
    found: Mapping[str, Snapshot],
    moments: Mapping[str, Target],
) -> dict[str, Snapshot]:
    """States so that each write to several datasets is in all or in none.

    Clocks differ. So the ledger, as it was in the state of the coordinator, says which last write
    each dataset must have.
    """
    owner = next((name for name, snapshot in newest.items() if LEDGER_KEY in snapshot.document.metadata), None)
    is_tag = any(isinstance(moment, TaggedState) for moment in moments.values())
    if owner is None or owner not in found or is_tag:  # a tag has the states of one read
        return dict(found)
    aligned, last = dict(found), ledger_in(newest[owner].document).last
    # Where already the newest documents disagree, records are lost: no clock is to blame.
    names = [i for i, s in newest.items() if i != owner and last.get(s.uuid) == last_write(s.document)]
    for name in names:
        # Where a commit was chosen in another dataset, the coordinator follows.
        if isinstance(moments.get(name), str) and name in found and not isinstance(moments.get(owner), str):
            uuid, required = found[name].uuid, last_write(found[name].document)
            if last_write_of(uuid, aligned[owner].document) != required:
                nearest = Nearest(required, partial(last_write_of, uuid))
                aligned[owner] = nearest.state(store, newest[owner], aligned[owner]) or aligned[owner]
    wanted = ledger_in(aligned[owner].document).last
    for name in names:
        state, required = aligned.get(name), wanted.get(newest[name].uuid)
        is_right = last_write(state.document) == required if state is not None else required is None
        if is_right or isinstance(moments.get(name), str):
            continue
        moved = Nearest(required, last_write).state(store, newest[name], state)
        if moved is not None:
            aligned[name] = moved
        elif required is not None:
            raise HistoryUnavailable(
                f"Cube {uuid_prefix!r}: the state of dataset {newest[name].uuid!r} that belongs to this one of the "
                f"seed has the write {required}, and its history does not reach back so far."
            )
        else:
            aligned.pop(name)  # the write that made it is not in the state of the coordinator
    return aligned


def last_write(document: Document) -> str | None:
    """The last write to several datasets that a dataset took part in."""
    mark = mark_of(document.metadata)
    return None if mark is None else mark.write


def last_write_of(uuid: str, document: Document) -> str | None:
    """The last write with a dataset that the ledger of a coordinator names."""
    return ledger_in(document).last.get(uuid)


def ledger_in(document: Document) -> Ledger:
    """The ledger of a coordinator, empty if it has none."""
    return ledger_of(document.metadata) or Ledger()


class Nearest(Struct, frozen=True):
    """Finds the state of a dataset in which some write is the last one, beside another state."""

    required: str | None
    write_of: Callable[[Document], str | None]

    def state(self, store: Store, newest: Snapshot, beside: Snapshot | None) -> Snapshot | None:
        """The nearest such state, later or earlier; None if the history that is kept has none."""
        later, is_later = None, True
        for state in states(store, newest):
            if beside is not None and state.commit == beside.commit:
                is_later = False
                if later is not None:
                    break
            elif self.write_of(state.document) == self.required:
                if not is_later:
                    # An older version drops the mark of a write, which the state has all the same.
                    if beside is not None and self.write_of(beside.document) is None:
                        return beside
                    return older_snapshot(store, newest, state.document, state.commit)
                later = state
        return None if later is None else older_snapshot(store, newest, later.document, later.commit)


# --- the newest state -----------------------------------------------------------------------------


def read_consistent(
    uuid_prefix: str, store: Store, members: Mapping[str, Snapshot], *, is_whole: bool = False
) -> dict[str, Snapshot]:
    """The same datasets, so that each write to several of them is in all or in none.

    The documents were read at different times. What the ledger of the coordinator names as the last
    write of a dataset must be the last one that its snapshot has; if not, both are read again. With
    ``is_whole`` a dataset is added that a write has made since the datasets were listed.
    """
    snapshots = dict(members)
    while True:
        ledger, disagreeing = _compare(uuid_prefix, store, snapshots, is_whole=is_whole)
        if not disagreeing:
            break
        uuids = {snapshots[name].uuid if name in snapshots else _uuid(uuid_prefix, name): name for name in disagreeing}
        fresh = map_in_threads(lambda uuid: find_snapshot(store, uuid), list(uuids), store=store)
        has_changed = False
        for (uuid, name), snapshot in zip(uuids.items(), fresh, strict=True):
            has_changed |= _has_changed(snapshots.get(name), snapshot)
            if snapshot is not None:
                snapshots[name] = snapshot
            elif snapshots.pop(name, None) is None:  # it was deleted before
                _gone.add((store.identity, uuid, ledger.last[uuid]))
        if not has_changed:
            # A writer that keeps no records came between: the documents count, also next time.
            _agreed.update(_version(store, ledger, snapshots[name]) for name in disagreeing & snapshots.keys())
            break
    for incomplete in _partial_commits(snapshots):
        # A warning, no error: a writer that died would make all reads fail until a repair.
        _warn(uuid_prefix, store, incomplete, snapshots)
    return snapshots


def _compare(
    uuid_prefix: str, store: Store, snapshots: Mapping[str, Snapshot], *, is_whole: bool
) -> tuple[Ledger, set[str]]:
    """The ledger, and the datasets that it disagrees with, the coordinator included."""
    marks = {name: mark_of(snapshot.document.metadata) for name, snapshot in snapshots.items()}
    ledgers = {name: ledger_of(snapshot.document.metadata) for name, snapshot in snapshots.items()}
    owner = next((name for name, ledger in ledgers.items() if ledger is not None), None)
    if owner is None:
        coordinators = [mark.coordinator for mark in marks.values() if mark is not None]
        if not coordinators:
            return Ledger(), set()
        # It is not among these datasets, or has lost its ledger.
        document = coordinator_document(store, coordinators[0])
        ledger = (None if document is None else ledger_of(document.metadata)) or Ledger()
        owners = {name for name, snapshot in snapshots.items() if snapshot.uuid == coordinators[0]}
    else:
        ledger, owners = ledgers[owner] or Ledger(), {owner}
    wrong = {
        name
        for name in snapshots.keys() - owners
        if ledger.last.get(snapshots[name].uuid) != last_write(snapshots[name].document)
        and _version(store, ledger, snapshots[name]) not in _agreed
    }
    if is_whole:
        known = {snapshot.uuid for snapshot in snapshots.values()}
        missing = {uuid for uuid, write in ledger.last.items() if (store.identity, uuid, write) not in _gone} - known
        wrong |= {uuid.removeprefix(_uuid(uuid_prefix, "")) for uuid in missing}
    return ledger, wrong | owners if wrong else wrong


def _version(store: Store, ledger: Ledger, snapshot: Snapshot) -> tuple[Hashable, str, Hashable, str | None]:
    """A document of a dataset, and the write that the ledger names beside it."""
    return store.identity, snapshot.uuid, snapshot.token, ledger.last.get(snapshot.uuid)


def _uuid(uuid_prefix: str, name: str) -> str:
    return f"{uuid_prefix}{KTK_CUBE_UUID_SEPERATOR}{name}"


def _has_changed(old: Snapshot | None, new: Snapshot | None) -> bool:
    if old is None or new is None:
        return old is not new
    return old.token != new.token or mark_of(old.document.metadata) != mark_of(new.document.metadata)


# --- writes of older versions ---------------------------------------------------------------------


class PartialCommit(Struct, frozen=True):
    """A write that some of its datasets have and others lack; ids of these datasets in the cube."""

    write: CubeCommit
    landed: tuple[str, ...]
    lacking: tuple[str, ...]


def _partial_commits(members: Mapping[str, Snapshot]) -> Iterator[PartialCommit]:
    """Writes that are the last commit of one of their datasets and lacking in another one."""
    last = {
        name: chain[-1]
        for name, snapshot in members.items()
        if (chain := snapshot.chain) and chain[-1].cube is not None
    }
    for write in {commit.cube.id: commit.cube for commit in last.values() if commit.cube is not None}.values():
        landed = tuple(name for name, commit in last.items() if commit.cube is not None and commit.cube.id == write.id)
        when = last[landed[0]].time
        others = [name for name, snapshot in members.items() if snapshot.uuid in write.datasets and name not in landed]
        lacking = tuple(name for name in others if not _may_have(members[name], write.id, when))
        if lacking and not any(members[name].has_foreign_commit for name in landed):
            yield PartialCommit(write, landed, lacking)


def _may_have(snapshot: Snapshot, write: str, when: datetime | None) -> bool:
    """Whether a dataset has a write, or may have forgotten it."""
    chain = snapshot.chain
    if any(c.cube is not None and c.cube.id == write for c in chain):
        return True
    # The chain is cut at its old end, and a foreign writer drops it.
    oldest = chain[0].time if chain else None
    return oldest is None or when is None or oldest > when or snapshot.has_foreign_commit


def check_whole_writes(uuid_prefix: str, store: Store, members: Mapping[str, Snapshot]) -> None:
    """Raise `InvalidRequest` if some datasets lack, or may lack, a write that others have."""
    for found in _partial_commits(members):
        raise InvalidRequest(
            f"{_describe(uuid_prefix, found, members)} Take it back first: that needs the history. Nothing was deleted."
        )
    for snapshot in members.values():
        mark = pending_mark(snapshot.document)
        if mark is not None and Fate.COMMITTED is not fate_of(
            mark, snapshot.uuid, coordinator_document(store, mark.coordinator)
        ):
            raise InvalidRequest(
                f"Dataset {snapshot.uuid!r}: nothing tells whether the write {mark.write} to several datasets has "
                f"committed, so others of cube {uuid_prefix!r} may lack it. Write what they lack first; `cube_history` "
                "tells. Nothing was deleted."
            )


def _describe(uuid_prefix: str, partial: PartialCommit, members: Mapping[str, Snapshot]) -> str:
    undo = "; ".join(f"undo({members[name].uuid!r}, store, {partial.write.id!r})" for name in partial.landed)
    return (
        f"Cube {uuid_prefix!r}: the write {partial.write.id} of an older version is in {', '.join(partial.landed)} "
        f"but not in {', '.join(partial.lacking)}. It stopped halfway, or takes long. "
        f"Queries see what is there. Repeat the write, or take it back: {undo}."
    )


def _warn(uuid_prefix: str, store: Store, partial: PartialCommit, members: Mapping[str, Snapshot]) -> None:
    """Warn of an abandoned write, once in this process."""
    if (store.identity, partial.write.id) in _warned:
        return
    _warned.add((store.identity, partial.write.id))
    warnings.warn(_describe(uuid_prefix, partial, members), IncompleteCubeWarning, stacklevel=2)
