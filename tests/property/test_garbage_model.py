"""Random commits, collections of garbage and passing time against a plain model: what may still be
needed stays, all else is gone in the end.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kartothek_cube import options
from kartothek_cube.core.dataset.maintain import garbage_collect_dataset
from kartothek_cube.core.dataset.read import read_table
from kartothek_cube.core.dataset.write import store_dataframes_as_dataset, update_dataset_from_dataframes
from kartothek_cube.core.metadata.naming import document_key, schema_key
from tests.support.aging import AgedStore, use_clock

UUID = "uuid"
HOUR = timedelta(hours=1)
LAYOUT = {"partition_on": ["p"], "secondary_indices": ["i1"]}


def frame(n):
    return pd.DataFrame({"x": [n, n + 1], "p": ["a", "b"], "i1": [n, n]})


@dataclass
class Model:
    """Since when each key is not named any more, or was written and is named by nobody."""

    named: set[str] = field(default_factory=set)
    replaced: dict[str, datetime] = field(default_factory=dict)
    stray: dict[str, datetime] = field(default_factory=dict)

    def commit(self, named, now):
        self.replaced |= dict.fromkeys(self.named - named, now)
        self.named = named

    def check(self, keys, now, grace, retain, *, dated):
        """After a collection."""
        assert self.named <= keys
        for key, since in (self.replaced | self.stray).items():
            needed = now - since < (grace if "/indices/" in key or key in self.stray else max(grace, retain))
            assert key in keys or not needed, f"{key} went too early"
            # One that went before was gone already.
            assert key not in keys or needed or not dated, f"{key} should be gone"

    def forget(self, keys):
        self.replaced = {key: since for key, since in self.replaced.items() if key in keys}
        self.stray = {key: since for key, since in self.stray.items() if key in keys}


def named_in(store):
    document = json.loads(store.get(document_key(UUID)))
    files = {key for partition in document["partitions"].values() for key in partition["files"].values()}
    return files | set(document["indices"].values()) | {document_key(UUID), schema_key(UUID)}


def keys_of(store):
    return set(store.list(recursive=True).keys)


def commit(kind, store, number):
    if kind == "overwrite":
        store_dataframes_as_dataset(store, UUID, [frame(number)], overwrite=True, **LAYOUT)
    elif kind == "append":
        update_dataset_from_dataframes([frame(number)], store, UUID, **LAYOUT)
    elif kind == "replace":
        update_dataset_from_dataframes([frame(number)], store, UUID, delete_scope=[{"p": "a"}], **LAYOUT)
    else:
        update_dataset_from_dataframes([], store, UUID, delete_scope=[{"p": "b"}])


COMMITS = ["overwrite", "append", "replace", "remove"]
STEPS = st.one_of(
    st.sampled_from([*COMMITS, "stray", "stray index", "collect", "collect", "dry run"]),
    st.sampled_from([1, 11, 13, 24, 100, 200]),
)


@pytest.mark.parametrize("dated", [True, False])
@settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    max_examples=min(settings().max_examples, 200),
)
@given(steps=st.lists(STEPS, max_size=16), grace=st.sampled_from([0, 24]), retain=st.sampled_from([0, 12, 168]))
def test_nothing_that_may_be_needed_goes_and_all_else_does(monkeypatch, dated, steps, grace, retain):
    with monkeypatch.context() as patch:
        clock = use_clock(patch)
        run(AgedStore(clock, dated=dated), clock, steps, grace * HOUR, retain * HOUR)


def run(store, clock, steps, grace, retain):
    model, chosen = Model(), options(grace=grace, retain=retain, threads=1)
    commit("overwrite", store, 0)
    model.commit(named_in(store), clock.time)
    for number, step in enumerate(steps, 1):
        take(step, number, store, clock, model, chosen)
        if step == "collect":
            model.check(keys_of(store), clock.time, grace, retain, dated=store.dated)
            model.forget(keys_of(store))
            read_table(UUID, store)
    for _ in range(3):
        garbage_collect_dataset(UUID, store, options=chosen)
        clock.advance(days=30)
    assert keys_of(store) <= model.named
    read_table(UUID, store)


def take(step, number, store, clock, model, chosen):
    if step in COMMITS:
        commit(step, store, number)
        model.commit(named_in(store), clock.time)
    elif step in ("collect", "dry run"):
        before = keys_of(store)
        report = garbage_collect_dataset(UUID, store, dry_run=step == "dry run", options=chosen)
        assert set(report.keys) == (before - keys_of(store) - marks(before) if step == "collect" else set(report.keys))
        assert step == "collect" or keys_of(store) == before
    elif step in ("stray", "stray index"):
        key = (
            f"{UUID}/table/p=a/{number}.parquet"
            if step == "stray"
            else f"{UUID}/indices/i1/{number}.by-dataset-index.parquet"
        )
        store.put(key, b"")
        model.stray[key] = clock.time
    else:
        clock.advance(hours=step)


def marks(keys):
    return {key for key in keys if "/_gc/" in key}
