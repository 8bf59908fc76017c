"""What a crash leaves, for every verb and every call of the store: the page *What a crash leaves*.

The process dies before or after each call. Then a new one finds the old state or the new one,
nothing that `verify_dataset` calls an error, can do what was to be done, and garbage collection
leaves what is named and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from kartothek_cube import C, Cube, open_store, options
from kartothek_cube.api import cube as cubes
from kartothek_cube.api import dataset as api
from kartothek_cube.core.metadata.naming import schema_key
from kartothek_cube.core.metadata.statistics import statistics_files
from kartothek_cube.core.metadata.tag import tag_key
from kartothek_cube.core.snapshots import statistics
from kartothek_cube.core.snapshots.loader import find_snapshot
from kartothek_cube.core.snapshots.time_travel import list_tags, read_state
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import AlreadyExists
from kartothek_cube.testing.stores import CountingStore, FaultyStore, SimulatedCrash
from tests.caches import forget
from tests.support.thoroughness import crash_points

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_pauses")]

UUID, NEW = "uuid", "new"
NOW = options(grace=timedelta(0), retain=timedelta(0))
ONE = pa.table({"p": ["a", "b"], "i1": [1, 2], "v1": [1.0, 2.0]})
TWO = pa.table({"p": ["b", "c"], "i1": [2, 3], "v1": [3.0, 4.0]})
MERGED = pa.table({"p": ["a", "d"], "i1": [2, 9], "v1": [7.0, 8.0]})
CUBE = Cube(["x"], ["p"], "cube", index_columns=["i1"])
SEED = pa.table({"x": [0, 1], "p": [0, 1], "i1": [1, 2], "v1": [1.0, 2.0]})
MORE = pa.table({"x": [1, 2], "p": [1, 2], "i1": [3, 4], "v1": [5.0, 6.0]})
ENRICH = pa.table({"x": [0, 1], "v2": [1, 2]})
MORE_E = pa.table({"x": [2], "v2": [3]})
State = dict[str, Any]


@dataclass(frozen=True)
class Verb:
    """What may crash.

    Attributes
    ----------
    run, make
        The verb, and the store before it.
    between
        Whether it writes to several datasets, so that one may have it and another not.
    again
        Whether it can be called again whatever it has done; else it is, where it has done nothing.
    refused
        What the repetition may say where everything was done.
    """

    run: Callable[[Any], object]
    make: Callable[[Any], object]
    between: bool = False
    again: bool = False
    refused: tuple[type[Exception], ...] = ()


# --- what is done ---------------------------------------------------------------------------------


def nothing(store: Any) -> None:
    pass


def build(store: Any) -> None:
    api.store_dataframes_as_dataset(store, UUID, [ONE], partition_on="p", secondary_indices="i1")


def append(store: Any) -> None:
    api.update_dataset_from_dataframes([TWO], store, UUID)


def grown(store: Any) -> None:
    build(store)
    append(store)


def without_statistics(store: Any) -> None:
    with options(statistics=False):
        grown(store)


def merged_statistics(store: Any) -> None:
    """Two statistics files, the second of which takes over the first."""
    with patch.object(statistics, "_MOST_INSIDE", 0):
        api.build_statistics(UUID, store, ["i1"])
        api.build_statistics(UUID, store, ["v1"])


def replaced(store: Any) -> None:
    """Commits that leave files and index files behind."""
    grown(store)
    api.update_dataset_from_dataframes([TWO], store, UUID, delete_scope=[{"p": "b"}])
    store.put(f"{UUID}/table/p=a/garbage.parquet", b"")


def both(store: Any) -> None:
    build(store)
    api.store_dataframes_as_dataset(store, NEW, [TWO], partition_on="p")


def staged(store: Any) -> None:
    api.commit_dataset(store, UUID, [api.write_single_partition(store, UUID, TWO)], delete_scope=[{"p": "a"}])


def tagged(store: Any) -> None:
    """A tag of a state whose file is replaced, and garbage."""
    grown(store)
    api.tag_dataset(UUID, store, "kept")
    api.update_dataset_from_dataframes([TWO], store, UUID, delete_scope=[{"p": "b"}])
    store.put(f"{UUID}/table/p=a/garbage.parquet", b"")


def build_both(store: Any) -> None:
    cubes.build_cube({"seed": SEED, "e": ENRICH}, CUBE, store, partition_on={"e": []})


def grown_cube(store: Any) -> None:
    build_both(store)
    cubes.append_to_cube({"seed": MORE, "e": MORE_E}, CUBE, store)


def tagged_cube(store: Any) -> None:
    build_both(store)
    cubes.tag_cube(CUBE, store, "kept")
    cubes.append_to_cube({"seed": MORE, "e": MORE_E}, CUBE, store)


DATASETS = {
    "store": Verb(build, nothing),
    "store msgpack": Verb(
        lambda s: api.store_dataframes_as_dataset(s, UUID, [ONE], metadata_storage_format="msgpack"), nothing
    ),
    "overwrite": Verb(
        lambda s: api.store_dataframes_as_dataset(s, UUID, [TWO.select(["p", "v1"])], overwrite=True), build
    ),
    "header": Verb(
        lambda s: api.create_empty_dataset_header(s, UUID, {"table": ONE}, partition_on="p", secondary_indices="i1"),
        nothing,
    ),
    "update": Verb(append, build),
    "replace": Verb(lambda s: api.update_dataset_from_dataframes([TWO], s, UUID, delete_scope=[{"p": "b"}]), build),
    "new columns": Verb(
        lambda s: api.update_dataset_from_dataframes(
            [TWO.append_column("z", pa.array([1, 2]))], s, UUID, add_columns=True
        ),
        build,
    ),
    "commit": Verb(staged, build),
    "build index": Verb(lambda s: api.build_dataset_indices(s, UUID, ["v1"]), build, again=True),
    "build statistics": Verb(lambda s: api.build_statistics(UUID, s), without_statistics, again=True),
    "statistics file": Verb(merged_statistics, without_statistics, again=True),
    "compact": Verb(lambda s: api.compact_dataset(UUID, s), grown, again=True),
    "delete rows": Verb(lambda s: api.delete_rows(UUID, s, [[("i1", "==", 2)]]), grown, again=True),
    "delete all rows": Verb(lambda s: api.delete_rows(UUID, s, [[("i1", ">", 0)]]), grown, again=True),
    "update rows": Verb(lambda s: api.update_rows(UUID, s, [[("i1", "==", 2)]], {"v1": 9.0}), grown, again=True),
    "move rows": Verb(lambda s: api.update_rows(UUID, s, [[("i1", "<=", 2)]], {"p": "c"}), grown, again=True),
    "merge": Verb(lambda s: api.merge_dataset(MERGED, s, UUID, "i1"), grown, again=True),
    "merge from files": Verb(
        lambda s: api.merge_dataset(
            iter([MERGED]), s, UUID, "i1", when_not_matched_by_source="delete", options=options(bytes_in_flight=1)
        ),
        grown,
        again=True,
    ),
    "undo": Verb(lambda s: api.undo(UUID, s), grown),
    "copy": Verb(lambda s: api.copy_dataset(UUID, s, NEW), build, again=True, refused=(AlreadyExists,)),
    "copy onto": Verb(lambda s: api.copy_dataset(UUID, s, NEW, overwrite=True), both, again=True),
    "convert": Verb(lambda s: api.convert_metadata_format(UUID, s, "msgpack"), build, again=True),
    "collect garbage": Verb(lambda s: api.garbage_collect_dataset(UUID, s, options=NOW), replaced, again=True),
    "tag": Verb(lambda s: api.tag_dataset(UUID, s, "tag"), tagged, again=True, refused=(AlreadyExists,)),
    "tag a tag": Verb(lambda s: api.tag_dataset(UUID, s, "tag", as_of="kept"), tagged),
    "drop a tag": Verb(lambda s: api.drop_dataset_tag(UUID, s, "kept"), tagged),
    "collect garbage beside a tag": Verb(
        lambda s: api.garbage_collect_dataset(UUID, s, options=NOW), tagged, again=True
    ),
}
CUBES = {
    "build": Verb(build_both, nothing, between=True),
    "extend": Verb(
        lambda s: cubes.extend_cube({"f": ENRICH.rename_columns(["x", "v3"])}, CUBE, s, partition_on={"f": []}),
        build_both,
    ),
    "append": Verb(lambda s: cubes.append_to_cube({"seed": MORE, "e": MORE_E}, CUBE, s), build_both, between=True),
    "update": Verb(
        lambda s: cubes.update_cube({"seed": MORE, "e": MORE_E}, CUBE, s, C("p") == 1, ["seed", "e"]),
        build_both,
        between=True,
    ),
    "remove": Verb(lambda s: cubes.remove_partitions(CUBE, s, C("p") == 1, ["seed", "e"]), build_both, between=True),
    "build index": Verb(lambda s: cubes.build_cube_index(CUBE, s, "v1"), build_both, again=True),
    "drop index": Verb(lambda s: cubes.drop_cube_index(CUBE, s, "i1"), build_both),
    "compact": Verb(lambda s: cubes.compact_cube(CUBE, s), grown_cube, between=True, again=True),
    "cleanup": Verb(lambda s: cubes.cleanup_cube(CUBE, s, options=NOW), grown_cube, again=True),
    "tag": Verb(lambda s: cubes.tag_cube(CUBE, s, "tag"), tagged_cube),
    "drop a tag": Verb(lambda s: cubes.drop_cube_tag(CUBE, s, "kept"), tagged_cube),
    "cleanup beside a tag": Verb(lambda s: cubes.cleanup_cube(CUBE, s, options=NOW), tagged_cube, again=True),
}
VERBS = {**DATASETS, **{f"cube: {name}": verb for name, verb in CUBES.items()}}


# --- what is looked at ----------------------------------------------------------------------------


def uuids(store: Any) -> list[str]:
    """Those of the datasets that readers see."""
    found = {key.partition(".by-dataset-metadata.")[0] for key in store.list("").keys}
    return sorted(uuid for uuid in found if find_snapshot(store, uuid) is not None)


def state(store: Any) -> State:
    """What a process that starts afresh reads."""
    forget(store)
    return {uuid: rows(store, uuid) for uuid in uuids(store)}


def rows(store: Any, uuid: str) -> Any:
    snapshot = find_snapshot(store, uuid)
    tags = api.list_dataset_tags(uuid, store)["name"]
    found = [sorted(map(str, api.read_table_arrow(uuid, store, as_of=as_of).to_pylist())) for as_of in (None, *tags)]
    return found, sorted(snapshot.document.indices), snapshot.partition_keys, list(tags)


def contents(store: Any) -> dict[str, bytes]:
    return {key: store.get(key) for key in store.list(recursive=True).keys}


def holding(found: dict[str, bytes]) -> MemoryStore:
    """A store of its own, of which nothing is cached."""
    store = MemoryStore()
    for key, data in found.items():
        store.put(key, data)
    return store


@cache
def made(name: str) -> dict[str, bytes]:
    store = MemoryStore()
    VERBS[name].make(store)
    return contents(store)


@cache
def finished(name: str) -> tuple[dict[str, bytes], int]:
    """The store after the verb, and how often it called it."""
    counting = CountingStore(holding(made(name)))
    with options(threads=1):
        VERBS[name].run(counting)
    return contents(counting.inner), len(counting.calls)


@cache
def crashed(name: str) -> tuple[dict[str, bytes], ...]:
    """What is there after a crash before and after each call."""
    return tuple(contents(crash(name, n, kind)) for n, kind in crash_points(finished(name)[1]))


def crash(name: str, n: int, kind: Any) -> MemoryStore:
    store, seen = holding(made(name)), count()
    with pytest.raises(SimulatedCrash), options(threads=1):
        VERBS[name].run(FaultyStore(store, lambda call: kind if next(seen) == n else None))
    return store


def crashes(name: str) -> Iterator[MemoryStore]:
    """A store for each of them that is not like the one before."""
    last = None
    for found in crashed(name):
        if found != last:
            yield holding(found)
        last = found


def states(name: str) -> tuple[State, State]:
    """Before and after the verb."""
    return state(holding(made(name))), state(holding(finished(name)[0]))


def named(store: Any) -> set[str]:
    """Keys of the documents, of what they name, and of the schema files."""
    found = {key for key in store.list("").keys if ".by-dataset-metadata." in key}
    for uuid in uuids(store):
        snapshot = find_snapshot(store, uuid)
        found |= {*(schema_key(uuid, table) for table in snapshot.schemas), *snapshot.document.indices.values()}
        found |= statistics_files(snapshot.document)
        found |= {key for column in snapshot.partitions.files.values() for key in column.to_pylist() if key is not None}
        for tag in list_tags(store, uuid):
            document = read_state(store, tag.state)
            found |= {tag_key(uuid, tag.name), tag.state.key, *document.files, *document.index_files}
    return found


def collect(name: str, store: Any) -> None:
    """Garbage collection as users call it, at once."""
    forget(store)
    if name.startswith("cube"):
        cubes.cleanup_cube(CUBE, store, options=NOW)
        return
    for uuid in uuids(store):
        api.garbage_collect_dataset(uuid, store, options=NOW)


def repeat(verb: Verb, store: Any) -> None:
    forget(store)
    with suppress(*verb.refused):
        verb.run(store)


# --- the statements of the page -------------------------------------------------------------------


@pytest.mark.parametrize("name", VERBS)
def test_a_new_process_finds_the_old_state_or_the_new_one(name):
    old, new = states(name)
    found = [state(store) for store in crashes(name)]
    if VERBS[name].between:  # each dataset of a cube has the one or the other
        assert all(one[uuid] in (old.get(uuid), new.get(uuid)) for one in found for uuid in one)
    else:
        assert all(one in (old, new) for one in found)
    assert found[0] == old
    assert found[-1] == new


@pytest.mark.parametrize("name", VERBS)
def test_nothing_that_is_left_is_an_error(name):
    for store in crashes(name):
        assert [f for uuid in uuids(store) for f in api.verify_dataset(uuid, store, deep=True).errors] == []


@pytest.mark.parametrize("name", VERBS)
def test_the_verb_can_be_called_again(name):
    old, new = states(name)
    for store in crashes(name):
        if VERBS[name].again or state(store) == old:
            repeat(VERBS[name], store)
            assert state(store) == new


@pytest.mark.parametrize("name", VERBS)
def test_garbage_collection_leaves_what_is_named(name):
    for store in crashes(name):
        known = (*(f"{uuid}{mark}" for uuid in uuids(store) for mark in "/."), "cube++")
        own = {key for key in contents(store) if key.startswith(known)}
        collect(name, store)
        # A document that only records an abort stays: without it the aborted write could come back.
        vacancies = {key for key, data in contents(store).items() if "metadata" in key and b"vacant" in data}
        assert set(contents(store)) & own - vacancies == named(store) - vacancies


@pytest.mark.parametrize("name", [name for name in VERBS if VERBS[name].make is nothing])
def test_what_a_creation_has_left_is_garbage_of_the_dataset_that_is_created_then(name):
    for store in crashes(name):
        if not state(store):
            repeat(VERBS[name], store)
            collect(name, store)
            assert set(contents(store)) == named(store)


def test_a_local_writer_that_died_leaves_a_hidden_file_that_is_collected(tmp_path):
    store = open_store(tmp_path)
    build(store)
    left = tmp_path / UUID / "table" / "p=a" / f"1.parquet.{'0' * 16}~"
    left.write_bytes(b"PAR1")
    assert not [key for key in store.list(recursive=True).keys if key.endswith("~")]
    api.garbage_collect_dataset(UUID, store)
    assert left.exists()
    api.garbage_collect_dataset(UUID, store, options=NOW)
    assert not left.exists()


@pytest.mark.parametrize("verb", [api.delete_dataset, lambda uuid, store: api.rename_dataset(uuid, store, NEW)])
def test_a_deletion_that_has_begun_is_finished_by_calling_it_again(verb):
    died = 0
    for n in range(1, 20):
        store = MemoryStore()
        build(store)
        failing = FaultyStore(store, lambda call, n=n: "crash" if (call.operation, call.nth) == ("delete", n) else None)
        with suppress(SimulatedCrash):
            verb(UUID, failing)
        died += failing.crashed
        forget(store)
        if UUID in uuids(store):
            verb(UUID, store)
        assert not [key for key in contents(store) if key.startswith((f"{UUID}/", f"{UUID}."))]
    assert died > 5
