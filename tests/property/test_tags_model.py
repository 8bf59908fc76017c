"""Random commits, tags and collections of garbage against a plain model: a tag reads the rows that
its state had, and nothing but tagged and newest states stays.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kartothek_cube import options
from kartothek_cube.api.dataset import (
    compact_dataset,
    copy_dataset,
    delete_dataset,
    drop_dataset_tag,
    garbage_collect_dataset,
    history,
    list_dataset_tags,
    read_table,
    rename_dataset,
    store_dataframes_as_dataset,
    tag_dataset,
    undo,
    update_dataset_from_dataframes,
    verify_dataset,
)
from kartothek_cube.core.maintenance.garbage import tracked_keys
from kartothek_cube.core.metadata.naming import document_key
from kartothek_cube.core.metadata.tag import tag_key
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.snapshots.time_travel import list_tags, read_state
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import AlreadyExists, CommitConflict, HistoryUnavailable, InvalidInput

UUID = "uuid"
NOW = options(grace=timedelta(0), retain=timedelta(0), threads=1)
LAYOUT = {"partition_on": ["p"], "secondary_indices": ["x"]}

Rows = tuple[tuple[int, str], ...]


def frame(number: int) -> pd.DataFrame:
    return pd.DataFrame({"x": [number, number + 100], "p": ["a", "b"]})


@dataclass
class World:
    """The store; the rows of each commit and each tag as they were read right after it."""

    store: MemoryStore = field(default_factory=MemoryStore)
    commits: dict[str, Rows] = field(default_factory=dict)
    tags: dict[str, Rows] = field(default_factory=dict)

    def rows(self, as_of: str | None = None, uuid: str = UUID) -> Rows:
        return tuple(sorted(map(tuple, read_table(uuid, self.store, as_of=as_of)[["x", "p"]].to_numpy().tolist())))

    def note(self) -> None:
        commit = load_snapshot(self.store, UUID).commit
        if commit is not None:
            self.commits.setdefault(commit, self.rows())

    def check(self, uuid: str = UUID) -> None:
        assert list_dataset_tags(uuid, self.store)["name"].to_list() == sorted(self.tags)
        for name, rows in self.tags.items():
            assert self.rows(name, uuid) == rows, name
        assert verify_dataset(uuid, self.store).errors == ()


def commit(world: World, kind: str, number: int) -> None:
    store = world.store
    if kind == "overwrite":
        store_dataframes_as_dataset(store, UUID, [frame(number)], overwrite=True, **LAYOUT)
    elif kind == "append":
        update_dataset_from_dataframes([frame(number)], store, UUID)
    elif kind == "replace":
        update_dataset_from_dataframes([frame(number)], store, UUID, delete_scope=[{"p": "a"}])
    elif kind == "remove":
        update_dataset_from_dataframes([], store, UUID, delete_scope=[{"p": "b"}])
    elif kind == "compact":
        compact_dataset(UUID, store)
    elif kind == "undo":
        with suppress(InvalidInput, CommitConflict, KeyError):
            undo(UUID, store)
    else:  # as kartothek does, which keeps the list of commits as it is
        document = json.loads(store.get(document_key(UUID)))
        label = next(iter(document["partitions"]), None)
        if label is not None and len(document["partitions"]) > 1:
            del document["partitions"][label]
            document.pop("indices", None)
            store.put(document_key(UUID), json.dumps(document).encode())
    world.note()


def tag(world: World, name: str, as_of: str | None) -> None:
    expected = world.rows() if as_of is None else world.tags.get(as_of, world.commits.get(as_of))
    try:
        tag_dataset(UUID, world.store, name, as_of=as_of)
    except AlreadyExists:
        assert name in world.tags
    except HistoryUnavailable:
        assert as_of is not None
        assert as_of not in world.tags
    else:
        assert name not in world.tags
        world.tags[name] = expected


NAMES = st.sampled_from(["first", "second", "third"])
COMMITS = st.sampled_from(
    ["overwrite", "append", "append", "replace", "replace", "remove", "compact", "undo", "foreign"]
)
STEPS = st.one_of(
    COMMITS,
    st.tuples(st.just("tag"), NAMES, st.one_of(st.none(), st.integers(0, 5), NAMES)),
    st.tuples(st.just("drop"), NAMES),
    st.just("collect"),
)


@pytest.mark.filterwarnings("ignore::kartothek_cube.errors.ForeignWriterWarning")
@settings(deadline=None, max_examples=min(settings().max_examples, 200))
@given(steps=st.lists(STEPS, max_size=14), end=st.sampled_from(["copy", "rename", "drop"]))
def test_a_tag_reads_the_rows_of_its_state(steps, end):
    world = World()
    commit(world, "overwrite", 0)
    for number, step in enumerate(steps, 1):
        if step == "collect":
            garbage_collect_dataset(UUID, world.store, options=NOW)
        elif isinstance(step, str):
            commit(world, step, number)
        elif step[0] == "drop":
            if step[1] in world.tags:
                drop_dataset_tag(UUID, world.store, step[1])
                del world.tags[step[1]]
        else:
            known = history(UUID, world.store)["commit"].to_list()
            as_of = known[step[2] % len(known)] if isinstance(step[2], int) and known else step[2]
            tag(world, step[1], None if isinstance(as_of, int) else as_of)
        world.check()
    if end == "copy":
        copy_dataset(UUID, world.store, "new")
        delete_dataset(UUID, world.store)
    elif end == "rename":
        rename_dataset(UUID, world.store, "new")
    else:
        for name in list(world.tags):
            drop_dataset_tag(UUID, world.store, name)
            del world.tags[name]
    uuid = UUID if end == "drop" else "new"
    garbage_collect_dataset(uuid, world.store, options=NOW)
    garbage_collect_dataset(uuid, world.store, options=NOW)
    world.check(uuid)
    assert set(world.store.list(f"{uuid}/", recursive=True).keys) <= kept(world.store, uuid)


def kept(store: MemoryStore, uuid: str) -> set[str]:
    """What the newest state and the tags name."""
    named = tracked_keys(load_snapshot(store, uuid))
    for one in list_tags(store, uuid):
        document = read_state(store, one.state)
        named |= {tag_key(uuid, one.name), one.state.key, *document.files, *document.index_files}
    return named
