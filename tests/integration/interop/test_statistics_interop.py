"""kartothek 5.3 adds, removes and collects garbage in a dataset with statistics, and reads stay
right.
"""

from __future__ import annotations

import pandas as pd
import pytest

from kartothek_cube.api.dataset import (
    build_statistics,
    plan_table_scan,
    read_table_arrow,
    store_dataframes_as_dataset,
    update_dataset_from_dataframes,
    verify_dataset,
)
from kartothek_cube.core.snapshots import statistics
from kartothek_cube.core.stores.open import open_store

UPDATE = """
import sys
from functools import partial
import pandas as pd
from storefact import get_store_from_url
from kartothek.io.eager import garbage_collect_dataset, read_table, update_dataset_from_dataframes
store = partial(get_store_from_url, sys.argv[1])
assert sorted(read_table("uuid", store).x) == [1, 2, 3, 4]
frames = [pd.DataFrame({"p": [p], "x": [x], "v1": [0.5]}) for p, x in (("b", 30), ("c", 40))]
update_dataset_from_dataframes(
    [frames[0], {"label": sys.argv[2], "data": [("table", frames[1])]}],
    store=store, dataset_uuid="uuid", delete_scope=[{"p": "b"}],
)
if sys.argv[3] == "collect":
    garbage_collect_dataset("uuid", store)
print("null")
"""
AGAIN = """
import sys
from functools import partial
import pandas as pd
from storefact import get_store_from_url
from kartothek.io.eager import update_dataset_from_dataframes
store = partial(get_store_from_url, sys.argv[1])
frame = pd.DataFrame({"p": ["c"], "x": [41], "v1": [7.5]})
update_dataset_from_dataframes([{"label": sys.argv[2], "data": [("table", frame)]}], store=store, dataset_uuid="uuid")
print("null")
"""


def found(store, *clause):
    return sorted(read_table_arrow("uuid", store, predicates=[[clause]]).column("x").to_pylist())


def files(store, *clause):
    return len(plan_table_scan("uuid", store, predicates=[[clause]]).files())


@pytest.mark.interop
@pytest.mark.parametrize("collect", ["keep", "collect"])
@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("label", ["mine", "f5bb0c8de146c67b44babbf4e6584cc0"], ids=["name", "hash"])
def test_what_kartothek_changes_is_found(run_kartothek, store_url, monkeypatch, label, inside, collect):
    if not inside:
        monkeypatch.setattr(statistics, "_MOST_INSIDE", 0)
    store = open_store(store_url)
    rows = pd.DataFrame({"p": ["a", "a", "b", "b"], "x": [1, 2, 3, 4], "v1": [1.5, 2.5, 3.5, 4.5]})
    store_dataframes_as_dataset(store, "uuid", [rows], partition_on="p")
    assert files(store, "x", ">", 2) == 1
    run_kartothek(UPDATE, store_url, label, collect)
    statistics._cache.clear()
    assert (found(store, "x", ">", 2), found(store, "v1", "<", 1.0)) == ([30, 40], [30, 40])
    assert found(store, "x", "<", 3) == [1, 2]
    assert files(store, "x", "<", 3) <= 3
    # The file with a name of its own is overwritten in place, and stays unknown. Beside a hash, any
    # other name may be one.
    assert build_statistics("uuid", store) == (1 if label == "mine" else 0)
    assert files(store, "x", ">", 35) == (1 if label == "mine" else 2)
    run_kartothek(AGAIN, store_url, label)
    assert found(store, "v1", ">", 7.0) == [41]
    update_dataset_from_dataframes([rows[:1].assign(x=5)], store, "uuid")
    assert found(store, "x", ">=", 5) == [5, 30, 41]
    assert files(store, "x", "==", 5) == (2 if label == "mine" else 3)
    assert not verify_dataset("uuid", store, deep=True).errors
