"""The report of a cube: what it finds, and that it can always be made."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

import kartothek_cube
from kartothek_cube import Cube, build_cube, collect_stats, cube_report, options, remove_partitions
from kartothek_cube.core.maintenance.verify_indices import rebuild
from kartothek_cube.core.maintenance.verify_report import Finding
from kartothek_cube.core.stores.memory import MemoryStore
from kartothek_cube.cube.report.advice import advice_of
from kartothek_cube.cube.report.charts import heat_figure, level, sparkline
from kartothek_cube.cube.report.facts import Growth, HeatMap
from kartothek_cube.cube.report.measure import histogram
from kartothek_cube.errors import DatasetNotFound
from kartothek_cube.testing.stores import CountingStore
from tests.report.world import CUBE, full_store, many_partitions

NOW = datetime(2024, 5, 1, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def store():
    return full_store()


@pytest.fixture(scope="module")
def report(store):
    return cube_report(CUBE, store, now=NOW)


def test_the_structure(report):
    facts = report.facts
    assert (facts.dimensions, facts.partitions) == ({"x": "int64", "y": "int64"}, {"p": "string", "q": "int64"})
    assert [(d.id, d.is_seed, d.partitions, d.files, d.rows) for d in facts.datasets] == [
        ("seed", True, 6, 7, 23),
        ("once", False, 1, 1, 3),
        ("some", False, 2, 2, 6),
    ]


def test_rows_and_bytes_by_partition_and_dataset(store, report):
    heat = report.facts.heat
    assert heat.datasets == ("seed", "once", "some")
    assert heat.labels == ("<script>, 1", "<script>, 2", "b, 1", "b, 2", "c & d, 1", "c & d, 2", "every partition")
    assert heat.rows == ((3, None, None), (3, None, 3), (3, None, None), (8, None, 3), (3, None, None), (3, None, None), (None, 3, None))
    listed = {e.key: e.size for e in store.list("cube++some/table/", recursive=True).entries if "q=2" in e.key and "p=b" in e.key}
    assert heat.bytes[3][2] == sum(listed.values())


def test_many_partitions_become_bands_and_their_sums_are_those_of_all():
    cube, store = many_partitions(200)
    heat = cube_report(cube, store).facts.heat
    assert (len(heat.labels), sum(heat.partitions)) == (30, 200)
    assert (heat.labels[0], heat.labels[-1]) == ("0 … 6", "194 … 199")
    assert [sum(row[i] or 0 for row in heat.rows) for i in (0, 1)] == [200, 100]


def test_rows_are_counted_on_demand(store, report):
    counting = CountingStore(store)
    without = cube_report("cube", counting, rows=False)
    assert without.facts.heat.rows == ()
    assert {d.rows for d in without.facts.datasets} == {None}
    assert counting.counts["tail"] + counting.counts["local_path"] <= 8, "indices only"
    assert "Rows were not counted" in without
    assert "Stored rows" in report


def test_selectivity_of_indices(report):
    found = {(i.dataset, i.column): i for i in report.facts.indices}
    seed = found["seed", "p"]
    assert (seed.kind, seed.values, seed.files, seed.mean, seed.most) == ("partition", 3, 7, 7 / 3, 3)
    brand = found["once", "i1"]
    assert (brand.kind, brand.type, brand.values, brand.mean) == ("secondary", "string", 2, 1.0)


def test_growth_goes_back_to_the_first_commit(report):
    growth = next(g for g in report.facts.growth if g.dataset == "seed")
    assert [files for _, files in growth.points] == [0, 8, 9, 7]
    assert not growth.foreign


def test_what_to_mend_comes_with_call_and_command(report):
    found = {a.check: a for a in report.facts.advice}
    assert (found["garbage"].call, found["garbage"].command) == ("cleanup_cube(cube, store)", "kartothek_cube --url hmemory:// cube cleanup")
    assert (found["small-files"].severity, found["small-files"].command) == ("warning", "kartothek_cube --url hmemory:// cube compact")
    assert "2 files of" in found["small-files"].message
    assert "1 warning" in report


def test_commands_are_quoted_for_the_shell():
    finding = Finding("error", "missing-index", "c++d", "It is gone.", column="a; rm -rf", mend=rebuild("c++d", "a; rm -rf"))
    (found,) = advice_of("c", "hfs:///with space", [finding], {})
    assert found.command == "kartothek_cube --url 'hfs:///with space' c index d 'a; rm -rf'"


@pytest.mark.parametrize("column", ["a,b", "a*", "[a]", "-a", " a"])
def test_a_column_that_a_command_would_take_for_a_pattern_has_a_call_alone(column):
    finding = Finding("error", "missing-index", "c++d", "It is gone.", column=column, mend=rebuild("c++d", column))
    (found,) = advice_of("c", "hfs:///a", [finding], {})
    assert (found.call, found.command) == (f"build_cube_index(cube, store, [{column!r}], 'd')", "")


def test_every_finding_that_an_index_build_mends_has_the_command():
    finding = Finding("warning", "index-coverage", "c++d", "Some are lacking.", column="a", mend=rebuild("c++d", "a"))
    assert advice_of("c", "hfs:///a", [finding], {})[0].command == "kartothek_cube --url hfs:///a c index d a"


@pytest.mark.parametrize("damage", ["none", "index"])
def test_calls_that_mend_do(damage):
    store = full_store()
    for key in store.list("cube++once/indices/", recursive=True).keys if damage == "index" else ():
        store.delete(key)
    advice = [a for a in cube_report(CUBE, store).facts.advice if a.call]
    assert len(advice) == (3 if damage == "index" else 2)
    with options(grace=timedelta(0)):
        for one in advice:
            eval(one.call, {name: getattr(kartothek_cube, name) for name in kartothek_cube.__all__}, {"cube": CUBE, "store": store})
    assert [a for a in cube_report(CUBE, store).facts.advice if a.call] == []


def test_a_store_whose_listings_have_no_sizes_is_asked_for_them():
    class Mute(CountingStore):
        def list(self, prefix, *, recursive=False, **more):
            listing = super().list(prefix, recursive=recursive, **more)
            return replace(listing, entries=[replace(entry, size=None) for entry in listing.entries])

        @property
        def name(self):
            return "simplekv:DictStore"

    plain, mute = full_store(), Mute(full_store())
    found = cube_report(CUBE, mute).facts
    assert [(d.files, d.bytes) for d in found.datasets] == [(s["files"], s["blobsize"]) for s in map(collect_stats(CUBE, mute).get, ("seed", "once", "some"))]
    assert found.sizes == cube_report(CUBE, plain).facts.sizes
    assert {a.command for a in found.advice} == {""}, "no URL names the store"
    mute = Mute(plain)
    assert not [a for a in cube_report(CUBE, mute, rows=False).facts.advice if a.check.startswith("small")]
    assert mute.counts["tail"] <= 8


def test_long_labels_are_shortened():
    heat = HeatMap(("a" * 200,), ("b" * 1_000,), (1,), ((1,),), ())
    html = heat_figure("Bytes", heat, heat.bytes, str)
    assert html.count("…") == 2
    assert f'title="{"a" * 200}"' in html
    assert f'title="{"b" * 1_000}"' in html


def test_a_report_is_a_page_that_needs_nothing_else(report, tmp_path):
    assert report.startswith("<!doctype html>")
    assert not [word for word in ("<script", "http://", "https://", "src=", "@import", "url(") if word in report]
    assert "\x01" not in report
    path = report.save(tmp_path / "report.html")
    assert path.read_text(encoding="utf-8") == report.to_html() == report
    assert type(report.to_html()) is str
    assert report._repr_html_() in report


def test_a_report_is_a_value(report, store):
    assert repr(report).startswith("CubeReport('cube': 3 datasets, 10 files, ")
    again = pickle.loads(pickle.dumps(report))
    assert (again, again.facts) == (report, report.facts)
    assert cube_report(CUBE, store, now=NOW) == report
    assert json.loads(report.facts.to_json())["heat"]["labels"][0] == "<script>, 1"
    assert report.facts.to_dict()["made"] == "2024-05-01T12:00:00+00:00"


def test_the_page_does_not_grow_with_the_partitions():
    sizes = [len(cube_report(*many_partitions(n))) for n in (60, 240)]
    assert sizes[1] < 1.1 * sizes[0]


def test_a_damaged_cube_has_a_report_too():
    store = full_store()
    store.put("cube++some.by-dataset-metadata.json", b"{")
    store.delete(next(key for key in store.list("cube++once/table/", recursive=True).keys if key.endswith(".parquet")))
    for key in store.list("cube++seed/indices/", recursive=True).keys:
        store.delete(key)
    report = cube_report("cube", store)
    assert {"document-unreadable", "missing-file", "missing-index"} <= {a.check for a in report.facts.advice}
    assert [(d.id, d.rows) for d in report.facts.datasets] == [("seed", 23), ("once", 0)]
    assert "error" in report


def test_without_a_seed_there_is_no_cube_but_a_report():
    store = full_store()
    store.delete("cube++seed.by-dataset-metadata.json")
    report = cube_report("cube", store)
    assert report.facts.dimensions == {}
    assert "The metadata describe no cube." in report


def test_an_empty_cube():
    store, cube = MemoryStore(), Cube(["x"], ["p"], "empty")
    build_cube(pa.table({"x": [1], "p": [1]}), cube, store)
    remove_partitions(cube, store)
    facts = cube_report("empty", store).facts
    assert (facts.heat.labels, facts.sizes.counts, facts.datasets[0].largest) == ((), (), 0)
    assert [files for _, files in facts.growth[0].points] == [0, 1, 0]


def test_no_cube():
    with pytest.raises(DatasetNotFound):
        cube_report("nope", MemoryStore())


# --- figures ----------------------------------------------------------------------------------------------------------


def test_equal_numbers_have_one_colour_and_zero_the_lightest():
    assert {level(5, 5, 5), level(6, 5, 5)} == {6}
    assert level(0, 1, 100) == 0


def test_more_datasets_than_fit_are_counted():
    heat = HeatMap(tuple(f"d{i}" for i in range(20)), ("a",), (1,), (tuple(range(20)),), ())
    html = heat_figure("Bytes", heat, heat.bytes, str)
    assert "4 more datasets are not shown" in html
    assert html.count("<td") == 16


def test_a_line_goes_over_time_where_times_are_known():
    times = [datetime(2024, 1, day, tzinfo=UTC) for day in (1, 2, 5)]
    line = Growth("a", tuple(zip(times, (1, 2, 3), strict=True)), 3, foreign=False)
    assert "H75.0V" in sparkline(line, times[0], times[2])
    assert "M0.0 34.0H0.0V2.0H300V36" in sparkline(Growth("a", ((times[0], 0), (times[0], 4)), 1, foreign=False), times[0], times[2])
    assert "H37.5V" in sparkline(line, times[0], datetime(2024, 1, 9, tzinfo=UTC))
    assert "H100.0V" in sparkline(line, times[0], times[1]), "a clock that is ahead"
    assert "H100.0V" in sparkline(Growth("a", ((None, 1), (None, 2), (None, 3)), 3, foreign=False), None, times[2])
    assert sparkline(Growth("a", (), 0, foreign=True), None, times[0]) == ""


def test_no_file_is_in_no_range():
    assert histogram(np.array([0, 999, 1000])).counts == (2, 1)
    assert histogram(np.array([], dtype=int)).counts == ()
