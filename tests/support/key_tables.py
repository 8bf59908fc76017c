"""Random tables of key columns."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
from hypothesis import strategies as st

VALUES = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3),
    pa.int8(): st.integers(-128, 127),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.string(): st.text(max_size=3),
    pa.binary(): st.binary(max_size=2),
    pa.date32(): st.dates(),
    pa.timestamp("us"): st.datetimes(),
    pa.float64(): st.floats(allow_nan=False),
    pa.bool_(): st.booleans(),
    pa.decimal128(6, 2): st.integers(-9999, 9999).map(lambda n: Decimal(n) / 100),
}


@st.composite
def tables(draw, n_tables=1):
    kinds = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=4))
    nullable = [draw(st.booleans()) for _ in kinds]
    found = []
    for _ in range(n_tables):
        rows = draw(st.integers(0, 8))
        columns = []
        for kind, with_null in zip(kinds, nullable, strict=True):
            value = VALUES[kind] | st.none() if with_null else VALUES[kind]
            columns.append(pa.array(draw(st.lists(value, min_size=rows, max_size=rows)), type=kind))
        found.append(pa.table(columns, names=[f"c{i}" for i in range(len(kinds))]))
    return found
