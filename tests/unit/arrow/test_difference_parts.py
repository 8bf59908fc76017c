"""A difference of more rows than memory is that of all rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from kartothek_cube.core.arrow import difference
from kartothek_cube.core.arrow.difference import DifferenceBuffer, row_difference


@pytest.mark.parametrize("limit", [0, 2000, 10**9])
@pytest.mark.parametrize("on", [None, ["i1"]])
def test_parts_and_their_pieces_have_all_differences(limit, on, monkeypatch):
    monkeypatch.setattr(difference, "_LEAST_ROOM", 1)
    rng = np.random.default_rng(0)
    before, after = (pa.table({"i1": rng.permutation(3000), "v1": rng.integers(0, 3, 3000)}) for _ in range(2))
    whole = row_difference(before, after, on)
    with DifferenceBuffer(before.schema, on, (), limit) as buffer:
        for side in ((before, None), (None, after)):
            buffer.add(*side)
        parts = list(buffer.differences())
    for name in ("preimages", "postimages", "deleted", "inserted"):
        found = pa.concat_tables([getattr(part, name) for part in parts])
        order = [("i1", "ascending"), ("v1", "ascending")]
        assert found.sort_by(order).equals(getattr(whole, name).sort_by(order))
    assert (len(parts) > 64) == (limit < 10**9)
