"""`compact_cube`: other files, the same answers."""

from __future__ import annotations

import datetime as dt
from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kartothek_cube.api.cube import (
    C,
    Cube,
    append_to_cube,
    build_cube,
    cleanup_cube,
    compact_cube,
    count_cube,
    extend_cube,
    iter_cube,
    open_cube,
    query_cube_arrow,
    remove_partitions,
    stream_cube,
)
from kartothek_cube.api.dataset import compact_dataset, convert_metadata_format, store_dataframes_as_dataset, undo
from kartothek_cube.api.serialization import CsvSerializer, ParquetSerializer
from kartothek_cube.core.arrow.keys import ascends
from kartothek_cube.core.runtime.options import options
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.stores.contract import WRITES, ReadOnlyView, StoreView
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import (
    CommitConflict,
    CorruptData,
    CubeCommitIncomplete,
    InvalidInput,
    InvalidType,
    ReadOnlyStore,
)
from kartothek_cube.testing.stores import CountingStore, FaultyStore, SimulatedCrash
from kartothek_cube.testing.strategies import cubes_with_data, queries
from tests.support.cube_model import answer, arguments_of, check_frames, check_refused, written
from tests.support.cubes import (
    CUBE,
    ENRICH,
    SEED,
    ColdStore,
    answers,
    build_two,
    contents,
    files,
    index_of,
    refused,
    snapshot,
    stored_rows,
    table,
)

NOW = options(grace=dt.timedelta(0), retain=dt.timedelta(0))


@pytest.fixture
def store():
    return grown()


def seed_rows(n):
    """Two cells that are there already, and two new ones, in both partitions."""
    return table(
        x=[0, 1, 10 + n, 10 + n],
        y=["a", "b", "a", "a"],
        p=[0, 1, 0, 1],
        i1=[n, n, n, 100],
        v1=[float(n), float(n), 0.5, 0.5],
    )


def grown(times=4):
    """A cube with many small files."""
    store = MemoryStore()
    build_two(store)
    for n in range(1, times):
        append_to_cube(
            {
                "seed": seed_rows(n),
                "e": table(x=[1, n], i2=["one", f"row {n}"], v2=[n, -n])
                if n > 1
                else table(x=[1], i2=["one"], v2=[11]),
            },
            CUBE,
            store,
        )
    return store


def labels(store, dataset="seed"):
    return snapshot(store, dataset).partitions.labels.to_pylist()


def folders(store, dataset="seed"):
    return [label.rpartition("/")[0] for label in labels(store, dataset)]


def expected_index(store, column, dataset="seed"):
    found = {}
    for label, key in zip(labels(store, dataset), files(store, dataset), strict=True):
        for value in set(stored_rows(store, key).column(column).to_pylist()) - {None}:
            found.setdefault(value, set()).add(label)
    return found


QUESTIONS = [
    {},
    {"conditions": C("v1") == 0.5},
    {"conditions": C("v1") == 1.0},
    {"conditions": C("v2") == 10},
    {"conditions": C("v2") < 0},
    {"conditions": C("i1") == 20},
    {"conditions": C("i1") == 3},
    {"conditions": C("i2") == "one"},
    {"conditions": C("p") == 1},
    {"conditions": (C("x") > 5) & (C("y") == "a")},
    {"payload_columns": ["v1"], "datasets": ["seed"]},
]


def asked(store):
    """The answers to all questions, and groups by an index column."""
    groups = [(key, rows.to_pylist()) for by in ("i1", "i2") for key, rows in iter_cube(CUBE, store, partition_by=by)]
    return [answers(store, **question) for question in QUESTIONS], groups, count_cube(CUBE, store)


# --- the same answers -----------------------------------------------------------------------------


def test_every_query_answers_as_before(store):
    before = asked(store)
    reports = compact_cube(CUBE, store)
    assert {i: (r.files_before, r.files_after) for i, r in reports.items()} == {"seed": (8, 2), "e": (4, 1)}
    assert asked(store) == before
    cleanup_cube(CUBE, store, options=NOW)
    assert len(files(store)) == 2
    assert asked(store) == before
    assert open_cube("cube", store) == CUBE


def test_one_file_a_partition_sorted_with_each_cell_once(store):
    before = Counter(folders(store))
    reports = compact_cube(CUBE, store)
    assert before == {"p=0": 4, "p=1": 4}
    assert folders(store) == ["p=0", "p=1"]
    for dataset, dimensions in (("seed", ["x", "y"]), ("e", ["x"])):
        for key in files(store, dataset):
            rows = stored_rows(store, key)
            assert ascends(rows, dimensions)
            assert "p" not in rows.column_names
    assert reports["seed"].rows_before == 16
    assert reports["seed"].rows_after == 10  # of two cells only the newest of four rows
    assert sum(stored_rows(store, key).num_rows for key in files(store)) == 10


def test_indices_and_metadata_are_those_of_the_new_files(store):
    before = {i: (snapshot(store, i).document.user_metadata, snapshot(store, i).schemas) for i in ("seed", "e")}
    compact_cube(CUBE, store)
    for dataset, columns in (("seed", ["x", "y", "i1"]), ("e", ["i2"])):
        assert (snapshot(store, dataset).document.user_metadata, snapshot(store, dataset).schemas) == before[dataset]
        for column in columns:
            assert index_of(store, column, dataset) == expected_index(store, column, dataset)
    # Values that only overridden rows had are gone.
    assert set(index_of(store, "i1")) == {1, 2, 3, 10, 20, 100}


def test_one_commit_a_dataset_and_then_nothing(store):
    chains = {i: len(snapshot(store, i).chain) for i in ("seed", "e")}
    reports = compact_cube(CUBE, store)
    assert {i: len(snapshot(store, i).chain) - n for i, n in chains.items()} == {"seed": 1, "e": 1}
    assert {i: r.commit for i, r in reports.items()} == {i: snapshot(store, i).chain[-1].id for i in reports}
    before = contents(store)
    assert [r.commit for r in compact_cube(CUBE, store).values()] == [None, None]
    assert contents(store) == before


def test_the_codec_of_cubes_stays(store):
    compact_cube(CUBE, store)
    assert codec(store) == "SNAPPY"
    append_to_cube(seed_rows(9), CUBE, store, df_serializer=ParquetSerializer("BROTLI"))
    compact_cube(CUBE, store)
    assert codec(store) == "BROTLI"
    append_to_cube(seed_rows(10), CUBE, store)
    compact_cube(CUBE, store, df_serializer=ParquetSerializer("GZIP"))
    assert codec(store) == "GZIP"


def test_small_files_become_a_large_one_with_zstd(store):
    cube, rows = Cube("x", ["p"], "large", suppress_index_on="x"), 20_000
    build_cube(table(x=[0], p=[0], v1=[0.0]), cube, store)
    append_to_cube(table(x=range(rows), p=[0] * rows, v1=[x / 8 for x in range(rows)]), cube, store)
    append_to_cube(table(x=[rows], p=[0], v1=[0.0]), cube, store)
    compact_cube(cube, store)
    (key,) = load_snapshot(store, "large++seed").files.to_pylist()
    group = pq.read_metadata(pa.BufferReader(store.get(key))).row_group(0)
    assert {group.column(j).path_in_schema: group.column(j).compression for j in range(2)} == {
        "x": "SNAPPY",
        "v1": "ZSTD",
    }


def codec(store):
    return pq.ParquetFile(pa.BufferReader(store.get(files(store)[0]))).metadata.row_group(0).column(0).compression


# --- which row wins -------------------------------------------------------------------------------


def overridden(sizes):
    """A cube with one file for each size; all have the cell x=0, whose value is the number of the
    file.
    """
    store = MemoryStore()
    for n, size in enumerate(sizes):
        rows = table(x=list(range(size)), y=["a"] * size, p=[0] * size, i1=[n] * size, v1=[float(n)] * size)
        (append_to_cube if n else build_cube)(rows, CUBE, store)
    return store


@pytest.mark.parametrize(
    "sizes", [[1, 1, 1], [6, 1, 1], [1, 1, 6], [6, 1, 1, 6], [1, 6, 1], [1, 1, 6, 1, 1], [2, 6, 1, 6, 3, 3]]
)
def test_the_newest_row_of_a_cell_wins_whichever_files_are_merged(sizes):
    store, last = overridden(sizes), len(sizes) - 1
    before = answers(store)
    assert before[0]["v1"] == last
    for n in range(last + 1):
        assert len(answers(store, conditions=C("v1") == float(n))) == len([row for row in before if row["v1"] == n])
    compact_cube(CUBE, store, target_rows=12)
    assert answers(store) == before
    for n in range(last + 1):
        assert answers(store, conditions=C("v1") == float(n)) == [row for row in before if row["v1"] == n]
        assert answers(store, conditions=C("i1") == n) == [row for row in before if row["i1"] == n]


def sequence(*cells):
    """A cube with one file for each list of cells, all in one partition; `v1` is its number."""
    store = MemoryStore()
    for n, found in enumerate(cells):
        size = len(found)
        rows = table(x=list(found), y=["a"] * size, p=[0] * size, i1=[n] * size, v1=[float(n)] * size)
        (append_to_cube if n else build_cube)(rows, CUBE, store)
    return store


def test_the_large_file_between_two_runs_keeps_its_place():
    store = sequence([20], [21], range(6), [22], [23])
    large = labels(store)[2]
    compact_cube(CUBE, store, target_rows=12)
    assert len(labels(store)) == 3
    assert labels(store)[1] == large


# --- overlays: corrections of a large file --------------------------------------------------------


def asked_of_seed(store):
    questions = [{}, *({"conditions": c} for n in range(4) for c in (C("v1") == float(n), C("i1") == n, C("x") == n))]
    groups = [(key, rows.to_pylist()) for key, rows in iter_cube(CUBE, store, partition_by="i1")]
    return [answers(store, **question) for question in questions], groups, count_cube(CUBE, store)


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
def test_corrections_are_folded_into_a_file_that_is_large_enough(encoding):
    store = sequence(range(50), [3], range(60, 70), [3, 40, 65])
    if encoding != "json":
        convert_metadata_format("cube++seed", store, encoding)
    before = asked_of_seed(store)
    (report,) = compact_cube(CUBE, store, target_rows=20).values()
    assert (report.files_before, report.files_after, report.rows_before, report.rows_after) == (4, 2, 64, 60)
    assert asked_of_seed(store) == before
    for column in ("x", "y", "i1"):
        assert index_of(store, column) == expected_index(store, column)
    assert all(ascends(stored_rows(store, key), ["x", "y"]) for key in files(store))
    assert compact_cube(CUBE, store, target_rows=20)["seed"].commit is None
    undo("cube++seed", store, report.commit)
    assert asked_of_seed(store) == before


def test_files_of_other_cells_are_not_rewritten_for_that():
    store = sequence(range(0, 50, 2), range(1, 50, 2), range(100, 150), [102])
    others = labels(store)[:2]
    (report,) = compact_cube(CUBE, store, target_rows=20).values()
    assert (report.files_before, report.rows_after) == (2, 50)
    assert labels(store)[:2] == others


def test_a_dry_run_says_which_files_share_cells():
    store = sequence(range(50), [3], range(60, 100))
    before, counting = contents(store), ColdStore(store)
    (report,) = compact_cube(CUBE, counting, target_rows=20, dry_run=True).values()
    assert repr(report) == ("CompactionReport('cube++seed': would be 2 files → 1 in 1 physical partition, 51 rows)")
    assert "overlaid            3          2  share cells" in report.explain()
    assert contents(store) == before
    # The key columns of two files are compared; small files come whole with their footers.
    assert sorted(counting.touched("tail")) == sorted(files(store))
    assert counting.touched("ranges") == []


def test_no_file_has_more_rows_than_the_target_or_its_largest_input():
    store = sequence(range(20), range(20, 40), range(15, 25))
    before = asked_of_seed(store)
    (report,) = compact_cube(CUBE, store, target_rows=20).values()
    assert (report.files_before, report.files_after) == (3, 2)
    assert [stored_rows(store, key).num_rows for key in files(store)] == [20, 20]
    assert asked_of_seed(store) == before
    assert compact_cube(CUBE, store, target_rows=20)["seed"].commit is None


def test_csv_has_no_bounds_and_its_keys_are_compared():
    store = sequence(range(30), range(40, 70))
    append_to_cube(
        table(x=[3, 99], y=["a", "a"], p=[0, 0], i1=[7, 7], v1=[7.0, 7.0]), CUBE, store, df_serializer=CsvSerializer()
    )
    before = asked_of_seed(store)
    (report,) = compact_cube(CUBE, store, target_rows=20).values()
    assert (report.files_before, report.files_after, report.rows_after) == (2, 2, 31)
    assert asked_of_seed(store) == before


@pytest.mark.parametrize(
    "values", [[0.5, 1.5, 2.5, 3.5], ["a", "b", "ä", "ab"], [dt.date(2026, 1, n) for n in (1, 2, 3, 4)]]
)
def test_dimensions_may_be_of_any_type(values):
    store, cube = MemoryStore(), Cube("x", ["p"], "cube")
    build_cube(table(x=values, p=[0] * 4, v1=[0] * 4), cube, store)
    append_to_cube(table(x=values[1:2], p=[0], v1=[1]), cube, store)
    before = query_cube_arrow(cube, store)
    (report,) = compact_cube(cube, store, target_rows=4).values()
    assert (report.files_before, report.files_after, report.rows_after) == (2, 1, 4)
    assert query_cube_arrow(cube, store).equals(before)


def test_files_of_other_partitions_that_may_hold_the_same_cell_are_not_passed_over():
    store = MemoryStore()
    build_cube(SEED, CUBE, store)
    # The cell x=1 moves from k=1 to k=2 and back to k=1: `k` is no address of a cell.
    for n, k in enumerate([1, 2, 1, 1]):
        rows = table(x=[1, 0], k=[k, 9], v2=[n, n])
        if n:
            append_to_cube({"e": rows}, CUBE, store)
        else:
            extend_cube({"e": rows}, CUBE, store, partition_on={"e": ["k"]})
    append_to_cube({"e": table(x=[5], k=[1], v2=[5])}, CUBE, store)
    before = answers(store), answers(store, conditions=C("v2") == 0), answers(store, conditions=C("k") == 2)
    reports = compact_cube(CUBE, store)
    assert reports["e"].partitions in ([], ["k=1"])
    assert (answers(store), answers(store, conditions=C("v2") == 0), answers(store, conditions=C("k") == 2)) == before


def test_a_partition_key_that_is_a_dimension_separates_cells():
    store = MemoryStore()
    build_cube(SEED, CUBE, store)
    extend_cube({"e": table(x=[0, 1], v2=[0, 0])}, CUBE, store, partition_on={"e": ["x"]})
    for n in range(1, 4):
        append_to_cube({"e": table(x=[0, 1], v2=[n, n])}, CUBE, store)
    before = answers(store)
    report = compact_cube(CUBE, store)["e"]
    assert (report.files_before, report.files_after, report.rows_before, report.rows_after) == (8, 2, 8, 2)
    assert answers(store) == before


def test_a_cell_twice_in_one_file_is_refused_by_name(store):
    before = labels(store, "e")
    key = files(store, "e")[0]
    rows = stored_rows(store, key)
    store.put(key, memoryview(ParquetSerializer().encode(pa.concat_tables([rows, rows]))))
    with refused(store, CorruptData, key, "twice"):
        compact_cube(CUBE, store, ktk_cube_dataset_ids="e")
    assert labels(store, "e") == before


# --- what is compacted ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "changed"),
    [
        ({"conditions": C("p") == 0}, {"seed": ["p=0"], "e": []}),
        ({"conditions": [C("p") >= 1, C("p") < 5]}, {"seed": ["p=1"], "e": []}),
        ({"conditions": C("p") == 7}, {"seed": [], "e": []}),
        ({"ktk_cube_dataset_ids": ["seed"]}, {"seed": ["p=0", "p=1"]}),
        ({"ktk_cube_dataset_ids": "e"}, {"e": [""]}),
        ({"ktk_cube_dataset_ids": {"e", "seed"}, "conditions": C("p") == 1}, {"seed": ["p=1"], "e": [""]}),
    ],
)
def test_conditions_and_ids_choose(store, arguments, changed):
    before = asked(store)
    reports = compact_cube(CUBE, store, **arguments)
    assert {i: report.partitions for i, report in reports.items()} == changed
    assert asked(store) == before


@pytest.mark.parametrize(
    ("arguments", "error", "word"),
    [
        ({"conditions": C("x") == 1}, InvalidInput, "x"),
        ({"conditions": C("v1") == 1.0}, InvalidInput, "v1"),
        ({"conditions": C("p") == "one"}, InvalidType, "p"),
        ({"ktk_cube_dataset_ids": ["seed", "ghost"]}, InvalidInput, "ghost"),
        ({"target_rows": -1}, InvalidInput, "target_rows"),
        ({"dry_run": 1}, InvalidType, "dry_run"),
        ({"df_serializer": "ZSTD"}, InvalidType, "df_serializer"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_written(store, arguments, error, word):
    with refused(store, error, word):
        compact_cube(CUBE, store, **arguments)


def test_a_cube_that_does_not_exist_is_refused():
    with pytest.raises(InvalidInput):
        compact_cube(CUBE, MemoryStore())
    with pytest.raises(InvalidType):
        compact_cube(7, MemoryStore())


def test_a_dry_run_says_the_same_and_writes_nothing(store):
    before, counting = contents(store), CountingStore(store)
    reports = compact_cube(CUBE, counting, dry_run=True)
    assert {i: (r.files_before, r.files_after, r.commit, r.dry_run) for i, r in reports.items()} == {
        "seed": (8, 2, None, True),
        "e": (4, 1, None, True),
    }
    assert contents(store) == before
    assert set(counting.counts) & WRITES == set()
    assert sorted(key for key in counting.touched("tail") if "/table/" in key) == sorted(
        files(store) + files(store, "e")
    )
    assert compact_cube(CUBE, ReadOnlyView(store), dry_run=True).keys() == reports.keys()
    with refused(store, ReadOnlyStore):
        compact_cube(CUBE, ReadOnlyView(store))


def test_a_dataset_of_a_cube_may_be_compacted_alone(store):
    before = asked(store)
    assert compact_dataset("cube++seed", store).files_after == 2
    assert asked(store) == before
    assert len({label for found in index_of(store, "x").values() for label in found}) == 2
    other = grown()
    compact_cube(CUBE, other)
    assert [stored_rows(store, key) for key in files(store)] == [stored_rows(other, key) for key in files(other)]


def test_datasets_under_other_prefixes_are_left_alone(store):
    other = CUBE.copy(uuid_prefix="cube2")
    build_cube(SEED, other, store)
    append_to_cube(SEED, other, store)
    store_dataframes_as_dataset(store, "cube", [pa.table({"x": [1]})] * 3)
    compact_cube(CUBE, store)
    assert len(snapshot(store, "seed", "cube2").partitions) == 4


# --- crashes and other writers --------------------------------------------------------------------


@pytest.mark.slow
def test_a_crash_at_any_call_changes_no_answer():
    expected = answers(grown(2))
    counting = ColdStore(grown(2))
    compact_cube(CUBE, counting, options=options(threads=1))
    states = set()
    for n in range(len(counting.calls)):
        store, seen = grown(2), iter(range(10**6))
        faulty = FaultyStore(store, lambda call, n=n, seen=seen: "crash" if next(seen) == n else None)
        with pytest.raises(SimulatedCrash):
            compact_cube(CUBE, ColdStore(faulty), options=options(threads=1))
        assert answers(ColdStore(store)) == expected
        states.add((len(files(ColdStore(store))), len(files(ColdStore(store), "e"))))
    # The commit of the seed is the last call.
    assert states == {(4, 2), (4, 1)}


class Interrupted(StoreView):
    """A store in which somebody else does something when the first merged file of a dataset is
    written.
    """

    def __init__(self, inner, dataset, action):
        super().__init__(inner)
        self.dataset, self.action = dataset, action

    def around(self, operation, key, action):
        if operation == "put" and key.startswith(f"cube++{self.dataset}/table/") and self.action is not None:
            todo, self.action = self.action, None
            todo()
        return super().around(operation, key, action)


def test_rows_that_are_added_meanwhile_are_newer(store):
    model = grown()
    append_to_cube(seed_rows(7), CUBE, model)
    compact_cube(CUBE, Interrupted(store, "seed", lambda: append_to_cube(seed_rows(7), CUBE, store)))
    assert folders(store) == ["p=0", "p=1", "p=0", "p=1"]
    assert asked(store) == asked(model)
    for column in ("x", "y", "i1"):
        assert index_of(store, column) == expected_index(store, column)


def test_a_conflict_in_one_dataset_leaves_the_others_compacted(store):
    def interrupt():
        remove_partitions(CUBE, store, C("p") == 0, ["seed"])

    with pytest.raises(CubeCommitIncomplete, match="seed") as error:
        compact_cube(CUBE, Interrupted(store, "seed", interrupt))
    assert "Compacted: e." in str(error.value)
    assert len(files(store, "e")) == 1
    assert set(folders(store)) == {"p=1"}
    assert len(files(store)) == 4
    compact_cube(CUBE, store)
    assert len(files(store)) == 1


def test_a_conflict_alone_is_a_conflict(store):
    with pytest.raises(CommitConflict, match="cube\\+\\+seed"):
        compact_cube(
            CUBE,
            Interrupted(store, "seed", lambda: remove_partitions(CUBE, store, C("p") == 0, ["seed"])),
            ktk_cube_dataset_ids=["seed"],
        )


def test_the_dataset_that_comes_first_may_conflict_too(store):
    with pytest.raises(CubeCommitIncomplete, match="datasets e were changed"):
        compact_cube(
            CUBE,
            Interrupted(
                store, "e", lambda: extend_cube({"e": ENRICH}, CUBE, store, overwrite=True, partition_on={"e": []})
            ),
        )
    assert len(files(store)) == 2
    assert len(files(store, "e")) == 1


# --- random cubes ---------------------------------------------------------------------------------


@pytest.mark.slow
@given(st.data())
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_a_compacted_cube_answers_as_the_model_does(data):
    case = data.draw(cubes_with_data())
    store, model = written(case), case.model()
    questions = data.draw(st.lists(queries(case), min_size=1, max_size=4))
    for target in data.draw(st.lists(st.integers(1, 24), min_size=1, max_size=2)):
        compact_cube(case.cube, store, target_rows=target)
        for query in questions:
            expected = answer(model, arguments_of(query))
            if expected is None:
                check_refused(case, query, store)
            else:
                check_frames(case, arguments_of(query), store, expected)


@pytest.mark.slow
@given(
    st.lists(
        st.lists(
            st.tuples(st.integers(0, 3), st.integers(0, 1), st.integers(1, 2)), max_size=6, unique_by=lambda r: r[:2]
        ),
        min_size=1,
        max_size=7,
    ),
    st.data(),
)
@settings(max_examples=settings().max_examples // 4, deadline=None)
def test_many_small_appends_to_all_kinds_of_layouts(deliveries, data):
    store = MemoryStore()
    build_cube(table(x=[0, 1, 2, 3] * 2, y=["a"] * 8, p=[0] * 4 + [1] * 4, i1=[1] * 8, v1=[0.0] * 8), CUBE, store)
    layouts = {"a": [], "b": ["p"], "c": ["x"], "d": ["kd"], "f": ["p", "kf"]}
    shape = {"x": pa.int64(), "p": pa.int64()}
    written_once = set()
    for n, rows in enumerate(deliveries):
        for name, keys in layouts.items():
            columns = {
                "x": [r[0] for r in rows],
                "p": [r[1] for r in rows],
                f"k{name}": [r[2] for r in rows],
                f"v{name}": [n] * len(rows),
            }
            full = pa.table(columns, schema=pa.schema({**shape, f"k{name}": pa.int64(), f"v{name}": pa.int64()}))
            part = full if "p" in keys else full.filter(pc.equal(full["p"], 0)).drop_columns(["p"])
            if part.num_rows and name in written_once:
                append_to_cube({name: part}, CUBE, store)
            elif part.num_rows:
                extend_cube({name: part}, CUBE, store, partition_on={name: keys})
                written_once.add(name)
    before = _everything(store, written_once)
    for target in data.draw(st.lists(st.integers(1, 20), min_size=1, max_size=3)):
        compact_cube(CUBE, store, target_rows=target)
        assert _everything(store, written_once) == before


def _everything(store, names):
    found = [answers(store), pa.Table.from_batches(stream_cube(CUBE, store)).num_rows]
    for name in sorted(names):
        for value in (0, 1):
            found.append(query_cube_arrow(CUBE, store, conditions=C(f"v{name}") == value).to_pylist())
            found.append(query_cube_arrow(CUBE, store, conditions=C(f"k{name}") == value).to_pylist())
    return found
