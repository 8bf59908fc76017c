"""Whatever is written and asked, the library answers as the naive model does."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kartothek_cube.core.io import parquet as parquet_source
from kartothek_cube.core.io import parquet_rows
from kartothek_cube.testing.strategies import cubes_with_data, queries
from tests.support.cube_model import (
    answer,
    arguments_of,
    check_frames,
    check_plan,
    check_refused,
    check_table,
    written,
)


@pytest.fixture
def as_if_large(monkeypatch):
    """What is worth it for large files only is done with small ones."""
    for name in ("_FILTERED_ROWS", "_FEW_ROWS", "_SKIPPED_ROWS"):
        monkeypatch.setattr(parquet_rows, name, 0)
    monkeypatch.setattr(parquet_source, "_MANY_ROWS_OF_A_SOURCE", 0)


thorough = settings(
    max_examples=3 * settings().max_examples,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)


@pytest.mark.slow
@thorough
@given(st.data())
def test_queries_answer_as_the_model_does(data):  # cube 193
    check_answers(data)


@pytest.mark.slow
@pytest.mark.usefixtures("as_if_large")
@thorough
@given(st.data())
def test_queries_of_large_files_answer_as_the_model_does(data):
    check_answers(data)


def check_answers(data):
    """The frames, the plan and the table of random queries of a random cube."""
    case = data.draw(cubes_with_data())
    store, model = written(case), case.model()
    for query in data.draw(st.lists(queries(case), min_size=1, max_size=4)):
        expected = answer(model, arguments_of(query))
        if expected is None:
            check_refused(case, query, store)
        else:
            check_frames(case, arguments_of(query), store, expected)
            check_plan(case, query, store, expected)
        ungrouped = {name: value for name, value in arguments_of(query).items() if name != "partition_by"}
        whole = answer(model, ungrouped)
        if whole is not None:
            check_table(case, ungrouped, store, whole)
