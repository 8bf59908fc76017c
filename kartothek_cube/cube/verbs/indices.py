"""Building and dropping secondary indices of a cube that exists."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NoReturn

from kartothek_cube.core.arguments import converter_str_set, converter_str_set_optional
from kartothek_cube.core.commit.change import Change
from kartothek_cube.core.commit.commit import check_store_can_commit
from kartothek_cube.core.commit.dataset_write import repeat_on_conflict
from kartothek_cube.core.kartothek.dataset_metadata import DatasetMetadata
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.snapshots.indexing import Entries, built_indices
from kartothek_cube.core.stores.contract import Store, check_key
from kartothek_cube.core.stores.open import open_instrumented
from kartothek_cube.core.write.prepare import check_index_columns
from kartothek_cube.cube.arguments import chosen_members
from kartothek_cube.cube.cube import KTK_CUBE_METADATA_SUPPRESS_INDEX_ON, Cube, require_cube, visible_columns
from kartothek_cube.cube.members.consistency import check_infos, infos_of
from kartothek_cube.cube.members.discovery import load_members
from kartothek_cube.cube.write.commit import publish_in_order
from kartothek_cube.errors import InvalidInput, InvalidRequest, UnknownColumn
from kartothek_cube.typing import Columns, StoreLike

__all__ = ["build_cube_index", "drop_cube_index"]


def build_cube_index(
    cube: Cube,
    store: StoreLike,
    columns: Iterable[str] | str,
    ktk_cube_dataset_ids: Columns = None,
    *,
    options: Overrides | None = None,
) -> dict[str, DatasetMetadata]:
    """Build secondary indices on columns of a cube that exists, reading only these columns.

    Each dataset that has a column gets an index on it; one that is there already is made anew.
    Where the column is a partition key the paths of the files are an index. Metadata, other indices
    and data stay as they are. Afterwards queries can group by the column, and later writes maintain
    the index. `open_cube` returns a `Cube` with the column among its ``index_columns``; of a
    dimension column of the seed it returns one that does not suppress the index.

    Parameters
    ----------
    cube, store
        As in `query_cube`. The cube may name the new indices already.
    columns : str or iterable of str
        The columns.
    ktk_cube_dataset_ids : str or iterable of str, optional
        Only these datasets; by default all that have the column.
    options : optional
        What `options` returns: settings for this call.

    Returns
    -------
    dict
        Dataset id → `DatasetMetadata` of the datasets with new indices.

    Raises
    ------
    InvalidInput
        For a cube that does not exist or is not valid, and for unknown datasets. `UnknownColumn`
        for a column that none of the datasets has, `InvalidRequest` for one that is a partition key
        wherever it is.
    Unsupported
        If no index can be built on the type of a column.
    CommitConflict
        If others added or removed partitions in between more often than
        ``options(commit_retries=...)`` says; nothing is visible. Each time only new files are read.
    CubeCommitIncomplete
        If that happened to another dataset than the first. The message lists what landed; the call
        can be repeated.

    Notes
    -----
    Rows that have no value in the column are in no index. A `Cube` that names the column refuses
    such rows when it is written to.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, build_cube, build_cube_index, iter_cube, open_cube, open_store
    >>> store = open_store("hmemory://")
    >>> sales = pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"], "BRAND": ["Acme", "Bolt"]})
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> _ = build_cube(sales, cube, store)
    >>> list(build_cube_index(cube, store, "BRAND"))
    ['seed']
    >>> open_cube("sales", store).index_columns
    frozenset({'BRAND'})
    >>> [key for key, _ in iter_cube(cube, store, partition_by="BRAND")]
    [{'BRAND': 'Acme'}, {'BRAND': 'Bolt'}]
    """
    with operation("build_cube_index", options, cube=cube):
        opened = open_instrumented(store)
        check_store_can_commit(opened)
        names, ids, known = _columns(columns), converter_str_set_optional(ktk_cube_dataset_ids), Entries()
        return repeat_on_conflict(lambda: _build(cube, opened, names, ids, known))


def _build(
    cube: Cube, store: Store, columns: list[str], ids: Collection[str] | None, known: Entries
) -> dict[str, DatasetMetadata]:
    members = _members(cube, store, ids)
    wanted = _assigned(members, columns, _can_build, _raise_not_buildable)
    for name, names in wanted.items():
        for key in check_index_columns(members[name].schemas, names, members[name].partition_keys, members[name].uuid):
            check_key(key)
    changes = {name: _building(cube, name, store, members[name], names, known) for name, names in wanted.items()}
    return {
        name: DatasetMetadata.of(landed)
        for name, landed in publish_in_order(store, cube.uuid_prefix, changes, members).items()
    }


def drop_cube_index(
    cube: Cube,
    store: StoreLike,
    columns: Iterable[str] | str,
    ktk_cube_dataset_ids: Columns = None,
    *,
    options: Overrides | None = None,
) -> dict[str, DatasetMetadata]:
    """Drop secondary indices of a cube.

    Data and metadata stay as they are; the index files become garbage.

    A `Cube` that demands a dropped index does not fit the store any more. `open_cube` returns one
    that does: without the column among its ``index_columns``, or, for a dimension column of the
    seed, with the column in ``suppress_index_on``.

    Parameters
    ----------
    cube, store, options
        As in `build_cube_index`.
    columns : str or iterable of str
        The columns.
    ktk_cube_dataset_ids : str or iterable of str, optional
        Only these datasets; by default all that have such an index.

    Returns
    -------
    dict
        Dataset id → `DatasetMetadata` of the datasets that lost indices.

    Raises
    ------
    InvalidInput
        For a cube that does not exist or is not valid, and for unknown datasets. `UnknownColumn`
        for a column that none of the datasets has, `InvalidRequest` for one without secondary
        index, also for a partition key, which is indexed by its path.
    CommitConflict, CubeCommitIncomplete
        As in `build_cube_index`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, build_cube, drop_cube_index, open_cube, open_store
    >>> store = open_store("hmemory://")
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales", index_columns=["BRAND"])
    >>> _ = build_cube(pa.table({"PRODUCT_ID": [1], "COUNTRY_CODE": ["DE"], "BRAND": ["Acme"]}), cube, store)
    >>> sorted(drop_cube_index(cube, store, ["BRAND", "PRODUCT_ID"])["seed"].indices)
    []
    >>> cube = open_cube("sales", store)
    >>> cube.index_columns, cube.suppress_index_on
    (frozenset(), frozenset({'PRODUCT_ID'}))
    """
    with operation("drop_cube_index", options, cube=cube):
        opened = open_instrumented(store)
        check_store_can_commit(opened)
        members = _members(cube, opened, ktk_cube_dataset_ids)
        wanted = _assigned(
            members, _columns(columns), lambda s, column: column in s.secondary_columns, _raise_not_droppable
        )
        changes = {name: _dropping(cube, name, members[name], names) for name, names in wanted.items()}
        return {
            name: DatasetMetadata.of(landed)
            for name, landed in publish_in_order(opened, cube.uuid_prefix, changes, members).items()
        }


# --- which columns of which datasets --------------------------------------------------------------


def _columns(given: object) -> list[str]:
    columns = sorted(converter_str_set(given))
    if not columns:
        raise InvalidInput("Name at least one column.")
    return columns


def _members(cube: Cube, store: Store, given: object) -> dict[str, Snapshot]:
    """The datasets that are meant, of a cube that is valid but for the indices that it demands: these are what is about to change."""
    members = load_members(require_cube(cube).uuid_prefix, store)
    check_infos(infos_of(members), cube.copy(index_columns=(), suppress_index_on=cube.dimension_columns))
    return chosen_members(cube, members, converter_str_set_optional(given))


def _can_build(snapshot: Snapshot, column: str) -> bool:
    return column in visible_columns(snapshot.schema.names) and column not in snapshot.partition_keys


def _assigned(
    members: Mapping[str, Snapshot],
    columns: list[str],
    fits: Callable[[Snapshot, str], bool],
    raise_unfit: Callable[[Mapping[str, Snapshot], str], NoReturn],
) -> dict[str, list[str]]:
    """Dataset → the columns that fit it; a column that fits none is refused."""
    found = {i: [c for c in columns if fits(s, c)] for i, s in members.items()}
    for column in columns:
        if not any(column in names for names in found.values()):
            raise_unfit(members, column)
    return {i: names for i, names in found.items() if names}


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
        f"None of the datasets {', '.join(sorted(members))} has a secondary index on {column!r}. There are indices on: {indexed or 'nothing'}."
    )


# --- changes --------------------------------------------------------------------------------------


def _building(cube: Cube, name: str, store: Store, base: Snapshot, columns: list[str], known: Entries) -> Change:
    after = tuple(sorted(base.secondary_columns | set(columns)))
    built = built_indices(store, base, columns, known)
    return Change(
        base.uuid,
        (),
        base.schemas,
        base.partition_keys,
        after,
        metadata=_metadata(cube, name, base, built=columns),
        built=built,
    )


def _dropping(cube: Cube, name: str, base: Snapshot, columns: list[str]) -> Change:
    after = tuple(sorted(base.secondary_columns - set(columns)))
    return Change(
        base.uuid,
        (),
        base.schemas,
        base.partition_keys,
        after,
        metadata=_metadata(cube, name, base, dropped=columns),
        dropped=frozenset(columns),
    )


def _metadata(
    cube: Cube, name: str, base: Snapshot, built: Iterable[str] = (), dropped: Iterable[str] = ()
) -> dict[str, object]:
    """Of the seed's dimension columns the metadata say which have no index; of all others the stored indices do."""
    if name != cube.seed_dataset:
        return {}
    before = set(base.document.metadata.get(KTK_CUBE_METADATA_SUPPRESS_INDEX_ON) or ())
    suppressed = (before - set(built)) | (set(dropped) & set(cube.dimension_columns))
    return {} if suppressed == before else {KTK_CUBE_METADATA_SUPPRESS_INDEX_ON: sorted(suppressed)}
