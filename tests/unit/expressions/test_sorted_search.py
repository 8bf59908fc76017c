from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kartothek_cube.core.expressions import predicates as module
from kartothek_cube.core.expressions.predicates import Clause, can_be_searched, matching_all, matching_ranges

OPS = st.sampled_from(["==", "<", "<=", ">", ">="])
KINDS = [
    (pa.int64(), st.integers(-9, 9), st.integers(-9, 9) | st.just(0.5)),
    (pa.string(), st.text("abä", max_size=2), st.text("abä", max_size=2)),
    (pa.float64(), st.sampled_from([-1.5, -0.0, 0.0, 2.0]), st.sampled_from([-1.5, 0.0, 1, 9.0])),
    (
        pa.date32(),
        st.dates(dt.date(2020, 1, 1), dt.date(2020, 1, 9)),
        st.dates(dt.date(2020, 1, 1), dt.date(2020, 1, 9)),
    ),
    (pa.bool_(), st.booleans(), st.booleans()),
]


@pytest.mark.parametrize(("kind", "values", "constants"), KINDS, ids=[str(kind) for kind, _, _ in KINDS])
@given(data=st.data())
def test_ranges_are_where_each_value_satisfies_the_comparisons(kind, values, constants, data):
    column = pa.array(sorted(data.draw(st.lists(values, max_size=20))), type=kind)
    clauses = [
        Clause("x", op, value) for op, value in data.draw(st.lists(st.tuples(OPS, constants), min_size=1, max_size=2))
    ]
    clauses += (
        [Clause("x", "in", tuple(data.draw(st.lists(values, min_size=1, max_size=3))))]
        if data.draw(st.booleans())
        else []
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_PROBES", 3)
        found = matching_ranges(column, clauses)
    mask = np.zeros(len(column), dtype=bool)
    for low, high in found:
        assert not mask[low:high].any()
        mask[low:high] = True
    assert mask.tolist() == matching_all(column, clauses).tolist()


def test_a_million_values_are_looked_at_a_few_times(monkeypatch):
    seen, compare = [], module.matching_values
    monkeypatch.setattr(
        module, "matching_values", lambda values, clause: seen.append(len(values)) or compare(values, clause)
    )
    assert matching_ranges(pa.array(np.arange(1_000_000)), [Clause("x", "==", 777_777)]) == [(777_777, 777_778)]
    assert sum(seen) < 10_000


@pytest.mark.parametrize(
    ("clause", "expected"),
    [
        (Clause("x", "!=", 1), False),
        (Clause("x", "not in", (1,)), False),
        (Clause("x", "==", None), False),
        (Clause("x", "in", (1, None)), False),
        (Clause("x", "in", tuple(range(99))), False),
        (Clause("x", "in", (1, 2)), True),
        (Clause("x", "==", 1), True),
    ],
)
def test_what_is_no_few_ranges_is_not_searched(clause, expected):
    assert can_be_searched([clause]) is expected
