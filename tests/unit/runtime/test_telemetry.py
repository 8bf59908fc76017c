"""The log: one line for each call of a verb, with what it did; and what it costs where nobody reads
it.
"""

from __future__ import annotations

import gc
import logging
import os
import pickle
import re
import subprocess
import sys
import threading
from dataclasses import asdict
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from kartothek_cube import (
    C,
    Cube,
    append_to_cube,
    build_cube,
    compact_cube,
    copy_cube,
    delete_cube,
    iter_cube,
    load_group,
    open_store,
    options,
    plan_cube_query,
    query_cube,
    query_cube_arrow,
    run_plan,
    stream_cube,
)
from kartothek_cube import spark as spark_api
from kartothek_cube.api import consistency as consistency_api
from kartothek_cube.api import cube as cube_api
from kartothek_cube.api import dataset as dataset_api
from kartothek_cube.api import discover as discover_api
from kartothek_cube.api.serialization import CsvSerializer, ParquetSerializer
from kartothek_cube.core.runtime.telemetry import (
    Counts,
    Operation,
    OperationRecord,
    counting,
    current_operation,
    operation,
    record,
    record_counts,
)
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.stores.local import LocalStore, MemoryStore
from kartothek_cube.core.stores.open import open_instrumented
from kartothek_cube.errors import InvalidInput, KeyNotFound
from kartothek_cube.testing.stores import CountingStore
from tests.support.source import MODULES
from tests.support.store_calls import CUBE_CASES, CUBES, DATASET_CASES, DATASETS, Z

CUBE = Cube(["x"], ["p"], "cube")
ROWS = pa.table({"x": [1, 2, 3, 4], "p": [0, 1, 2, 2], "i1": [1, 1, 2, 2]})


@pytest.fixture
def store():
    store = MemoryStore()
    build_cube(ROWS, CUBE, store)
    return store


@pytest.fixture
def lines(caplog):
    """A function: the records since the last call."""
    caplog.set_level(logging.INFO, logger="kartothek_cube.verbs")

    def taken():
        found = [record.kartothek_cube for record in caplog.records if record.name == "kartothek_cube.verbs"]
        caplog.clear()
        return found

    return taken


# --- what the line says ---------------------------------------------------------------------------


def test_a_line_can_be_found_and_read(store, caplog):
    caplog.set_level(logging.INFO, logger="kartothek_cube")
    query_cube_arrow(CUBE, store)
    (record,) = [r for r in caplog.records if r.levelno == logging.INFO]
    found = record.kartothek_cube
    assert (found.verb, found.kind, found.subject, found.rows, found.error) == (
        "query_cube_arrow",
        "cube",
        "cube",
        4,
        None,
    )
    assert record.getMessage() == str(found)
    assert str(found) == (
        f"verb=query_cube_arrow cube=cube rows=4 files_read=3 bytes_read={found.counts.bytes_read} "
        f"store_calls={found.counts.store_calls} "
        f"seconds={found.seconds:.3f}"
    )
    assert pickle.loads(pickle.dumps(found)) == found
    assert asdict(found)["counts"]["files_read"] == 3


@pytest.mark.parametrize(
    ("name", "shown"), [("a.b-c", "a.b-c"), ("a b", '"a b"'), ("a\nverb=x", r'"a\nverb=x"'), ('a"', r'"a\""')]
)
def test_a_name_that_is_no_word_stands_in_quotes(name, shown):
    assert (
        str(OperationRecord("describe_cube", "cube", name, 0, Counts(), 0.0))
        == f"verb=describe_cube cube={shown} rows=0 store_calls=0 seconds=0.000"
    )


def test_a_record_cannot_be_changed():
    record = OperationRecord("query_cube", "cube", "cube", 0, Counts(), 0.0)
    with pytest.raises(AttributeError):
        record.rows = 1
    assert not hasattr(record, "__dict__")


def test_writing_verbs_count_what_they_write(store, lines):
    build_cube(ROWS, CUBE, store, overwrite=True)
    append_to_cube(ROWS.slice(0, 2), CUBE, store)
    compact_cube(CUBE, store)
    copy_cube(CUBE, store, MemoryStore())
    delete_cube(CUBE, store)
    build, append, compact, copy, delete = lines()
    assert [(r.verb, r.rows, r.counts.files_written, r.counts.files_read) for r in (build, append)] == [
        ("build_cube", 4, 3, 0),
        ("append_to_cube", 2, 2, 0),
    ]
    assert (compact.rows, compact.counts.files_written) == (2, 2)
    assert compact.counts.files_read > 0
    assert copy.counts.files_written > 0
    assert copy.counts.bytes_written > compact.counts.bytes_written > 0
    assert delete.counts.store_calls > delete.counts.keys_deleted > delete.counts.files_read == 0


def test_bytes_are_those_of_the_files(lines, tmp_path):
    for store in (LocalStore(tmp_path), MemoryStore()):
        build_cube(ROWS, CUBE, store)
        query_cube_arrow(CUBE, store)
        sizes = [len(store.get(key)) for key in store.list("cube++seed/table/p=", recursive=True).keys]
        build, query = lines()
        assert (build.counts.bytes_written, query.counts.bytes_read) == (sum(sizes), sum(sizes))
        assert (build.counts.files_written, query.counts.files_read) == (3, 3)


def test_copies_of_local_files_have_bytes_too(lines, tmp_path):
    source = LocalStore(tmp_path / "source")
    build_cube(ROWS, CUBE, source)
    copy_cube(CUBE, source, LocalStore(tmp_path / "target"))
    copy_cube(CUBE, source, MemoryStore())
    _, local, memory = lines()
    assert local.counts.bytes_written == memory.counts.bytes_written > 0


def test_csv_files_count_as_well(store, lines):
    dataset_api.store_dataframes_as_dataset(store, "csv", [ROWS], df_serializer=CsvSerializer())
    dataset_api.read_table("csv", store)
    written, read = lines()
    assert (written.kind, written.subject) == ("dataset", "csv")
    assert (written.counts.files_written, written.counts.bytes_written) == (
        read.counts.files_read,
        read.counts.bytes_read,
    )
    assert (read.rows, read.counts.rows_read) == (4, 4)


def test_a_dataset_is_named_by_its_factory(store, lines):
    dataset_api.read_table(factory=dataset_api.DatasetFactory("cube++seed", store))
    assert [r.subject for r in lines()] == ["cube++seed"]


# --- when it is written ---------------------------------------------------------------------------


def results_of(store):
    plan = plan_cube_query(CUBE, store)
    return [
        lambda: iter_cube(CUBE, store),
        lambda: stream_cube(CUBE, store),
        lambda: run_plan(plan, store),
        lambda: dataset_api.stream_table("cube++seed", store),
        lambda: dataset_api.read_dataset_as_dataframes__iterator("cube++seed", store),
    ]


@pytest.mark.parametrize("number", range(5))
def test_rows_that_come_one_after_the_other_write_the_line_when_they_end(store, lines, number):
    make = results_of(store)[number]
    lines()
    results = make()
    assert lines() == []
    for _ in results:
        assert lines() == []
    (record,) = lines()
    assert (record.rows, record.counts.rows_read, record.error) == (4, 4, None)


def test_an_iterator_that_is_closed_early_writes_its_line(store, lines):
    groups = iter_cube(CUBE, store, options=options(threads=1))
    next(groups)
    groups.close()
    (record,) = lines()
    assert (record.rows, record.counts.files_read, record.error) == (1, 1, None)


@pytest.mark.parametrize("number", range(5))
def test_an_iterator_that_is_never_asked_has_a_line_when_it_is_dropped(store, lines, number):
    results = results_of(store)[number]()
    lines()
    del results
    (record,) = lines()
    assert (record.rows, record.counts.files_read, record.error) == (0, 0, None)
    assert record.counts.store_calls > 0 or record.verb == "run_plan"


def test_rows_of_large_files_count_although_they_are_read_when_they_are_asked_for(store, lines, monkeypatch):
    monkeypatch.setattr("kartothek_cube.core.scan.execute._LEAST_PIECE", 1)
    dataset_api.store_dataframes_as_dataset(store, "large", [ROWS], df_serializer=ParquetSerializer(chunk_size=1))
    lines()
    seen = CountingStore(store)
    assert len(list(dataset_api.stream_table("large", seen, options=options(bytes_in_flight=1, threads=1)))) == 4
    (record,) = lines()
    assert record.counts.rows_read == 4
    assert record.counts.store_calls == len([call for call in seen.calls if call.operation != "local_path"])


def test_what_is_done_between_two_results_has_lines_of_its_own(store, lines):
    for _ in iter_cube(CUBE, store, options=options(threads=1)):
        query_cube_arrow(CUBE, store)
    assert [(r.verb, r.rows, r.counts.files_read) for r in lines()] == [("query_cube_arrow", 4, 3)] * 3 + [
        ("iter_cube", 4, 3)
    ]


def test_an_iterator_may_go_from_thread_to_thread(store, lines):
    groups, rest = iter_cube(CUBE, store, options=options(threads=1)), []
    next(groups)
    thread = threading.Thread(target=lambda: rest.extend([*groups, current_operation()]))
    thread.start()
    thread.join()
    assert (len(rest), rest[-1], current_operation()) == (3, None, None)
    assert [(r.rows, r.counts.files_read) for r in lines()] == [(4, 3)]


def test_a_call_that_fails_after_its_results_were_made_has_one_line(lines):
    def failing():
        with operation("stream_cube", None, cube="cube") as op:
            made.append(op.lasting(iter([])))
            raise KeyNotFound("cube")

    made = []
    with pytest.raises(KeyNotFound):
        failing()
    assert list(made[0]) == []
    assert [r.error for r in lines()] == ["KeyNotFound"]


class Collecting(str):
    """A name with which the garbage collector comes when it is counted."""

    __slots__ = ()
    __eq__ = str.__eq__

    def __hash__(self):
        gc.collect()
        return str.__hash__(self)


def test_results_that_the_garbage_collector_finds_wait_for_no_lock_and_have_a_late_line(store, lines):
    # The collector may interrupt whatever holds the lock of an operation, or of a handler of the
    # log.
    op, at_once = Operation("iter_cube", "cube", "cube"), []
    noted = {Collecting("files_read"): 1}
    op.record({"rows_read": 1})

    def forgotten():
        results = op.lasting(iter([ROWS]))
        cycle = [next(results), results]
        cycle.append(cycle)

    def work():
        forgotten()
        op.record(noted)
        at_once.extend(lines())

    gc.disable()
    try:
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(30)
    finally:
        gc.enable()
    assert not thread.is_alive()
    assert at_once == []
    query_cube_arrow(CUBE, store)
    assert [(r.verb, r.rows) for r in lines()] == [("iter_cube", 4), ("query_cube_arrow", 4)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="There is no fork here.")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_has_operations_of_its_own(store, lines):
    with operation("build_cube", None, cube="cube"):
        child = os.fork()
        if not child:
            query_cube_arrow(CUBE, store)
            os._exit(len(lines()))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
        assert current_operation() is not None


def test_an_iterator_that_fails_says_why(store, lines):
    groups = iter_cube(CUBE, store)
    for key in store.list("cube++seed/table/", recursive=True).keys:
        store.delete(key)
    with pytest.raises(KeyNotFound):
        list(groups)
    assert [(r.rows, r.error) for r in lines()] == [(0, "KeyNotFound")]


def test_a_verb_that_fails_writes_one_line_with_the_error(store, lines):
    with pytest.raises(InvalidInput):
        query_cube(CUBE, store, C("z") == 1)
    with pytest.raises(InvalidInput):
        dataset_api.read_table(store=store)
    unknown, unnamed = lines()
    assert str(unknown).endswith(" error=InvalidInput")
    assert (unnamed.kind, unnamed.subject, unnamed.error) == ("dataset", "", "InvalidInput")


def test_a_verb_that_works_for_another_one_has_no_line(store, lines):
    def rows():
        yield query_cube_arrow(CUBE, store)

    build_cube(rows(), CUBE, MemoryStore())
    (record,) = lines()
    assert record.verb == "build_cube"
    assert (record.counts.files_read, record.counts.files_written, record.rows) == (3, 3, 4)


def test_each_group_that_is_loaded_has_a_line(store, lines):
    plan = plan_cube_query(CUBE, store)
    lines()
    for group in plan.groups:
        load_group(group, store)
    assert [(r.verb, r.subject, r.rows, r.counts.files_read) for r in lines()] == [
        ("load_group", "cube", n, 1) for n in (1, 1, 2)
    ]


# --- calls of the store ---------------------------------------------------------------------------

CASES = [
    (case, size)
    for cases, sizes in ((DATASET_CASES, DATASETS), (CUBE_CASES, CUBES))
    for case in cases
    for size in sizes[1:2]
    if case.where(Z(**size))
]
# Looks at a store, at datasets or at documents: a few calls that are over at once, and values that
# are made of them.
WITHOUT_LINE = {
    *("DatasetFactory", "DatasetMetadata", "ExplicitSecondaryIndex"),
    *(
        "check_datasets",
        "discover_cube",
        "discover_datasets",
        "discover_datasets_unchecked",
        "discover_ktk_cube_dataset_ids",
    ),
    *("get_cube_payload", "list_cubes", "list_datasets", "open_cube", "read_schema_metadata"),
}
# Opening, planning and reading have a line each.
LAZY = {"connect", "scan_cube", "scan_dataset"}


@pytest.mark.parametrize(("case", "size"), [pytest.param(*case, id=case[0].name) for case in CASES])
def test_every_verb_has_a_line_that_says_how_often_it_called_the_store(case, size, lines):
    store, z = MemoryStore(), Z(**size)
    given = case.make(store, z)
    lines()
    counting = CountingStore(store)
    with options(threads=1):
        case.run(counting, z, given)
    found = lines()
    if case.verb in WITHOUT_LINE:
        assert [r for r in found if r.verb == case.verb] == []
        return
    assert {r.verb for r in found} == {case.verb}
    assert len(found) == 1 or case.verb in LAZY
    assert found[-1].subject
    calls, deleted = len([call for call in counting.calls if call.operation != "local_path"]), counting.counts["delete"]
    if case.note.endswith(("the source", "the target")):  # the other store is called, too
        assert found[0].counts.store_calls > calls
    else:
        assert sum(r.counts.store_calls for r in found) == calls
        assert found[0].counts.keys_deleted == deleted


def test_a_part_of_an_operation_is_not_counted_again(lines, tmp_path):
    store = LocalStore(tmp_path)
    build_cube(ROWS, CUBE, store)
    lines()
    with options(threads=1):
        query_cube_arrow(CUBE, CountingStore(CountingStore(store)))
    assert [r.counts.store_calls for r in lines()] == [1 + 1 + 3]  # list, document, three files that are opened


def test_calls_can_be_read_one_by_one(store, caplog):
    caplog.set_level(logging.DEBUG, logger="kartothek_cube.store")
    dataset_api.read_table("cube++seed", store)
    texts = [record.getMessage() for record in caplog.records if record.name == "kartothek_cube.store"]
    assert any(text.startswith("tail cube++seed/table/p=0/") for text in texts)
    assert all(" seconds=0." in text for text in texts)
    assert [text for text in texts if text.startswith("local_path")] == []


def test_a_call_that_names_its_key_is_traced_with_it(store, caplog):
    caplog.set_level(logging.DEBUG, logger="kartothek_cube.store")
    opened = open_instrumented(store)
    with counting():
        opened.put(data=b"", key="k")
        opened.list(recursive=True, prefix="k")
    assert [record.getMessage().split(" seconds")[0] for record in caplog.records] == ["put k", "list k"]


def test_each_object_of_one_put_is_a_call(store, caplog):
    caplog.set_level(logging.DEBUG, logger="kartothek_cube.store")
    opened = open_instrumented(store)
    with counting() as op:
        opened.put_many([("k", b"1"), ("l", b"2"), ("m", b"3")])
        opened.put_many([])
    assert op.counts == Counts(store_calls=3)
    texts = [record.getMessage().split(" seconds")[0] for record in caplog.records]
    assert texts == ["put k", "put l", "put m"]


def test_each_key_of_one_deletion_is_a_call(store, caplog):
    caplog.set_level(logging.DEBUG, logger="kartothek_cube.store")
    opened = open_instrumented(store)
    with counting() as op:
        opened.delete_many(["k", "l"])
        opened.delete_many([])
    assert op.counts == Counts(store_calls=2, keys_deleted=2)
    assert [record.getMessage().split(" seconds")[0] for record in caplog.records] == ["delete k", "delete l"]


def test_what_could_not_be_deleted_is_not_counted_as_deleted(store):
    class Failing(MemoryStore):
        def delete(self, key):
            raise PermissionError

    with counting() as op:
        with pytest.raises(PermissionError):
            open_instrumented(Failing()).delete("k")
        open_instrumented(store).delete("k")
    assert op.counts == Counts(store_calls=2, keys_deleted=1)


def test_an_operation_that_calls_its_parent_is_one_call(store):
    class Parent(MemoryStore):
        def get(self, key):
            return super().get(key)

    class Child(Parent):
        def get(self, key):
            assert self.local_path(key) is None
            return super().get(key)

    child = open_instrumented(Child())
    child.put("k", b"v")
    with counting() as op:
        assert child.get("k") == b"v"
        child.copy("k", "l")
    assert op.counts == Counts(store_calls=2)


def test_operations_that_are_no_plain_methods_work(store):
    class Odd(MemoryStore):
        @staticmethod
        def contains(key):
            return key == "k"

        @classmethod
        def local_path(cls, key):
            return f"/{cls.__name__}/{key}"

    odd = open_instrumented(Odd())
    with counting() as op:
        assert odd.contains("k")
        assert odd.local_path("k") == "/Odd/k"
    assert op.counts == Counts(store_calls=2)


def test_a_class_of_a_store_stays_as_it_is():
    def get(self, key):
        return b""

    assert type("Own", (MemoryStore,), {"get": get}).get is get


def test_temporary_files_are_not_looked_for_where_there_are_none(store, tmp_path):
    with counting() as op:
        open_instrumented(store).leftovers("cube", datetime.now(UTC))
        assert op.counts.store_calls == 0
        open_instrumented(tmp_path).leftovers("cube", datetime.now(UTC))
    assert op.counts.store_calls == 1


def test_an_opened_store_is_wrapped_once_and_never_handed_out(store):
    opened = open_instrumented(store)
    assert open_instrumented(opened) is opened
    assert open_store(opened) is dataset_api.ensure_store(opened) is store
    assert (opened, hash(opened), repr(opened)) == (store, hash(store), repr(store))
    assert (opened.identity, opened.name, opened.capabilities) == (store.identity, store.name, store.capabilities)
    assert isinstance(opened, Store)


def test_a_wrapped_store_can_be_pickled_where_the_store_can(tmp_path):
    opened = open_instrumented(tmp_path)
    opened.put("k", b"v")
    assert pickle.loads(pickle.dumps(opened)).get("k") == b"v"


# --- no verb is forgotten -------------------------------------------------------------------------

APIS = (cube_api, dataset_api, discover_api, consistency_api)
WITHOUT_STORE = {
    "combine_metadata",
    "empty_dataframe_from_schema",
    "ensure_store",
    "get_payload_subset",
    "lazy_store",
    "make_meta",
    "normalize_column_order",
}
WITHOUT_STORE |= {"normalize_type", "validate_compatible", "validate_shared_columns", "year", "month", "day"}
SPARK_WITHOUT_LINE = {"driver_errors", "ensure_java", "java_home", "register"}


def functions(modules):
    return {
        name
        for module in modules
        for name in module.__all__
        if callable(getattr(module, name)) and not isinstance(getattr(module, name), type)
    }


def opened_operations():
    """The names with which the package opens operations, by the function in which it does."""
    for module in MODULES.values():
        function = ""
        # Spark's maintenance opens the operation in its context `_in_tasks`.
        for defined, opened in re.findall(
            r'^def (\w+)|\b(?:operation|_in_tasks)\(\s*"(\w+)"', module.text, re.MULTILINE
        ):
            function = defined or function
            if opened:
                yield function, opened


def test_every_public_verb_opens_an_operation_under_its_own_name():
    pairs = list(opened_operations())
    assert [(function, name) for function, name in pairs if function != name] == []
    names = {name for _, name in pairs}
    assert functions(APIS) - names == (WITHOUT_LINE & functions(APIS)) | WITHOUT_STORE
    assert set(spark_api.__all__) - names == SPARK_WITHOUT_LINE


# --- what it costs --------------------------------------------------------------------------------


def test_nothing_is_counted_where_nobody_reads(store, monkeypatch):
    monkeypatch.setattr("kartothek_cube.core.runtime.telemetry.Operation", None)
    logging.getLogger("kartothek_cube").setLevel(logging.WARNING)
    try:
        query_cube_arrow(CUBE, store)
        assert list(iter_cube(CUBE, store))
    finally:
        logging.getLogger("kartothek_cube").setLevel(logging.NOTSET)
    assert current_operation() is None
    record(rows_read=1)


def test_the_import_logs_nothing_and_adds_no_handler():
    code = (
        "import logging, sys\n"
        "made = []\n"
        "logging.Logger.addHandler = lambda *given: made.append(given)\n"
        "logging.Logger.handle = lambda *given: made.append(given)\n"
        "import kartothek_cube.api.cube, kartothek_cube.api.dataset\n"
        "print(made, [n for n, l in logging.root.manager.loggerDict.items() "
        "if n.startswith('kartothek_cube') and getattr(l, 'level', 0)])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[] []\n"


def test_counts_of_another_process_are_added():
    with counting() as there:
        record(files_read=2, rows_read=5)
        record(store_calls=1)
    assert there.counts == Counts(rows_read=5, files_read=2, store_calls=1)
    with counting() as here:
        record(files_read=1)
        record_counts(there.counts)
    assert here.counts == Counts(rows_read=5, files_read=3, store_calls=1)
    assert current_operation() is None
