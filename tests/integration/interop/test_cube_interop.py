"""A cube that is written by turns: by us and by the real kartothek 5.3.

Both give the same answers after every turn.
"""

from __future__ import annotations

import itertools
import json

import pandas as pd
import pyarrow.parquet as pq
import pytest

from kartothek_cube.api.cube import (
    C,
    append_to_cube,
    build_cube,
    extend_cube,
    query_cube,
    query_cube_arrow,
    remove_partitions,
    update_cube,
)
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.stores.open import open_store
from tests.support.grocery import (
    CUBE,
    DEPARTMENTS,
    PARTITION_ON,
    QUERIES,
    cube_json,
    enrichments,
    first_delivery,
    next_delivery,
    sales,
)

HEAD = """
import json, pathlib, sys
from functools import partial
import pandas as pd
import pyarrow as pa, pyarrow.parquet as pq
from storefact import get_store_from_url
from kartothek.api.cube import *
from kartothek.api.discover import discover_cube
STORE = partial(get_store_from_url, sys.argv[1])
CUBE = Cube(**json.loads(sys.argv[2]))
FOLDER = pathlib.Path(sys.argv[3])
PARTITION_ON = json.loads(sys.argv[4])
QUERIES = json.loads(sys.argv[5])
def given(*names):
    return {name: pd.read_parquet(FOLDER / (name + ".parquet")) for name in names}
"""
ASK = """
def ask(name, query):
    frames = query_cube(CUBE, STORE, **eval(query))
    for i, frame in enumerate(frames):
        table = pa.Table.from_pandas(frame, preserve_index=False)
        pq.write_table(table, FOLDER / f"{name} {i}.parquet", coerce_timestamps="us")
    return len(frames)
print(json.dumps({name: ask(name, query) for name, query in QUERIES.items()}))
"""
BUILD = """
FIRST, LATER = ("sales", "products", "stores"), ("promotions", "coupons", "traffic")
PARTITION_ON = {i: PARTITION_ON.get(i, CUBE.partition_columns) for i in FIRST + LATER}
build_cube(given(*FIRST), CUBE, STORE, metadata={"sales": {"who": "kartothek"}}, partition_on=PARTITION_ON)
extend_cube(given(*LATER), CUBE, STORE, partition_on=PARTITION_ON)
print(json.dumps(None))
"""
APPEND = """
result = append_to_cube(given("sales", "promotions"), CUBE, STORE, metadata={"sales": {"appended": 1}})
print(json.dumps(sorted(result)))
"""
DISCOVER = """
cube, datasets = discover_cube(CUBE.uuid_prefix, STORE)
system = ("ktk_", "creation", "kartothek_cube")
metadata = {k: v for k, v in datasets["sales"].metadata.items() if not k.startswith(system)}
expected = CUBE.copy(index_columns=CUBE.index_columns - {"RESPONSE_CLASS"})
print(json.dumps([cube == expected, sorted(datasets), metadata]))
"""
REMOVE = """
remove_partitions(CUBE, STORE, C("PERIOD") == 1, ["sales", "promotions"])
print(json.dumps(None))
"""

MEMBERS = ["coupons", "products", "promotions", "sales", "stores", "traffic"]


class Kartothek:
    """The real one, on the store of a test."""

    def __init__(self, run, url, folder):
        self.run, self.url, self.folder, self.turns = run, url, folder, itertools.count()

    def __call__(self, script, **data):
        folder = self.folder / f"turn {next(self.turns)}"
        folder.mkdir()
        for name, frame in data.items():
            # Written here as pandas 1.5 wrote it: no types of pandas 3.
            frame.astype({c: object for c in frame if pd.api.types.is_string_dtype(frame[c])}).to_parquet(
                folder / f"{name}.parquet"
            )
        answer = self.run(HEAD + script, self.url, cube_json(), folder, json.dumps(PARTITION_ON), json.dumps(QUERIES))
        return answer, folder

    def frames(self):
        """Its answers: query → list of rows, one list a frame."""
        counts, folder = self(ASK)
        return {
            name: [pq.read_table(folder / f"{name} {i}.parquet").to_pylist() for i in range(n)]
            for name, n in counts.items()
        }


@pytest.fixture
def kartothek(run_kartothek, store_url, tmp_path):
    return Kartothek(run_kartothek, store_url, tmp_path)


def plain(value):
    if pd.isna(value):
        return None
    return value.to_pydatetime() if isinstance(value, pd.Timestamp) else value


def plain_rows(rows):
    return [{column: plain(value) for column, value in row.items()} for row in rows]


def our_frames(store):
    return {
        name: [plain_rows(frame.to_dict("records")) for frame in query_cube(CUBE, store, **eval(query))]
        for name, query in QUERIES.items()
    }


def assert_same_answers(store, kartothek):
    """Equal columns, values and order in every frame of every query."""
    ours, theirs = our_frames(store), kartothek.frames()
    for name in QUERIES:
        assert len(ours[name]) == len(theirs[name]), name
        assert all(ours[name]), name
        for mine, other in zip(ours[name], theirs[name], strict=True):
            assert [list(row) for row in mine[:1]] == [list(row) for row in other[:1]], name
            assert mine == plain_rows(other), name
    return ours


def build_ours(store):
    build_cube(
        first_delivery(),
        CUBE,
        store,
        metadata={"sales": {"who": "we"}},
        partition_on={k: v for k, v in PARTITION_ON.items() if k in first_delivery()},
    )
    extend_cube(enrichments(), CUBE, store, partition_on={k: v for k, v in PARTITION_ON.items() if k in enrichments()})


def test_our_cube_is_read_and_appended_to_by_kartothek(store_url, kartothek):
    store = open_store(store_url)
    build_ours(store)
    first = assert_same_answers(store, kartothek)
    assert len(first["everything"][0]) == len(sales()) > 4500
    assert [frame[0]["DEPARTMENT"] for frame in first["one frame a department"]] == sorted(DEPARTMENTS)
    assert kartothek(DISCOVER)[0] == [True, MEMBERS, {"who": "we"}]

    assert kartothek(APPEND, **next_delivery(4, 1))[0] == ["promotions", "sales"]
    assert load_snapshot(store, "grocery++sales").has_foreign_commit
    second = assert_same_answers(store, kartothek)
    assert len(second["everything"][0]) > len(first["everything"][0])
    assert {row["UNITS"] for row in second["everything"][0]} >= {901}

    append_to_cube(next_delivery(5, 2), CUBE, store)
    assert not load_snapshot(store, "grocery++sales").has_foreign_commit
    third = assert_same_answers(store, kartothek)
    assert {row["PERIOD"] for row in third["everything"][0]} == {1, 2, 3, 4, 5}
    assert kartothek(DISCOVER)[0][2] == {"who": "we", "appended": 1}


def test_a_cube_of_kartothek_is_read_appended_to_and_updated_by_us(store_url, kartothek):
    kartothek(BUILD, **first_delivery(), **enrichments())
    store = open_store(store_url)
    first = assert_same_answers(store, kartothek)
    assert len(first["everything"][0]) == len(sales())

    append_to_cube(next_delivery(4, 1), CUBE, store, metadata={"sales": {"appended": 2}})
    assert_same_answers(store, kartothek)

    update_cube({"sales": sales([3], 0.2, 9)}, CUBE, store, C("PERIOD") == 3)
    updated = assert_same_answers(store, kartothek)
    assert len([row for row in updated["everything"][0] if row["PERIOD"] == 3]) == len(sales([3], 0.2, 9))

    kartothek(REMOVE)
    removed = assert_same_answers(store, kartothek)
    assert {row["PERIOD"] for row in removed["everything"][0]} == {2, 3, 4}

    remove_partitions(CUBE, store, C("STORE_GROUP") == "OTHER", ["sales"])
    assert_same_answers(store, kartothek)
    assert kartothek(DISCOVER)[0] == [True, MEMBERS, {"who": "kartothek", "appended": 2}]
    assert query_cube_arrow(CUBE, store).num_rows == len(our_frames(store)["everything"][0])
