"""An append to a far store starts from the state that the process saw last; if another one is the
newest, everything is done again from that.
"""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pytest

from kartothek_cube.api.dataset import (
    delete_dataset,
    read_table_arrow,
    store_dataframes_as_dataset,
    update_dataset_from_dataframes,
)
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import InvalidInput
from kartothek_cube.testing.stores import FaultyStore, InjectedFault, RoundsStore
from tests.caches import forget
from tests.support.far import FarStore

UUID = "uuid"


def rows(*xs, **more):
    return pa.table({"x": pa.array(xs, pa.int64()), "p": ["a"] * len(xs), **more})


@pytest.fixture
def memory():
    memory = MemoryStore()
    store_dataframes_as_dataset(memory, UUID, [rows(0)], partition_on="p")
    return memory


class Elsewhere:
    """Another process: the cache of this one does not see what it does."""

    def __init__(self, monkeypatch):
        self.monkeypatch = monkeypatch

    def __call__(self, action):
        from kartothek_cube.core.snapshots import loader

        with self.monkeypatch.context() as patched:
            patched.setattr(loader, "_cache", loader.LruCache(64))
            action()


@pytest.fixture
def elsewhere(monkeypatch):
    return Elsewhere(monkeypatch)


def stored(memory):
    forget(memory)
    return sorted(read_table_arrow(UUID, memory).column("x").to_pylist())


def append(store, *xs, **more):
    return update_dataset_from_dataframes([rows(*xs)], store, UUID, **more)


def test_the_look_goes_beside_the_files(memory):
    store = RoundsStore(memory)
    with store.rounds_counted():
        append(store, 1)
    assert store.rounds == 2
    assert [n for n, call in store.chain if call.operation == "changed"] == [1]
    assert stored(memory) == [0, 1]


def test_what_others_added_since_is_kept(memory, elsewhere):
    elsewhere(lambda: append(memory, 1))
    assert append(FarStore(memory), 2).commit.tries == 1
    assert stored(memory) == [0, 1, 2]


def test_what_others_put_in_the_scope_since_is_no_conflict(memory, elsewhere):
    elsewhere(lambda: append(memory, 1))
    append(FarStore(memory), 2, delete_scope=[{"p": "a"}])
    assert stored(memory) == [2]


def test_a_dataset_that_is_gone_is_made_again(memory, elsewhere):
    elsewhere(lambda: delete_dataset(UUID, memory))
    append(FarStore(memory), 2, partition_on=["p"])
    assert stored(memory) == [2]


def test_a_dataset_that_was_replaced_by_another_one_rules(memory, elsewhere):
    other = pa.table({"y": ["text"]})
    elsewhere(lambda: store_dataframes_as_dataset(memory, UUID, [other], overwrite=True))
    with pytest.raises(InvalidInput):
        append(FarStore(memory), 2)
    update_dataset_from_dataframes([other], FarStore(memory), UUID)
    assert read_table_arrow(UUID, memory).to_pydict() == {"y": ["text", "text"]}


def test_columns_that_came_since_are_known(memory, elsewhere):
    new = rows(1, v1=[1.0])
    elsewhere(lambda: update_dataset_from_dataframes([new], memory, UUID, add_columns=True))
    update_dataset_from_dataframes([new], FarStore(memory), UUID)
    assert stored(memory) == [0, 1, 1]


@pytest.mark.parametrize(
    "data", [lambda: iter([rows(1)]), lambda: [{"data": [("table", rows(1))]}], lambda: rows(1).to_reader()]
)
def test_rows_that_may_come_only_once_wait_for_the_look(memory, elsewhere, data):
    elsewhere(lambda: append(memory, 2))
    update_dataset_from_dataframes(data(), FarStore(memory), UUID)
    assert stored(memory) == [0, 1, 2]


def test_callables_are_called_once(memory, elsewhere):
    called = []

    def merged(metadata):
        called.append(len(metadata))
        return metadata[0]

    elsewhere(lambda: append(memory, 2))
    frame = pd.DataFrame({"x": [1], "p": ["a"]})
    update_dataset_from_dataframes([frame], FarStore(memory), UUID, metadata_merger=merged)
    update_dataset_from_dataframes([frame], FarStore(memory), UUID, metadata=lambda: called.append(0) or {})
    assert called.count(0) == 1
    assert stored(memory) == [0, 1, 1, 2]


def test_an_old_state_says_nothing_if_nobody_knows_the_newest_one(memory, elsewhere):
    other = pa.table({"y": ["text"]})
    elsewhere(lambda: store_dataframes_as_dataset(memory, UUID, [other], overwrite=True))
    store = FaultyStore(FarStore(memory), lambda call: "before" if call.operation == "changed" else None)
    with pytest.raises(InjectedFault, match="changed"):
        update_dataset_from_dataframes([other], store, UUID)
