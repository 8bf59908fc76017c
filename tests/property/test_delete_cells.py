"""`delete_cells` on random cubes: the cells are gone from everything, and nothing else is.

``HYPOTHESIS_PROFILE=fuzz`` makes it long.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pytest
from hypothesis import assume, event, given, note, settings
from hypothesis import strategies as st

from kartothek_cube.api.cube import (
    delete_cells,
    plan_cube_query,
    query_cube_arrow,
    query_cube_changes,
    verify_cube,
)
from kartothek_cube.api.dataset import read_table_arrow, undo
from kartothek_cube.core.arrow.difference import CHANGE_TYPE
from kartothek_cube.errors import InvalidInput
from kartothek_cube.testing.strategies import CubeCase, _conditions, cubes_with_data, queries
from tests.support.cube_model import written
from tests.support.cubes import contents, refused

pytestmark = [pytest.mark.slow, pytest.mark.hypothesis]


def rows_of(table) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(sorted(row.items())) for row in table.to_pylist())


def without(rows: Counter[tuple[Any, ...]], columns, keys) -> Counter[tuple[Any, ...]]:
    """The rows whose values in some columns are none of the keys."""
    return Counter({row: n for row, n in rows.items() if key_of(dict(row), columns) not in keys})


def key_of(row, columns):
    return tuple(row[column] for column in columns)


@dataclass
class Deletion:
    """A stored cube, conditions, and what brute force says about the cells that they select."""

    case: CubeCase
    store: Any
    conditions: tuple[Any, ...]

    def __post_init__(self):
        self.cube = self.case.cube
        self.address = (*self.cube.dimension_columns, *self.cube.partition_columns)
        self.before = rows_of(query_cube_arrow(self.cube, self.store))
        self.stored = {name: self.stored_rows(name) for name in self.case.layouts}
        self.commits = plan_cube_query(self.cube, self.store).commits
        found = query_cube_arrow(self.cube, self.store, self.conditions)
        self.cells = {key_of(row, self.address) for row in found.to_pylist()}

    def stored_rows(self, name):
        return rows_of(read_table_arrow(f"{self.cube.uuid_prefix}++{name}", self.store))

    @cached_property
    def left(self):
        """The rows of the whole query that are to stay."""
        return without(self.before, self.address, self.cells)

    def keys_without_cells(self, name):
        """The keys of a dataset that deleted cells have, but no cell that stays."""
        columns = self.case.layouts[name].key(self.cube)
        places = [self.address.index(column) for column in columns]
        gone = {tuple(cell[place] for place in places) for cell in self.cells}
        return columns, gone - {key_of(dict(row), columns) for row in self.left}

    def run(self, **arguments):
        return delete_cells(self.cube, self.store, self.conditions, **arguments)


@st.composite
def deletions(draw: st.DrawFn) -> Deletion:
    """Draw a cube and conditions on any of its columns that leave some cells."""
    case = draw(cubes_with_data())
    columns = {c for layout in case.layouts.values() for c in layout.columns(case.cube)}
    conditions = tuple(draw(st.lists(_conditions(case, columns), min_size=1, max_size=2)))
    note(f"{case}\n{conditions}")
    return Deletion(case, written(case), conditions)


# Every example stores a cube, and some are filtered out.
fewer = settings(max_examples=max(5, settings().max_examples // 3))
some_deletions = deletions().filter(lambda deletion: deletion.cells and deletion.left)


@fewer
@given(deletions())
def test_all_cells_or_none(deletion):
    before = contents(deletion.store)
    if not deletion.left:
        event("no cell would be left")
        with refused(deletion.store, InvalidInput, "no cell left"):
            deletion.run()
    elif not deletion.cells:
        event("no cell")
        reports = deletion.run()
        assert {(r.matched, r.deleted, r.commit) for r in reports.values()} == {(0, 0, None)}
        assert contents(deletion.store) == before


@given(some_deletions)
def test_exactly_the_rows_of_the_cells_are_gone(deletion):
    cube, store = deletion.cube, deletion.store
    reports = deletion.run()
    assert next(iter(reports)) == "seed"
    assert rows_of(query_cube_arrow(cube, store)) == deletion.left
    # Also from the seed's older files, whose rows no query shows.
    left = without(deletion.stored["seed"], deletion.address, deletion.cells)
    assert deletion.stored_rows("seed") == left
    for name in set(deletion.case.layouts) - {"seed"}:
        kept = without(deletion.stored[name], *deletion.keys_without_cells(name))
        assert deletion.stored_rows(name) == kept, name
        assert reports[name].deleted == deletion.stored[name].total() - kept.total()
        event("enrichment loses all rows" if not kept else "enrichment loses rows", reports[name].deleted)
    assert reports["seed"].deleted == deletion.stored["seed"].total() - left.total()
    assert [f for f in verify_cube(cube, store, deep=True).findings if f.severity == "error"] == []


@fewer
@given(some_deletions, st.data())
def test_any_query_has_the_other_cells(deletion, data):
    cube, store = deletion.cube, deletion.store
    query = data.draw(queries(deletion.case))
    query = replace(query, dimension_columns=None, partition_by=None)
    arguments = {name: getattr(query, name) for name in ("conditions", "datasets", "payload_columns")}
    before = query_cube_arrow(cube, store, **arguments)
    deletion.run()
    after = query_cube_arrow(cube, store, **arguments)
    assert after.schema == before.schema
    assert rows_of(after) == without(rows_of(before), deletion.address, deletion.cells)


@fewer
@given(some_deletions)
def test_the_state_of_before_can_be_read_and_comes_back(deletion):
    cube, store = deletion.cube, deletion.store
    reports = deletion.run()
    assert rows_of(query_cube_arrow(cube, store, as_of=deletion.commits)) == deletion.before
    for name, report in reports.items():
        if report.commit is not None:
            undo(f"{cube.uuid_prefix}++{name}", store, report.commit)
    assert rows_of(query_cube_arrow(cube, store)) == deletion.before
    assert {name: deletion.stored_rows(name) for name in deletion.stored} == deletion.stored


@fewer
@given(some_deletions)
def test_a_dry_run_counts_and_writes_nothing(deletion):
    def counts(report):
        return (
            *(report.dataset, report.matched, report.deleted, report.updated, report.inserted),
            *(report.files_rewritten, report.files_added, report.files_removed, report.files_untouched, report.files),
        )

    before = contents(deletion.store)
    dry = deletion.run(dry_run=True)
    assert contents(deletion.store) == before
    assert all(report.dry_run and report.commit is None for report in dry.values())
    real = deletion.run()
    assert {i: counts(r) for i, r in dry.items()} == {i: counts(r) for i, r in real.items()}


@fewer
@given(some_deletions)
def test_changes_name_the_deleted_cells_and_no_others(deletion):
    deletion.run()
    changes = query_cube_changes(deletion.cube, deletion.store, deletion.commits).read_all()
    assert set(changes.column(CHANGE_TYPE).to_pylist()) == {"delete"}
    assert rows_of(changes.drop_columns([CHANGE_TYPE])) == deletion.before - deletion.left


@fewer
@given(deletions(), st.data())
def test_chosen_enrichments_lose_rows(deletion, data):
    others = sorted(set(deletion.case.layouts) - {"seed"})
    assume(others and deletion.left)
    chosen = data.draw(st.lists(st.sampled_from(others), unique=True))
    reports = deletion.run(datasets=chosen)
    assert set(reports) == {"seed", *chosen}
    assert rows_of(query_cube_arrow(deletion.cube, deletion.store)) == deletion.left
    for name in others:
        columns, keys = deletion.keys_without_cells(name)
        kept = without(deletion.stored[name], columns, keys if name in chosen else ())
        assert deletion.stored_rows(name) == kept
