"""Build and drop secondary indices of an existing cube."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import NoReturn

from kartothek_cube.core.arguments import converter_str_set, converter_str_set_optional
from kartothek_cube.core.commit.change import Change
from kartothek_cube.core.commit.commit import check_store_can_commit
from kartothek_cube.core.commit.dataset_write import repeat_on_conflict
from kartothek_cube.core.kartothek.dataset_metadata import DatasetMetadata
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.snapshots.loader import Entries, built_indices
from kartothek_cube.core.stores.contract import Store, check_key
from kartothek_cube.core.write.prepare import check_index_columns
from kartothek_cube.cube.arguments import chosen_members
from kartothek_cube.cube.cube import KTK_CUBE_METADATA_SUPPRESS_INDEX_ON, Cube, visible_columns
from kartothek_cube.cube.members.consistency import check_infos, infos_of
from kartothek_cube.cube.members.discovery import cube_and_store, load_members
from kartothek_cube.cube.write.commit import publish
from kartothek_cube.errors import InvalidInput, InvalidRequest, UnknownColumn
from kartothek_cube.typing import Columns, StoreLike

__all__ = ["build_cube_index", "drop_cube_index"]


def build_cube_index(
    cube: Cube | str,
    store: StoreLike,
    columns: Iterable[str] | str,
    ktk_cube_dataset_ids: Columns = None,
    *,
    options: Overrides | None = None,
) -> dict[str, DatasetMetadata]:
    """Build secondary indices on columns of an existing cube, reading only these columns.

    Each dataset that has a column gets an index on it; an existing index is rebuilt. A dataset with
    the column as partition key needs none: the paths of its files are an index. Metadata, other
    indices and data do not change. Afterwards queries can group by the column, and later writes
    maintain the index. `open_cube` returns a `Cube` with the column among its ``index_columns``, or
    for a dimension column of the seed, one that does not suppress the index.

    Parameters
    ----------
    cube, store
        As in `query_cube`. The cube may name the new indices already.
    columns : str or iterable of str
        The columns.
    ktk_cube_dataset_ids : str or iterable of str, optional
        The datasets to index; by default all that have the column.
    options : optional
        The result of `options`: settings for this call.

    Returns
    -------
    dict
        Dataset id → `DatasetMetadata` of the datasets with new indices.

    Raises
    ------
    InvalidInput
        For a cube that does not exist or is not valid, and for unknown datasets. `UnknownColumn`
        for a column that none of the datasets has, `InvalidRequest` for a column that is a
        partition key in every dataset that has it.
    Unsupported
        If no index can be built on the type of a column.
    CommitConflict
        If other writers added or removed partitions in between more often than
        ``options(commit_retries=...)``; nothing is visible in any dataset. Each retry reads only
        new files.
    CommitOutcomeUnknown
        If the store does not say whether the indices are visible: all or none.

    Notes
    -----
    Rows without a value in the column are in no index. A write with a `Cube` that names the column
    refuses such rows.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, build_cube, iter_cube, open_cube, open_store
    >>> from kartothek_cube import build_cube_index
    >>> store = open_store("hmemory://")
    >>> sales = {"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"], "BRAND": ["Acme", "Bolt"]}
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> _ = build_cube(pa.table(sales), cube, store)
    >>> list(build_cube_index(cube, store, "BRAND"))
    ['seed']
    >>> open_cube("sales", store).index_columns
    frozenset({'BRAND'})
    >>> [key for key, _ in iter_cube(cube, store, partition_by="BRAND")]
    [{'BRAND': 'Acme'}, {'BRAND': 'Bolt'}]
    """
    with operation("build_cube_index", options, cube=cube):
        found, opened = cube_and_store(cube, store)
        check_store_can_commit(opened)
        names, ids = _columns(columns), converter_str_set_optional(ktk_cube_dataset_ids)
        # Index entries of files that an attempt has read; the next attempt reads only new files.
        entries = Entries()

        def attempt() -> dict[str, DatasetMetadata]:
            # Each attempt loads the datasets anew: the commit in between changed their files.
            members = _members(found, opened, ids)
            columns_by_dataset = _assign(members, names, _can_build, _raise_not_buildable)
            for i, new in columns_by_dataset.items():
                for key in check_index_columns(members[i].schemas, new, members[i].partition_keys, members[i].uuid):
                    check_key(key)
            changes = {
                i: replace(
                    _change_of_indices(members[i], members[i].secondary_columns | set(new)),
                    metadata=_metadata(found, i, members[i], built=new),
                    built=built_indices(opened, members[i], new, entries),
                )
                for i, new in columns_by_dataset.items()
            }
            landed = publish(opened, found, changes, members)
            return {i: DatasetMetadata.of(snapshot) for i, snapshot in landed.items()}

        return repeat_on_conflict(attempt)


def drop_cube_index(
    cube: Cube | str,
    store: StoreLike,
    columns: Iterable[str] | str,
    ktk_cube_dataset_ids: Columns = None,
    *,
    options: Overrides | None = None,
) -> dict[str, DatasetMetadata]:
    """Drop secondary indices of a cube.

    Data and metadata do not change; the index files become garbage.

    A `Cube` that demands a dropped index is no longer valid for the store. `open_cube` returns a
    valid one: without the column in ``index_columns``, or for a dimension column of the seed, with
    the column in ``suppress_index_on``.

    Parameters
    ----------
    cube, store, options
        As in `build_cube_index`.
    columns : str or iterable of str
        The columns.
    ktk_cube_dataset_ids : str or iterable of str, optional
        The datasets to change; by default all that have such an index.

    Returns
    -------
    dict
        Dataset id → `DatasetMetadata` of the datasets that lost indices.

    Raises
    ------
    InvalidInput
        For a cube that does not exist or is not valid, and for unknown datasets. `UnknownColumn`
        for a column that none of the datasets has, `InvalidRequest` for a column without secondary
        index, such as a partition key, which is indexed by its path.
    CommitConflict, CommitOutcomeUnknown
        As in `build_cube_index`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, build_cube, drop_cube_index, open_cube, open_store
    >>> store = open_store("hmemory://")
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales", index_columns=["BRAND"])
    >>> sales = pa.table({"PRODUCT_ID": [1], "COUNTRY_CODE": ["DE"], "BRAND": ["Acme"]})
    >>> _ = build_cube(sales, cube, store)
    >>> sorted(drop_cube_index(cube, store, ["BRAND", "PRODUCT_ID"])["seed"].indices)
    []
    >>> cube = open_cube("sales", store)
    >>> cube.index_columns, cube.suppress_index_on
    (frozenset(), frozenset({'PRODUCT_ID'}))
    """
    with operation("drop_cube_index", options, cube=cube):
        found, opened = cube_and_store(cube, store)
        check_store_can_commit(opened)
        members = _members(found, opened, ktk_cube_dataset_ids)
        columns_by_dataset = _assign(
            members, _columns(columns), lambda s, column: column in s.secondary_columns, _raise_not_droppable
        )
        changes = {
            name: replace(
                _change_of_indices(members[name], members[name].secondary_columns - set(old)),
                metadata=_metadata(found, name, members[name], dropped=old),
                dropped=frozenset(old),
            )
            for name, old in columns_by_dataset.items()
        }
        landed = publish(opened, found, changes, members)
        return {name: DatasetMetadata.of(snapshot) for name, snapshot in landed.items()}


# --- which columns of which datasets --------------------------------------------------------------


def _columns(given: object) -> list[str]:
    columns = sorted(converter_str_set(given))
    if not columns:
        raise InvalidInput("Name at least one column.")
    return columns


def _members(cube: Cube, store: Store, given: object) -> dict[str, Snapshot]:
    """The selected datasets of a cube that is valid apart from its indices."""
    members = load_members(cube.uuid_prefix, store)
    # The indices are about to change: the cube may name them before or after that.
    check_infos(infos_of(members), cube.copy(index_columns=(), suppress_index_on=cube.dimension_columns))
    return chosen_members(cube, members, converter_str_set_optional(given))


def _can_build(snapshot: Snapshot, column: str) -> bool:
    return column in visible_columns(snapshot.schema.names) and column not in snapshot.partition_keys


def _assign(
    members: Mapping[str, Snapshot],
    columns: list[str],
    fits: Callable[[Snapshot, str], bool],
    raise_unfit: Callable[[Mapping[str, Snapshot], str], NoReturn],
) -> dict[str, list[str]]:
    """Dataset → the columns that fit it; an error for a column that fits no dataset."""
    columns_by_dataset = {i: [c for c in columns if fits(s, c)] for i, s in members.items()}
    for column in columns:
        if not any(column in names for names in columns_by_dataset.values()):
            raise_unfit(members, column)
    return {i: names for i, names in columns_by_dataset.items() if names}


def _raise_not_buildable(members: Mapping[str, Snapshot], column: str) -> NoReturn:
    if any(column in s.partition_keys for s in members.values()):
        raise InvalidRequest(f"Column {column!r} is a partition key: it is indexed by the paths of the files.")
    names = sorted({name for s in members.values() for name in visible_columns(s.schema.names)})
    raise UnknownColumn(
        f"None of the datasets {', '.join(sorted(members))} has a column {column!r}. They have: {', '.join(names)}."
    )


def _raise_not_droppable(members: Mapping[str, Snapshot], column: str) -> NoReturn:
    if not any(_can_build(s, column) for s in members.values()):
        _raise_not_buildable(members, column)
    indexed = ", ".join(sorted({c for s in members.values() for c in s.secondary_columns}))
    raise InvalidRequest(
        f"None of the datasets {', '.join(sorted(members))} has a secondary index on {column!r}. "
        f"There are indices on: {indexed or 'nothing'}."
    )


# --- changes --------------------------------------------------------------------------------------


def _change_of_indices(base: Snapshot, indexed: Collection[str]) -> Change:
    return Change(base.uuid, (), base.schemas, base.partition_keys, tuple(sorted(indexed)))


def _metadata(
    cube: Cube, name: str, base: Snapshot, built: Iterable[str] = (), dropped: Iterable[str] = ()
) -> dict[str, object]:
    """The metadata to merge: the dimension columns of the seed without an index, if they change."""
    # `open_cube` takes all other indices from the datasets themselves.
    if name != cube.seed_dataset:
        return {}
    before = set(base.document.metadata.get(KTK_CUBE_METADATA_SUPPRESS_INDEX_ON) or ())
    suppressed = (before - set(built)) | (set(dropped) & set(cube.dimension_columns))
    return {} if suppressed == before else {KTK_CUBE_METADATA_SUPPRESS_INDEX_ON: sorted(suppressed)}
