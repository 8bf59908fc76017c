from __future__ import annotations

from datetime import datetime

import numpy as np
import pyarrow as pa
import pytest

from kartothek_cube.core.arrow.types import ordered
from kartothek_cube.core.commit.change import Change, apply_change
from kartothek_cube.core.io.formats import ParquetFormat
from kartothek_cube.core.metadata.commit_log import COMMITS_KEY, SCHEMA_KEY
from kartothek_cube.core.metadata.document import dataset_schema
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.core.write.layout import StageRequest
from kartothek_cube.core.write.prepare import split_rows
from kartothek_cube.core.write.stage import Receipt, stage_parts
from kartothek_cube.errors import InvalidInput, Unsupported
from tests.support.commits import UUID, make_change, stage, write

NOW = datetime(2000, 1, 1, 1, 1, 1, 1)


def test_receipts_say_enough_to_commit_without_reading_the_files():
    store = MemoryStore()
    table = pa.table({"p": ["b", "a", "b"], "x": pa.array([3, 1, 2], pa.int8()), "i1": ["u", None, "v"]})
    request = StageRequest(UUID, ("p",), ("i1",), ("x",), ParquetFormat())
    first, second = stage_parts(store, request, split_rows(table.sort_by("x"), ["p"], "base", UUID), table.schema)
    assert (first.dataset, first.label, first.key, first.values) == (
        UUID,
        "p=a/base",
        f"{UUID}/table/p=a/base.parquet",
        {"p": "a"},
    )
    assert (second.rows, second.size) == (2, len(store.get(second.key)))
    assert first.schema == pa.schema([("p", pa.string()), ("i1", pa.string()), ("x", pa.int8())])
    assert (first.entries["i1"].to_pylist(), sorted(second.entries["i1"].to_pylist())) == ([], ["u", "v"])
    assert (second.low, second.high) == ((2,), (3,))


def test_requests_and_receipts_travel():
    import pickle

    (receipt,) = stage(MemoryStore(), pa.table({"x": [1], "v1": ["a"]}), index=["x"])
    assert pickle.loads(pickle.dumps(receipt)) == receipt
    request = StageRequest(UUID, ("p",), ("i1",), ("x",), ParquetFormat())
    assert pickle.loads(pickle.dumps(request)) == request


def test_partition_columns_are_as_wide_as_their_text():
    schema = pa.schema([("p", pa.int8()), ("q", pa.uint16()), ("r", pa.float32()), ("x", pa.int8())])
    assert dataset_schema(schema, ["p", "q", "r"]) == pa.schema(
        [("p", pa.int64()), ("q", pa.uint64()), ("r", pa.float64()), ("x", pa.int8())]
    )


def change_of(*receipts, **more):
    schema = pa.schema([("x", pa.int64()), ("v1", pa.string())])
    return Change(UUID, receipts, {"table": ordered(schema, [])}, (), ("x",), **more)


def receipt(label, values=(1,)):
    return Receipt(
        UUID, label, f"{UUID}/table/{label}", {}, 1, 1, pa.schema([]), {"x": pa.array(values, type=pa.int64())}
    )


def test_a_change_of_nothing_makes_a_dataset():
    state = apply_change(change_of(receipt("a"), receipt("b", ()), metadata={"owner": "me"}), None, NOW)
    assert state.document.metadata["creation_time"] == "2000-01-01T01:01:01.000001"
    assert set(state.document.metadata) == {"owner", "creation_time", COMMITS_KEY, SCHEMA_KEY}
    assert state.document.partitions.labels.to_pylist() == ["a", "b"]
    assert state.document.indices == {}
    assert (state.indices["x"].values.to_pylist(), state.indices["x"].labels.to_pylist()) == ([1], ["a"])


def test_a_new_dataset_without_rows_has_empty_indices():
    state = apply_change(change_of(), None, NOW)
    assert len(state.document.partitions) == 0
    assert (len(state.indices["x"]), state.indices["x"].values.type) == (0, pa.int64())


def test_an_index_on_a_column_without_values_yet_has_the_type_of_the_dataset():
    change = Change(UUID, (receipt("a"),), {"table": pa.schema([("x", pa.null())])}, (), ("x",))
    with pytest.raises(Unsupported, match="'x'"):
        apply_change(change, None)
    store = MemoryStore()
    base = write(store, {"x": ["t"], "v1": [1]}, index=["x"])
    state = apply_change(make_change(store, {"x": pa.nulls(1), "v1": [1]}, index=["x"]), base)
    assert state.indices["x"].values.to_pylist() == ["t"]
    assert state.schemas["table"].field("x").type == pa.string()


def test_the_change_names_itself():
    change = change_of(receipt("a"), removed=pa.array(["b", "c"]))
    assert change.describe() == f"commit {change.commit} (1 partition added, 2 removed)"


def test_a_change_does_not_touch_its_base():
    store = MemoryStore()
    base = write(store, {"x": [1, 2], "v1": [1, 2]}, index=["x"], label="one")
    before = (base.document, len(base.partitions), base.indices["x"].values.to_pylist())
    apply_change(make_change(store, {"x": [3], "v1": [3]}, index=["x"], removed=["one"]), base)
    assert (base.document, len(base.partitions), base.indices["x"].values.to_pylist()) == before


def test_equal_labels_are_refused():
    with pytest.raises(InvalidInput, match="same label"):
        apply_change(change_of(receipt("a"), receipt("a")), None)


def test_many_partitions_are_split_in_one_pass():
    table = pa.table({"p": np.arange(5_000) % 1_000, "x": np.arange(5_000)})
    parts = split_rows(table, ["p"], "base", UUID)
    assert [p.values["p"] for p in parts] == list(range(1_000))
    assert parts[7].table.column("x").to_pylist() == [7, 1_007, 2_007, 3_007, 4_007]
