"""`DatasetFactory`: reads once, keeps what it has, and forgets when it is told to."""

from __future__ import annotations

import copy
import pickle

import pytest

from kartothek_cube.core.kartothek.dataset_metadata import DatasetFactory, DatasetMetadata, DatasetMetadataBase
from kartothek_cube.core.snapshots.loader import load_snapshot, with_indices
from kartothek_cube.core.stores.open import open_store
from kartothek_cube.errors import DatasetNotFound, InvalidInput, InvalidType, KeyNotFound, UnknownColumn
from tests.caches import forget
from tests.support.commits import UUID, write

ROWS = {"p": [1, 1, 2], "i1": [10, 11, 10]}


@pytest.fixture
def store(tmp_path):
    return open_store(tmp_path / "store")


@pytest.fixture
def factory(store):
    write(store, ROWS, on=["p"], index=["i1"], label="f")
    return DatasetFactory(UUID, store)


def test_nothing_is_read_before_it_is_looked_at(store):
    factory = DatasetFactory(UUID, store)
    assert not factory.is_loaded
    with pytest.raises(DatasetNotFound, match="Dataset does not exist"):
        _ = factory.partitions
    write(store, ROWS)
    assert len(factory.partitions) == 1
    assert factory.is_loaded


def test_a_factory_has_the_attributes_of_its_dataset(factory):
    assert isinstance(factory, DatasetMetadataBase)
    assert (factory.uuid, factory.dataset_uuid, factory.partition_keys, factory.tables) == (
        UUID,
        UUID,
        ["p"],
        ["table"],
    )
    assert factory.dataset_metadata == DatasetMetadata.load_from_store(UUID, factory.store)
    with pytest.raises(AttributeError, match="nothing"):
        _ = factory.nothing


def test_a_factory_says_whether_it_has_read(factory):
    assert repr(factory) == "<DatasetFactory: uuid=uuid is_loaded=False>"
    assert factory.metadata_version == 4
    assert repr(factory) == "<DatasetFactory: uuid=uuid is_loaded=True>"


def test_a_factory_shows_the_old_state_until_it_is_invalidated(factory, store):  # A08
    before = factory.snapshot
    write(store, ROWS, on=["p"], index=["i1"], label="g")
    assert (factory.snapshot is before, len(factory.partitions)) == (True, 2)
    factory.invalidate()
    assert not factory.is_loaded
    assert (len(factory.partitions), len(factory.snapshot.partitions)) == (4, 4)


@pytest.mark.parametrize(
    "form", [lambda s: s, lambda s: lambda: s, lambda s: f"hfs://{s.local_path('x').removesuffix('/x')}"]
)
def test_every_form_of_a_store_is_taken(factory, store, form):
    made = DatasetFactory(UUID, form(store))
    assert made.store == made.store_factory() == store
    assert made.store is made.store
    assert len(made.partitions) == 2


def test_an_unknown_url_fails_when_it_is_opened():  # A06
    factory = DatasetFactory(UUID, "nowhere://data")
    with pytest.raises(InvalidInput, match="Unknown storage type"):
        _ = factory.partitions


@pytest.mark.parametrize("wrong", [None, 1, {}])
def test_what_is_no_store_is_refused_at_once(wrong):
    with pytest.raises(InvalidType, match="Provided incompatible store type"):
        DatasetFactory(UUID, wrong)


def test_indices_are_loaded_in_place(factory):  # I01
    assert factory.load_index("i1") is factory
    assert factory.indices["i1"].loaded
    assert factory.load_partition_indices() is factory
    assert factory.primary_indices_loaded
    factory.invalidate()
    assert factory.load_all_indices(load_partition_indices=False) is factory
    assert {c: i.loaded for c, i in factory.indices.items()} == {"i1": True}
    with pytest.raises(UnknownColumn, match="No index specified"):
        factory.load_index("v1")


def test_indices_may_come_from_another_store(factory, store):
    forget(store)
    with pytest.raises(KeyNotFound):
        factory.load_index("i1", store="hmemory://")
    assert factory.load_index("i1", store=store).query(i1=11) == ["p=1/f"]


def test_all_indices_can_be_loaded_from_the_beginning(factory, store):
    assert all(i.loaded for i in DatasetFactory(UUID, store, load_all_indices=True).indices.values())


def test_user_metadata_can_be_left_out(factory, store):
    bare = DatasetFactory(UUID, store, load_dataset_metadata=False)
    assert (bare.metadata, list(factory.metadata)) == ({}, ["creation_time"])
    assert bare.snapshot == factory.snapshot
    assert bare.load_all_indices().metadata == {}


def test_schemas_can_be_left_out(factory, store):
    bare = DatasetFactory(UUID, store, load_schema=False)
    assert (bare.table_meta, bare.snapshot.schema.names) == ({}, ["p", "i1"])
    assert bare.snapshot is bare.snapshot
    bare.remember(with_indices(store, bare.snapshot, ["i1"]))
    assert set(bare.snapshot.indices) == {"i1"}


def test_a_factory_keeps_the_indices_that_a_reader_loaded(factory, store):
    assert not factory.indices["i1"].loaded
    factory.remember(with_indices(store, factory.snapshot, ["i1"]))
    assert (factory.indices["i1"].loaded, set(factory.snapshot.indices)) == (True, {"i1"})
    assert factory.query(i1=11) == ["p=1/f"]


def test_pickling_drops_what_was_read(factory):  # A09
    factory = DatasetFactory(UUID, factory.store, load_dataset_metadata=False).load_all_indices()
    back = pickle.loads(pickle.dumps(factory))
    assert (factory.is_loaded, back.is_loaded) == (True, False)
    assert (back.metadata, back.indices["i1"].loaded, back.store) == ({}, False, factory.store)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_keeps_what_was_read_and_goes_its_own_way(factory, store, copied):
    factory.load_index("i1")
    other = copied(factory)
    assert other.is_loaded
    assert other.dataset_metadata == factory.dataset_metadata
    other.invalidate()
    assert factory.is_loaded


def test_a_snapshot_is_not_read_again(factory, store, monkeypatch):
    first = factory.snapshot
    monkeypatch.setattr(type(store), "get_versioned", lambda *_: pytest.fail("read again"))
    assert factory.snapshot is first
    assert factory.query(p=1) == ["p=1/f"]


def test_the_factory_shares_the_snapshot_with_the_rest_of_the_library(factory, store):
    assert factory.snapshot is load_snapshot(store, UUID)
