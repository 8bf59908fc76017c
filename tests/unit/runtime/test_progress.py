from __future__ import annotations

import importlib
import os
import pickle
import pty
import subprocess
import sys
import termios
import threading
import types
from datetime import timedelta
from itertools import pairwise

import pyarrow as pa
import pytest

from kartothek_cube import (
    Cube,
    Progress,
    append_to_cube,
    build_cube,
    build_cube_index,
    cleanup_cube,
    collect_stats,
    compact_cube,
    copy_cube,
    count_cube,
    delete_cube,
    iter_cube,
    open_store,
    options,
    plan_cube_query,
    query_cube,
    query_cube_arrow,
    run_plan,
    stream_cube,
    verify_cube,
)
from kartothek_cube.api.dataset import (
    collect_dataset_metadata,
    hash_dataset,
    read_dataset_as_dataframes,
    read_dataset_as_dataframes__iterator,
    read_table,
    store_dataframes_as_dataset,
    stream_table,
    undo,
    update_dataset_from_dataframes,
    verify_dataset,
)
from kartothek_cube.core.runtime.options import Bar, Phase, with_progress
from kartothek_cube.core.runtime.telemetry import operation, progress_reporter
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import InvalidType, KeyNotFound, MissingExtra
from tests.support.far import FarStore

CUBE = Cube(["x"], ["p"], "cube")
ROWS = pa.table({"x": [1, 2, 3], "p": [0, 1, 2], "i1": [1, 1, 2]})
NOW = {"grace": timedelta(0), "retain": timedelta(0)}


@pytest.fixture
def store():
    store = open_store("hmemory://")
    build_cube(ROWS, CUBE, store, options=options(statistics=False))  # else nobody counts file by file
    return store


def exhausted(results):
    for _ in results:
        pass


WATCHED = [
    ("build_cube", ["write files"], lambda store: build_cube(ROWS, CUBE, store, overwrite=True)),
    (
        "build_cube",
        ["write files"],
        lambda store: build_cube(iter([ROWS, {"more": ROWS.select(["x", "p"])}]), CUBE, store, overwrite=True),
    ),
    ("append_to_cube", ["write files"], lambda store: append_to_cube(iter([ROWS]), CUBE, store)),
    ("query_cube", ["read partitions"], lambda store: query_cube(CUBE, store)),
    ("query_cube_arrow", ["read partitions"], lambda store: query_cube_arrow(CUBE, store)),
    ("count_cube", ["read partitions"], lambda store: count_cube(CUBE, store)),
    ("iter_cube", ["read partitions"], lambda store: exhausted(iter_cube(CUBE, store))),
    ("iter_cube", ["read groups"], lambda store: exhausted(iter_cube(CUBE, store, partition_by="p"))),
    ("stream_cube", ["read partitions"], lambda store: stream_cube(CUBE, store).read_all()),
    ("run_plan", ["read partitions"], lambda store: run_plan(plan_cube_query(CUBE, store), store).read_all()),
    ("collect_stats", ["read files"], lambda store: collect_stats(CUBE, store)),
    ("copy_cube", ["copy files"], lambda store: copy_cube(CUBE, store, open_store("hmemory://"))),
    ("delete_cube", ["delete files"], lambda store: delete_cube(CUBE, store)),
    ("build_cube_index", ["index files"], lambda store: build_cube_index(CUBE, store, "i1")),
    ("verify_cube", ["verify datasets", "verify partitions"], lambda store: verify_cube(CUBE, store, deep=True)),
    ("read_table", ["read files"], lambda store: read_table("cube++seed", store)),
    ("stream_table", ["read files"], lambda store: stream_table("cube++seed", store).read_all()),
    ("read_dataset_as_dataframes", ["read partitions"], lambda store: read_dataset_as_dataframes("cube++seed", store)),
    (
        "read_dataset_as_dataframes__iterator",
        ["read groups"],
        lambda s: exhausted(read_dataset_as_dataframes__iterator("cube++seed", s, dispatch_by="p")),
    ),
    (
        "update_dataset_from_dataframes",
        ["write partitions"],
        lambda store: update_dataset_from_dataframes([ROWS], store, "cube++seed"),
    ),
    ("collect_dataset_metadata", ["read files"], lambda store: collect_dataset_metadata(store, "cube++seed")),
    ("hash_dataset", ["read files"], lambda store: hash_dataset(store, "cube++seed")),
]


@pytest.mark.parametrize(("name", "phases", "call"), WATCHED)
def test_a_long_verb_says_how_far_it_is(store, name, phases, call):
    events = []
    with options(progress=events.append, threads=2):
        call(store)
    assert {event.verb for event in events} == {name}
    assert {event.subject for event in events} <= {"cube", "cube++seed"}
    assert sorted({f"{event.phase} {event.unit}" for event in events}) == phases
    for before, event in pairwise(events):
        assert event.done in (0, before.done + 1)
        assert event.done == 0 or (event.phase, event.unit, event.total) == (before.phase, before.unit, before.total)
    assert events[-1].total in (None, events[-1].done)


def test_garbage_and_merges_are_phases(store):
    append_to_cube(pa.table({"x": [4], "p": [0], "i1": [1]}), CUBE, store)
    events = []
    with options(progress=events.append, **NOW):
        compact_cube(CUBE, store)
        cleanup_cube(CUBE, store)
    assert [(e.phase, e.unit) for e in events if e.done == e.total] == [
        ("read", "files"),
        ("write", "merges"),
        ("delete", "files"),
        ("delete", "files"),
    ]


def test_what_is_taken_back_is_told(store):
    update_dataset_from_dataframes([], store, "cube++seed", delete_scope=[{"p": 0}])
    events = []
    undo("cube++seed", store, options=options(progress=events.append))
    assert [(e.verb, e.phase, e.done, e.total) for e in events] == [("undo", "index", 0, 1), ("undo", "index", 1, 1)]


def test_rows_and_bytes_are_those_of_the_phase(store):
    events = []
    with options(progress=events.append, threads=1):
        build_cube(ROWS, CUBE, store, overwrite=True)
        query_cube_arrow(CUBE, store)
    size = collect_stats(CUBE, store)["seed"]["blobsize"]
    assert [(e.done, e.rows) for e in events] == 2 * [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert [e.bytes for e in events if e.done == 3] == [size, size]


def test_a_phase_inside_another_one_is_not_told(store):
    events = []

    def rows():
        for key in range(3):
            yield pa.table({"x": [key], "p": [key]})
            assert query_cube_arrow(CUBE, store).num_rows == 3

    with options(progress=events.append):
        store_dataframes_as_dataset(open_store("hmemory://"), "dataset", rows())
        query_cube_arrow(CUBE, store)
    begins = [i for i, event in enumerate(events) if event.done == 0]
    told = [[(e.verb, e.phase) for e in events[a:b]] for a, b in pairwise([*begins, len(events)])]
    assert [set(phase) for phase in told][-2:] == [
        {("store_dataframes_as_dataset", "write")},
        {("query_cube_arrow", "read")},
    ]
    assert [event.done for event in events[begins[-2] : begins[-1]]] == [0, 1, 2, 3]


def test_an_event_is_a_value():
    event = Progress("build_cube", "cube", "write", "files", 3, None)
    assert pickle.loads(pickle.dumps(event)) == event
    assert str(event) == "build_cube cube: write 3 files"
    with pytest.raises(AttributeError):
        event.done = 4
    assert not hasattr(event, "__dict__")


def test_nothing_is_told_to_no_one(store, monkeypatch):
    monkeypatch.setattr("kartothek_cube.core.runtime.telemetry.ProgressReporter", None)
    for nobody in (False, None):
        query_cube_arrow(CUBE, store, options=options(progress=nobody))


def test_an_option_that_is_no_function_is_refused():
    with pytest.raises(InvalidType, match="progress is True, False or a function"):
        options(progress="bar")


def test_a_function_that_counts_as_false_is_a_function(store):
    class Events(list):
        def __call__(self, event):
            self.append(event)

    events = Events()
    assert not events
    query_cube_arrow(CUBE, store, options=options(progress=events, threads=1))
    assert [event.done for event in events] == [0, 1, 2, 3]


def test_phases_that_overlap_silence_no_later_one():
    def phase(name):
        return with_progress((i for i in range(2)), progress_reporter(Phase(name, "files")), 2)

    events = []
    with operation("build_cube", options(progress=lambda e: events.append((e.phase, e.done))), cube="cube"):
        outer, inner = phase("write"), phase("read")
        next(outer)
        next(inner)
        exhausted(outer)
        exhausted(inner)
        exhausted(phase("index"))
    assert events == [("write", 0), ("write", 1), ("write", 2), ("index", 0), ("index", 1), ("index", 2)]


# --- errors and early ends ------------------------------------------------------------------------


@pytest.mark.parametrize("at", [0, 1, 3])
def test_an_error_of_the_function_ends_the_verb_before_anything_is_visible(store, at):
    def broken(event):
        if event.done == at:
            raise ZeroDivisionError

    document = store.get("cube++seed.by-dataset-metadata.json")
    with pytest.raises(ZeroDivisionError):
        append_to_cube(
            pa.table({"x": [7, 8, 9], "p": [0, 1, 2], "i1": [1, 1, 1]}), CUBE, store, options=options(progress=broken)
        )
    assert store.get("cube++seed.by-dataset-metadata.json") == document
    assert query_cube_arrow(CUBE, store).num_rows == 3


class Tqdm:
    """What is drawn."""

    log = ()
    n = 0

    def __init__(self, desc, unit, total, **_):
        self.total = total
        self.log.append((desc, unit, total))

    def __bool__(self):
        if self.total is None:
            raise TypeError("bool() undefined when iterable == total == None")
        return self.total > 0

    def update(self, n):
        self.n += n
        self.log.append(self.n)

    def close(self):
        self.log.append("closed")


@pytest.fixture
def drawn(monkeypatch):
    monkeypatch.setattr(Tqdm, "log", [])
    monkeypatch.setitem(sys.modules, "tqdm", types.ModuleType("tqdm"))
    monkeypatch.setitem(sys.modules, "tqdm.auto", types.SimpleNamespace(tqdm=Tqdm))
    return Tqdm.log


BEGIN = ("iter_cube cube: read", " partitions", 3)


def test_a_bar_is_closed_when_its_phase_ends(store, drawn):
    exhausted(iter_cube(CUBE, store, options=options(progress=True, threads=1)))
    assert drawn == [BEGIN, 0, 1, 2, 3, "closed"]


def test_a_bar_needs_no_total(drawn):
    rows = (pa.table({"x": [x]}) for x in range(2))
    store_dataframes_as_dataset(open_store("hmemory://"), "dataset", rows, options=options(progress=True))
    assert drawn == [("store_dataframes_as_dataset dataset: write", " partitions", None), 0, 1, 2, "closed"]


def test_a_bar_is_closed_when_its_iterator_is(store, drawn):
    groups = iter_cube(CUBE, store, options=options(progress=True, threads=1))
    assert drawn == []
    next(groups)
    groups.close()
    assert drawn == [BEGIN, 0, 1, "closed"]


def test_a_bar_is_closed_when_a_task_fails(store, drawn):
    groups = iter_cube(CUBE, store, options=options(progress=True, threads=1))
    for key in store.list("cube++seed/table/p=1/", recursive=True).keys:
        store.delete(key)
    with pytest.raises(KeyNotFound):
        exhausted(groups)
    assert drawn == [BEGIN, 0, 1, "closed"]


# --- where a bar is drawn -------------------------------------------------------------------------


def test_without_tqdm_one_line_names_the_extra(store, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    importlib.invalidate_caches()
    before = store.list(recursive=True).keys
    with pytest.raises(
        MissingExtra, match=r"^options\(progress=True\) needs .*pip install 'kartothek-cube\[progress\]'$"
    ):
        build_cube(ROWS, CUBE, store, overwrite=True, options=options(progress=True))
    assert store.list(recursive=True).keys == before


PROGRAM = """
import sys
import pyarrow as pa
from kartothek_cube import Cube, build_cube, open_store, options
with options(progress=True):
    build_cube(pa.table({"x": [1, 2], "p": [0, 1]}), Cube(["x"], ["p"], "cube"), open_store("hmemory://"))
print("result")
print("END", file=sys.stderr)
"""


def test_a_bar_is_drawn_on_stderr_if_that_is_a_terminal():
    pytest.importorskip("tqdm")
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (24, 80))
    assert (
        subprocess.run(
            [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=slave, text=True, check=True
        ).stdout
        == "result\n"
    )
    drawn = ""
    while "END" not in drawn:
        drawn += os.read(master, 1 << 16).decode()
    os.close(slave)
    os.close(master)
    assert "\rbuild_cube cube: write:   0%|" in drawn
    *_, last, end = drawn.replace("\r\n", "").split("\r")
    assert (last.strip(), end) == ("", "END")  # nothing of it stays


def test_no_bar_is_drawn_anywhere_else(store, capfd):
    pytest.importorskip("tqdm")
    query_cube_arrow(CUBE, store, options=options(progress=True))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("module", "disabled"), [("tqdm.notebook", False), ("tqdm.asyncio", None)])
def test_a_notebook_gets_a_bar_although_its_stderr_is_no_terminal(monkeypatch, module, disabled):
    class Base(Tqdm):
        __module__ = module

        def __init__(self, **given):
            self.disable = given["disable"]

    class OfAuto(Base):
        """tqdm derives from the class that it has chosen."""

    monkeypatch.setitem(sys.modules, "tqdm", types.ModuleType("tqdm"))
    monkeypatch.setitem(sys.modules, "tqdm.auto", types.SimpleNamespace(tqdm=OfAuto))
    made = []
    monkeypatch.setattr(OfAuto, "update", lambda self, n: made.append(self.disable))
    Bar()(Progress("build_cube", "cube", "write", "files", 0, 2))
    assert made == [disabled]


def test_of_a_far_store_the_function_runs_in_the_calling_thread():
    store, backup = FarStore(MemoryStore()), FarStore(MemoryStore())
    build_cube(ROWS, CUBE, store)
    threads, phases = set(), []

    def note(event):
        threads.add(threading.current_thread())
        phases.append((event.verb, event.phase))

    with options(progress=note):
        copy_cube(CUBE, store, backup)
        verify_cube(CUBE, backup)
        verify_dataset("cube++seed", backup)
        delete_cube(CUBE, backup)
    assert threads == {threading.current_thread()}
    assert {("copy_cube", "copy"), ("verify_dataset", "verify"), ("delete_cube", "delete")} <= {*phases}
