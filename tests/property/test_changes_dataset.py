"""The changes of a dataset between any two commits are what brute force finds in the two states,
whatever verbs made them.

``HYPOTHESIS_PROFILE=fuzz`` makes it long.
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections import Counter
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from kartothek_cube import options
from kartothek_cube.api.dataset import (
    build_dataset_indices,
    commit_receipts,
    compact_dataset,
    convert_metadata_format,
    garbage_collect_dataset,
    read_dataset_changes,
    read_table_arrow,
    stage_partitions,
    store_dataframes_as_dataset,
    undo,
    update_dataset_from_dataframes,
)
from kartothek_cube.core.arrow.difference import CHANGE_TYPE
from kartothek_cube.core.arrow.types import common_type, compatible
from kartothek_cube.core.expressions.predicates import matching_rows, parse_predicates
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.snapshots.time_travel import load_snapshot_as_of
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import InvalidInput, KartothekCubeError
from tests.support.changes import applied, check_changes, conformed, rows_of
from tests.support.random_tables import KINDS, NAN, UTC_MOMENTS, Kind

UUID, TABLE = "uuid", "table"

MORE_KINDS = {
    **{name: KINDS[name] for name in ("int64", "text", "date", "decimal", "utc", "binary", "bool", "uint8", "moment")},
    "int32": Kind(pa.int32(), [-1, 0, 3], [1]),
    "float64": Kind(pa.float64(), [0.5, -0.0, 0.0, NAN, -NAN, float("inf")], [0.25]),
    "float32": Kind(pa.float32(), [0.5, -0.0, 0.0, NAN], [0.25]),
    "list": Kind(pa.list_(pa.float64()), [[], [None], [NAN], [0.0], [-0.0], [1.5, None]], []),
    "texts": Kind(pa.list_(pa.string()), [[], [None], ["a"], ["None"]], []),
    "struct": Kind(pa.struct([("a", pa.int64()), ("b", pa.float64())]), [{"a": 1, "b": None}, {"a": 1, "b": NAN}], []),
    "category": Kind(pa.dictionary(pa.int8(), pa.string()), ["a", "b"], []),
    "null": Kind(pa.null(), [None], []),
    "narrow decimal": Kind(pa.decimal128(4, 1), [Decimal("-0.5"), Decimal("1.5")], []),
    "numbers": Kind(pa.list_(pa.float32()), [[], [0.5], [NAN]], []),
    "duration": Kind(pa.duration("ns"), [dt.timedelta(1), dt.timedelta(-1)], []),
    "zoned": Kind(pa.timestamp("us", tz="Europe/Berlin"), UTC_MOMENTS, []),
}
PARTITION_KINDS = ("text", "int64", "date", "bool")
INDEX_KINDS = ("text", "int64", "date")


@dataclass
class Dataset:
    """A dataset, the commits that made it, and what the newest rows look like."""

    store: MemoryStore
    kinds: dict[str, str]
    on: list[str]
    index: list[str]
    tables: list[str] = field(default_factory=lambda: [TABLE])
    format: str = "json"
    commits: list[str] = field(default_factory=list)
    times: list[dt.datetime] = field(default_factory=list)

    def note_commit(self, step: str) -> None:
        chain = load_snapshot(self.store, UUID).chain
        if not self.commits or chain[-1].id != self.commits[-1]:
            self.commits.append(chain[-1].id)
            self.times.append(chain[-1].time)
        note(f"{step} -> {self.commits[-1]}")


def drawn_rows(draw: st.DrawFn, kinds: dict[str, str], most: int = 5) -> pa.Table:
    """Rows with few different keys, so that they meet again."""

    def value(column: str, kind: str) -> st.SearchStrategy[Any]:
        if column == "x":
            return st.sampled_from([0, 1, 2])
        values = MORE_KINDS[kind].values
        few = st.sampled_from(values[:2])
        return few if column in ("p", "i1") else few | st.sampled_from(values) | st.none()

    row = st.fixed_dictionaries({c: value(c, kind) for c, kind in kinds.items()})
    rows = draw(st.lists(row, min_size=1, max_size=most))
    return pa.table({c: pa.array([r[c] for r in rows], MORE_KINDS[kind].type) for c, kind in kinds.items()})


def drawn_kinds(draw: st.DrawFn) -> dict[str, str]:
    payload = draw(st.lists(st.sampled_from(sorted(MORE_KINDS)), min_size=1, max_size=3))
    return {
        "x": "int64",
        "p": draw(st.sampled_from(PARTITION_KINDS)),
        "i1": draw(st.sampled_from(INDEX_KINDS)),
        **{f"v{i}": kind for i, kind in enumerate(payload)},
    }


@st.composite
def histories(draw: st.DrawFn) -> Dataset:
    """Draw a dataset and a few commits of any verbs; what the library refuses changes nothing."""
    dataset = Dataset(MemoryStore(), drawn_kinds(draw), [], [])
    overwrite(draw, dataset)
    for _ in range(draw(st.sampled_from([4, 6, 2, 1]))):
        name = draw(st.sampled_from(sorted(STEPS)))
        before = replace(dataset, kinds=dict(dataset.kinds))
        try:
            STEPS[name](draw, dataset)
        except KartothekCubeError as error:
            note(f"{name} is refused: {error}")
            dataset.kinds, dataset.on, dataset.index = before.kinds, before.on, before.index
            dataset.tables, dataset.format = before.tables, before.format
        dataset.note_commit(name)
    if draw(st.booleans()):
        # Index files of older states go; the rest is kept by the history.
        garbage_collect_dataset(UUID, dataset.store, options=options(grace=dt.timedelta(0)))
    return dataset


def overwrite(draw: st.DrawFn, dataset: Dataset) -> None:
    if dataset.commits and draw(st.booleans()):
        dataset.kinds = drawn_kinds(draw)
    if not dataset.commits:
        dataset.format = draw(st.sampled_from(["json", "msgpack"]))
    dataset.on = draw(st.sampled_from([[], ["p"], ["p"], ["p", "i1"], ["i1"]]))
    dataset.index = [c for c in draw(st.sampled_from([[], ["i1"], ["i1", "x"]])) if c not in dataset.on]
    dataset.tables = draw(st.sampled_from([[TABLE], [TABLE], [TABLE], [TABLE, "extra"]]))
    store_dataframes_as_dataset(
        dataset.store,
        UUID,
        items(draw, dataset),
        partition_on=dataset.on,
        secondary_indices=dataset.index,
        overwrite=True,
        metadata_storage_format=dataset.format,
    )
    dataset.note_commit("overwrite")


def items(draw: st.DrawFn, dataset: Dataset) -> list[Any]:
    """Rows of all tables in one or more items."""
    return [
        {table: drawn_rows(draw, dataset.kinds) for table in dataset.tables} for _ in range(draw(st.integers(1, 2)))
    ]


def append(draw: st.DrawFn, dataset: Dataset) -> None:
    update_dataset_from_dataframes(
        items(draw, dataset), dataset.store, UUID, secondary_indices=dataset.index or None, partition_on=dataset.on
    )


def update(draw: st.DrawFn, dataset: Dataset) -> None:
    columns = [*dataset.on, *dataset.index]
    state = read_table_arrow(UUID, dataset.store)
    if not columns or not state.num_rows:
        return
    column = draw(st.sampled_from(columns))
    scope = [{column: draw(st.sampled_from(state.column(column).to_pylist()))}]
    rows = draw(st.sampled_from(["none", "same", "new"]))
    # The same rows again, in other files: no change.
    mask = matching_rows(state, parse_predicates([[(column, "==", scope[0][column])]]))
    data = {"none": [], "same": [{TABLE: state.filter(pa.array(mask))}], "new": items(draw, dataset)}[rows]
    update_dataset_from_dataframes(data, dataset.store, UUID, delete_scope=scope)


def write_again(draw: st.DrawFn, dataset: Dataset) -> None:
    """The same rows by other files and other partition keys."""
    state = read_table_arrow(UUID, dataset.store)
    dataset.on = draw(st.sampled_from([[], ["p"], ["p", "i1"]]))
    dataset.index, dataset.tables = [], [TABLE]
    store_dataframes_as_dataset(
        dataset.store,
        UUID,
        [state],
        partition_on=dataset.on,
        overwrite=True,
        metadata_storage_format=dataset.format,
    )


def add_column(draw: st.DrawFn, dataset: Dataset) -> None:
    dataset.kinds[f"w{len(dataset.commits)}"] = draw(st.sampled_from(sorted(MORE_KINDS)))
    update_dataset_from_dataframes(items(draw, dataset), dataset.store, UUID, add_columns=True)


def undo_one(draw: st.DrawFn, dataset: Dataset) -> None:
    undo(UUID, dataset.store, draw(st.none() | st.sampled_from(dataset.commits[1:] or dataset.commits)))
    found = load_snapshot(dataset.store, UUID)
    dataset.on, dataset.index = list(found.partition_keys), sorted(found.secondary_columns)
    dataset.tables = sorted(found.schemas, reverse=True)
    dataset.kinds = {c: dataset.kinds.get(c, "text") for c in found.schema.names}


def undo_the_undo(draw: st.DrawFn, dataset: Dataset) -> None:
    undo(UUID, dataset.store)
    dataset.note_commit("undo")
    undo(UUID, dataset.store)


def build_index(draw: st.DrawFn, dataset: Dataset) -> None:
    column = draw(st.sampled_from([c for c in ("x", "i1") if c not in dataset.on]))
    build_dataset_indices(dataset.store, UUID, [column])
    dataset.index = sorted({*dataset.index, column})


def convert(draw: st.DrawFn, dataset: Dataset) -> None:
    dataset.format = draw(st.sampled_from(["json", "msgpack"]))
    convert_metadata_format(UUID, dataset.store, dataset.format)


def write_once(draw: st.DrawFn, dataset: Dataset) -> None:
    """A write with a number, which is skipped if the dataset has it already."""
    staged = stage_partitions(items(draw, dataset), dataset.store, UUID)
    commit_receipts(staged, dataset.store, UUID, txn=("job", draw(st.integers(1, 3))))


STEPS = {
    "append": append,
    "append again": append,
    "update": update,
    "update again": update,
    "write again": write_again,
    "overwrite": overwrite,
    "add a column": add_column,
    "undo": undo_one,
    "undo the undo": undo_the_undo,
    "build an index": build_index,
    "compact": lambda draw, dataset: compact_dataset(UUID, dataset.store),
    "convert": convert,
    "write once": write_once,
}


def state_of(dataset: Dataset, when: Any, schema: pa.Schema, predicates: Any = None, table: str = TABLE) -> pa.Table:
    """All rows of a state with the columns of a later one; the predicates hold for them."""
    past = load_snapshot_as_of(dataset.store, UUID, when)
    if table not in past.schemas:
        return schema.empty_table()
    rows = conformed(read_table_arrow(UUID, dataset.store, table=table, as_of=when), schema)
    return rows.filter(pa.array(matching_rows(rows, parse_predicates(predicates))))


def drawn_predicates(draw: Any, schema: pa.Schema, columns: list[str]) -> Any:
    """Comparisons with values of the newest kinds, which may be of other types."""
    families = {str(kind.type): kind for kind in MORE_KINDS.values() if kind.others}
    usable = [c for c in columns if str(schema.field(c).type) in families]
    if not usable or draw(st.booleans()):
        return None

    def clause() -> tuple[str, str, Any]:
        column = draw(st.sampled_from(usable))
        op = draw(st.sampled_from(["==", "!=", "<", ">=", "in"]))
        values = families[str(schema.field(column).type)].values
        constants = [v for v in values if v == v and v != b"a\0"]  # noqa: PLR0124 - NaN, and what no predicate takes
        if op == "in":
            return column, op, draw(st.lists(st.sampled_from([*constants, None]), max_size=2))
        return column, op, draw(st.sampled_from(constants + ([None] if op in ("==", "!=") else [])))

    return [[clause() for _ in range(draw(st.integers(1, 2)))] for _ in range(draw(st.integers(1, 2)))]


@pytest.mark.slow
@pytest.mark.hypothesis
@given(histories(), st.data())
def test_changes_are_the_difference_of_the_states(dataset, data):
    store, draw = dataset.store, data.draw
    until = len(dataset.commits) - 1 - draw(st.sampled_from([0, 0, 1, 2])) % len(dataset.commits)
    last = draw(st.sampled_from([dataset.commits[until], dataset.times[until]]))
    if until == len(dataset.commits) - 1 and draw(st.booleans()):
        last = None
    table = draw(st.sampled_from(sorted(load_snapshot_as_of(store, UUID, last).schemas)))
    schema = read_table_arrow(UUID, store, table=table, as_of=last).schema
    arguments = {
        "columns": draw(st.none() | st.none() | st.lists(st.sampled_from(schema.names), unique=True)),
        "predicates": drawn_predicates(draw, schema, schema.names),
        "table": table,
    }
    for since in range(until + 1):
        on = draw(st.none() | st.lists(st.sampled_from(schema.names), min_size=1, max_size=2, unique=True))
        # A moment is the same state as the commit of that moment.
        first = draw(st.sampled_from([dataset.commits[since], dataset.times[since]]))
        check_pair(dataset, first, last, schema, {**arguments, "on": on}, spills=draw(st.booleans()))


def check_pair(
    dataset: Dataset, first: Any, last: Any, schema: pa.Schema, arguments: dict[str, Any], *, spills: bool
) -> None:
    """The changes between two states are what brute force finds, or are refused for their types."""
    note(f"{first} -> {last}: {arguments} {spills}")
    columns, predicates, table, on = (arguments[name] for name in ("columns", "predicates", "table", "on"))

    def changes() -> pa.Table:
        chosen = options(bytes_in_flight=1) if spills else None
        return read_dataset_changes(UUID, dataset.store, first, last, **arguments, options=chosen).read_all()

    shown = schema.names if columns is None else columns
    used = {*shown, *(on or ()), *(c for conjunction in predicates or () for c, _, _ in conjunction)}
    past = load_snapshot_as_of(dataset.store, UUID, first).schemas.get(table, pa.schema([]))
    if any(c in past.names and not compatible(past.field(c).type, schema.field(c).type) for c in used):
        with pytest.raises(InvalidInput, match="so their values cannot be compared"):
            changes()
        return
    keys = load_snapshot_as_of(dataset.store, UUID, last).partition_keys
    within = [c for c in keys if c not in (on or ())]
    # Columns that nothing asks for may be of another type.
    types = {f.name: f.type for f in past}
    wide = pa.schema({f.name: common_type(f.type, types.get(f.name, f.type)) for f in schema if f.name in used})
    before, after = (state_of(dataset, when, wide, predicates, table) for when in (first, last))
    found = changes()
    assert found.schema.equals(pa.schema([(CHANGE_TYPE, pa.string()), *(wide.field(c) for c in shown)]))
    check_changes(found, before, after, on, within)


@pytest.mark.slow
@pytest.mark.hypothesis
@settings(max_examples=settings().max_examples // 2)
@given(histories(), st.data())
def test_all_changes_applied_one_after_the_other_give_each_state(dataset, data):
    """Also the changes over several commits are those of the single ones, without what cancels."""
    schemas = [read_table_arrow(UUID, dataset.store, as_of=commit).schema for commit in dataset.commits]
    last = schemas[-1]
    columns = [
        field.name
        for field in last
        if all(s.field(field.name).type.equals(field.type) for s in schemas if field.name in s.names)
        and all(field.name in s.names for s in schemas)
    ]
    states = [
        Counter(rows_of(read_table_arrow(UUID, dataset.store, as_of=commit), columns)) for commit in dataset.commits
    ]
    on = data.draw(st.none() | st.just(columns[:1] or None))
    state = states[0]
    for i, (earlier, later) in enumerate(itertools.pairwise(dataset.commits)):
        step = read_dataset_changes(UUID, dataset.store, earlier, later, columns, on=on).read_all()
        state = applied(state, step)
        assert state == states[i + 1]
    whole = read_dataset_changes(UUID, dataset.store, dataset.commits[0], columns=columns, on=on).read_all()
    assert applied(states[0], whole) == states[-1]
