"""Any sequence of commits, most of them changes of rows: each state is what a model in plain Python
makes of it, and stays readable.
"""

from __future__ import annotations

import datetime as dt
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from kartothek_cube import options
from kartothek_cube.api.dataset import (
    build_dataset_indices,
    compact_dataset,
    convert_metadata_format,
    delete_rows,
    garbage_collect_dataset,
    merge_dataset,
    read_dataset_changes,
    read_table_arrow,
    store_dataframes_as_dataset,
    undo,
    update_dataset_from_dataframes,
    update_rows,
    verify_dataset,
)
from kartothek_cube.api.serialization import ParquetSerializer
from kartothek_cube.core.arrow.types import common_type
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import InvalidInput
from tests.support.changes import check_changes, conformed, plain
from tests.support.datasets import UUID, Stream, contents, index, index_of_files, refused, snapshot
from tests.support.random_tables import KINDS, Kind
from tests.support.row_model import (
    Change,
    Edited,
    File,
    Row,
    as_bag,
    check,
    comparable,
    counts_of,
    edited,
    merged,
    stored_files,
)

NULL = Kind(pa.null(), [None], [])
PAYLOAD = ("float64", "float64", "int32", "text", "bool", "date", "moment", "utc", "decimal", "binary", "null")
PARTITION_KINDS = ("text", "int64", "date", "bool", "moment")
INDEX_KINDS = ("text", "int64", "date")
ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass
class Dataset:
    """A dataset, the kinds of its columns, and all its states by commits."""

    kinds: dict[str, Kind]
    on: list[str]
    store: MemoryStore = field(default_factory=MemoryStore)
    commits: list[str] = field(default_factory=list)
    states: list[list[File]] = field(default_factory=list)
    known: dict[str, Kind] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=lambda: iter(range(10**6)))

    @property
    def files(self) -> list[File]:
        return self.states[-1]

    @property
    def columns(self) -> list[str]:
        return snapshot(self.store).schema.names

    def kind(self, column: str) -> Kind:
        """A column that is null throughout takes any type."""
        found = self.kinds[column]
        return KINDS["int64"] if found is NULL else found


def drawn_value(draw: st.DrawFn, dataset: Dataset, column: str, *, null: bool = True) -> Any:
    if column == "n":
        return next(dataset.numbers)
    values = [v for v in dataset.kind(column).values if v != b"a\0"]
    few = values[:3] if column in ("x", "p", "i1") else values
    return draw(st.none() | st.sampled_from(few) if null and column != "p" else st.sampled_from(few))


def table_of(dataset: Dataset, rows: list[Row], columns: list[str]) -> pa.Table:
    def array(column: str) -> pa.Array:
        values = [row[column] for row in rows]
        # An untyped column stays so until there is a value.
        kind = dataset.kinds[column] if all(v is None for v in values) else dataset.kind(column)
        return pa.array(values, kind.type, from_pandas=False)

    return pa.table({c: array(c) for c in columns})


def drawn_rows(draw: st.DrawFn, dataset: Dataset, most: int = 6, kinds: Any = None) -> pa.Table:
    kinds = kinds or dataset.kinds
    count = draw(st.integers(1, most))
    rows = [{c: None if kinds[c] is NULL else drawn_value(draw, dataset, c) for c in kinds} for _ in range(count)]
    return table_of(dataset, rows, list(kinds))


def drawn_dataset(draw: st.DrawFn) -> Dataset:
    payload = draw(st.lists(st.sampled_from(PAYLOAD), min_size=1, max_size=3))
    dataset = Dataset(
        {
            "n": KINDS["int64"],
            "x": KINDS["int64"],
            "p": KINDS[draw(st.sampled_from(PARTITION_KINDS))],
            "i1": KINDS[draw(st.sampled_from(INDEX_KINDS))],
            **{f"v{i}": {**KINDS, "null": NULL}[kind] for i, kind in enumerate(payload)},
        },
        draw(st.sampled_from([[], ["p"], ["p"]])),
    )
    store_dataframes_as_dataset(
        dataset.store,
        UUID,
        [drawn_rows(draw, dataset, 12) for _ in range(draw(st.integers(1, 3)))],
        partition_on=dataset.on,
        secondary_indices=draw(st.sampled_from([[], ["i1"], ["i1", "x"]])),
        metadata_storage_format=draw(st.sampled_from(["json", "msgpack"])),
        df_serializer=ParquetSerializer(chunk_size=draw(st.sampled_from([None, 1, 2]))),
    )
    dataset.commits.append(snapshot(dataset.store).chain[-1].id)
    dataset.states.append(stored_files(dataset.store, UUID))
    return dataset


# --- conditions -----------------------------------------------------------------------------------


def drawn_predicates(draw: st.DrawFn, dataset: Dataset) -> Any:
    usable = [c for c in dataset.kinds if dataset.kinds[c] is not NULL and c != "n"]

    def clause() -> tuple[str, str, Any]:
        column = draw(st.sampled_from(usable))
        op = draw(st.sampled_from(["==", "==", "!=", "in", "not in", *ORDERS]))

        def constant() -> Any:
            drawn = drawn_value(draw, dataset, column, null=False)
            return drawn if drawn == drawn else 0.0  # noqa: PLR0124 - NaN

        return column, op, [constant() for _ in range(draw(st.integers(1, 2)))] if op.endswith("in") else constant()

    return [[clause() for _ in range(draw(st.integers(1, 2)))] for _ in range(draw(st.sampled_from([1, 1, 2])))]


def holds(value: Any, op: str, constant: Any) -> bool:
    if op in ORDERS:
        return value is not None and ORDERS[op](value, constant)
    if op.endswith("in"):
        return (op == "in") == (value in constant)
    return (op == "==") == (value == constant)


def matcher(predicates: Any) -> Callable[[Row], bool]:
    return lambda row: any(all(holds(row[c], op, v) for c, op, v in conjunction) for conjunction in predicates)


# --- changes of rows ------------------------------------------------------------------------------


def run_and_check(dataset: Dataset, expected: Edited, verb: Callable[..., Any]) -> None:
    """Call a verb: a dry run says what follows, and the dataset is then as the model says."""
    before = contents(dataset.store)
    dry = verb(dry_run=True)
    assert dry.dry_run
    assert contents(dataset.store) == before
    report = verb()
    assert counts_of(report) == expected.counts
    moved = len(expected.added) - expected.counts["inserted"]
    # Where all rows of a file move, the file is not known to go before the rows are.
    assert {k: v for k, v in counts_of(dry).items() if not moved or not k.startswith("files")} == {
        k: v for k, v in expected.counts.items() if not moved or not k.startswith("files")
    }
    is_change = bool(expected.added) or expected.files != dataset.files
    assert (report.commit is not None) == is_change
    assert bool(report.files_added) == bool(expected.added)
    found = stored_files(dataset.store, UUID)
    check(found, expected, dataset.columns)
    assert report.files_added == len(found) - len(expected.files)
    gone = {file.key for file in dataset.files} - {file.key for file in found}
    assert set(report.files) == gone
    if is_change:
        assert report.commit == snapshot(dataset.store).chain[-1].id


def delete(draw: st.DrawFn, dataset: Dataset) -> None:
    predicates = drawn_predicates(draw, dataset)
    note(f"delete {predicates}")
    expected = edited(dataset.files, Change(matcher(predicates), lambda row: None), dataset.on)
    run_and_check(dataset, expected, lambda **more: delete_rows(UUID, dataset.store, predicates, **more))


def update(draw: st.DrawFn, dataset: Dataset) -> None:
    predicates = drawn_predicates(draw, dataset)
    columns = draw(st.lists(st.sampled_from([*dataset.kinds, "p"]), min_size=1, max_size=3, unique=True))
    values = {c: drawn_value(draw, dataset, c) for c in columns}
    note(f"update {predicates} {values}")
    expected = edited(dataset.files, Change(matcher(predicates), lambda row: row | values), dataset.on)
    run_and_check(dataset, expected, lambda **more: update_rows(UUID, dataset.store, predicates, values, **more))
    settle(dataset, {c for c, value in values.items() if value is not None})


def update_by_function(draw: st.DrawFn, dataset: Dataset) -> None:
    predicates = drawn_predicates(draw, dataset)
    columns = [c for c in dataset.kinds if dataset.kinds[c] is not NULL]
    chosen = draw(st.lists(st.sampled_from([*columns, "p"]), min_size=1, max_size=3, unique=True))
    # Which value a row gets depends on the row.
    values = {c: [drawn_value(draw, dataset, c) for _ in range(2)] for c in chosen}
    note(f"update {predicates} by a function {values}")

    def after(row: Row) -> Row:
        return row | {c: two[(row["x"] or 0) % 2] for c, two in values.items()}

    def changed(rows: pa.Table) -> pa.Table:
        assert all(matcher(predicates)(row) for row in rows.to_pylist())
        done = pa.Table.from_pylist([after(row) for row in rows.to_pylist()], schema=rows.schema)
        return done.select(done.column_names[::-1])

    expected = edited(dataset.files, Change(matcher(predicates), after), dataset.on)
    run_and_check(dataset, expected, lambda **more: update_rows(UUID, dataset.store, predicates, changed, **more))


def merge(draw: st.DrawFn, dataset: Dataset) -> None:
    typed = [c for c in dataset.kinds if dataset.kinds[c] is not NULL and c != "n"]
    on = draw(st.lists(st.sampled_from([*typed, "x", "i1"]), min_size=1, max_size=3, unique=True))
    when = (
        draw(st.sampled_from(["update", "ignore", "update", "delete", "error"])),
        draw(st.sampled_from(["insert", "insert", "ignore"])),
        draw(st.sampled_from([None, "delete", None])),
    )
    needed = {*on, *(["p"] if when[1] == "insert" and dataset.on else [])}
    columns = [c for c in dataset.kinds if c in needed or draw(st.integers(0, 3))]
    rows = [
        {c: drawn_value(draw, dataset, c, null=c not in on) for c in columns} for _ in range(draw(st.integers(1, 8)))
    ]
    rows = [row for row in rows if all(row[c] == row[c] for c in on)]
    source = {tuple(plain(row[c]) for c in on): row for row in rows}
    if draw(st.integers(0, 7)):
        rows = list(source.values())
    note(f"merge {rows} on {on} when {when}")

    given = pieces(draw, table_of(dataset, rows, columns))
    chosen = options(bytes_in_flight=1) if draw(st.booleans()) else None

    def call(**more: Any) -> Any:
        return merge_dataset(
            given(),
            dataset.store,
            UUID,
            on if len(on) > 1 or draw(st.booleans()) else on[0],
            when_matched=when[0],
            when_not_matched=when[1],
            when_not_matched_by_source=when[2],
            options=chosen,
            **more,
        )

    if len(source) < len(rows):
        with refused(dataset.store, ValueError, InvalidInput, "twice"):
            call()
        return
    expected = merged(dataset.files, rows, on, when, dataset.on, [c for c in columns if c not in on])
    if when[0] == "error" and expected.counts["matched"]:
        with refused(dataset.store, ValueError, InvalidInput, 'when_matched is "error"'):
            call()
        return
    run_and_check(dataset, expected, call)
    if expected.counts["inserted"] or expected.counts["updated"]:
        settle(dataset, {c for c in columns if any(row[c] is not None for row in rows)})


def settle(dataset: Dataset, columns: set[str]) -> None:
    """Columns that have values now have a type, if a commit gave them one."""
    schema = snapshot(dataset.store).schema
    dataset.kinds |= {
        c: KINDS["int64"] for c in columns if dataset.kinds[c] is NULL and not pa.types.is_null(schema.field(c).type)
    }


def pieces(draw: st.DrawFn, table: pa.Table) -> Callable[[], Any]:
    """The source of a merge in one of its forms, made anew for each call."""
    size = draw(st.integers(1, 3))
    some = [table.slice(start, size) for start in range(0, max(1, len(table)), size)]
    forms: dict[str, Callable[[], Any]] = {
        "table": lambda: table,
        "list": lambda: list(some),
        "stream": lambda: iter(some),
        "reader": lambda: pa.concat_tables(some).to_reader(max_chunksize=size),
        "foreign": lambda: Stream(table),
        "dict": lambda: {"data": {"table": table}},
    }
    return forms[draw(st.sampled_from(sorted(forms)))]


# --- other commits --------------------------------------------------------------------------------


def append(draw: st.DrawFn, dataset: Dataset) -> None:
    new = drawn_rows(draw, dataset)
    update_dataset_from_dataframes([new], dataset.store, UUID)
    check(stored_files(dataset.store, UUID), Edited(dataset.files, new.to_pylist(), {}), dataset.columns)


def add_column(draw: st.DrawFn, dataset: Dataset) -> None:
    name = f"w{len(dataset.commits)}"
    dataset.kinds[name] = KINDS[draw(st.sampled_from(["float64", "text", "date"]))]
    new = drawn_rows(draw, dataset)
    update_dataset_from_dataframes([new], dataset.store, UUID, add_columns=True)
    check(stored_files(dataset.store, UUID), Edited(dataset.files, new.to_pylist(), {}), dataset.columns)


def undo_one(draw: st.DrawFn, dataset: Dataset) -> None:
    if len(dataset.states) == 1:
        return
    undo(UUID, dataset.store)
    found = stored_files(dataset.store, UUID)
    assert [file.key for file in found] == [file.key for file in dataset.states[-2]]
    # Columns and their types come and go: also an undo can be undone.
    dataset.known |= {c: dataset.kind(c) for c in dataset.kinds}
    dataset.kinds = {
        f.name: NULL if pa.types.is_null(f.type) else dataset.known[f.name] for f in snapshot(dataset.store).schema
    }


def same_rows(draw: st.DrawFn, dataset: Dataset) -> None:
    before = [row for file in dataset.files for row in file.rows]
    verb = draw(st.sampled_from(["compact", "collect", "convert", "index"]))
    note(verb)
    if verb == "compact":
        compact_dataset(UUID, dataset.store)
    elif verb == "collect":
        garbage_collect_dataset(UUID, dataset.store, options=options(grace=dt.timedelta(0)))
    elif verb == "convert":
        convert_metadata_format(UUID, dataset.store, draw(st.sampled_from(["json", "msgpack"])))
    else:
        build_dataset_indices(dataset.store, UUID, [draw(st.sampled_from(["x", "i1"]))])
    after = [row for file in stored_files(dataset.store, UUID) for row in file.rows]
    assert as_bag(after, dataset.columns) == as_bag(before, dataset.columns)


STEPS = {
    "delete": delete,
    "update": update,
    "update by function": update_by_function,
    "merge": merge,
    "merge again": merge,
    "append": append,
    "add column": add_column,
    "undo": undo_one,
    "same rows": same_rows,
}


@pytest.mark.slow
@pytest.mark.hypothesis
@settings(max_examples=2 * settings().max_examples)
@given(st.data())
def test_each_state_is_that_of_the_model_and_stays(data):
    draw = data.draw
    dataset = drawn_dataset(draw)
    for _ in range(draw(st.integers(1, 6))):
        name = draw(st.sampled_from(sorted(STEPS)))
        note(name)
        STEPS[name](draw, dataset)
        look(dataset)


def look(dataset: Dataset) -> None:
    """Note the commit, if there is one, and check all that should hold after any step."""
    store, state = dataset.store, snapshot(dataset.store)
    files = stored_files(store, UUID)
    if state.chain[-1].id == dataset.commits[-1]:
        assert files == dataset.files or comparable_files(dataset, files) == comparable_files(dataset, dataset.files)
    else:
        dataset.commits.append(state.chain[-1].id)
        dataset.states.append(files)
    for commit, past in zip(dataset.commits, dataset.states, strict=True):
        then = read_table_arrow(UUID, store, as_of=commit)
        wanted = [row for file in past for row in file.rows]
        assert comparable(then.to_pylist(), then.column_names) == comparable(wanted, then.column_names)
    for column in state.secondary_columns:
        assert index(store, column) == index_of_files(store, column)
    assert [f for f in verify_dataset(UUID, store, deep=True).findings if f.severity != "info"] == []
    check_last_changes(dataset)


def comparable_files(dataset: Dataset, files: list[File]) -> Any:
    return [(file.key, comparable(file.rows, dataset.columns)) for file in files]


def check_last_changes(dataset: Dataset) -> None:
    """The changes of the last commit are the rows that differ."""
    if len(dataset.commits) == 1:
        return
    before, after = (read_table_arrow(UUID, dataset.store, as_of=commit) for commit in dataset.commits[-2:])
    changes = read_dataset_changes(UUID, dataset.store, dataset.commits[-2]).read_all()
    types = {f.name: f.type for f in before.schema}
    wide = pa.schema([(f.name, common_type(f.type, types.get(f.name, f.type))) for f in after.schema])
    check_changes(changes, conformed(before, wide), conformed(after, wide), within=dataset.on)
