"""`delete_cube`: everything that belongs to the datasets goes, nothing else, also in several
attempts.
"""

from __future__ import annotations

import pytest
from storefact._hstores import HDictStore

from kartothek_cube import options
from kartothek_cube.api.cube import Cube, append_to_cube, build_cube, delete_cube, extend_cube, open_cube
from kartothek_cube.api.dataset import DatasetMetadata, convert_metadata_format
from kartothek_cube.api.discover import discover_datasets
from kartothek_cube.core.metadata.naming import document_key, schema_key
from kartothek_cube.core.stores.contract import ReadOnlyView
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.core.stores.open import open_store
from kartothek_cube.errors import InvalidInput, InvalidType, KeyNotFound, ReadOnlyStore, Unsupported
from kartothek_cube.testing.stores import FaultyStore, SimulatedCrash
from tests.support.cubes import CUBE, ENRICH, SEED, ColdStore, answers, build_two, contents, refused, table

OTHERS = ("cube+", "cubes", "cub")
GARBAGE = (
    "cube++seed/table/p=0/left.parquet",
    "cube++e/indices/i2/left.by-dataset-index.parquet",
    "cube++left.txt",
    "cube.txt",
)


@pytest.fixture
def store():
    store = MemoryStore()
    build_two(store)
    return store


def keys(store):
    return store.list(recursive=True).keys


def test_every_key_of_an_intact_cube_goes(store):  # cube 197
    delete_cube(CUBE, store)
    assert keys(store) == []


def test_files_of_later_appends_go_too(store):
    append_to_cube(
        {"seed": table(x=[5], y=["a"], p=[9], i1=[1], v1=[1.0]), "e": table(x=[5], i2=["five"], v2=[50])}, CUBE, store
    )
    left = {key for key in keys(store) if "/indices/" in key} - {
        key for name in ("seed", "e") for key in named_indices(store, name)
    }
    delete_cube(CUBE, store)
    assert set(keys(store)) == left


def named_indices(store, name):
    return DatasetMetadata.load_from_store(f"cube++{name}", store).snapshot.document.indices.values()


def test_other_cubes_and_garbage_stay(store):  # cube 198
    for prefix in OTHERS:
        build_cube(SEED, CUBE.copy(uuid_prefix=prefix), store)
    for key in GARBAGE:
        store.put(key, b"x")
    before = contents(store)
    delete_cube(CUBE, store)
    after = contents(store)
    assert after.items() <= before.items()
    assert set(before) - set(after) == {
        key for key in before if key.startswith("cube++") and not key.startswith("cube+++") and key not in GARBAGE
    }


def test_deleting_twice_is_harmless(store):  # cube 199
    delete_cube(CUBE, store)
    delete_cube(CUBE, store)
    delete_cube(CUBE.copy(uuid_prefix="nope"), store)


@pytest.mark.parametrize("given", ["e", ["e"], ["e", "nope"], {"e"}, "dict"], ids=str)
def test_only_the_datasets_that_are_named_go(store, given):  # cube 200
    datasets = {"e": discover_datasets(CUBE, store)["e"]} if given == "dict" else given
    delete_cube(CUBE, store, datasets)
    assert not [key for key in keys(store) if key.startswith("cube++e")]
    assert "v2" not in answers(store)[0]


@pytest.mark.parametrize("given", [[], {}, "nope"], ids=str)
def test_nothing_that_is_named_is_nothing_that_goes(store, given):
    before = contents(store)
    delete_cube(CUBE, store, given)
    assert contents(store) == before


def test_a_dataset_that_was_given_goes_as_it_is_now(store):  # cube 200
    given = discover_datasets(CUBE, store)
    append_to_cube(table(x=[5], y=["a"], p=[9], i1=[1], v1=[1.0]), CUBE, store)
    delete_cube(CUBE, store, given)
    assert not [key for key in keys(store) if "/table/" in key]
    delete_cube(CUBE, store, given)


def test_the_seed_can_go_alone(store):
    delete_cube(CUBE, store, "seed")
    assert not [key for key in keys(store) if key.startswith("cube++seed")]
    with pytest.raises(InvalidInput, match="seed"):
        open_cube("cube", store)
    delete_cube(CUBE, store)
    assert keys(store) == []


# --- damaged cubes --------------------------------------------------------------------------------


def test_both_encodings_of_the_document_go(store):
    convert_metadata_format("cube++e", store, "msgpack")
    twin = store.get(document_key("cube++e", msgpack=True))
    delete_cube(CUBE, store, "e")
    assert not [key for key in keys(store) if key.startswith("cube++e")]
    extend_cube({"e": ENRICH}, CUBE, store, partition_on={"e": []})
    store.put(document_key("cube++e", msgpack=True), twin)
    delete_cube(CUBE, store)
    assert keys(store) == []


def test_a_dataset_without_schema_file_can_be_deleted(store):
    data = store.get(document_key("cube++e")).replace(b"kartothek_cube.schema", b"kartothek_cube.nothing")
    store.put(document_key("cube++e"), data)
    store.delete(schema_key("cube++e"))
    with pytest.raises(KeyNotFound):
        answers(ColdStore(store))
    delete_cube(CUBE, store)
    assert keys(store) == []


def test_a_cube_that_is_not_valid_can_be_deleted(store):
    delete_cube(CUBE.copy(dimension_columns=["nope"], partition_columns=["neither"], seed_dataset="other"), store)
    assert keys(store) == []


def test_a_dataset_whose_files_are_missing_can_be_deleted(store):
    for key in [key for key in keys(store) if "/p=0/" in key or "/indices/" in key]:
        store.delete(key)
    delete_cube(CUBE, store)
    assert keys(store) == []


@pytest.mark.parametrize(
    "damage",
    [
        b"{",
        b'{"dataset_metadata_version": 4, "dataset_uuid": "cube++e", "partitions": {"a": {"files": {"table": "/"}}}}',
    ],
)
def test_a_dataset_whose_document_is_damaged_goes_with_all_that_lies_below_it(store, damage, caplog):
    for prefix in OTHERS:
        build_cube(SEED, CUBE.copy(uuid_prefix=prefix), store)
    store.put("cube++seed/table/p=0/left.parquet", b"")
    others = {key for key in keys(store) if not key.startswith("cube++") or key.startswith("cube+++")}
    store.put("cube++e/unknown/left.parquet", b"")
    store.put(document_key("cube++e"), damage)
    delete_cube(CUBE, store)
    assert set(keys(store)) == others | {"cube++seed/table/p=0/left.parquet"}
    assert "'cube++e' cannot be read" in "\n".join(caplog.messages)


def test_nothing_goes_if_a_document_is_of_a_later_format(store):
    store.put(document_key("cube++e"), b'{"dataset_metadata_version": 5, "dataset_uuid": "cube++e"}')
    with refused(store, Unsupported, "cube++e"):
        delete_cube(CUBE, store)


def test_history_and_marks_go(store):
    store.put("cube++seed/_gc/1.json", b"{}")
    assert any("/_history/" in key for key in keys(store))
    delete_cube(CUBE, store)
    assert [key for key in keys(store) if "/_" in key] == []


def test_a_store_that_complains_about_missing_keys_is_not_asked_to_delete_one():
    class Strict(HDictStore):
        def delete(self, key):
            if key.startswith("cube++") and "msgpack" not in key and key not in self.d:
                raise AssertionError(key)
            return super().delete(key)

    store = open_store(Strict())
    build_two(store)
    delete_cube(CUBE, store)
    assert keys(store) == []


# --- bad arguments --------------------------------------------------------------------------------


def test_bad_arguments_are_refused(store):
    datasets = discover_datasets(CUBE, store)
    with refused(store, InvalidType, "open_cube"):
        delete_cube(7, store)
    with refused(store, InvalidType, "'e': str"):
        delete_cube(CUBE, store, {"e": "cube++e"})
    with refused(store, InvalidInput, "cube++seed"):
        delete_cube(CUBE, store, {"e": datasets["seed"]})
    with refused(store, ReadOnlyStore, "cannot be written to"):
        delete_cube(CUBE, ReadOnlyView(store))


# --- interruptions --------------------------------------------------------------------------------


def state(store):
    """What a reader that starts afresh sees; None where it gets an error."""
    try:
        return answers(ColdStore(store))
    except (InvalidInput, KeyNotFound):
        return None


@pytest.mark.slow
def test_after_a_crash_the_cube_never_answers_with_less_and_the_next_call_ends_the_work():
    def made():
        store = MemoryStore()
        build_two(store)
        for key in GARBAGE:
            store.put(key, b"x")
        return store

    old, found = state(made()), []
    counting = ColdStore(made())
    delete_cube(CUBE, counting, options=options(threads=1))
    for n in range(len(counting.calls)):
        for kind in ("crash", "crash_after"):
            store, seen = made(), iter(range(10**6))
            faulty = FaultyStore(store, lambda _, n=n, kind=kind, seen=seen: kind if next(seen) == n else None)
            with pytest.raises(SimulatedCrash):
                delete_cube(
                    CUBE,
                    ColdStore(faulty),
                    options=options(threads=1),
                )
            found.append(state(store))
            delete_cube(CUBE, store)
            assert set(keys(store)) == set(GARBAGE)
    assert all(rows in (None, old) for rows in found)
    assert (found[0], found[-1]) == (old, None)


def test_the_seed_goes_first_and_each_document_after_its_files(store):
    counting = ColdStore(store)
    delete_cube(CUBE, counting, options=options(threads=1))
    gone = [key for key in counting.touched("delete") if "msgpack" not in key]
    owners = [key.removeprefix("cube++").partition("/")[0].partition(".")[0] for key in gone]
    assert owners == sorted(owners, key=["seed", "e"].index)
    for name in ("cube++seed", "cube++e"):
        own = [key for key in gone if key.startswith((f"{name}/", f"{name}."))]
        assert own[-1] == document_key(name)
        assert len(own) == len(set(own)) > 3


def test_a_cube_with_another_seed_goes_too():
    store = MemoryStore()
    cube = Cube(["x"], ["p"], "named", seed_dataset="zz")
    build_cube({"zz": table(x=[1], p=[1]), "aa": table(x=[1], p=[1], v1=[1])}, cube, store)
    delete_cube(cube, store)
    assert keys(store) == []
