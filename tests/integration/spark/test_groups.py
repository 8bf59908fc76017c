"""map_cube_groups: a function on every group, every file read once, results of every form."""

from __future__ import annotations

import functools
from collections import Counter
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from kartothek_cube import C, append_to_cube, iter_cube, plan_cube_query
from kartothek_cube.api.dataset import read_table_arrow
from kartothek_cube.core.stores.contract import StoreView
from kartothek_cube.core.stores.open import open_store
from kartothek_cube.errors import InvalidInput, InvalidType
from kartothek_cube.spark import driver_errors, map_cube_groups, query_cube_spark

TOTALS = "i1 bigint, n bigint, v double"


class LoggingStore(StoreView):
    """Appends the key of every opened file to a log that all processes share."""

    def __init__(self, inner, log):
        super().__init__(inner)
        self.log = log

    def around(self, operation, key, action):
        if operation in ("local_path", "tail", "get"):
            with Path(self.log).open("a") as log:
                log.write(f"{operation} {key}\n")
        return super().around(operation, key, action)


pytestmark = pytest.mark.usefixtures("pickled_by_value")


def total(key, table):
    return pa.table({"v": [sum(table.column("v1").to_pylist())], "i1": [key["i1"]], "n": [table.num_rows]})


def total_of_a_frame(key: dict, frame: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"i1": [key["i1"]], "n": [len(frame)], "v": [frame["v1"].sum()]})


def expected(cube, store, **query):
    return [
        (key["i1"], t.num_rows, sum(t.column("v1").to_pylist()))
        for key, t in iter_cube(cube, store, partition_by="i1", **query)
    ]


def tuples(frame):
    return [tuple(row) for row in frame.collect()]


@pytest.mark.parametrize("blocksize", [None, 1])
@pytest.mark.parametrize("function", [total, total_of_a_frame])
def test_every_group_is_seen_whole_and_once(spark, cube, built, function, blocksize):
    assert tuples(map_cube_groups(function, TOTALS, cube, built, partition_by="i1", blocksize=blocksize)) == expected(
        cube, built
    )


@pytest.mark.parametrize("by", ["p", "i1", "y", ["p", "i1"], None])
def test_keys_and_rows_are_those_of_iter_cube(spark, cube, built, by):
    def shown(key, table):
        return pa.table({"shown": [repr((key, table.to_pylist(), table.schema.to_string()))]})

    found = [row.shown for row in map_cube_groups(shown, "shown string", cube, built, partition_by=by).collect()]
    assert found == [
        repr((key, t.to_pylist(), t.schema.to_string())) for key, t in iter_cube(cube, built, partition_by=by)
    ]


def test_conditions_drop_groups(spark, cube, built):
    assert tuples(map_cube_groups(total, TOTALS, cube, built, C("i1") != 1, partition_by="i1")) == expected(
        cube, built, conditions=C("i1") != 1
    )
    assert tuples(map_cube_groups(total, TOTALS, cube, built, C("v1") > 1e9, partition_by="i1")) == []


@pytest.mark.parametrize("by", ["p", "i1", "x"])
def test_every_seed_file_is_read_once(spark, cube, built, tmp_path, by):
    store = LoggingStore(open_store(built), str(tmp_path / "log"))
    plan = plan_cube_query(cube, built, partition_by=by)
    assert (
        map_cube_groups(
            lambda key, table: pa.table({"n": [table.num_rows]}), "n int", cube, store, partition_by=by
        ).count()
        > 2
    )
    reads = Counter(line for line in (tmp_path / "log").read_text().splitlines() if "++seed/table/" in line)
    assert reads == {f"local_path {key}": 1 for key in plan.files()["seed"]}


@pytest.mark.parametrize("schema", ["b bigint, a string", pa.schema([("b", pa.int64()), ("a", pa.large_string())])])
@pytest.mark.parametrize("as_pandas", [True, False])
def test_results_are_taken_by_name_and_cast(spark, cube, built, schema, as_pandas):
    def swapped(key, rows):
        return pd.DataFrame({"a": pd.Categorical(["text"]), "b": [1.0]})

    assert tuples(map_cube_groups(swapped, schema, cube, built, C("p") == 1, as_pandas=as_pandas)) == [(1, "text")]


@pytest.mark.parametrize(
    ("result", "rows"),
    [
        (None, 0),
        ([], 0),
        (pa.table({"n": pa.array([], pa.int64())}), 0),
        ([pa.table({"n": [1]}), None, pd.DataFrame({"n": [2]})], 2),
        (pa.record_batch({"n": [1]}), 1),
    ],
)
def test_a_function_returns_none_one_or_several_tables(spark, cube, built, result, rows):
    assert map_cube_groups(lambda key, table: result, "n bigint", cube, built, C("p") == 1).count() == rows


def test_a_function_may_be_a_generator(spark, cube, built):
    def halves(key, table):
        yield pa.table({"n": [1]})
        yield pa.table({"n": [2]})

    assert tuples(map_cube_groups(halves, "n int", cube, built, C("p") == 1)) == [(1,), (2,)]


@pytest.mark.parametrize(
    ("result", "error", "text"),
    [
        (pa.table({"n": [1], "m": [1]}), InvalidInput, "does not name: m"),
        (pa.table({"m": [1]}), InvalidInput, "does not name: m"),
        (
            pa.table({"n": ["a"]}),
            InvalidInput,
            "Column 'n' of the result of group .*'p': 1.* is string and does not become int64",
        ),
        (pa.table({"n": [1.5]}), InvalidInput, "does not become int64"),
        ({"n": 1}, InvalidType, "returned a dict"),
    ],
)
def test_wrong_results_are_named_with_their_group(cube, built, result, error, text):
    from kartothek_cube.spark.read import call_groups, group_call

    groups = list(plan_cube_query(cube, built, C("p") == 1).groups)
    with pytest.raises(error, match=text):
        list(
            call_groups(
                groups,
                built,
                group_call(lambda key, table: result, pandas=False, columns=frozenset("n")),
                pa.schema([("n", pa.int64())]),
            )
        )


def test_a_column_that_the_function_forgot_is_named(spark, cube, built):
    with (
        pytest.raises(InvalidInput, match=r"The rows of the result of group \{'p': 1\} have no column 'm'"),
        driver_errors(),
    ):
        map_cube_groups(
            lambda key, table: pa.table({"n": [1]}), "n bigint, m bigint", cube, built, C("p") == 1
        ).collect()


def test_errors_of_the_function_keep_their_text_and_name_the_group(spark, cube, built):
    def failing(key, table):
        raise ZeroDivisionError("of the user")

    with pytest.raises(Exception, match=r"ZeroDivisionError: of the user[\s\S]*in group \{'p': 1\}"), driver_errors():
        map_cube_groups(failing, "n bigint", cube, built, C("p") == 1).collect()


@pytest.mark.parametrize(
    ("func", "schema", "error"), [(None, "n int", InvalidType), (total, 1, InvalidType), (total, None, InvalidType)]
)
def test_what_is_no_function_or_schema_is_refused(spark, cube, built, func, schema, error):
    with pytest.raises(error):
        map_cube_groups(func, schema, cube, built)


@pytest.mark.parametrize(
    ("annotation", "wanted"),
    [
        (pd.DataFrame, True),
        ("pd.DataFrame", True),
        ("pandas.DataFrame", True),
        (pa.Table, False),
        ("pa.Table", False),
        (None, False),
        ("int", False),
    ],
)
def test_the_annotation_of_the_second_parameter_decides(annotation, wanted):
    from kartothek_cube.spark.read import wants_pandas

    def function(key, table): ...

    if annotation is not None:
        function.__annotations__["table"] = annotation
    assert wants_pandas(function) is wanted


@pytest.mark.parametrize("func", [lambda table: table, lambda: None, lambda a, b, c: a, lambda a, *, b: a, [].append])
def test_a_function_that_cannot_be_called_with_key_and_rows_is_refused_before_any_task(func):
    from kartothek_cube.spark.read import wants_pandas

    with pytest.raises(InvalidType, match=r"func is called as func\(key, table\)"):
        wants_pandas(func)


@pytest.mark.parametrize(
    "func", [lambda *both: None, lambda key, table, more=1: None, functools.partial(lambda a, key, table: None, 1), max]
)
def test_whatever_takes_key_and_rows_is_a_function(func):
    from kartothek_cube.spark.read import wants_pandas

    assert wants_pandas(func) is False


@pytest.mark.parametrize("by", [None, "p", "i1"])
def test_changed_groups_are_those_of_iter_cube_with_and_without_rows(spark, cube, built, by):
    seen = plan_cube_query(cube, built).commits
    seed = read_table_arrow(cube.ktk_dataset_uuid(cube.seed_dataset), built)
    append_to_cube(seed.slice(0, 1), cube, built)

    def shown(key, table):
        return pa.table({"shown": [repr((key, table.to_pylist()))]})

    sizes = []
    # No value, but within the bounds that statistics have.
    some = [row["v1"] for row in seed.to_pylist() if row["p"] == seed["p"][0].as_py()]
    missing = min(some) + (max(some) - min(some)) / 1e6
    for conditions in (None, C("v1") == missing):
        query = {"partition_by": by, "changed_since": seen, "conditions": conditions}
        groups = list(iter_cube(cube, built, **query))
        frame = map_cube_groups(shown, "shown string", cube, built, **query)
        assert sorted(row.shown for row in frame.collect()) == sorted(repr((k, t.to_pylist())) for k, t in groups)
        rows = query_cube_spark(cube, built, **query).count()
        assert rows == sum(t.num_rows for _, t in groups)
        sizes.append((len(groups), rows))
    # The changed partition has every value of i1. With the conditions its groups have no rows.
    n_groups = len(plan_cube_query(cube, built, partition_by=by).groups)
    assert sizes[0][0] == (n_groups if by == "i1" else 1)
    assert sizes[0][1] > 0
    assert sizes[1][0] > 0
    assert sizes[1][1] == 0
