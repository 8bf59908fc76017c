"""A process dies before or after each call of the store that publication makes.

Every version is a state of the dataset, whatever died, and the next publication catches up.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from kartothek_cube import C, Cube, append_to_cube, build_cube, forget_cells, options, publish_cube_delta, publish_delta
from kartothek_cube.api import dataset as api
from kartothek_cube.core.snapshots.loader import find_snapshot
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import AlreadyExists
from kartothek_cube.testing.stores import CountingStore, FaultyStore, SimulatedCrash
from tests.caches import forget
from tests.support.datasets import contents
from tests.support.delta import log_keys, versions
from tests.support.thoroughness import crash_points, is_exhaustive

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_pauses")]

UUID = "cube++seed"
NOW = options(grace=timedelta(0), retain=timedelta(0))
CUBE = Cube(["x"], ["p"], "cube")
SEED = pa.table({"x": [1, 2], "p": ["a", "b"], "v1": ["one", "two"]})
MORE = pa.table({"x": [3, 4], "p": ["b", "c"], "v1": ["three", "four"]})
ENRICHMENT = pa.table({"x": [1, 2], "v2": ["k", "l"]})


@dataclass(frozen=True)
class Verb:
    run: Callable[[Any], object]
    make: Callable[[Any], object]


def built(store: Any) -> None:
    build_cube({"seed": SEED, "e": ENRICHMENT}, CUBE, store, partition_on={"e": []})


def published(store: Any) -> None:
    built(store)
    publish_cube_delta(CUBE, store, always=True)


def behind(store: Any) -> None:
    """Published, but not always, with commits since."""
    built(store)
    publish_cube_delta(CUBE, store)
    append(store)
    replace(store)


def before_checkpoint(store: Any) -> None:
    published(store)
    append(store)


def with_garbage(store: Any) -> None:
    published(store)
    replace(store)


def damaged(store: Any) -> None:
    published(store)
    append(store)
    append_to_cube(pa.table({"x": [9], "p": ["d"], "v1": ["nine"]}), CUBE, store)
    store.delete(f"{UUID}/table/_delta_log/{1:020d}.json")


def append(store: Any) -> None:
    append_to_cube({"seed": MORE, "e": pa.table({"x": [3], "v2": ["m"]})}, CUBE, store)


def replace(store: Any) -> None:
    api.update_dataset_from_dataframes([MORE], store, UUID, delete_scope=[{"p": "b"}, {"p": "c"}])


VERBS = {
    "publish": Verb(lambda s: publish_delta(UUID, s, always=True), built),
    "publish a cube": Verb(lambda s: publish_cube_delta(CUBE, s), built),
    "catch up": Verb(lambda s: publish_delta(UUID, s), behind),
    "append": Verb(append, published),
    "replace": Verb(replace, published),
    "checkpoint": Verb(replace, before_checkpoint),
    "begin anew": Verb(lambda s: publish_delta(UUID, s), damaged),
    "unpublish": Verb(lambda s: api.unpublish_delta(UUID, s), published),
    "collect garbage": Verb(lambda s: api.garbage_collect_dataset(UUID, s, options=NOW), with_garbage),
    "rename": Verb(lambda s: api.rename_dataset(UUID, s, "cube++new"), published),
    "forget": Verb(lambda s: forget_cells(CUBE, s, C("x") == 1), published),
}


@pytest.fixture(autouse=True)
def often(monkeypatch):
    monkeypatch.setattr("kartothek_cube.core.delta.publication.CHECKPOINT_EVERY", 2)


def holding(found: dict[str, bytes]) -> MemoryStore:
    store = MemoryStore()
    for key, data in found.items():
        store.put(key, data)
    forget(store)
    return store


@cache
def made(name: str) -> dict[str, bytes]:
    store = MemoryStore()
    VERBS[name].make(store)
    return contents(store)


@cache
def calls(name: str) -> int:
    counting = CountingStore(holding(made(name)))
    with options(threads=1):
        VERBS[name].run(counting)
    return len(counting.calls)


def crashes(name: str) -> Any:
    """The store after a crash before and after each call."""
    step = 3 if calls(name) > 100 and not is_exhaustive() else 1
    for n, kind in crash_points(calls(name))[::step]:
        store, seen = holding(made(name)), count()

        def dies(call: object, n: int = n, kind: Any = kind, seen: Any = seen) -> Any:
            return kind if next(seen) == n else None

        with pytest.raises(SimulatedCrash), options(threads=1):
            VERBS[name].run(FaultyStore(store, dies))
        forget(store)
        yield store


def files(store: Any, uuid: str) -> set[str]:
    return set(find_snapshot(store, uuid).files.to_pylist())


def the_uuid(store: Any) -> str:
    return next(uuid for uuid in (UUID, "cube++new") if find_snapshot(store, uuid) is not None)


def finish(name: str, store: Any) -> None:
    """Repeat what was interrupted, or publish."""
    if name not in ("unpublish", "rename", "forget") or the_uuid(store) != UUID:
        publish_delta(the_uuid(store), store)
        return
    try:
        VERBS[name].run(store)
    except AlreadyExists:  # the copy is complete, and the original is not marked
        api.delete_dataset("cube++new", store)
        VERBS[name].run(store)


@pytest.mark.parametrize("name", VERBS)
def test_every_version_names_files_that_are_there_and_the_next_publication_catches_up(name):
    for store in crashes(name):
        present, uuid = set(store.keys()), the_uuid(store)
        assert all(named <= present for named in versions(store, uuid).values())
        finish(name, store)
        uuid = the_uuid(store)
        if name == "unpublish":
            assert log_keys(store, uuid) == []
            continue
        publish_delta(uuid, store)
        assert newest(store, uuid) == files(store, uuid)
        assert api.verify_dataset(uuid, store, deep=True).errors == ()
        if name == "forget":
            assert not [key for key, data in contents(store).items() if b'"one"' in data or "p=a" in key]
        forget(store)
        api.update_dataset_from_dataframes([MORE.slice(0, 1)], store, uuid, delete_scope=[{"p": "b"}])
        publish_delta(uuid, store)
        assert newest(store, uuid) == files(store, uuid)


def newest(store: Any, uuid: str) -> set[str]:
    found = versions(store, uuid)
    return found[max(found)]
