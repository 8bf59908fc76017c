"""The report of a cube: what it finds, and that it can always be made."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import shlex
from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pytest
from msgspec.structs import replace

import kartothek_cube
from kartothek_cube import C as Column
from kartothek_cube import (
    Cube,
    append_to_cube,
    build_cube,
    collect_stats,
    cube_report,
    open_store,
    options,
    plan_cube_query,
    remove_partitions,
)
from kartothek_cube.core.display import show_count
from kartothek_cube.core.maintenance.compaction_plan import TARGET_ROWS
from kartothek_cube.core.maintenance.inspection import Counts, Finding, report_of
from kartothek_cube.core.maintenance.verify_checks import rebuild
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.cube.report.facts import CubeStatistics, Growth, HeatMap, histogram
from kartothek_cube.cube.report.page import STYLE, advice_of, heat_figure, level, page, sparkline
from kartothek_cube.errors import DatasetNotFound, HistoryUnavailable, InvalidType
from kartothek_cube.testing.stores import CountingStore
from tests.support.report_cubes import CUBE, full_store, many_partitions, rows

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
    assert heat.rows == (
        (3, None, None),
        (3, None, 3),
        (3, None, None),
        (8, None, 3),
        (3, None, None),
        (3, None, None),
        (None, 3, None),
    )
    listed = {
        e.key: e.size
        for e in store.list("cube++some/table/", recursive=True).entries
        if "q=2" in e.key and "p=b" in e.key
    }
    assert heat.bytes[3][2] == sum(listed.values())


def test_many_partitions_become_bands_and_their_sums_are_those_of_all():
    cube, store = many_partitions(200)
    heat = cube_report(cube, store).facts.heat
    assert heat.partitions == (7,) * 28 + (4,), "equally many, so that rows can be compared"
    assert (heat.labels[0], heat.labels[-1]) == ("0 … 6", "196 … 199")
    assert [sum(row[i] or 0 for row in heat.rows) for i in (0, 1)] == [200, 100]


def test_rows_are_counted_on_demand(report):
    with options(statistics=False):
        store = full_store()
    counting = CountingStore(store)
    without = cube_report("cube", counting, rows=False)
    assert without.facts.heat.rows == ()
    assert {d.rows for d in without.facts.datasets} == {None}
    assert counting.counts["tail"] + counting.counts["local_path"] <= 8, "indices only"
    assert "Rows were not counted" in without
    assert "Stored rows" in report


def test_rows_and_ranges_come_from_statistics(store, report):
    counting = CountingStore(store)
    without = cube_report("cube", counting, rows=False)
    assert without.facts.heat == report.facts.heat
    assert {d.id: d.rows for d in without.facts.datasets} == {"seed": 23, "some": 6, "once": 3}
    assert counting.counts["tail"] + counting.counts["local_path"] <= 8, "indices only"
    seed = next(d for d in without.facts.datasets if d.id == "seed")
    assert {c: str(r) for c, r in seed.ranges.items()}["x"].startswith("0 to ")
    assert "ranges of seed" in without


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
    assert (found["garbage"].call, found["garbage"].command) == (
        "cleanup_cube(cube, store)",
        "kartothek_cube --url hmemory:// cube cleanup",
    )
    assert (found["small-files"].severity, found["small-files"].command) == (
        "warning",
        "kartothek_cube --url hmemory:// cube compact",
    )
    assert "2 files of" in found["small-files"].message
    assert "1 warning" in report


@pytest.mark.parametrize("kind", ["index", "garbage", "small files", "overridden"])
def test_commands_that_mend_do(kind, tmp_path):
    pytest.importorskip("click")
    from click.testing import CliRunner

    from kartothek_cube.cli import cli

    store = open_store(f"hfs://{tmp_path}")
    build_cube(pa.table({"x": [1, 2], "y": [0, 0], "p": ["a", "b"], "q": [1, 1], "i1": ["a", "b"]}), CUBE, store)
    if kind == "index":
        store.delete(next(key for key in store.list("cube++seed/indices/i1", recursive=True).keys))
    elif kind == "garbage":
        store.put("cube++seed/table/p=a/q=1/garbage.parquet", b"nobody names it")
        os.utime(tmp_path / "cube++seed/table/p=a/q=1/garbage.parquet", (0, 0))
    else:
        append_to_cube(pa.table({"x": [1], "y": [0], "p": ["a"], "q": [1], "i1": ["a"]}), CUBE, store)
    check = {
        "index": "missing-index",
        "garbage": "garbage",
        "small files": "small-files",
        "overridden": "overridden-cells",
    }[kind]
    (advice,) = (a for a in cube_report("cube", store, deep=kind == "overridden").facts.advice if a.check == check)
    program, *arguments = shlex.split(advice.command)
    assert program == "kartothek_cube"
    assert CliRunner().invoke(cli, arguments).exit_code == 0
    assert [a for a in cube_report("cube", store, deep=kind == "overridden").facts.advice if a.check == check] == []


def test_files_with_many_rows_are_not_small_however_well_they_compress(store):
    """A compaction leaves them alone, so that the finding would stay."""
    snapshot = as_measured(store, rows=TARGET_ROWS // 2 - 1)
    assert [a.check for a in advice_of("cube", CUBE, "", [], {"seed": snapshot})] == ["small-files"]
    assert advice_of("cube", CUBE, "", [], {"seed": dataclasses.replace(snapshot, rows=snapshot.rows + 1)}) == ()
    between = snapshot.rows.copy()
    between[-1] += 1
    assert advice_of("cube", CUBE, "", [], {"seed": dataclasses.replace(snapshot, rows=between)}) == (), (
        "one of the two in a partition"
    )


def test_a_partition_that_holds_up_the_others():
    cube, store = many_partitions(20)
    measured = as_measured(store, "many++seed")
    sizes = measured.sizes * 0 + 30_000_000
    sizes[3] = 300_000_000
    (found,) = advice_of("many", cube, "", [], {"seed": dataclasses.replace(measured, sizes=sizes)})
    assert (found.check, found.severity, found.call) == ("skew", "info", "")
    assert "The largest of 20 physical partitions has 300 MB, half of them have no more than 30.0 MB." in found.message
    assert advice_of("many", cube, "", [], {"seed": dataclasses.replace(measured, sizes=sizes // 2)}) == (), (
        "small enough"
    )
    assert (
        advice_of("many", cube, "", [], {"seed": dataclasses.replace(measured, sizes=sizes * 0 + 300_000_000)}) == ()
    ), "all alike"


def as_measured(store, dataset="cube++seed", rows=1):
    """A dataset as a report looks at it, with so many rows in each file."""
    snapshot = load_snapshot(store, dataset)
    n = len(snapshot.partitions)
    return CubeStatistics(snapshot, np.full(n, 1_000), np.full(n, rows), {})


def test_findings_that_are_alike_are_one_piece_of_advice():
    findings = [
        Finding("error", "missing-file", "c++d", "It is gone.", key=f"c++d/table/{i}.parquet") for i in range(30)
    ]
    (found,) = advice_of("c", None, "", report_of("", findings, Counts(), deep=False).findings, {})
    assert (found.subject, len(found.more), found.count) == ("d, c++d/table/0.parquet", 19, 30)
    other = Finding("error", "missing-file", "c++e", "It is gone.")
    assert len(advice_of("c", None, "", [*findings, other], {})) == 2


@pytest.mark.parametrize("how", ["unreadable", "unfit"])
def test_what_cannot_be_loaded_as_a_cube_is_mended_dataset_by_dataset(how):
    findings = [
        Finding("error", "missing-index", "c++d", "It is gone.", column="a", mend=rebuild("c++d", "a")),
        Finding("info", "garbage", "c++d", "Some.", mend="garbage_collect_dataset('c++d', store)"),
    ]
    whole = advice_of("c", None, "hfs:///a", findings, {})
    assert all(a.command for a in whole)
    unfit = [Finding("error", "cube-types", "c", "They differ.")] if how == "unfit" else []
    found = [a for a in advice_of("c", None, "hfs:///a", [*findings, *unfit], {}, readable=how == "unfit") if a.call]
    assert [(a.call, a.command) for a in found] == [(f.mend, "") for f in findings]


def test_commands_are_quoted_for_the_shell():
    finding = Finding(
        "error", "missing-index", "c++d", "It is gone.", column="a; rm -rf", mend=rebuild("c++d", "a; rm -rf")
    )
    (found,) = advice_of("c", None, "hfs:///with space", [finding], {})
    assert found.command == "kartothek_cube --url 'hfs:///with space' c index d 'a; rm -rf'"


@pytest.mark.parametrize("column", ["a,b", "a*", "[a]", "-a", " a"])
def test_a_column_that_a_command_would_take_for_a_pattern_has_a_call_alone(column):
    finding = Finding("error", "missing-index", "c++d", "It is gone.", column=column, mend=rebuild("c++d", column))
    (found,) = advice_of("c", None, "hfs:///a", [finding], {})
    assert (found.call, found.command) == (f"build_cube_index(cube, store, [{column!r}], 'd')", "")


def test_every_finding_that_an_index_build_mends_has_the_command():
    finding = Finding("warning", "index-coverage", "c++d", "Some are lacking.", column="a", mend=rebuild("c++d", "a"))
    assert advice_of("c", None, "hfs:///a", [finding], {})[0].command == "kartothek_cube --url hfs:///a c index d a"


@pytest.mark.parametrize("damage", ["none", "index"])
def test_calls_that_mend_do(damage):
    store = full_store()
    for key in store.list("cube++once/indices/", recursive=True).keys if damage == "index" else ():
        store.delete(key)
    advice = [a for a in cube_report(CUBE, store).facts.advice if a.call]
    assert len(advice) == (3 if damage == "index" else 2)
    with options(grace=timedelta(0)):
        for one in advice:
            eval(
                one.call,
                {name: getattr(kartothek_cube, name) for name in kartothek_cube.__all__},
                {"cube": CUBE, "store": store},
            )
    assert [a for a in cube_report(CUBE, store).facts.advice if a.call] == []


def test_a_store_whose_listings_have_no_sizes_is_asked_for_them():
    class Mute(CountingStore):
        def list(self, prefix="", recursive=False):
            listing = super().list(prefix, recursive)
            return replace(listing, entries=[replace(entry, size=None) for entry in listing.entries])

        @property
        def name(self):
            return "simplekv:DictStore"

    plain, mute = full_store(), Mute(full_store())
    found = cube_report(CUBE, mute).facts
    assert [(d.files, d.bytes) for d in found.datasets] == [
        (s["files"], s["blobsize"]) for s in map(collect_stats(CUBE, mute).get, ("seed", "once", "some"))
    ]
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


def test_what_changed_has_counts_partitions_and_rows():
    store = full_store()
    since = plan_cube_query(CUBE, store).commits
    assert cube_report(CUBE, store).facts.changes is None
    append_to_cube({"seed": rows(["b"], [1], n=1, v1=[9.0])}, CUBE, store)
    new = rows(["new"], [1], n=2, v1=[9.0])
    append_to_cube({"seed": new.set_column(0, "x", pa.array([100, 101]))}, CUBE, store)
    remove_partitions(CUBE, store, Column("p") == "c & d", ktk_cube_dataset_ids=["seed"])
    report = cube_report(CUBE, store, changed_since=since)
    changes = report.facts.changes
    assert changes.since == "the commits of 3 datasets"
    assert changes.counts == (("seed", 2, 1, 6), ("once", 0, 0, 0), ("some", 0, 0, 0))
    assert changes.partitions == (
        ("changed", 1, ("b, 1",)),
        ("new", 1, ("new, 1",)),
        ("removed", 2, ("c & d, 1", "c & d, 2")),
        ("unchanged", 3, ()),
    )
    assert sorted({row[0] for row in changes.first}) == ["delete", "insert", "update_postimage", "update_preimage"]
    assert pickle.loads(pickle.dumps(report)).facts == report.facts
    assert json.loads(report.facts.to_json())["changes"]["counts"][0] == ["seed", 2, 1, 6]
    (section,) = [
        part
        for part in ElementTree.fromstring(report._repr_html_().replace("<br>", "")).iter("section")
        if part[0].text == "What changed"
    ]
    _, partitions, first = section.iter("table")
    assert ["".join(cell.itertext()) for cell in partitions[1][2]] == ["removed", "2", "c & d, 1 · c & d, 2"]
    assert [element.text for element in first.iter("ins")] == ["9.0"]


def test_a_state_that_is_no_state_is_refused_and_damage_is_shown():
    store = full_store()
    since = plan_cube_query(CUBE, store).commits
    with pytest.raises(HistoryUnavailable):
        cube_report(CUBE, store, changed_since="0" * 32)
    with pytest.raises(InvalidType):
        cube_report(CUBE, store, changed_since=7)
    append_to_cube({"seed": rows(["b"], [1], n=1, v1=[9.0])}, CUBE, store)
    for key in store.list("cube++seed/table/p=b/", recursive=True).keys:
        store.delete(key)
    report = cube_report(CUBE, store, changed_since=since)
    assert "cube++seed/table/p=b/q=1/" in report.facts.changes.note
    assert report.facts.changes.note.split("'")[0] in report
    store.put("cube++seed.by-dataset-metadata.json", b"{")
    assert cube_report(CUBE, store, changed_since=since).facts.changes.note


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
    report = cube_report("empty", store)
    facts = report.facts
    assert "There is no partition." in report
    assert "Rows were not counted" not in report
    assert "size of a file" not in report
    assert (facts.heat.labels, facts.sizes.counts, facts.datasets[0].largest) == ((), (), 0)
    assert [files for _, files in facts.growth[0].points] == [0, 1, 0]


def test_a_document_that_names_no_files():
    store = full_store()
    document = json.loads(store.get("cube++once.by-dataset-metadata.json"))
    for partition in document["partitions"].values():
        partition["files"] = {}
    store.put("cube++once.by-dataset-metadata.json", json.dumps(document).encode())
    assert {d.id: d.bytes for d in cube_report("cube", store).facts.datasets}["once"] == 0


def test_no_cube():
    with pytest.raises(DatasetNotFound):
        cube_report("nope", MemoryStore())


# --- figures --------------------------------------------------------------------------------------


def test_equal_numbers_have_one_colour_and_zero_the_lightest():
    assert {level(5, 5, 5), level(6, 5, 5)} == {6}
    assert level(0, 1, 100) == 0


@pytest.mark.parametrize("rows", [None, False])
@pytest.mark.parametrize("n", [0, 1, 40])
def test_every_table_is_a_rectangle(n, rows):
    cube, store = many_partitions(40)
    if n < 40:
        remove_partitions(cube, store, Column("p") >= n)
    root = ElementTree.fromstring(cube_report(cube, store, rows=rows)._repr_html_().replace("<br>", "<br/>"))
    widths = [{len(row) for row in table.iter("tr")} for table in root.iter("table")]
    assert len(widths) >= 4
    assert [w for w in widths if len(w) != 1] == []


def test_rows_of_a_heat_map_say_how_many_partitions_they_have():
    report = cube_report(*many_partitions(200))
    assert "Each row has 7 neighbouring partitions, the last one 4." in report
    assert (
        '<th scope="row" title="196 … 199: 4 partitions">'
        '<span class="edge">196 …</span> <span class="edge">199</span></th>' in report
    )
    assert "Each row has" not in cube_report(*many_partitions(20))


def test_heat_maps_of_many_datasets_lie_one_below_the_other(report):
    assert 'class="maps"' in report
    facts = dataclasses.replace(report.facts, heat=HeatMap(tuple("abcde"), ("a",), (1,), ((1,) * 5,), ()))
    assert 'class="maps wide"' in page(facts)


def test_the_scale_begins_where_numbers_can():
    heat = HeatMap(("a",), ("b",), (1,), (), ((4,),))
    assert "below 1 <span" in heat_figure("Stored rows", heat, heat.rows, show_count)
    assert "100 <span" in heat_figure("Stored rows", heat, ((3000,),), show_count)


def test_commits_are_counted_however_few_are_drawn():
    store, cube = MemoryStore(), Cube(["x"], ["p"], "long")
    build_cube(pa.table({"x": [1], "p": [1]}), cube, store)
    append_to_cube(pa.table({"x": [2], "p": [1]}), cube, store)
    report = cube_report(cube, store)
    (growth,) = report.facts.growth
    assert (growth.commits, [n for _, n in growth.points]) == (2, [0, 1, 2])
    assert "from 0 to 2 files in 2 commits" in report


def test_what_is_shown_on_paper_keeps_its_colours():
    assert "print-color-adjust:exact" in STYLE


def test_more_datasets_than_fit_are_counted():
    heat = HeatMap(tuple(f"d{i}" for i in range(20)), ("a",), (1,), (tuple(range(20)),), ())
    html = heat_figure("Bytes", heat, heat.bytes, str)
    assert "4 more datasets not shown" in html
    assert html.count("<td class") == 16


def test_a_line_goes_over_time_where_times_are_known():
    times = [datetime(2024, 1, day, tzinfo=UTC) for day in (1, 2, 5)]
    line = Growth("a", tuple(zip(times, (1, 2, 3), strict=True)), 3, foreign=False)
    assert "H75.0V" in sparkline(line, times[0], times[2])
    assert "M0.0 34.0H0.0V2.0H300V36" in sparkline(
        Growth("a", ((times[0], 0), (times[0], 4)), 1, foreign=False), times[0], times[2]
    )
    assert "H37.5V" in sparkline(line, times[0], datetime(2024, 1, 9, tzinfo=UTC))
    assert "H100.0V" in sparkline(line, times[0], times[1]), "a clock that is ahead"
    assert "H100.0V" in sparkline(Growth("a", ((None, 1), (None, 2), (None, 3)), 3, foreign=False), None, times[2])
    assert sparkline(Growth("a", (), 0, foreign=True), None, times[0]) == ""


def test_no_file_is_in_no_range():
    assert histogram(np.array([0, 999, 1000])).counts == (2, 1)
    assert histogram(np.array([], dtype=int)).counts == ()
