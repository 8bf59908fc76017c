"""The cube that the demonstration leaves is read, and appended to, by the real kartothek 5.3."""

from __future__ import annotations

import json
import shutil

import pandas as pd
import pyarrow.parquet as pq
import pytest

from kartothek_cube import C, open_cube, query_cube

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.exhaustive]

QUERIES = {
    "everything": "{}",
    "conditions on three enrichments": (
        'dict(conditions=(C("DEPARTMENT") == "MEAT") & (C("MAILER") > "0") & (C("STORE_CLASS") == "C"))'
    ),
    "one frame a department": 'dict(partition_by="DEPARTMENT", payload_columns=["UNITS", "PRICE", "DISPLAY"])',
    "projection": 'dict(dimension_columns=["STORE_ID", "WEEK"], payload_columns=["VISITS", "KIDS_SHARE"])',
    "payload of the seed": (
        'dict(conditions=C("PRICE") > 5.0, payload_columns=["SALES_VALUE", "CAMPAIGN_TYPE", "RESPONSE_CLASS"])'
    ),
}
HEAD = """
import json, sys
from functools import partial
import pyarrow as pa, pyarrow.parquet as pq
from storefact import get_store_from_url
from kartothek.api.cube import C, append_to_cube, query_cube
from kartothek.api.dataset import read_table
from kartothek.api.discover import discover_cube
STORE = partial(get_store_from_url, sys.argv[1])
CUBE, _ = discover_cube("grocery", STORE())
"""
ASK = """
def ask(number, query):
    frames = query_cube(CUBE, STORE, **eval(query))
    for i, frame in enumerate(frames):
        table = pa.Table.from_pandas(frame, preserve_index=False)
        pq.write_table(table, f"{sys.argv[2]}/{number}-{i}.parquet", coerce_timestamps="us")
    return len(frames)
print(json.dumps([ask(number, query) for number, query in enumerate(json.loads(sys.argv[3]))]))
"""
APPEND = """
rows = read_table("grocery++sales", STORE, predicates=[[("PERIOD", "==", 1), ("STORE_GROUP", "==", "OTHER")]]).head(5)
append_to_cube({"sales": rows.assign(UNITS=rows["UNITS"] + 1000)}, CUBE, STORE)
print(json.dumps(rows[["PRODUCT_ID", "STORE_ID", "WEEK", "UNITS"]].values.tolist()))
"""


@pytest.fixture(scope="module")
def store(demo, tmp_path_factory):
    """A copy of the demonstration's store, which may be written to."""
    folder = tmp_path_factory.mktemp("copy") / "store"
    shutil.copytree(demo.folder / "store", folder)
    return f"hfs://{folder}"


def test_five_queries_have_equal_answers(store, run_kartothek, tmp_path):
    counts = run_kartothek(HEAD + ASK, store, tmp_path, json.dumps(list(QUERIES.values())))
    for number, (name, query) in enumerate(QUERIES.items()):
        ours = query_cube(open_cube("grocery", store), store, **eval(query))
        theirs = [pq.read_table(tmp_path / f"{number}-{i}.parquet").to_pandas() for i in range(counts[number])]
        assert len(ours) == len(theirs) > 0, name
        for mine, other in zip(ours, theirs, strict=True):
            pd.testing.assert_frame_equal(mine, other, check_dtype=False, check_exact=True, obj=name)


def test_rows_that_kartothek_appends_win(store, run_kartothek):
    rows = run_kartothek(HEAD + APPEND, store)
    found = query_cube(
        open_cube("grocery", store), store, C("UNITS") > 1000 - 1, datasets=["sales"], payload_columns=["UNITS"]
    )[0]
    cells = {(r.PRODUCT_ID, r.STORE_ID, r.WEEK): r.UNITS for r in found.itertuples()}
    assert len(rows) == 5
    assert all(cells[product, shop, week] == units + 1000 for product, shop, week, units in rows)
