"""Spans of OpenTelemetry round the verbs."""

from __future__ import annotations

import gc
import logging
import subprocess
import sys

import pandas as pd
import pyarrow as pa
import pytest

from kartothek_cube import (
    Cube,
    append_to_cube,
    build_cube,
    cube_history,
    iter_cube,
    query_cube,
    query_cube_arrow,
)
from kartothek_cube.api.dataset import history, store_dataframes_as_dataset
from kartothek_cube.core.metadata.commit_log import Txn
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.runtime.options import options
from kartothek_cube.core.runtime.telemetry import current_operation, is_collecting, operation
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import InvalidInput
from tests.support.commits import write

trace = pytest.importorskip("opentelemetry.trace")
sdk = pytest.importorskip("opentelemetry.sdk.trace")
export = pytest.importorskip("opentelemetry.sdk.trace.export")
memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")

CUBE = Cube(["x"], ["p"], "cube")
ROWS = pa.table({"x": [1, 2, 3, 4], "p": [0, 1, 2, 2], "v1": [1, 1, 2, 2]})


@pytest.fixture
def provider(monkeypatch):
    """A provider of this test alone; the API allows a process one."""
    provider = sdk.TracerProvider()
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    return provider


@pytest.fixture
def spans(provider):
    """A function: the spans that ended since the last call."""
    exporter = memory.InMemorySpanExporter()
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))

    def taken():
        found = exporter.get_finished_spans()
        exporter.clear()
        return found

    return taken


@pytest.fixture
def store():
    store = MemoryStore()
    build_cube(ROWS, CUBE, store)
    return store


def attributes(span):
    return {name.removeprefix("kartothek_cube."): value for name, value in span.attributes.items()}


def test_a_write_is_a_span_with_its_commit(store, spans):
    spans()
    append_to_cube(ROWS.slice(0, 2), CUBE, store)
    (span,) = spans()
    found = attributes(span)
    assert span.name == "append_to_cube"
    assert found.pop("bytes") > 0
    assert found == {"cube": "cube", "rows": 2, "files": 2, "commit": cube_history(CUBE, store)["commit"].iloc[0]}
    assert span.status.status_code == trace.StatusCode.UNSET
    assert span.end_time > span.start_time


def test_the_commit_of_several_datasets_is_that_of_the_write(spans):
    store = MemoryStore()
    other = ROWS.rename_columns({"x": "x", "p": "p", "v1": "v2"})
    build_cube({"seed": ROWS, "other": other}, CUBE, store)
    (span,) = spans()
    assert span.attributes["kartothek_cube.commit"] == cube_history(CUBE, store)["commit"].iloc[0]


def test_a_read_has_rows_files_and_bytes(store, spans):
    spans()
    query_cube_arrow(CUBE, store)
    (span,) = spans()
    found = attributes(span)
    assert found.pop("bytes") > 0
    assert found == {"cube": "cube", "rows": 4, "files": 3}


def test_a_dataset_is_named(spans):
    store = MemoryStore()
    store_dataframes_as_dataset(store=store, dataset_uuid="uuid", dfs=[pd.DataFrame({"x": [1]})])
    (span,) = spans()
    assert span.attributes["kartothek_cube.dataset"] == "uuid"
    assert span.attributes["kartothek_cube.commit"] == history("uuid", store)["commit"].iloc[0]


def test_an_error_is_recorded(store, spans):
    spans()
    with pytest.raises(InvalidInput):
        query_cube_arrow(CUBE, store, payload_columns=["nowhere"])
    (span,) = spans()
    assert span.status.status_code == trace.StatusCode.ERROR
    assert "nowhere" in span.status.description
    (event,) = span.events
    assert event.name == "exception"
    assert event.attributes["exception.type"].endswith("InvalidInput")


def test_a_skipped_write_names_no_commit(spans):
    store = MemoryStore()
    for _ in range(2):
        with operation("update", None):
            write(store, {"x": [1]}, txn=Txn("job", 1))
    first, span = spans()
    assert "kartothek_cube.commit" in first.attributes
    assert "kartothek_cube.commit" not in span.attributes


def test_a_verb_inside_a_verb_has_none(store, spans):
    def rows():
        yield query_cube(CUBE, store)[0]

    spans()
    append_to_cube(rows(), CUBE, store)
    assert [span.name for span in spans()] == ["append_to_cube"]


def test_spans_of_threads_are_children(provider, spans):
    tracer = provider.get_tracer("test")

    def request(number):
        with tracer.start_as_current_span(f"request {number}"):
            return number

    with tracer.start_as_current_span("job"), options(threads=4), operation("read_table", None):
        assert sorted(map_in_threads(request, list(range(8)))) == list(range(8))
    *requests, verb, job = spans()
    assert (verb.name, verb.parent.span_id) == ("read_table", job.context.span_id)
    assert len(requests) == 8
    assert {span.parent.span_id for span in requests} == {verb.context.span_id}


def test_an_iterator_ends_its_span_and_the_work_between_is_no_child(store, provider, spans):
    tracer = provider.get_tracer("test")
    spans()
    groups = iter_cube(CUBE, store, partition_by=["p"])
    next(groups)
    with tracer.start_as_current_span("between"):
        assert not trace.get_current_span().name.startswith("iter_cube")
    assert [span.name for span in spans()] == ["between"]
    rest = list(groups)
    (span,) = spans()
    assert (span.name, span.attributes["kartothek_cube.rows"]) == ("iter_cube", 4)
    assert len(rest) == 2
    assert trace.get_current_span() is trace.INVALID_SPAN


def test_a_collected_iterator_ends_its_span_outside_of_the_collection(store, provider, spans):
    class Checking(export.SimpleSpanProcessor):
        def on_end(self, span):
            seen.append((span.name, is_collecting()))

    seen = []
    provider.add_span_processor(Checking(memory.InMemorySpanExporter()))
    groups = iter_cube(CUBE, store, partition_by=["p"])
    next(groups)
    cycle = [groups]
    cycle.append(cycle)
    del groups, cycle
    gc.collect()
    query_cube(CUBE, store)
    assert seen == [("iter_cube", False), ("query_cube", False)]


def test_spans_that_are_sampled_out_count_nothing(monkeypatch):
    provider = sdk.TracerProvider(sampler=sdk.sampling.ALWAYS_OFF)
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    monkeypatch.setattr(logging.getLogger("kartothek_cube.verbs"), "level", logging.WARNING)
    with operation("read_table", None):
        assert current_operation() is None


@pytest.mark.parametrize("installed", [True, False])
def test_a_verb_does_not_import_the_api(installed):
    code = "import sys\n"
    if not installed:
        code += "sys.modules['opentelemetry'] = None\n"
    code += (
        "import pandas as pd\n"
        "from kartothek_cube.api.dataset import store_dataframes_as_dataset\n"
        "store_dataframes_as_dataset('hmemory://a', 'uuid', [pd.DataFrame({'x': [1]})])\n"
        "assert 'opentelemetry.trace' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
