"""The answers of the library, compared with those of the naive model of a cube."""

from __future__ import annotations

import datetime
import itertools

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import note

from kartothek_cube.api.cube import (
    append_to_cube,
    build_cube,
    extend_cube,
    load_group,
    plan_cube_query,
    query_cube,
    query_cube_arrow,
    remove_partitions,
)
from kartothek_cube.core.stores.open import open_store
from kartothek_cube.errors import InvalidInput
from kartothek_cube.testing.strategies import Removal

TYPES = {
    "int": pa.int64(),
    "float": pa.float64(),
    "str": pa.string(),
    "bool": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
}


def to_arrow(rows, kinds):
    return pa.Table.from_pylist(rows, pa.schema([(column, TYPES[kinds[column]]) for column in rows[0]]))


def run_step(case, step, store):
    if isinstance(step, Removal):
        remove_partitions(case.cube, store, step.conditions, step.datasets)
        return
    data = {name: to_arrow(rows, case.kinds) for name, rows in step.data.items()}
    if step.verb == "append":
        append_to_cube(data, case.cube, store)
    else:
        {"build": build_cube, "extend": extend_cube}[step.verb](data, case.cube, store, partition_on=step.partition_on)


def written(case):
    store = open_store("hmemory://")
    for step in case.steps:
        run_step(case, step, store)
    return store


def plain(value):
    if pd.isna(value):
        return None
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, pd.Timestamp):
        return value.to_pydatetime()
    return datetime.datetime.combine(value, datetime.time()) if type(value) is datetime.date else value


def same(expected, actual):
    expected, actual = plain(expected), plain(actual)
    if type(expected) is int and type(actual) is float:  # pandas has no integers with nulls
        return float(expected) == actual
    return type(expected) is type(actual) and expected == actual


def assert_same_rows(expected, actual):
    assert len(expected) == len(actual)
    for wanted, got in zip(expected, actual, strict=True):
        assert list(wanted) == list(got)
        assert all(same(wanted[column], got[column]) for column in wanted), f"expected {wanted}, got {got}"


def assert_same_groups(expected, actual):
    assert len(expected) == len(actual)
    for wanted, got in zip(expected, actual, strict=True):
        assert_same_rows(wanted, got)


def in_order(rows, case, query):
    columns = (*(query.dimension_columns or case.cube.dimension_columns), *case.cube.partition_columns)
    return sorted(rows, key=lambda row: [row[column] for column in columns])


def arguments_of(query):
    names = ("conditions", "datasets", "dimension_columns", "partition_by", "payload_columns")
    return {name: getattr(query, name) for name in names}


def check_frames(case, arguments, store, expected):
    frames = query_cube(case.cube, store, **arguments)
    assert all(list(frame.index) == list(range(len(frame))) for frame in frames)
    assert_same_groups(expected, [frame.to_dict("records") for frame in frames])


def check_table(case, arguments, store, expected):
    table = query_cube_arrow(case.cube, store, **arguments)
    assert table.schema.types == [TYPES[case.kinds[column]] for column in table.column_names]
    assert_same_rows(list(itertools.chain(*expected)), table.to_pylist())


def check_plan(case, query, store, expected):
    plan = plan_cube_query(case.cube, store, **arguments_of(query))
    groups = [table.to_pylist() for table in (load_group(group, store) for group in plan.groups) if table.num_rows]
    together = groups if query.partition_by else [list(itertools.chain(*groups))] if groups else []
    assert_same_groups(expected, [in_order(rows, case, query) for rows in together])


def check_refused(case, query, store):
    for verb in (query_cube, plan_cube_query):
        with pytest.raises(InvalidInput):
            verb(case.cube, store, **arguments_of(query))


def answer(model, arguments):
    try:
        return model.query(**arguments)
    except InvalidInput as error:
        note(f"refused: {error}")
        return None
