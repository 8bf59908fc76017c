"""Copy or rename a cube.

In order:

- `copy_cube`: files first, then the documents. Those of a new cube come one by one, the seed's
  last; a cube that exists changes at once
- `rename_cube`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress

from msgspec.structs import replace

from kartothek_cube.core.arguments import check_flag, converter_str, converter_str_set_optional
from kartothek_cube.core.commit.commit import prepare_commit
from kartothek_cube.core.commit.cube_writes import roll_back_all, settle_committed, swap_or_roll_back
from kartothek_cube.core.maintenance.copy import (
    PreparedCopy,
    as_part,
    check_tags,
    copy_files,
    finish_copies,
    is_nearly_renamed,
    joined_tags,
    prepare_copy,
    publish_copy,
    run_rename,
    withdraw_copy,
)
from kartothek_cube.core.metadata.commit_log import CubeCommit
from kartothek_cube.core.metadata.naming import new_id
from kartothek_cube.core.metadata.snapshot import KTK_CUBE_METADATA_KEY_IS_SEED, LEGACY_IS_SEED, Snapshot
from kartothek_cube.core.runtime.executor import THREADS, at_once, map_in_threads
from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.snapshots.loader import find_snapshot, is_visible
from kartothek_cube.core.stores.contract import Store, check_store_can_commit
from kartothek_cube.core.stores.open import open_instrumented
from kartothek_cube.cube.consistent_read import check_infos, infos_of
from kartothek_cube.cube.cube import Cube, check_belong_to_cube, given_datasets
from kartothek_cube.cube.members import cube_and_store, dataset_ids, load_cube, load_named, read_members, valid_cube
from kartothek_cube.cube.write.commit import commit_coordinator, empty_change, part_of
from kartothek_cube.errors import (
    AlreadyExists,
    CommitOutcomeUnknown,
    CubeCommitIncomplete,
    InvalidInput,
    InvalidRequest,
    InvalidType,
    KartothekCubeError,
    MultiTableCommitAborted,
)
from kartothek_cube.typing import Executor, IntoDatasets, StoreLike


def copy_cube(
    cube: Cube | str,
    src_store: StoreLike,
    tgt_store: StoreLike,
    overwrite: bool = False,
    datasets: IntoDatasets = None,
    renamed_cube_prefix: str | None = None,
    renamed_datasets: Mapping[str, str] | None = None,
    *,
    options: Overrides | None = None,
    executor: Executor = THREADS,
) -> None:
    """Copy a cube, or some of its datasets, to another store.

    The state of the datasets when the call begins is copied, without garbage. Everything is checked
    before the first file is written. The copies become visible when all files are complete. A new
    cube appears with its seed, which comes last; in a cube that exists all copies appear at once.
    Then the tags appear, with their states.
    Documents keep their encoding and metadata; the history of a copy begins anew.

    Parameters
    ----------
    cube : Cube or str
        The cube, or its prefix.
    src_store, tgt_store : str, path, store or callable
        Source and target; everything that `open_store` takes. They must be different stores.
    overwrite : bool, default False
        Replace datasets that exist in the target. Their files become garbage. Where the target has
        the seed, readers see all copies at once.
    datasets : str, iterable of str, or dict, optional
        The datasets, by id, or as a dict dataset id → `DatasetMetadata` with their states. By
        default all. Together with the datasets that stay in the target they must make a valid cube.
    renamed_cube_prefix : str, optional
        Prefix of the copy.
    renamed_datasets : dict, optional
        Dataset id → id of its copy. Other datasets keep their ids. Two may swap their names.
    options : optional
        What `options` returns: settings for this call.
    executor : Executor, optional
        What runs the work on files, by default threads of this process.

    Raises
    ------
    InvalidInput
        If both stores are the same place, a name is invalid or given twice, or the datasets would
        not make a valid cube in the target. `InvalidRequest`, which is also a ``RuntimeError``, if
        the cube or a dataset does not exist.
    AlreadyExists
        If a dataset exists in the target under its new name and ``overwrite`` is False.
    KeyNotFound, CorruptDocument
        If a dataset of the cube is incomplete or cannot be read.
    MultiTableCommitAborted
        If the copy failed later, e.g. because a file has vanished. The target is as before, apart
        from garbage.
    CubeCommitIncomplete
        If the target has no seed, and the copy failed between two documents, of which one could not
        be taken back, because it had replaced a dataset. The message lists these datasets.
    CommitOutcomeUnknown
        If the store does not say whether a document was written. Nothing was deleted.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, build_cube, copy_cube, open_cube, open_store, query_cube
    >>> store, backup = open_store("hmemory://"), open_store("hmemory://")
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> _ = build_cube(pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]}), cube, store)
    >>> names = {"seed": "transactions"}
    >>> copy_cube(cube, store, backup, renamed_cube_prefix="sales_2024", renamed_datasets=names)
    >>> len(query_cube(open_cube("sales_2024", backup), backup)[0])
    2
    """
    with operation("copy_cube", options, cube=cube):
        if renamed_datasets is not None and not isinstance(renamed_datasets, Mapping):
            raise InvalidType(
                f"renamed_datasets should be a dict dataset id → new id, but is {type(renamed_datasets).__name__}."
            )
        renamed = {converter_str(old): converter_str(new) for old, new in (renamed_datasets or {}).items()}
        cube, source = cube_and_store(cube, src_store)
        prefix = cube.uuid_prefix if renamed_cube_prefix is None else renamed_cube_prefix
        copy = cube.copy(seed_dataset=renamed.get(cube.seed_dataset, cube.seed_dataset), uuid_prefix=prefix)
        for name in renamed.values():
            copy.ktk_dataset_uuid(name)  # refuses an invalid name
        target = open_instrumented(tgt_store)
        check_store_can_commit(target)

        def plan() -> dict[str, PreparedCopy] | Exception:
            try:
                loaded, existing = at_once(
                    source if source.is_remote else target,
                    lambda: _load_source(cube, source, datasets),
                    lambda: dataset_ids(prefix, target),
                )
                chosen = _by_new_name(cube, loaded, renamed)
                return plan_cube_copy(copy, chosen, source, target, overwrite=overwrite, existing=existing)
            except Exception as error:
                return error  # of no account if both stores are one

        _, plans = at_once(target, lambda: check_other_store(cube, source, target), plan)
        if isinstance(plans, Exception):
            raise plans
        publish_cube_copy(copy, plans, executor)


# --- source and names ---------------------------------------------------------------------------


def check_other_store(cube: Cube, source: Store, target: Store) -> None:
    """Check that source and target are different stores.

    Raises
    ------
    InvalidInput
        If they are the same one.
    """
    # One place may have two URLs that compare as different: a probe in one shows in the other.
    if source != target:
        probe = f"{cube.ktk_dataset_uuid(cube.seed_dataset)}/.test_store_difference.{new_id()}"
        try:
            target.put(probe, b"")
            same = source.contains(probe)
        finally:
            target.delete(probe)
        if not same:
            return
    raise InvalidInput(
        "Stores are identical but should not be. "
        f"Source: {source.name}, target: {target.name}, cube {cube.uuid_prefix!r}."
    )


def _load_source(cube: Cube, source: Store, datasets: IntoDatasets) -> dict[str, Snapshot]:
    """The datasets to copy, by their ids in the source."""
    if isinstance(datasets, Mapping):
        given = given_datasets(datasets)
        check_belong_to_cube(given, cube)
        return {i: d.snapshot for i, d in given.items()}
    names = converter_str_set_optional(datasets)
    members = read_members(cube.uuid_prefix, source, names)
    if names is None and not members:
        raise InvalidRequest(f"{cube} not found in source store {source.name}.")
    missing = sorted((names or frozenset()) - set(members))
    if missing:
        raise InvalidRequest(
            f"{cube}, datasets {{{', '.join(map(repr, missing))}}} do not exist in source store {source.name}."
        )
    return members


def _by_new_name(cube: Cube, chosen: Mapping[str, Snapshot], renamed: Mapping[str, str]) -> dict[str, Snapshot]:
    # The name of the seed is taken even if the seed is not copied.
    names = {i: renamed.get(i, i) for i in {*chosen, cube.seed_dataset}}
    owners: dict[str, list[str]] = {}
    for old, new in sorted(names.items()):
        owners.setdefault(new, []).append(old)
    shared = [f"{', '.join(old)} would all be {new}" for new, old in owners.items() if len(old) > 1]
    if shared:
        raise InvalidInput(
            f"renamed_datasets gives one name to several datasets of cube {cube.uuid_prefix!r}: {'; '.join(shared)}."
        )
    return {names[i]: snapshot for i, snapshot in chosen.items()}


# --- plan and run -------------------------------------------------------------------------------


def plan_cube_copy(
    cube: Cube,
    snapshots: Mapping[str, Snapshot],
    source: Store,
    target: Store,
    *,
    overwrite: bool,
    existing: AbstractSet[str] | None = None,
) -> dict[str, PreparedCopy]:
    """Check and plan the copy of these datasets, in the order in which they become visible.

    ``cube`` is the cube in the target, and the snapshots have their ids in the target; those that
    are there are ``existing``, if known. Nothing is written. Errors are those of `copy_cube`.
    """
    existing = dataset_ids(cube.uuid_prefix, target) if existing is None else existing
    present = sorted(existing & snapshots.keys())
    if present and not overwrite:
        present = [i for i in present if find_snapshot(target, cube.ktk_dataset_uuid(i)) is not None]
    if present and not overwrite:
        raise AlreadyExists(
            f'Dataset "{cube.ktk_dataset_uuid(present[0])}" exists in target store but overwrite was set to False'
        )
    # A replaced dataset need not be readable.
    members = {**load_named(cube.uuid_prefix, target, existing - set(snapshots)), **snapshots}
    check_infos(infos_of(members), cube)
    metadata = {i: s.document.metadata for i, s in sorted(members.items()) if i != cube.seed_dataset}
    seeds = [i for i, m in metadata.items() if m.get(KTK_CUBE_METADATA_KEY_IS_SEED, m.get(LEGACY_IS_SEED))]
    if seeds:
        raise InvalidInput(
            f'Cube "{cube.uuid_prefix}" would have several seed datasets in the target: '
            f"{', '.join([cube.seed_dataset, *seeds])}"
        )
    # The seed comes last: without it readers find no cube, so a new one appears whole.
    order = sorted(snapshots, key=lambda i: (i == cube.seed_dataset, i))

    def prepared(name: str) -> PreparedCopy:
        return prepare_copy(source, snapshots[name], target, cube.ktk_dataset_uuid(name), overwrite=overwrite)

    far = source if source.is_remote else target
    copies = dict(zip(order, map_in_threads(prepared, order, store=far), strict=True))
    tags = joined_tags({i: copy.plan.tags for i, copy in copies.items()})
    check_tags(target, (tag for i, copy in copies.items() if copy.replaces for tag in tags[i]))
    return {i: replace(copy, plan=replace(copy.plan, tags=tags[i])) for i, copy in copies.items()}


def publish_cube_copy(cube: Cube, copies: Mapping[str, PreparedCopy], executor: Executor = THREADS) -> None:
    """Copy the files, then make all copies visible; errors as of `copy_cube`."""
    begun, landed, failures = list[str](), list[str](), dict[str, BaseException]()
    target = next(iter(copies.values())).target.store if copies else None
    seed, state = copies.get(cube.seed_dataset), None
    # Without its seed there is no cube: a new one becomes visible with it.
    if target is not None and len(copies) > 1 and (seed is None or seed.replaces):
        state = find_snapshot(target, cube.ktk_dataset_uuid(cube.seed_dataset))

    def publish(name: str) -> None:
        # Noted first: a document whose put fails without an answer may have landed.
        begun.append(name)
        try:
            publish_copy(copies[name])
        except BaseException as error:
            failures[name] = error
            raise
        landed.append(name)

    try:
        copy_files(list(copies.values()), executor)
        if target is not None and state is not None:
            _publish_at_once(target, cube, state, copies)
        elif any(copy.replaces for copy in copies.values()):
            for name in copies:  # of those that replace others, as few as possible when one fails
                publish(name)
        else:
            list(map_in_threads(publish, [name for name in copies if name != cube.seed_dataset], store=target))
            list(map(publish, copies.keys() & {cube.seed_dataset}))
    except BaseException as error:
        # Another dataset may have failed first.
        unknown = next((i for i, each in failures.items() if isinstance(each, CommitOutcomeUnknown)), None)
        if unknown is not None and isinstance(error, Exception):
            raise CommitOutcomeUnknown(
                f"The copy of cube {cube.uuid_prefix!r} stopped at dataset {unknown!r}. "
                f"Landed: {', '.join(landed) or 'none'}. {failures[unknown]}"
            ) from failures[unknown]
        if isinstance(error, CommitOutcomeUnknown):  # all of them at once, or none
            raise
        visible = _take_back(copies, begun, landed)
        if not isinstance(error, Exception):
            raise
        if visible:
            pending = ", ".join(i for i in copies if i not in visible) or "none"
            stopped_at = next((i for i in failures if failures[i] is error), begun[-1])
            raise CubeCommitIncomplete(
                f"The copy of cube {cube.uuid_prefix!r} stopped at dataset {stopped_at!r}. "
                f"Landed: {', '.join(visible)}. Not landed: {pending}. Reason: {error}"
            ) from error
        raise MultiTableCommitAborted(
            f"Cube {cube.uuid_prefix!r} was not copied, nothing of the copy is visible. {error}"
        ) from error
    if target is not None:
        finish_copies(target, list(copies.values()))


def _publish_at_once(store: Store, cube: Cube, state: Snapshot, copies: Mapping[str, PreparedCopy]) -> None:
    """Put copies into a cube that exists, so that readers see all of them or none.

    ``state`` is that of its seed, the coordinator.
    """
    seed, others = cube.seed_dataset, {i: copy for i, copy in copies.items() if i != cube.seed_dataset}
    uuids = tuple(copy.target.uuid for copy in others.values())
    write = CubeCommit(new_id(), tuple(sorted(copy.target.uuid for copy in copies.values())))
    part = part_of(state.uuid, uuids, state)
    touched = replace(empty_change(state), cube=write, part=part)
    prepared = None if seed in copies else prepare_commit(store, touched, state)
    try:
        for copy in others.values():
            publish_copy(as_part(copy, part, write))
    except BaseException:
        roll_back_all(store, uuids, write.id)
        raise
    if seed not in copies:
        commit_coordinator(store, touched, state, prepared)
    else:
        last = as_part(copies[seed], part, write)
        swap_or_roll_back(store, touched, lambda: publish_copy(last))
    with suppress(Exception):  # the copy has landed, whatever the store answers now
        settle_committed(store, uuids)


def _take_back(copies: Mapping[str, PreparedCopy], begun: Sequence[str], landed: Sequence[str]) -> list[str]:
    """Make the copies that may have landed invisible, the last first; the ids that stay visible."""
    if any(copies[i].replaces for i in landed):  # a replaced dataset cannot be restored
        return [*landed]
    visible = []
    for name in reversed(begun):
        if copies[name].replaces:
            continue  # the last one, whose swap failed
        is_withdrawn = False
        with suppress(Exception):  # the error that stopped the copy is the one to raise
            is_withdrawn = withdraw_copy(copies[name])
        if not is_withdrawn:
            visible.append(name)
    return visible[::-1]


# --- rename_cube ----------------------------------------------------------------------------------


def rename_cube(
    cube: Cube | str,
    store: StoreLike,
    renamed_cube_prefix: str | None = None,
    renamed_datasets: Mapping[str, str] | None = None,
    *,
    dry_run: bool = False,
    options: Overrides | None = None,
) -> dict[str, str]:
    """Rename a cube, or some of its datasets.

    Each dataset is copied inside the store, then its original is deleted; the seed comes last.
    Histories begin anew, tags stay. If the call is interrupted, call it again. While the seed is
    renamed inside its cube, queries fail, since there are two seeds; if that is interrupted, delete
    one of them. See the page *Maintenance*.

    Parameters
    ----------
    cube : Cube or str
        The cube, or its uuid prefix.
    store : str, path, store or callable
        The store, in any form that `open_store` takes.
    renamed_cube_prefix : str, optional
        The new uuid prefix of the cube.
    renamed_datasets : dict, optional
        Dataset id → new dataset id, for datasets that stay in the cube. Give this or
        ``renamed_cube_prefix``.
    dry_run : bool, default False
        Only check the new names.
    options : optional
        What `options` returns: settings for this call.

    Returns
    -------
    dict
        Uuid → new uuid, in the order of renaming.

    Raises
    ------
    InvalidInput
        If no name is given or both kinds are, a name is not valid or does not change, or a dataset
        is not one of the cube.
    AlreadyExists
        If a name is taken. Nothing was renamed.
    CommitConflict
        If a dataset changed while it was copied. It keeps its name, and a copy of its older state
        has the new one.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import Cube, build_cube, open_store, rename_cube
    >>> store, cube = open_store("hmemory://"), Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> _ = build_cube(pd.DataFrame({"PRODUCT_ID": [1], "COUNTRY_CODE": ["DE"]}), cube, store)
    >>> rename_cube(cube, store, "sales_2024")
    {'sales++seed': 'sales_2024++seed'}
    """
    with operation("rename_cube", options, cube=cube):
        found, opened = cube_and_store(cube, store)
        members, dry = load_cube(found, opened), check_flag(dry_run, "dry_run")
        names = _new_uuids(found, members, renamed_cube_prefix, renamed_datasets)
        _check_free(opened, names, renamed_cube_prefix)
        if not dry:
            for old, new in names.items():
                run_rename(opened, old, new, None if renamed_cube_prefix is None else names)
        return names


def _new_uuids(
    cube: Cube, members: Mapping[str, Snapshot], prefix: str | None, datasets: Mapping[str, str] | None
) -> dict[str, str]:
    """Uuid → new uuid, in the order of renaming."""
    if (prefix is None) == (not datasets):
        raise InvalidInput(
            f"Give cube {cube.uuid_prefix!r} a renamed_cube_prefix, or renamed_datasets. Nothing was renamed."
        )
    if prefix is not None:
        if prefix == cube.uuid_prefix:
            raise InvalidInput(f"The cube is called {prefix} already. Nothing was renamed.")
        renamed = cube.copy(uuid_prefix=prefix)
        # The cube exists as long as its seed: after an interruption, the next call continues.
        order = sorted(members, key=lambda name: (name == cube.seed_dataset, name))
        return {cube.ktk_dataset_uuid(name): renamed.ktk_dataset_uuid(name) for name in order}
    if not isinstance(datasets, Mapping):
        raise InvalidType(f"renamed_datasets is a dict dataset id → new id, not {type(datasets).__name__}.")
    given = {converter_str(old): converter_str(new) for old, new in datasets.items()}
    # Of an interrupted call, some are renamed already.
    if unknown := sorted(old for old, new in given.items() if old not in members and new not in members):
        raise InvalidInput(
            f"Cube {cube.uuid_prefix!r} has no dataset {', '.join(unknown)}; it has {', '.join(sorted(members))}. "
            "Nothing was renamed."
        )
    if same := sorted(old for old, new in given.items() if old == new):
        raise InvalidInput(f"The dataset is called {', '.join(same)} already. Nothing was renamed.")
    if len(set(given.values())) < len(given):
        raise InvalidInput(f"Two datasets cannot have one new name: {given}. Nothing was renamed.")
    order = sorted(given.keys() & members, key=lambda name: (name == cube.seed_dataset, name))
    return {cube.ktk_dataset_uuid(old): cube.ktk_dataset_uuid(given[old]) for old in order}


def _check_free(store: Store, names: Mapping[str, str], prefix: str | None) -> None:
    """Raise for a name that is taken, unless by an interrupted call of the same renaming."""
    for old, new in names.items():
        if is_visible(store, new) and (new in names or not is_nearly_renamed(store, old, new)):
            raise AlreadyExists(f"There is already a dataset {new}. Nothing was renamed.")
    if prefix is None:
        return
    try:
        other = valid_cube(prefix, read_members(prefix, store))
    except KartothekCubeError:
        return  # the copies of an interrupted call have no seed yet, since it comes last
    seed = other.ktk_dataset_uuid(other.seed_dataset)
    if seed not in names.values():
        raise AlreadyExists(f"There is already a cube {prefix} with the seed dataset {seed}. Nothing was renamed.")
