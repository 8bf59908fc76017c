"""The stream reader without Spark: offsets, the rows of micro-batches, and what ends a stream."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from shutil import copytree
from types import SimpleNamespace

import pyarrow as pa
import pytest

from kartothek_cube import Cube, append_to_cube, build_cube, options
from kartothek_cube.api.dataset import (
    build_dataset_indices,
    compact_dataset,
    convert_metadata_format,
    create_empty_dataset_header,
    delete_dataset,
    garbage_collect_dataset,
    history,
    store_dataframes_as_dataset,
    undo,
    update_dataset_from_dataframes,
)
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.errors import DatasetNotFound, HistoryUnavailable, InvalidInput, InvalidRequest, UnknownColumn
from kartothek_cube.spark.datasource import KartothekCubeSource
from kartothek_cube.spark.datasource.options import parse_options
from kartothek_cube.spark.tasks import error_in
from tests.support.store_log import Log, LoggedStore


class Query:
    """What Spark does with a reader; ``log`` is the checkpoint, which outlives the process."""

    def __init__(self, url, checkpoint=None, **given):
        self.options = {"store": url, "dataset": "sales", "parallelism": "2", **given}
        self.checkpoint = [] if checkpoint is None else checkpoint
        source = KartothekCubeSource(self.options)
        self.reader = source.streamReader(source.schema())

    def start(self):
        return self.checkpoint[-1] if self.checkpoint else json.dumps(self.reader.initialOffset())

    def rows(self, start, end):
        parts = self.reader.partitions(json.loads(start), json.loads(end))
        in_task = pickle.loads(pickle.dumps(self.reader))
        return [tuple(row.values()) for part in parts for b in in_task.read(part) for row in b.to_pylist()]

    def batch(self, most=None):
        """The rows of the next micro-batch; None without one. ``most``: Spark's own limit."""
        start = self.start()
        # PySpark 4.1 knows no limits.
        limit = SimpleNamespace(max_files=most or self.reader._options.max_files_per_trigger)
        end = json.dumps(self.reader.latestOffset(json.loads(start), limit))
        if end == start:
            return None
        self.checkpoint.append(end)
        return self.rows(start, end)

    def run(self):
        return list(iter(self.batch, None))


def rows_of(*xs, p="a"):
    return pa.table({"x": list(xs), "p": [p] * len(xs)})


def put(url, *xs, p="a", **more):
    update_dataset_from_dataframes([rows_of(*xs, p=p)], url, "sales", partition_on=["p"], **more)


def commits(url):
    return history("sales", url)["commit"].tolist()[::-1]


def fails(error, match, action):
    with pytest.raises(Exception, match=match) as caught:
        action()
    assert type(error_in(str(caught.value))) is error


@pytest.fixture
def sales(store_url):
    """Three commits: one file, one file, two files."""
    put(store_url, 1)
    put(store_url, 2)
    update_dataset_from_dataframes([pa.concat_tables([rows_of(3), rows_of(4, p="b")])], store_url, "sales")
    return store_url


def xs(batches):
    return [sorted(x for _, x in batch) for batch in batches]


# --- what is read ---------------------------------------------------------------------------------


def test_a_stream_begins_with_all_rows_and_goes_on_with_new_ones(sales):
    query = Query(sales)
    assert xs(query.run()) == [[1, 2, 3, 4]]
    assert query.run() == []
    put(sales, 5, 6)
    put(sales, 7, p="c")
    assert query.run() == [[("a", 5), ("a", 6), ("c", 7)]]


@pytest.mark.parametrize("most", [1, 2, 3, 100])
@pytest.mark.parametrize("given", [{}, {"startingCommit": 0}])
def test_a_query_that_starts_anew_for_each_batch_reads_every_row_once(sales, most, given):
    given = {name: commits(sales)[number] for name, number in given.items()} | {"maxFilesPerTrigger": str(most)}
    checkpoint, found = [], []
    for later in ((), (5, 6), (7,)):
        if later:
            update_dataset_from_dataframes([rows_of(x, p=str(x)) for x in later], sales, "sales")
        while (batch := Query(sales, checkpoint, **given).batch()) is not None:
            assert len(batch) <= most
            found += batch
            # The same batch again, as after a crash.
            again = Query(sales, checkpoint[:-1], **given)
            assert again.rows(again.start(), checkpoint[-1]) == batch
    assert sorted(x for _, x in found) == [1, 2, 3, 4, 5, 6, 7]
    whole = [x for batch in [Query(sales, **given).run()] for rows in batch for _, x in rows]
    assert sorted(whole) == [1, 2, 3, 4, 5, 6, 7]


def test_the_whole_state_is_that_of_the_start_while_it_is_read_in_slices(sales):
    query = Query(sales, maxFilesPerTrigger="1")
    first = query.batch()
    put(sales, 5)
    compact_dataset("sales", sales)
    rest = Query(sales, query.checkpoint, maxFilesPerTrigger="1").run()
    assert xs([first, *rest]) == [[1], [2], [3], [4], [5]]


def test_a_limit_cuts_inside_of_a_commit_and_joins_small_ones(sales):
    begin = {"startingCommit": commits(sales)[0]}
    assert xs(Query(sales, **begin, maxFilesPerTrigger="3").run()) == [[1, 2, 3], [4]]
    query = Query(sales, **begin, maxFilesPerTrigger="1")
    assert xs([query.batch(), query.batch(), query.batch(most=99)]) == [[1], [2], [3, 4]]


def test_a_stream_begins_with_a_commit_or_from_now_on(sales):
    _, second, third = commits(sales)
    assert xs(Query(sales, startingCommit=second).run()) == [[2, 3, 4]]
    assert xs(Query(sales, startingcommit=third).run()) == [[3, 4]]
    latest = Query(sales, startingCommit="latest")
    assert latest.run() == [[]]
    put(sales, 5)
    # Batch 0 is repeated, and must not begin any later.
    assert xs(Query(sales, latest.checkpoint, startingCommit="latest").run()) == [[5]]


@pytest.mark.parametrize(("given", "expected"), [({}, [1, 2, 3, 4, 5, 6]), ({"startingCommit": "latest"}, [5, 6])])
@pytest.mark.parametrize("most", ["1", "4", "5"])
def test_a_commit_that_lands_while_the_stream_begins_is_not_lost(sales, monkeypatch, given, expected, most):
    waiting = [lambda: update_dataset_from_dataframes([rows_of(5), rows_of(6)], sales, "sales")]

    def load(store, uuid):
        newest = load_snapshot(store, uuid)
        for commit in waiting[:]:
            waiting.remove(commit)
            commit()
        return newest

    query = Query(sales, maxFilesPerTrigger=most, **given)
    monkeypatch.setattr("kartothek_cube.spark.datasource.stream.load_snapshot", load)
    assert sorted(x for batch in query.run() for _, x in batch) == expected


def test_a_stream_begins_with_a_moment(sales):
    times = history("sales", sales)["time"].tolist()[::-1]

    def begin(moment):
        return Query(sales, startingTimestamp=moment.isoformat())

    assert xs(begin(times[1]).run()) == [[2, 3, 4]]
    assert xs(begin(times[1] + timedelta(microseconds=1)).run()) == [[3, 4]]
    assert xs(begin(times[0] - timedelta(days=1)).run()) == [[1, 2, 3, 4]]
    fails(InvalidInput, "or later.*startingCommit=latest", lambda: begin(times[2] + timedelta(seconds=9)).run())


def test_columns_conditions_and_tasks(sales):
    assert Query(sales, columns="x", conditions="p == b").run() == [[(4,)]]
    query = Query(sales, conditions="x > 1 & x < 4", blocksize="1")
    assert xs(query.run()) == [[2, 3]]
    parts = query.reader.partitions({"commit": "", "files": 0, "snapshot": True}, json.loads(query.checkpoint[0]))
    assert len(parts) == 4
    assert Query(sales, conditions="p == z").run() == [[]]


def test_columns_stay_those_of_the_start(sales):
    query = Query(sales)
    query.batch()
    wider = rows_of(5).append_column("v1", pa.array([0.5]))
    update_dataset_from_dataframes([wider], sales, "sales", add_columns=True)
    assert query.run() == [[("a", 5)]]
    anew = Query(sales, query.checkpoint[:1])
    assert anew.run() == [[("a", 0.5, 5)]]
    assert sorted(Query(sales, columns="x,v1").batch()) == [(1, None), (2, None), (3, None), (4, None), (5, 0.5)]


def test_types_are_those_of_a_batch_read_also_without_any_file(store_url):
    table = pa.table({"x": pa.array([1], pa.uint32()), "t": pa.array([datetime(2024, 5, 1)], pa.timestamp("ns"))})
    create_empty_dataset_header(store_url, "sales", {"table": table.schema})
    query = Query(store_url)
    source = KartothekCubeSource({"store": store_url, "dataset": "sales"})
    assert source.schema().simpleString() == "struct<t:timestamp_ntz,x:bigint>"
    assert query.run() == [[]]
    update_dataset_from_dataframes([table], store_url, "sales")
    assert query.run() == [[(datetime(2024, 5, 1), 1)]]


def test_a_table_of_several(store_url):
    store_dataframes_as_dataset(store_url, "sales", [{"x": rows_of(1), "y": rows_of(2)}], partition_on=["p"])
    query = Query(store_url, table="y")
    assert query.run() == [[("a", 2)]]
    update_dataset_from_dataframes([{"x": rows_of(4), "y": rows_of(5)}], store_url, "sales")
    assert query.run() == [[("a", 5)]]


def test_a_dataset_of_a_cube(store_url):
    cube = Cube(["x"], ["p"], "cube")
    build_cube(rows_of(1), cube, store_url)
    query = Query(store_url, cube="cube", dataset="seed")
    assert query.run() == [[("a", 1)]]
    append_to_cube(rows_of(2), cube, store_url)
    assert query.run() == [[("a", 2)]]


@pytest.mark.parametrize("seed", range(6))
def test_random_histories_come_through_row_by_row_once(store_url, seed):
    """Appends, compactions, replacements that are skipped, and restarts, in any order."""
    random = Random(seed)
    numbers, checkpoint, found = iter(range(10_000)), [], []
    put(store_url, next(numbers))
    expected = {0}
    given = {"maxFilesPerTrigger": str(random.randint(1, 4)), "skipChangeCommits": "true"}
    query = Query(store_url, checkpoint, **given)
    for _ in range(25):
        step = random.choice(["append"] * 3 + ["batch"] * 2 + ["compact", "replace", "restart", "metadata"])
        new = [next(numbers) for _ in range(random.randint(1, 3))]
        if step == "append":
            rows = [rows_of(x, p=random.choice("abc")) for x in new]
            update_dataset_from_dataframes([pa.concat_tables(rows)], store_url, "sales")
            expected |= set(new)
        elif step == "batch":
            found += query.batch() or []
        elif step == "compact":
            compact_dataset("sales", store_url)
        elif step == "replace" and checkpoint:
            # Not before the first batch: the state of the start would have these rows.
            put(store_url, *new, delete_scope=[{"p": "a"}])
        elif step == "restart":
            query = Query(store_url, checkpoint, **given)
        elif step == "metadata":
            update_dataset_from_dataframes([], store_url, "sales", metadata={"step": str(new[0])})
    found += [row for batch in query.run() for row in batch]
    assert sorted(x for _, x in found) == sorted(expected)


# --- what does not interrupt a stream -------------------------------------------------------------


def test_commits_without_new_rows_are_passed_over(sales):
    query = Query(sales)
    query.batch()
    compact_dataset("sales", sales)
    update_dataset_from_dataframes([], sales, "sales", metadata={"owner": "me"})
    build_dataset_indices(sales, "sales", ["x"])
    convert_metadata_format("sales", sales, "msgpack")
    assert query.run() == [[]]
    # The position is that of the last commit: history may forget those before.
    assert json.loads(query.checkpoint[-1]) == {"commit": commits(sales)[-1]}


def test_a_compaction_that_was_undone_changes_nothing_either(sales):
    query = Query(sales)
    first = query.run()
    compact_dataset("sales", sales)
    undo("sales", sales)
    put(sales, 5)
    undo("sales", sales, commits(sales)[-2])
    put(sales, 6)
    assert xs([*first, *query.run()])[-1] == [5, 6]


def test_a_file_that_was_compacted_before_the_stream_came_to_it_is_read_once(sales):
    query = Query(sales)
    query.batch()
    put(sales, 5)
    put(sales, 6)
    compact_dataset("sales", sales)
    put(sales, 7)
    assert query.run() == [[("a", 5), ("a", 6), ("a", 7)]]


def test_an_idle_trigger_reads_the_document_and_nothing_else(sales, monkeypatch, tmp_path):
    log = Log(tmp_path / "calls")
    store = LoggedStore(sales, log.path)
    monkeypatch.setattr("kartothek_cube.spark.datasource.stream.open_store", lambda url: store)
    query = Query(sales)
    query.batch()
    log.clear()
    assert query.batch() is None
    assert query.reader.reportLatestOffset() == json.loads(query.checkpoint[-1])
    assert log.by_file("") == {"sales.by-dataset-metadata.json": {"changed": 1}}


# --- what ends a stream ---------------------------------------------------------------------------


def replace_a(url):
    put(url, 9, delete_scope=[{"p": "b"}])


@pytest.mark.parametrize(
    "change",
    [
        replace_a,
        lambda url: update_dataset_from_dataframes([], url, "sales", delete_scope=[{"p": "b"}]),
        lambda url: store_dataframes_as_dataset(url, "sales", [rows_of(9)], partition_on=["p"], overwrite=True),
        lambda url: undo("sales", url),
    ],
    ids=["replace", "delete", "overwrite", "undo"],
)
def test_a_removal_ends_the_stream_after_the_rows_before_it(sales, change):
    query = Query(sales)
    query.batch()
    put(sales, 5)
    put(sales, 6, p="c")
    change(sales)
    put(sales, 7)
    removal = commits(sales)[-2]
    assert query.batch() == [("a", 5), ("c", 6)]
    fails(InvalidRequest, f"'sales': commit {removal} of .*skipChangeCommits", query.batch)
    fails(InvalidRequest, removal, lambda: Query(sales, startingCommit=removal).run())
    on = Query(sales, query.checkpoint, skipChangeCommits="true")
    assert on.run() == [[("a", 7)]]
    without = Query(sales)
    fails(InvalidRequest, removal, lambda: without.rows(on.checkpoint[-2], on.checkpoint[-1]))


def test_history_that_has_expired_ends_the_stream(sales):
    query, half = Query(sales), Query(sales, maxFilesPerTrigger="1")
    query.batch(), half.batch()
    put(sales, 5)
    put(sales, 6)
    with options(retain=timedelta(0), grace=timedelta(0)):
        garbage_collect_dataset("sales", sales)
    gone = json.loads(query.checkpoint[-1])["commit"]
    message = (
        f"'sales': a stream has read it up to commit {gone}.*history is kept since commit .* of 20.*new checkpoint"
    )
    fails(HistoryUnavailable, message, query.batch)
    fails(HistoryUnavailable, message, Query(sales, half.checkpoint, maxFilesPerTrigger="1").batch)
    for given in ({"startingCommit": gone}, {"startingTimestamp": "2001-01-01"}):
        fails(HistoryUnavailable, "'sales' cannot begin with .*kept since", lambda g=given: Query(sales, **g).run())
    assert xs(Query(sales).run()) == [[1, 2, 3, 4, 5, 6]]


def test_a_stream_that_has_read_everything_needs_no_history(sales):
    query = Query(sales)
    query.batch()
    with options(retain=timedelta(0), grace=timedelta(0)):
        garbage_collect_dataset("sales", sales)
    assert query.batch() is None
    put(sales, 5)
    assert Query(sales, query.checkpoint).run() == [[("a", 5)]]


def test_a_dataset_that_was_deleted_or_made_again_ends_the_stream(sales):
    query = Query(sales)
    query.batch()
    delete_dataset("sales", sales)
    fails(DatasetNotFound, "sales", query.batch)
    put(sales, 1)
    fails(HistoryUnavailable, f"it was made by commit {commits(sales)[0]}", query.batch)


def test_an_older_copy_of_the_store_ends_the_stream(sales, tmp_path):
    root = sales.removeprefix("hfs://")
    query = Query(sales)
    query.batch()
    copytree(root, tmp_path / "older")
    older = Query(f"hfs://{tmp_path}/older", query.checkpoint)
    for x in (5, 6):
        put(sales, x)
        query.batch()
    start, middle, end = query.checkpoint
    for ends in ((start, end), (middle, end)):
        fails(HistoryUnavailable, "'sales'.*commit", lambda ends=ends: older.rows(*ends))


def test_a_foreign_writer_ends_the_stream(sales):
    query = Query(sales)
    query.batch()
    document = Path(sales.removeprefix("hfs://")) / "sales.by-dataset-metadata.json"
    content = json.loads(document.read_text())
    content["partitions"].popitem()
    document.write_text(json.dumps(content))
    fails(HistoryUnavailable, "kartothek, plateau. came last, after commit", query.batch)
    fails(HistoryUnavailable, "'sales' cannot be read as a stream now", Query(sales).batch)
    with pytest.warns(UserWarning, match="sales"):
        put(sales, 5)
    fails(HistoryUnavailable, "before commit .* came a writer", query.batch)
    assert len(Query(sales).batch()) == 4


# --- options and what travels ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"cube": "c"}, "reads one dataset, and cube='c' names a whole cube.*dataset"),
        ({"dataset": "d", "startingCommit": "a", "startingTimestamp": "2024-05-01"}, "contradict each other"),
        ({"dataset": "d", "startingCommit": ""}, "startingCommit is empty"),
        ({"dataset": "d", "startingTimestamp": "soon"}, "startingTimestamp='soon' is no moment"),
        ({"dataset": "d", "maxFilesPerTrigger": "0"}, "maxFilesPerTrigger='0' is no positive"),
        ({"dataset": "d", "skipChangeCommits": "yes"}, "skipChangeCommits='yes' is neither"),
        ({"dataset": "d", "as_of": "a"}, "as_of means nothing to read a stream.*startingCommit"),
        ({"dataset": "d", "push_down": "true"}, "push_down means nothing to read a stream"),
        ({"dataset": "d", "txn": "a,1"}, "txn means nothing to read a stream"),
        ({"dataset": "d", "startingcomit": "a"}, "no option 'startingcomit'. Did you mean 'startingCommit'"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(given, match):
    with pytest.raises(InvalidInput, match=match):
        parse_options({"store": "hfs:///data"} | given, "read a stream")


def test_options_of_a_stream_mean_nothing_elsewhere(sales):
    given = {"store": sales, "dataset": "sales", "startingcommit": "latest"}
    source = KartothekCubeSource(given)
    schema = source.schema()
    fails(InvalidInput, "startingCommit means nothing to read. To read there are", lambda: source.reader(schema))
    with pytest.raises(InvalidInput, match="startingCommit means nothing to stream"):
        parse_options(given, "stream")


def test_options_become_a_value():
    given = {"startingtimestamp": "2024-05-01", "maxfilespertrigger": "3", "skipchangecommits": "TRUE"}
    parsed = parse_options({"store": "hfs:///data", "dataset": "d"} | given, "read a stream")
    assert parsed.starting_timestamp == datetime(2024, 5, 1, tzinfo=UTC)
    assert (parsed.max_files_per_trigger, parsed.skip_change_commits) == (3, True)


def test_the_end_is_pinned_for_what_is_available_now(sales):
    query = Query(sales, maxFilesPerTrigger="3")
    query.reader.prepareForTriggerAvailableNow()
    put(sales, 5)
    assert xs(query.run()) == [[1, 2, 3], [4]]


def test_the_limit_is_that_of_the_option(sales):
    limits = pytest.importorskip("pyspark.sql.streaming.datasource", reason="PySpark 4.1 has no limits")
    assert Query(sales, maxFilesPerTrigger="3").reader.getDefaultReadLimit() == limits.ReadMaxFiles(3)
    everything = Query(sales)
    assert everything.reader.getDefaultReadLimit() == limits.ReadAllAvailable()
    found = everything.reader.latestOffset(everything.reader.initialOffset(), limits.ReadAllAvailable())
    assert found == {"commit": commits(sales)[-1]}


def test_a_release_of_spark_without_limits_reads_what_is_there(sales):
    """PySpark 4.1 does not say where a micro-batch starts."""
    query = Query(sales, maxFilesPerTrigger="1")
    start = json.dumps(query.reader.initialOffset())
    middle = json.dumps(query.reader.latestOffset())
    put(sales, 5)
    put(sales, 6)
    end = json.dumps(query.reader.latestOffset())
    assert [len(query.rows(*ends)) for ends in ((start, middle), (middle, end), (end, end))] == [4, 2, 0]
    replace_a(sales)
    last = json.dumps(query.reader.latestOffset())
    fails(InvalidRequest, "skipChangeCommits", lambda: query.rows(end, last))


def test_what_travels_is_small(sales):
    query = Query(sales)
    before = len(pickle.dumps(query.reader))
    query.batch()
    assert len(pickle.dumps(query.reader)) == before < 2000


def test_an_unknown_column_is_named(sales):
    fails(UnknownColumn, "'z'|z", lambda: Query(sales, columns="x,z"))
