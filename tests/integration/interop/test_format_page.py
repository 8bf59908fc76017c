"""What the writer of the page about the format writes, kartothek 5.3 reads and updates; and the
page's reader reads it then.
"""

from __future__ import annotations

import datetime as dt

import pyarrow as pa

from kartothek_cube.api.dataset import read_table_arrow
from tests.support import by_the_page as reader
from tests.support import write_by_the_page as writer
from tests.support.all_types import ALL_TYPES, INDEXED

# A frame would turn numbers with nulls into floats.
ROWS = pa.table(
    {
        "p": ["a", "ä =%", "a"],
        "q": [dt.datetime(2024, 5, 1), dt.datetime(1969, 1, 1, 0, 0, 1), dt.datetime(2024, 5, 1)],
        "x": pa.array([1, 2, 3], pa.int8()),
        "i1": ["Köln", "b", "Köln"],
        "v1": [0.5, None, -1.0],
        "v2": pa.array([[1], [], [2, 3]], pa.list_(pa.field("item", pa.int16()))),
        "v3": [b"\xff", b"", None],
    }
)
CELLS = {"seed": ROWS.select(["x", "p", "v1"]), "more": ROWS.select(["x", "p", "i1"]).slice(1)}

SCRIPT = """
import json, sys
from functools import partial
from storefact import get_store_from_url
from kartothek.api.cube import query_cube
from kartothek.api.discover import discover_cube
from kartothek.io.eager import read_table, update_dataset_from_dataframes
S = partial(get_store_from_url, sys.argv[1])
answers = {}
answers["all"] = [read_table(uuid, S, table="table").s.tolist() for uuid in ("json", "packed")]
rows = read_table("u", S, table="table")
answers["u"] = [rows.columns.tolist(), rows.x.tolist(), rows.p.tolist(), rows.q.astype(str).tolist()]
answers["i1"] = read_table("u", S, table="table", predicates=[[("i1", "==", "Köln")]]).x.tolist()
update_dataset_from_dataframes([rows], S, "u", partition_on=["p", "q"], secondary_indices=["i1"])
cube, datasets = discover_cube("c", S)
(frame,) = query_cube(cube, S)
answers["cube"] = [sorted(datasets), cube.seed_dataset, list(cube.dimension_columns), list(cube.partition_columns)]
answers["cells"] = frame.astype(object).where(frame.notna(), None)[["x", "p", "v1", "i1"]].values.tolist()
print(json.dumps(answers))
"""


def test_kartothek_reads_and_updates_what_the_page_says(tmp_path, run_kartothek):
    for uuid, packed in (("json", False), ("packed", True)):
        writer.write_dataset(tmp_path, uuid, ALL_TYPES, [], INDEXED, packed=packed)
    writer.write_dataset(tmp_path, "u", ROWS, ["p", "q"], ["i1"], **{"a": 1, "kartothek_cube.x": "kept"})
    writer.write_cube(tmp_path, "c", CELLS, "seed", ["x"], ["p"])

    answers = run_kartothek(SCRIPT, f"hfs://{tmp_path}")

    assert answers["all"] == [ALL_TYPES["s"].to_pylist()] * 2
    times = ["2024-05-01 00:00:00", "2024-05-01 00:00:00", "1969-01-01 00:00:01"]
    assert answers["u"] == [["p", "q", "i1", "v1", "v2", "v3", "x"], [1, 3, 2], ["a", "a", "ä =%"], times]
    assert answers["i1"] == [1, 3]
    assert answers["cube"] == [["more", "seed"], "seed", ["x"], ["p"]]
    assert answers["cells"] == [[1, "a", 0.5, None], [2, "ä =%", None, "b"], [3, "a", -1.0, "Köln"]]
    assert {"a", "kartothek_cube.x", "creation_time"} == {*reader.read_document(tmp_path, "u")["metadata"]}
    updated = reader.read_table(tmp_path, "u")
    assert repr(updated.to_pylist()) == repr(read_table_arrow("u", f"hfs://{tmp_path}").to_pylist())
    assert updated["x"].to_pylist() == [1, 3, 2] * 2
    assert reader.rows_where(tmp_path, "u", "i1", "b")["x"].to_pylist() == [2, 2]
