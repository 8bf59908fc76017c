"""The changes of a cube between any two states are what brute force finds in the two results, and
the groups of ``changed_since`` are those that need computing again.

``HYPOTHESIS_PROFILE=fuzz`` makes it long.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given, note, settings
from hypothesis import strategies as st

from kartothek_cube import options
from kartothek_cube.api.cube import (
    append_to_cube,
    build_cube,
    build_cube_index,
    cleanup_cube,
    compact_cube,
    drop_cube_index,
    extend_cube,
    iter_cube,
    load_group,
    plan_cube_query,
    query_cube,
    query_cube_arrow,
    query_cube_changes,
    remove_partitions,
    update_cube,
)
from kartothek_cube.api.dataset import convert_metadata_format, undo
from kartothek_cube.core.arrow.difference import CHANGE_TYPE
from kartothek_cube.core.arrow.types import compatible
from kartothek_cube.core.snapshots.loader import find_snapshot
from kartothek_cube.core.snapshots.time_travel import BeforeCreation, load_snapshot_as_of
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.cube.members import dataset_ids
from kartothek_cube.errors import InvalidInput, KartothekCubeError
from kartothek_cube.testing.strategies import (
    CubeCase,
    Query,
    _draw_layouts,
    empty_cubes,
    queries,
    removals,
    updates,
    writes,
)
from tests.support.changes import applied, check_changes, conformed, plain, rows_of
from tests.support.cube_model import to_arrow

pytestmark = [
    pytest.mark.slow,
    pytest.mark.hypothesis,
    pytest.mark.filterwarnings("ignore::kartothek_cube.errors.IncompleteCubeWarning"),
]


@dataclass
class State:
    """A cube after one of its commits: what it looks like, and names for the state."""

    case: CubeCase
    moment: dt.datetime
    commits: dict[str, str | None]


@dataclass
class History:
    """A cube and its states."""

    case: CubeCase
    store: MemoryStore = field(default_factory=MemoryStore)
    states: list[State] = field(default_factory=list)

    @property
    def cube(self) -> Any:
        return self.case.cube

    def uuid(self, name: str) -> str:
        return f"{self.cube.uuid_prefix}++{name}"

    def datasets(self) -> list[str]:
        return sorted(dataset_ids(self.cube.uuid_prefix, self.store))

    def note_state(self, step: str) -> None:
        found = {name: find_snapshot(self.store, self.uuid(name)) for name in self.datasets()}
        commits = {name: snapshot.commit for name, snapshot in found.items() if snapshot is not None}
        if not self.states or commits != self.states[-1].commits:
            self.states.append(State(self.case, dt.datetime.now(dt.UTC), commits))
        note(f"{step} -> state {len(self.states) - 1}")


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Draw a cube and a few commits of any verbs; what the library refuses changes nothing."""
    case = draw(empty_cubes())
    history = History(case)
    others = [name for name in case.layouts if name != "seed"]
    first = ["seed", *(draw(st.lists(st.sampled_from(others), unique=True)) if others else ())]
    write(draw, history, "build", first)
    history.note_state("build")
    for _ in range(draw(st.sampled_from([3, 5, 2, 1]))):
        name = draw(st.sampled_from(sorted(STEPS)))
        before = history.case
        try:
            STEPS[name](draw, history)
        except KartothekCubeError as error:
            note(f"{name} is refused: {error}")
            history.case = before
        history.note_state(name)
    if draw(st.booleans()):
        # Index files of older states go; the rest is kept by the history.
        cleanup_cube(history.cube, history.store, options=options(grace=dt.timedelta(0)))
    return history


def write(draw: st.DrawFn, history: History, verb: Any, names: list[str]) -> None:
    step = draw(writes(history.case, verb, names))
    data = {name: to_arrow(rows, history.case.kinds) for name, rows in step.data.items()}
    if verb == "append":
        append_to_cube(data, history.cube, history.store)
        return
    call: Callable[..., Any] = {"build": build_cube, "extend": extend_cube}[verb]
    call(data, history.cube, history.store, overwrite=bool(history.states), partition_on=step.partition_on)


def some(draw: st.DrawFn, names: Any) -> list[str]:
    return draw(st.lists(st.sampled_from(sorted(names)), min_size=1, unique=True))


def append(draw: st.DrawFn, history: History) -> None:
    write(draw, history, "append", some(draw, set(history.datasets()) & set(history.case.layouts)))


def extend(draw: st.DrawFn, history: History) -> None:
    others = set(history.case.layouts) - {"seed"}
    if others:
        write(draw, history, "extend", some(draw, others))


def existing(history: History) -> CubeCase:
    names = set(history.datasets())
    return replace(history.case, layouts={i: layout for i, layout in history.case.layouts.items() if i in names})


def update(draw: st.DrawFn, history: History) -> None:
    step = draw(updates(existing(history)))
    data = {name: to_arrow(rows, history.case.kinds) for name, rows in step.data.items()}
    update_cube(data, history.cube, history.store, step.conditions, step.datasets)


def remove(draw: st.DrawFn, history: History) -> None:
    step = draw(removals(existing(history)))
    remove_partitions(history.cube, history.store, step.conditions, step.datasets)


def rebuild(draw: st.DrawFn, history: History) -> None:
    """Overwrite, mostly with other columns, types, and partition keys."""
    if draw(st.sampled_from([True, True, False])):
        layouts = _draw_layouts(draw, history.cube)
        kinds = dict(history.case.kinds)
        for layout in layouts.values():
            for column in layout.payload:
                if column not in kinds or draw(st.integers(0, 3)) == 3:
                    kinds[column] = draw(st.sampled_from(["int", "str", "date"]))
        # Nothing may be left as it is.
        left = {i: layout for i, layout in existing(history).layouts.items() if i not in layouts}
        history.case = replace(history.case, layouts=layouts | left, kinds=kinds)
    names = set(history.datasets()) | set(some(draw, history.case.layouts)) | {"seed"}
    write(draw, history, "build", sorted(names & set(history.case.layouts)))


def undo_one(draw: st.DrawFn, history: History) -> None:
    name = draw(st.sampled_from(history.datasets()))
    known = [state.commits[name] for state in history.states if name in state.commits]
    undo(history.uuid(name), history.store, draw(st.none() | st.sampled_from(known[1:] or known)))


def undo_the_undo(draw: st.DrawFn, history: History) -> None:
    name = draw(st.sampled_from(history.datasets()))
    undo(history.uuid(name), history.store)
    history.note_state("undo")
    undo(history.uuid(name), history.store)


def column_of(draw: st.DrawFn, history: History) -> tuple[str, str]:
    name = draw(st.sampled_from(sorted(existing(history).layouts)))
    layout = history.case.layouts[name]
    return draw(st.sampled_from([*layout.dimensions, *layout.payload])), name


def build_index(draw: st.DrawFn, history: History) -> None:
    column, name = column_of(draw, history)
    build_cube_index(history.cube, history.store, column, name)
    history.case = replace(history.case, indexed=history.case.indexed | {column})


def drop_index(draw: st.DrawFn, history: History) -> None:
    column, name = column_of(draw, history)
    # The cube asks for the others.
    if column not in history.cube.index_columns and (column not in history.cube.dimension_columns or name != "seed"):
        drop_cube_index(history.cube, history.store, column, name)


def convert(draw: st.DrawFn, history: History) -> None:
    name = draw(st.sampled_from(history.datasets()))
    convert_metadata_format(history.uuid(name), history.store, draw(st.sampled_from(["json", "msgpack"])))


STEPS = {
    "append": append,
    "append again": append,
    "extend": extend,
    "update": update,
    "remove": remove,
    "rebuild": rebuild,
    "rebuild again": rebuild,
    "compact": lambda draw, history: compact_cube(history.cube, history.store),
    "undo": undo_one,
    "undo the undo": undo_the_undo,
    "build an index": build_index,
    "drop an index": drop_index,
    "convert": convert,
}


# --- brute force ----------------------------------------------------------------------------------


class NotComparable(Exception):
    """Brute force has no answer, because the older state has no such query."""


def arguments_of(query: Query, *, grouped: bool) -> dict[str, Any]:
    names = ("conditions", "datasets", "dimension_columns", "payload_columns", *(["partition_by"] if grouped else []))
    return {name: getattr(query, name) for name in names}


def members_at(history: History, moment: dt.datetime) -> dict[str, Any]:
    found = {}
    for name in history.datasets():
        try:
            found[name] = load_snapshot_as_of(history.store, history.uuid(name), moment)
        except BeforeCreation:
            continue
    return found


def rows_before(
    history: History, query: Query, since: State, until: State, schema: pa.Schema, by: tuple[str, ...] = ()
) -> pa.Table:
    """The result of a query of the older state, with the columns of the later one."""
    then = members_at(history, since.moment)
    now = members_at(history, until.moment)
    then = {name: snapshot for name, snapshot in then.items() if name in now}
    if query.datasets is not None:
        then = {name: snapshot for name, snapshot in then.items() if name in query.datasets}
    columns = {c for snapshot in then.values() for c in snapshot.schema.names}
    conditions = [condition for condition in query.conditions if condition.column in columns]
    others = [condition for condition in query.conditions if condition.column not in columns]
    if any(getattr(condition, "OP", "!=") in ("!=", "not in") for condition in others):
        # Null satisfies it, but not in cells that the dataset lacks.
        raise NotComparable
    payload = [c for c in schema.names if c in columns and c not in history.cube.dimension_columns]
    payload += [c for c in by if c in columns and c not in payload and c not in history.cube.dimension_columns]
    table = query_cube_arrow(
        history.cube,
        history.store,
        conditions,
        sorted(then),
        query.dimension_columns,
        payload,
        as_of=since.moment,
    )
    return schema.empty_table() if others or not set(by) <= columns else conformed(table, schema)


def other_types(history: History, since: State, until: State, columns: set[str], datasets: Any) -> list[str]:
    """Columns whose values cannot be compared between two states."""
    then, now = members_at(history, since.moment), members_at(history, until.moment)
    types = {f.name: f.type for name, snapshot in now.items() for f in snapshot.schema}
    return [
        f.name
        for name, snapshot in then.items()
        if name in now and (datasets is None or name in datasets)
        for f in snapshot.schema
        if f.name in columns and f.name in types and not compatible(f.type, types[f.name])
    ]


def drawn_query(draw: Any, history: History, until: State) -> Query:
    names = {name for name in until.commits if name in until.case.layouts}
    case = replace(until.case, layouts={i: layout for i, layout in until.case.layouts.items() if i in names})
    return draw(queries(case), label="query")


def drawn_pairs(draw: Any, history: History) -> Iterator[tuple[State, State, Any, Any]]:
    """A state and all older ones, and words for them."""
    place = len(history.states) - 1 - draw(st.sampled_from([0, 0, 1, 2])) % len(history.states)
    until = history.states[place]
    last = None if until is history.states[-1] and draw(st.booleans()) else until.moment
    for since in history.states[: place + 1]:
        first = draw(st.sampled_from([since.moment, since.commits]))
        yield since, until, first, last


@given(histories(), st.data())
def test_changes_are_the_difference_of_the_results(history, data):
    for since, until, first, last in drawn_pairs(data.draw, history):
        query = drawn_query(data.draw, history, until)
        check_changes_of(history, query, since, until, first, last, spills=data.draw(st.booleans()))


def check_changes_of(
    history: History, query: Query, since: State, until: State, first: Any, last: Any, *, spills: bool
) -> None:
    cube, store, arguments = history.cube, history.store, arguments_of(query, grouped=False)
    note(f"{history.states.index(since)} -> {history.states.index(until)}: {first!r} {last!r} {arguments}")

    def changes() -> pa.Table:
        chosen = options(bytes_in_flight=1) if spills else None
        return query_cube_changes(cube, store, first, last, **arguments, options=chosen).read_all()

    try:
        after = query_cube_arrow(cube, store, **arguments, as_of=until.moment)
    except InvalidInput:
        with pytest.raises(InvalidInput):
            changes()
        return
    used = {*after.column_names, *cube.dimension_columns, *(condition.column for condition in query.conditions)}
    if other_types(history, since, until, used, query.datasets):
        with pytest.raises(InvalidInput, match="so their values cannot be compared"):
            changes()
        return
    try:
        before = rows_before(history, query, since, until, after.schema)
    except NotComparable:
        changes()
        return
    except InvalidInput as error:
        note(f"the older state refuses: {error}")
        with pytest.raises(InvalidInput, match="was another one"):
            changes()
        return
    found = changes()
    assert found.schema.equals(pa.schema([(CHANGE_TYPE, pa.string()), *after.schema]))
    cells = list(query.dimension_columns or cube.dimension_columns)
    check_changes(found, before, after, cells, cube.partition_columns)


@settings(max_examples=settings().max_examples // 2)
@given(histories(), st.data())
def test_all_changes_applied_one_after_the_other_give_each_state(history, data):
    """Also the changes over two commits are the net difference of the two single ones."""
    cube, store = history.cube, history.store
    kinds = [
        {f.name: f.type for snapshot in members_at(history, state.moment).values() for f in snapshot.schema}
        for state in history.states
    ]
    shared = [c for c in kinds[-1] if all(c in k and k[c].equals(kinds[-1][c]) for k in kinds)]
    payload = [c for c in shared if c not in cube.dimension_columns]
    assume({*cube.dimension_columns, *cube.partition_columns} <= set(shared))
    datasets = sorted(set.intersection(*(set(state.commits) for state in history.states)))
    arguments = {"payload_columns": payload, "datasets": datasets}
    try:
        tables = [query_cube_arrow(cube, store, **arguments, as_of=state.moment) for state in history.states]
    except InvalidInput as error:
        note(f"a column is in another dataset: {error}")
        return
    states = [Counter(rows_of(table)) for table in tables]
    for i in range(len(states) - 1):
        earlier, later = history.states[i : i + 2]
        step = query_cube_changes(cube, store, earlier.commits, later.moment, **arguments).read_all()
        assert applied(states[i], step) == states[i + 1]
    whole = query_cube_changes(cube, store, history.states[0].commits, **arguments).read_all()
    assert applied(states[0], whole) == states[-1]


# --- changed groups -------------------------------------------------------------------------------


def rows_by_group(table: pa.Table, by: tuple[str, ...]) -> dict[tuple[Any, ...], Counter[Any]]:
    """The rows of each group; rows without a value are in none."""
    groups: dict[tuple[Any, ...], Counter[Any]] = {}
    for key, row in zip(rows_of(table, by), rows_of(table), strict=True):
        if None not in key:
            groups.setdefault(key, Counter())[row] += 1
    return groups


def keys_of(groups: Any, by: tuple[str, ...]) -> list[tuple[Any, ...]]:
    return [tuple(plain(key[c]) for c in by) for key in groups]


def reads_of(plan: Any, by: tuple[str, ...]) -> dict[tuple[Any, ...], set[str]]:
    """The files that each group of a plan reads."""
    return {
        key: {file for part in group.partitions for files in part.files.values() for file in files.keys}
        for key, group in zip(keys_of([g.key for g in plan.groups], by), plan.groups, strict=True)
    }


def all_files(history: History, state: State) -> set[str]:
    return {key for snapshot in members_at(history, state.moment).values() for key in snapshot.files.to_pylist()}


def with_groups_as_cells(query: Query, cube: Any, schema: pa.Schema) -> Query:
    """A query without groups that has the rows of all groups, and their keys."""
    by = query.partition_by or ()
    dimensions = query.dimension_columns or cube.dimension_columns
    dimensions = (*dimensions, *(c for c in by if c in cube.dimension_columns and c not in dimensions))
    payload = tuple(c for c in schema.names if c not in dimensions)
    return replace(query, dimension_columns=dimensions, payload_columns=payload, partition_by=None)


@settings(max_examples=settings().max_examples // 2)
@given(histories(), st.data())
def test_changed_groups_are_all_whose_rows_differ_and_only_those_of_other_files(history, data):
    for since, until, first, last in drawn_pairs(data.draw, history):
        check_groups(history, drawn_query(data.draw, history, until), since, until, first, last)


def check_groups(history: History, query: Query, since: State, until: State, first: Any, last: Any) -> None:
    cube, store, arguments = history.cube, history.store, arguments_of(query, grouped=True)
    by = query.partition_by or cube.partition_columns
    note(f"{history.states.index(since)} -> {history.states.index(until)}: {first!r} {last!r} {arguments}")

    def changed(verb: Any = plan_cube_query) -> Any:
        return verb(cube, store, **arguments, as_of=last, changed_since=first)

    try:
        newest = plan_cube_query(cube, store, **arguments, as_of=until.moment)
    except InvalidInput:
        with pytest.raises(InvalidInput):
            changed()
        return
    used = {*by, *cube.dimension_columns, *(condition.column for condition in query.conditions)}
    if other_types(history, since, until, used, query.datasets):
        with pytest.raises(InvalidInput, match="so their values cannot be compared"):
            changed()
        return
    if other_types(history, since, until, set(newest.schema.names), query.datasets):
        # Rows are not compared, so any types will do.
        changed()
        return
    flat = with_groups_as_cells(query, cube, newest.schema)
    try:
        before = rows_by_group(rows_before(history, flat, since, until, newest.schema, by), by)
    except (NotComparable, InvalidInput) as error:
        note(f"the older state has no such query: {error}")
        return
    dimensions = [{name: layout.dimensions for name, layout in s.case.layouts.items()} for s in (since, until)]
    if dimensions[0] != dimensions[1]:
        try:
            changed()
        except InvalidInput as error:
            note(f"the older state cannot be projected so: {error}")
            return
    plan = changed()
    after = query_cube_arrow(cube, store, **arguments_of(flat, grouped=False), as_of=until.moment)
    after = rows_by_group(after.select(newest.schema.names), by)

    # Complete.
    found, removed = keys_of([g.key for g in plan.groups], by), keys_of(plan.removed_group_keys(), by)
    assert len({*found, *removed}) == len(found) + len(removed)
    differing = {key for key in {*before, *after} if before.get(key) != after.get(key)}
    assert differing <= {*found, *removed}
    reads = reads_of(newest, by)
    assert found == [key for key in reads if key in set(found)]
    assert not set(removed) & set(reads)

    # Minimal.
    files_then, files_now = all_files(history, since), all_files(history, until)
    with_others = {key for key, files in reads.items() if files - files_then}
    assert with_others <= set(found)
    try:
        old = reads_of(plan_cube_query(cube, store, **arguments, as_of=since.moment), by)
    except InvalidInput as error:
        note(f"the older state has no such plan: {error}")
    else:
        if query.payload_columns is not None:
            with_others |= {key for key, files in old.items() if files - files_now}
            assert {*found, *removed} <= with_others

    # What is loaded is what the newest query gives for these groups.
    for key, (yielded, table), group in zip(found, changed(iter_cube), plan.groups, strict=True):
        assert keys_of([yielded], by) == [key]
        assert table.schema.equals(newest.schema)
        assert Counter(rows_of(table)) == after.get(key, Counter())
        assert load_group(group, store).equals(table)
    frames = changed(query_cube)
    assert sum(map(len, frames)) == sum(sum(after.get(key, Counter()).values()) for key in found)
    assert plan.commits == {i: until.commits[i] for i in plan.commits}
    if since is until:
        assert not found
        assert not removed
