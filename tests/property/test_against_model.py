"""Whatever is written and asked, the library answers as the naive model does."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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


@pytest.mark.slow
@given(st.data())
@settings(max_examples=3 * settings().max_examples, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_queries_answer_as_the_model_does(data):  # cube 193
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
