"""Random queries of cubes that we wrote: the real kartothek 5.3 gives the same frames.

Nothing is asked of which kartothek is known to give wrong results: cells are not overwritten,
columns with nulls are not compared by ``!=`` nor texts with nulls by their order, no group is of
dates, no partition value is a boolean, and a projection asks for no dropped dimension.
"""

from __future__ import annotations

import datetime
import json
import random

import numpy as np
import pandas as pd
import pytest
from hypothesis import settings

from kartothek_cube.api.cube import C, Cube, append_to_cube, build_cube, extend_cube, query_cube
from kartothek_cube.core.stores.open import open_store
from tests.support.thoroughness import is_exhaustive

# As `make fuzz` sets the profile of Hypothesis.
N_QUERIES = 1000 if settings().max_examples > 100 else 80 if is_exhaustive() else 30
CUBE = Cube(["x", "y", "z"], ["p", "q"], "cube", "source", index_columns=["i1", "i2"])
PARTITION_ON = {"aaa": [], "even": ["p"], "zzz": ["k", "q"]}
STATE = {
    "dimension_columns": ["x", "y", "z"],
    "partition_columns": ["p", "q"],
    "uuid_prefix": "cube",
    "seed_dataset": "source",
    "index_columns": ["i1", "i2"],
}

# What is asked of each column: constants, as text, and the operators that both libraries answer
# alike.
EQUAL, ORDER = ["==", "in"], ["<", "<=", ">", ">=", "between"]
ASKED = {
    "x": (["0", "3", "6", "7", "40"], [*EQUAL, *ORDER, "!="]),
    "y": (["'a'", "'b'", "'d'", "'zz'"], [*EQUAL, *ORDER, "!="]),
    "z": (["pd.Timestamp('2024-01-02')", "pd.Timestamp('2024-01-03 12:00')"], [*EQUAL, *ORDER, "!="]),
    "p": (["0", "1", "2", "5"], [*EQUAL, *ORDER, "!="]),
    "q": (["'left'", "'right & so on'", "'up'"], [*EQUAL, *ORDER, "!="]),
    "i1": (["10", "20", "30", "99"], [*EQUAL, *ORDER, "!="]),
    "v1": (["0.25", "5.5", "-1.0"], [*EQUAL, *ORDER]),
    "v2": (["'u'", "'w'"], EQUAL),
    "i2": (["'north'", "'south'", "'x=1 ä'"], [*EQUAL, *ORDER, "!="]),
    "v3": (["1", "4", "-7"], [*EQUAL, *ORDER, "!="]),
    "b3": (["True", "False"], ["==", "!="]),
    "d4": (["datetime.date(2024, 1, 2)", "datetime.date(2024, 1, 20)"], ["==", *ORDER]),
    "v4": (["2", "300"], [*EQUAL, *ORDER, "!="]),
    "k": (["1", "2"], [*EQUAL, *ORDER, "!="]),
    "v5": (["0.5", "-2.0"], [*EQUAL, *ORDER]),
}
OWNERS = {
    "v1": "source",
    "v2": "source",
    "i1": "source",
    "i2": "aaa",
    "v3": "aaa",
    "b3": "aaa",
    "d4": "even",
    "v4": "even",
    "k": "zzz",
    "v5": "zzz",
}
DIMENSIONS = {"source": {"x", "y", "z"}, "aaa": {"x"}, "even": {"x", "y"}, "zzz": {"y"}}
GROUPS = ["x", "y", "p", "q", "i1", "i2", "k"]

SCRIPT = """
import datetime, json, pathlib, sys
from functools import partial
import pandas as pd
from storefact import get_store_from_url
from kartothek.api.cube import *
STORE = partial(get_store_from_url, sys.argv[1])
CUBE = Cube(**json.loads(sys.argv[2]))
QUERIES = json.loads(pathlib.Path(sys.argv[3]).read_text())
"""
ROWS = """
def plain(value):
    if pd.isna(value):
        return None
    if isinstance(value, pd.Timestamp):
        return value.isoformat()
    return value.item() if hasattr(value, "item") else value
def rows_of(frame):
    return [list(frame.columns), *([plain(value) for value in row] for row in zip(*(frame[c] for c in frame)))]
def asked(query):
    return [rows_of(frame) for frame in query_cube(CUBE, STORE, **eval(query))]
"""
ANSWER = "print(json.dumps([asked(query) for query in QUERIES]))"


def cells(rng):
    """Two fifths of all cells; the partition columns are functions of the cell."""
    grid = pd.DataFrame([(x, y, z) for x in range(8) for y in "abcd" for z in range(5)], columns=["x", "y", "z"])
    frame = grid[rng.random(len(grid)) < 0.4].reset_index(drop=True)
    days = frame["z"].to_numpy()
    frame["p"] = (frame["x"] + days) % 2
    frame["q"] = np.where(frame["y"] < "c", "left", "right & so on").astype(object)
    frame["z"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(days * 12, unit="h")
    return frame


def data(rng):
    """The seed and three enrichments, of other dimensions and partitions; all of them lack cells
    and have too many.
    """
    seed = cells(rng)
    n = len(seed)
    seed = seed.assign(
        i1=rng.choice([10, 20, 30], n),
        v1=rng.choice([0.25, 5.5, 9.75, np.nan], n),
        v2=rng.choice(np.array(["u", "w", None], dtype=object), n),
    )
    aaa = pd.DataFrame(
        {
            "x": np.arange(2, 10),
            "i2": rng.choice(np.array(["north", "south", "x=1 ä"], dtype=object), 8),
            "v3": rng.integers(0, 9, 8),
        }
    )
    even = pd.DataFrame([(x, y, p) for x in range(0, 10, 2) for y in "abcd" for p in (0, 1)], columns=["x", "y", "p"])
    days = pd.to_datetime("2024-01-01") + pd.to_timedelta(rng.integers(0, 30, len(even)), unit="D")
    even = even.assign(d4=pd.Series(days).dt.date, v4=rng.integers(0, 400, len(even)).astype("int16"))
    zzz = pd.DataFrame(
        {
            "y": ["a", "b", "c", "e"],
            "k": [1, 2, 1, 2],
            "q": ["left", "left", "right & so on", "up"],
            "v5": [0.5, np.nan, 1.5, 2.5],
        }
    )
    return seed, {"aaa": aaa.assign(b3=rng.random(8) < 0.5), "even": even, "zzz": zzz}


def write(store, rng):
    """A cube in three calls: a build, an extension, an append of new cells."""
    seed, others = data(rng)
    late = (rng.random(len(seed)) < 0.5) & (seed["p"] == 0)
    build_cube({"source": seed[~late], "aaa": others["aaa"].iloc[:4]}, CUBE, store, partition_on={"aaa": []})
    extend_cube(
        {name: others[name] for name in ("even", "zzz")},
        CUBE,
        store,
        partition_on={name: PARTITION_ON[name] for name in ("even", "zzz")},
    )
    append_to_cube({"source": seed[late], "aaa": others["aaa"].iloc[4:]}, CUBE, store)


class Questions:
    """Random queries as text, each one that both libraries can answer."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def some(self, things, least=0):
        things = sorted(things)
        return self.random.sample(things, self.random.randint(min(least, len(things)), len(things)))

    def condition(self, column):
        literals, operators = ASKED[column]
        operator, value, other = (
            self.random.choice(operators),
            self.random.choice(literals),
            self.random.choice(literals),
        )
        if operator == "in":
            return f"C({column!r}).isin([{value}, {other}])"
        if operator == "between":
            return f"C({column!r}).in_interval({value}, {other})"
        return f"(C({column!r}) {operator} {value})"

    def query(self):
        """Arguments of `query_cube`."""
        dimensions = self.some(["x", "y", "z"], 1) if self.random.random() < 0.3 else ["x", "y", "z"]
        datasets = (
            ["source", *self.some(["aaa", "even", "zzz"])]
            if self.random.random() < 0.6
            else ["source", "aaa", "even", "zzz"]
        )
        payload = [c for c, owner in OWNERS.items() if owner in datasets and DIMENSIONS[owner] <= set(dimensions)]
        askable = sorted({*payload, "p", "q", "x", "y", "z"})
        where = [self.condition(c) for c in self.random.choices(askable, k=self.random.choice([0, 1, 1, 2, 3]))]
        by = (
            self.some([c for c in GROUPS if c in payload or c in ("p", "q") or c in dimensions], 1)[
                : self.random.choice([1, 1, 2])
            ]
            if self.random.random() < 0.3
            else []
        )
        columns = self.some(payload) if len(dimensions) < 3 or self.random.random() < 0.5 else None
        arguments = {
            "dimension_columns": dimensions,
            "datasets": datasets,
            "partition_by": by,
            "payload_columns": columns,
        }
        return f"dict(conditions=[{', '.join(where)}], **{arguments!r})"


@pytest.mark.parametrize("seed", [1])
def test_kartothek_gives_the_same_frames(store_url, tmp_path, run_kartothek, seed):
    store, questions = open_store(store_url), Questions(seed)
    write(store, np.random.default_rng(seed))
    queries = [questions.query() for _ in range(N_QUERIES)]
    (tmp_path / "queries.json").write_text(json.dumps(queries))
    namespace = {"pd": pd, "datetime": datetime, "C": C, "query_cube": query_cube, "CUBE": CUBE, "STORE": store}
    exec(ROWS, namespace)
    ours = [namespace["asked"](query) for query in queries]
    theirs = run_kartothek(SCRIPT + ROWS + ANSWER, store_url, json.dumps(STATE), tmp_path / "queries.json")
    for query, mine, other in zip(queries, ours, theirs, strict=True):
        assert mine == other, query
    assert len([frames for frames in ours if frames]) > N_QUERIES / 2
    assert len([frames for frames in ours if len(frames) > 1]) > N_QUERIES / 12
