"""Verifying a cube: each of its datasets, and whether they fit together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kartothek_cube.core.dataset.arguments import check_flag
from kartothek_cube.core.maintenance.verify import VerifyPass, verify, verify_rows
from kartothek_cube.core.maintenance.verify_report import Counts, Finding, VerifyReport, report_of
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.naming import SINGLE_TABLE, check_uuid
from kartothek_cube.core.options import Overrides
from kartothek_cube.core.parallel import map_in_threads
from kartothek_cube.core.progress import Phase
from kartothek_cube.core.store import Store
from kartothek_cube.core.stores import open_instrumented
from kartothek_cube.core.telemetry import operation
from kartothek_cube.cube.constants import KTK_CUBE_UUID_SEPERATOR
from kartothek_cube.cube.cube import Cube, require_cube
from kartothek_cube.cube.discovery import dataset_ids
from kartothek_cube.cube.verify_cells import overridden_findings, unseen_findings
from kartothek_cube.cube.verify_members import find_cube, member_findings
from kartothek_cube.errors import DatasetNotFound, InvalidInput
from kartothek_cube.typing import StoreLike

__all__ = ["Verified", "verified", "verify_cube"]


def verify_cube(cube: Cube | str, store: StoreLike, deep: bool = False, *, options: Overrides | None = None) -> VerifyReport:
    """Say what is wrong with a cube: `verify_dataset` for each of its datasets, and whether they fit together. Nothing is changed.

    Parameters
    ----------
    cube : Cube or str
        The cube, or its uuid prefix: then it is as the metadata of its datasets describe it.
    store : str, path, store or callable
        Where it lies; everything that `open_store` takes.
    deep : bool, default False
        Read the data: what `verify_dataset` does, and nulls, order and repetitions of cells, cells that newer files override,
        and those of enrichments that the seed lacks.
    options : optional
        What `options` returns: settings for this call.

    Returns
    -------
    VerifyReport
        The findings, errors first; ``ok`` says that there is no error, ``clean`` that there is no warning either.

    Raises
    ------
    DatasetNotFound
        If there is no dataset of such a cube.
    OSError
        If the store cannot be read.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, build_cube, open_store, verify_cube
    >>> store = open_store("hmemory://")
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> sales = pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]})
    >>> prices = pa.table({"PRODUCT_ID": [2, 3], "COUNTRY_CODE": ["FR", "FR"], "PRICE": [1.5, 2.5]})
    >>> _ = build_cube({"seed": sales, "prices": prices}, cube, store)
    >>> verify_cube(cube, store, deep=True)
    Verified cube 'sales' with all data: 2 datasets, 3 partitions, 3 files, ... bytes, 4 rows.
    1 remark:
    · info unseen-cells [sales++prices]: 1 cell that the seed 'seed' does not have: no query of the cube shows what is there.
    """
    with operation("verify_cube", options, cube=cube):
        return verified(cube, open_instrumented(store), deep=check_flag(deep, "deep")).report


@dataclass(frozen=True, slots=True)
class Verified:
    """What a verification looked at: the cube, None if the metadata describe none; its datasets by id; those that can be read; and the report."""

    prefix: str
    cube: Cube | None
    looks: Mapping[str, VerifyPass]
    members: Mapping[str, Snapshot]
    report: VerifyReport


def verified(cube: Cube | str, store: Store, *, deep: bool) -> Verified:
    """What `verify_cube` says, with what it was found in."""
    prefix = _prefix(cube) if isinstance(cube, str) else require_cube(cube).uuid_prefix
    looks = _looks(prefix, store, deep=deep)
    members = _members(looks)
    known, findings = find_cube(prefix, members) if isinstance(cube, str) else (cube, [])
    if known is not None:
        findings.extend(member_findings(known, members))
    if deep:
        looks = {name: verify_rows(store, look, known.dimension_columns if known is not None else ()) for name, look in looks.items()}
        findings.extend(_deep_findings(known, members, store))
    every = (*findings, *(f for look in looks.values() for f in look.findings))
    counts = sum((look.counts for look in looks.values()), Counts())
    return Verified(prefix, known, looks, members, report_of(f"cube {prefix!r}", every, counts, deep=deep))


def _prefix(prefix: str) -> str:
    if KTK_CUBE_UUID_SEPERATOR in check_uuid(prefix):
        raise InvalidInput(f"The prefix of a cube has no {KTK_CUBE_UUID_SEPERATOR!r}, but {prefix!r} was given. verify_dataset verifies a single dataset.")
    return prefix


def _looks(prefix: str, store: Store, *, deep: bool) -> dict[str, VerifyPass]:
    names = sorted(dataset_ids(prefix, store))
    if not names:
        raise DatasetNotFound(f"There is no dataset of a cube {prefix!r} in the store {store.name}: no uuid begins with '{prefix}{KTK_CUBE_UUID_SEPERATOR}'.")
    looks = map_in_threads(lambda name: verify(store, f"{prefix}{KTK_CUBE_UUID_SEPERATOR}{name}", deep=deep), names, phase=Phase("verify", "datasets"))
    return dict(zip(names, looks, strict=True))


def _members(looks: Mapping[str, VerifyPass]) -> dict[str, Snapshot]:
    """The datasets whose document and schemas can be read."""
    return {name: look.subject.snapshot for name, look in looks.items() if look.subject is not None and look.subject.snapshot.schemas}


def _deep_findings(cube: Cube | None, members: Mapping[str, Snapshot], store: Store) -> Iterator[Finding]:
    if cube is None:
        return
    whole = {name: s for name, s in members.items() if set(s.tables) == {SINGLE_TABLE} and set(s.values.column_names) == set(s.partition_keys)}
    yield from overridden_findings(cube, whole, store)
    yield from unseen_findings(cube, whole, store)
