"""The verb `verify_cube`: the verification of each dataset, and of the cube as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kartothek_cube.core.arguments import check_flag
from kartothek_cube.core.maintenance.inspection import Counts, VerifyReport, report_of
from kartothek_cube.core.maintenance.verify import VerifyPass, verify, verify_rows
from kartothek_cube.core.metadata.naming import SINGLE_TABLE, check_uuid
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.runtime.options import Overrides, Phase
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.stores.open import open_instrumented
from kartothek_cube.cube.cube import KTK_CUBE_UUID_SEPERATOR, Cube, prefix_of
from kartothek_cube.cube.members.discovery import dataset_ids, other_cubes
from kartothek_cube.cube.verify import find_cube, member_findings, overridden_findings, unseen_findings
from kartothek_cube.errors import DatasetNotFound, InvalidInput
from kartothek_cube.typing import StoreLike

__all__ = ["Verified", "verified", "verify_cube"]


def verify_cube(
    cube: Cube | str, store: StoreLike, deep: bool = False, *, options: Overrides | None = None
) -> VerifyReport:
    """Verify a cube: each dataset as by `verify_dataset`, and whether all fit together.

    Nothing is changed.

    Parameters
    ----------
    cube : Cube or str
        The cube, or its uuid prefix. Then the metadata of its datasets describe it.
    store : str, path, store or callable
        The store of the cube; everything that `open_store` takes.
    deep : bool, default False
        Read the data, too. Beyond the checks of `verify_dataset`: nulls, order and repetitions of
        cells, cells that newer files override, and cells of enrichments that the seed lacks.
    options : optional
        What `options` returns: settings for this call.

    Returns
    -------
    VerifyReport
        The findings, errors first. ``ok`` is True without errors, ``clean`` also without warnings.

    Raises
    ------
    DatasetNotFound
        If the cube has no dataset in the store.
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
    >>> report = verify_cube(cube, store, deep=True)
    >>> report.ok, report.counts.rows
    (True, 4)
    >>> report.findings[0].message
    "1 cell that the seed 'seed' does not have: no query of the cube shows what is there."
    """
    with operation("verify_cube", options, cube=cube):
        return verified(cube, open_instrumented(store), deep=check_flag(deep, "deep")).report


@dataclass(frozen=True, slots=True)
class Verified:
    """A verification with its data: the cube, the passes of all datasets, the readable datasets.

    ``cube`` is None if the metadata describe none.
    """

    prefix: str
    cube: Cube | None
    passes: Mapping[str, VerifyPass]
    members: Mapping[str, Snapshot]
    report: VerifyReport


def verified(cube: Cube | str, store: Store, *, deep: bool) -> Verified:
    """Verify a cube as `verify_cube` does, and return also the verified data."""
    if isinstance(cube, str) and KTK_CUBE_UUID_SEPERATOR in check_uuid(cube):
        raise InvalidInput(
            f"The prefix of a cube has no {KTK_CUBE_UUID_SEPERATOR!r}, but {cube!r} was given. "
            "verify_dataset verifies a single dataset."
        )
    prefix = prefix_of(cube)
    start = f"{prefix}{KTK_CUBE_UUID_SEPERATOR}"
    names = sorted(dataset_ids(prefix, store))
    if not names:
        raise DatasetNotFound(
            f"There is no dataset of a cube {prefix!r} in the store {store.name}: no uuid begins with '{start}'."
            f"{other_cubes(prefix, store)}"
        )
    phase = Phase("verify", "datasets")
    verifications = map_in_threads(lambda name: verify(store, f"{start}{name}", deep=deep), names, phase=phase)
    passes = dict(zip(names, verifications, strict=True))
    readable = {name: p.subject.snapshot for name, p in passes.items() if p.subject is not None}
    members = {name: snapshot for name, snapshot in readable.items() if snapshot.schemas}
    described, findings = find_cube(prefix, members) if isinstance(cube, str) else (cube, [])
    # Without a dataset that readers see, there is no cube, and nothing that it lacks.
    if not readable and not any(f.severity == "error" for p in passes.values() for f in p.findings):
        described, findings = None, []
    if described is not None:
        findings.extend(member_findings(described, members))
    if deep:
        dimensions = described.dimension_columns if described is not None else ()
        passes = {name: verify_rows(store, p, dimensions) for name, p in passes.items()}
    if deep and described is not None:
        # The cells of a dataset can be read if it has one table, and all of its partition values.
        single = {name: s for name, s in members.items() if set(s.tables) == {SINGLE_TABLE}}
        whole = {name: s for name, s in single.items() if {*s.values.column_names} == {*s.partition_keys}}
        findings.extend(overridden_findings(described, whole, store))
        findings.extend(unseen_findings(described, whole, store))
    findings.extend(f for p in passes.values() for f in p.findings)
    counts = sum((p.counts for p in passes.values()), Counts())
    return Verified(prefix, described, passes, members, report_of(f"cube {prefix!r}", findings, counts, deep=deep))
