"""Random histories of a published dataset, read by other programs after each verb."""

from __future__ import annotations

import datetime as dt
import random
import warnings
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

from kartothek_cube import delete_rows, merge_dataset, open_store, options, publish_delta, update_rows
from kartothek_cube.api.dataset import (
    compact_dataset,
    drop_columns,
    garbage_collect_dataset,
    history,
    read_table_arrow,
    store_dataframes_as_dataset,
    undo,
    update_dataset_from_dataframes,
)
from kartothek_cube.errors import InvalidInput
from tests.caches import forget
from tests.support.commits import make_foreign
from tests.support.delta import UUID, actions, by_deltalake, by_polars, comparable, versions
from tests.support.thoroughness import is_exhaustive

pl = pytest.importorskip("polars", reason="not installed: polars")
pytest.importorskip("deltalake", reason="not installed: deltalake")

SEEDS = range(60 if is_exhaustive() else 4)
STEPS = 10
TEXTS = ["a b", "ü/%=+&", "%20", "'", "null", "x" * 40, "\U0010ffff" * 33, "", "A", "a"]
FLOATS = [0.0, -0.0, 1.5, -1e300, float("nan"), float("inf"), None, 2.0**53]
MOMENTS = [dt.datetime(1, 1, 1), dt.datetime(2024, 2, 29, 1, 2, 3, 4), dt.datetime(9999, 12, 31), None]
DAYS = [dt.date(1500, 1, 1), dt.date(2024, 2, 29), dt.date(9999, 12, 31)]
INTEGERS = [0, -1, 2**63 - 1, -(2**63), 2**53 + 1, None]
DECIMALS = [Decimal("0.10"), Decimal("-99999.99"), Decimal("1.00"), None]
SCHEMA = pa.schema(
    {
        "p": pa.string(),
        "q": pa.date32(),
        "x": pa.int64(),
        "f": pa.float64(),
        "s": pa.string(),
        "t": pa.timestamp("us"),
        "z": pa.timestamp("us", "UTC"),
        "i": pa.int64(),
        "n": pa.decimal128(7, 2),
        "w": pa.decimal128(38, 2),
    }
)


class History:
    """A dataset, and what may be done to it."""

    def __init__(self, root, seed):
        self.store, self.random, self.next = open_store(root), random.Random(seed), 0
        self.states = {}
        store_dataframes_as_dataset(self.store, UUID, [self.rows()], partition_on=["p", "q"])
        publish_delta(UUID, self.store, always=True)

    def rows(self, narrow=False):
        draw, n = self.random.choice, self.random.randint(1, 6)
        self.next += n
        few = [draw(FLOATS)]  # often one value a file, so that bounds exclude it
        columns = {
            "p": [draw([text for text in TEXTS if 0 < len(text) < 20]) for _ in range(n)],
            "q": [draw(DAYS) for _ in range(n)],
            "x": range(self.next - n, self.next),
            "f": [draw(few if narrow else FLOATS) for _ in range(n)],
            "s": [draw(TEXTS) for _ in range(n)],
            "t": [draw(MOMENTS) for _ in range(n)],
            "z": [draw(MOMENTS) for _ in range(n)],
            "i": [draw(INTEGERS) for _ in range(n)],
            "n": [draw(DECIMALS) for _ in range(n)],
            "w": [draw(DECIMALS) for _ in range(n)],
        }
        return pa.table(columns, schema=SCHEMA)

    def append(self):
        update_dataset_from_dataframes([self.rows(narrow=True)], self.store, UUID)

    def replace(self):
        rows = self.rows()
        update_dataset_from_dataframes([rows], self.store, UUID, delete_scope=[{"p": rows["p"][0].as_py()}])

    def overwrite(self):
        store_dataframes_as_dataset(self.store, UUID, [self.rows()], partition_on=["p", "q"], overwrite=True)

    def delete(self):
        delete_rows(UUID, self.store, [[("x", "==", self.random.randrange(self.next))]])

    def update(self):
        update_rows(UUID, self.store, [[("x", "<", self.random.randrange(self.next))]], {"f": 1.5})

    def merge(self):
        merge_dataset(self.rows(), self.store, UUID, "x")

    def compact(self):
        compact_dataset(UUID, self.store)

    def undo(self):
        undo(UUID, self.store)

    def foreign(self):
        make_foreign(self.store, UUID)
        publish_delta(UUID, self.store)

    def add_column(self):
        more = self.rows()
        update_dataset_from_dataframes(
            [more.append_column("more", pa.array([True] * len(more)))], self.store, UUID, add_columns=True
        )

    def drop_column(self):
        drop_columns(UUID, self.store, ["more"])

    def collect(self):
        with options(grace=timedelta(0), retain=timedelta(0)):
            garbage_collect_dataset(UUID, self.store)

    def restart(self):
        forget(self.store)
        publish_delta(UUID, self.store)

    def step(self):
        verbs = [self.append, self.append, self.replace, self.delete, self.update, self.merge, self.compact]
        verbs += [self.undo, self.foreign, self.add_column, self.drop_column, self.collect, self.restart]
        # There may be no such column, or nothing to go back to.
        with suppress(InvalidInput):
            self.random.choice([*verbs, self.overwrite])()

    def note(self):
        """The rows of the newest version; a version once seen never changes."""
        rows = read_table_arrow(UUID, self.store)
        self.states[max(versions(self.store))] = comparable(rows)
        return rows


def polars_filters(rows):
    """A condition for each column, and one of ranges."""
    for column in rows.column_names:
        values = [value for value in rows[column].to_pylist() if value is not None]
        for value in values[:2]:
            literal = pl.lit(value, dtype=pl.from_arrow(rows.select([column]).slice(0, 0)).schema[column])
            yield pl.col(column) == literal
            yield pl.col(column) > literal
            yield pl.col(column) != literal
        yield pl.col(column).is_null()


def sql_conditions(rows):
    for column in ("p", "s"):
        for value in rows[column].to_pylist()[:2]:
            if value is not None:
                text = value.replace("'", "''")
                yield from (f"{column} {sign} '{text}'" for sign in ("=", ">", "<>"))
    yield from ("x > 3", "f > 1.0", "f = 0.0", "f <> 1.5", "NOT (f <= 1.0)", "f IS NULL", "i > 9007199254740992")
    yield from ("n > 0.5", "w = 0.10", "q = DATE '2024-02-29'", "q > DATE '1600-01-01'", "t IS NOT NULL")
    yield from ("t >= TIMESTAMP '2024-02-29T01:02:03.000004'", "z < TIMESTAMP '2024-02-29T01:02:03.000005Z'")


@pytest.mark.parametrize("seed", SEEDS)
def test_every_version_has_the_rows_of_its_state(tmp_path, seed):
    past = History(tmp_path, seed)
    past.note()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for _ in range(STEPS):
            past.step()
            rows = past.note()
            assert comparable(by_polars(tmp_path).collect().to_arrow()) == comparable(rows)
    rows, shown = past.note(), pl.from_arrow(read_table_arrow(UUID, past.store))
    for condition in polars_filters(rows):
        found = by_polars(tmp_path).filter(condition).collect()
        assert comparable(found.to_arrow()) == comparable(shown.filter(condition).to_arrow()), condition
    assert comparable(by_deltalake(tmp_path)) == comparable(rows)
    for condition in sql_conditions(rows):
        # The same condition, where nothing can be left unread.
        marked = by_deltalake(tmp_path, select=f"*, ({condition}) AS hit")
        hits = pa.Table.from_pylist(
            [row for row in marked.to_pylist() if row.pop("hit")], schema=shown.to_arrow().schema
        )
        expected = comparable(hits)
        assert comparable(by_deltalake(tmp_path, f"WHERE {condition}")) == expected, condition
    for version in versions(past.store):
        assert comparable(by_polars(tmp_path, version=version).collect().to_arrow()) == past.states[version]
        # The commit that the version names is that of its rows.
        (txn,) = [action["txn"] for action in actions(past.store, version) if "txn" in action]
        commit = txn["appId"].partition(":")[2]
        if commit in set(history(UUID, past.store)["commit"].dropna()) and version == max(past.states):
            assert comparable(read_table_arrow(UUID, past.store, as_of=commit)) == past.states[version]
