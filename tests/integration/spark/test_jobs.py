"""How a verb looks in Spark's UI and on the terminal: description, tag, progress, Ctrl-C."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from kartothek_cube import options
from kartothek_cube.core.runtime.options import current_options
from kartothek_cube.errors import InvalidInput, Unsupported
from kartothek_cube.spark import build_cube_from_spark, query_cube_spark
from kartothek_cube.spark import tasks as actions
from kartothek_cube.spark.session import cores, find_session, is_connect, is_sail, summed
from kartothek_cube.spark.tasks import Job, in_task, perform
from tests.support.job_behaviour import JobBehaviour

pytestmark = pytest.mark.usefixtures("pickled_by_value")

LOCALS = ("spark.job.description", "spark.jobGroup.id", "spark.job.interruptOnCancel", "spark.scheduler.pool")


def test_a_job_says_verb_subject_and_detail():
    assert str(Job("write", "cube 'c'", "seed, e")) == "kartothek_cube: write cube 'c', seed, e"
    assert str(Job("query", "cube 'c'")) == "kartothek_cube: query cube 'c'"


def test_tags_have_no_comma_and_are_never_the_same():
    job = Job("write", "cube 'a,b'")
    assert job.tag() != job.tag()
    assert job.tag().startswith("kartothek_cube:write:cube 'a b':")


def seen(context):
    return {name: context.getLocalProperty(name) for name in LOCALS}


def test_jobs_are_described_and_what_the_user_has_set_stays(spark):
    context = spark.sparkContext
    context.setJobGroup("mine", "of the user")
    context.setLocalProperty("spark.scheduler.pool", "pool")
    context.addJobTag("his tag")
    before = seen(context)
    inside, tags = perform(spark, lambda: (seen(context), set(context.getJobTags())), Job("write", "cube 'c'"))
    try:
        assert inside == before | {
            "spark.job.description": "kartothek_cube: write cube 'c'",
            "spark.job.interruptOnCancel": "true",
        }
        assert sorted(tag.split(":")[0] for tag in tags) == ["his tag", "kartothek_cube"]
        assert (seen(context), set(context.getJobTags())) == (before, {"his tag"})
    finally:
        context.clearJobTags()
        for name in LOCALS:
            context.setLocalProperty(name, None)


def test_a_thread_that_has_no_active_session_uses_the_default_one(spark):
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(find_session, None).result() is not None


def test_verbs_in_two_threads_have_their_own_descriptions(spark):
    both, context = threading.Barrier(2), spark.sparkContext

    def described():
        both.wait(60)
        return context.getLocalProperty("spark.job.description")

    with ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda name: perform(spark, described, Job("write", name)), ["a", "b"])
        assert list(found) == ["kartothek_cube: write a", "kartothek_cube: write b"]


def test_the_ui_shows_what_a_write_and_a_query_are(spark, cube, frame, store_url):
    build_cube_from_spark(frame, cube, store_url)
    newest = spark.sparkContext._jsc.sc().statusStore().jobsList(None).apply(0)
    assert newest.description().get() == "kartothek_cube: build cube 'cube', seed"
    assert (
        "kartothek_cube: query cube 'cube', 4 partitions"
        in query_cube_spark(cube, store_url)._jdf.queryExecution().toString()
    )


class TestJobsOfAClassicSession(JobBehaviour):
    pass


DONE, PENDING = (4, 4, True), (0, 4, False)


@pytest.mark.parametrize(
    ("stages", "counts"),
    [
        ([], (0, 0)),
        ([{0: PENDING}], (0, 4)),
        # The first job has written a shuffle; the second one lists it again, as a stage that it
        # skips.
        ([{0: DONE}, {1: PENDING, 2: (0, 3, False)}], (4, 7)),
        ([{0: DONE}, {1: PENDING, 2: (1, 3, True)}], (5, 7)),
        ([{0: DONE}, {1: PENDING, 2: (3, 3, True)}], (7, 7)),
        # One job of three stages: the middle one counts as soon as it has begun
        ([{0: (1, 4, True), 1: PENDING, 2: PENDING}], (1, 8)),
        ([{0: DONE, 1: (0, 4, True), 2: PENDING}], (4, 12)),
        # Two jobs that share a stage
        ([{0: DONE, 1: DONE}, {0: DONE, 2: PENDING}], (8, 12)),
    ],
)
def test_stages_that_spark_skips_are_not_counted(stages, counts):
    assert summed(stages) == counts


def test_a_session_derived_from_that_of_connect_is_one():
    base = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})
    assert is_connect(type("OfAVendor", (base,), {"__module__": "vendor"})())
    assert not is_connect(type("SparkSession", (), {"__module__": "pyspark.sql.session"})())


def answering(version):
    """What a server says of its version, to the client and in SQL."""
    rows = SimpleNamespace(collect=lambda: [(version,)])
    return {"version": "4.2.0", "sql": lambda session, text: rows}


def test_sail_says_its_own_version_and_has_the_cores_of_this_machine():
    module = {"__module__": "pyspark.sql.connect.session"}
    sail, spark = (type("SparkSession", (), module | answering(said))() for said in ("0.7.2", "4.2.0 0123abc"))
    assert (is_sail(sail), is_sail(spark)) == (True, False)
    assert cores(sail, None) == os.cpu_count()


@pytest.mark.parametrize(("partitions", "width"), [("8", 8), ("auto", 200)])
def test_the_width_of_a_session_of_connect_is_that_of_its_shuffles(partitions, width):
    kind = type(
        "SparkSession",
        (),
        {
            "__module__": "pyspark.sql.connect.session",
            "conf": {"spark.sql.shuffle.partitions": partitions},
            **answering("4.2.0 0123abc"),
        },
    )
    assert cores(kind(), None) == width
    assert cores(kind(), 3) == 3


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ([(0, 0), (0, 4), (0, 4), (3, 4), (4, 4)], [(0, 4), (3, 4), (4, 4)]),
        # A shuffle: the second stage is known when the first has ended.
        ([(1, 2), (2, 2), (2, 6), (5, 6), (6, 6)], [(1, 2), (2, 6), (5, 6), (6, 6)]),
        ([(0, 0)], []),
    ],
)
def test_progress_says_once_that_all_is_done(spark_of, answers, told):
    last, left, calls = threading.Event(), list(answers), []

    def watch():
        if len(left) > 1:
            return left.pop(0)
        last.set()
        return left[0]

    spark_of(watch)
    with options(progress=lambda event: calls.append((event.done, event.total))):
        assert perform(None, lambda: last.wait(60), Job("write", "cube"))
    assert calls == told


def test_a_failed_action_is_not_told_to_be_done(spark_of):
    spark_of(lambda: (4, 4))
    with options(progress=pytest.fail), pytest.raises(ZeroDivisionError):
        perform(None, lambda: 1 / 0, Job("write", "cube"))


class Plain(threading.Thread):
    def __init__(self, target, session, **given):
        super().__init__(target=target, **given)


@pytest.fixture
def spark_of(monkeypatch):
    """A function: let actions run without Spark.

    What they look at is up to the caller, and their session is what is called to cancel them.
    """

    def stand_in(watch):
        monkeypatch.setattr(actions, "_SECONDS_BETWEEN_LOOKS", 0.001)
        monkeypatch.setattr(actions, "_SECONDS_BETWEEN_CANCELS", 0.001)
        monkeypatch.setattr("pyspark.InheritableThread", Plain)
        monkeypatch.setattr(actions, "named", lambda *given: nullcontext())
        monkeypatch.setattr(actions, "watching", lambda *given: nullcontext(watch))
        monkeypatch.setattr(actions, "cancel", lambda session, tag: session())

    return stand_in


def test_an_interrupt_never_hits_a_conversation_with_spark(spark_of):
    threads, cancelled = set(), threading.Event()

    def watch():
        threads.add(threading.current_thread())
        return 1, 2

    def cancel():
        threads.add(threading.current_thread())
        cancelled.set()

    def interrupted(event):
        raise KeyboardInterrupt

    spark_of(watch)
    with options(progress=interrupted), pytest.raises(KeyboardInterrupt):
        perform(cancel, lambda: cancelled.wait(60), Job("write", "cube"))
    assert len(threads) == 1
    assert threading.current_thread() not in threads


def test_a_second_interrupt_does_not_wait_and_the_job_is_cancelled_nevertheless(spark_of):
    main, cancelled, ended = threading.main_thread().ident, iter([True, False]), threading.Event()

    def interrupt():
        if next(cancelled):
            signal.pthread_kill(main, signal.SIGINT)
            returned.wait(60)
        else:
            ended.set()

    def stopped(event):
        raise ZeroDivisionError

    returned = threading.Event()
    spark_of(lambda: (1, 2))
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with options(progress=stopped), pytest.raises(KeyboardInterrupt):
            perform(interrupt, lambda: ended.wait(60), Job("write", "cube"))
        assert not ended.is_set()
    finally:
        signal.signal(signal.SIGINT, previous)
        returned.set()
    assert ended.wait(60)


def test_a_session_that_does_not_let_progress_be_seen_does_not_stop_the_action(spark_of):
    def watch():
        raise PermissionError("is not whitelisted")

    spark_of(watch)
    with options(progress=pytest.fail):
        assert perform(None, lambda: 7, Job("write", "cube")) == 7


class Unable(Plain):
    def start(self):
        raise ZeroDivisionError


class WithoutProperties(Plain):
    """Spark fails to hand the properties of the calling thread over."""

    def __init__(self, target, session, **given):
        super().__init__(lambda: 1 / 0, session, **given)


@pytest.mark.parametrize("kind", [Unable, WithoutProperties])
def test_an_action_that_cannot_start_is_not_waited_for(spark_of, monkeypatch, kind):
    spark_of(lambda: (0, 0))
    monkeypatch.setattr("pyspark.InheritableThread", kind)
    with pytest.raises(ZeroDivisionError):
        perform(None, pytest.fail, Job("write", "cube"))


def test_a_bar_that_cannot_be_shown_is_refused_before_the_action(spark, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tqdm.auto", None)
    with options(progress=True), pytest.raises(Unsupported, match="tqdm"):
        perform(spark, pytest.fail, Job("write", "cube"))


@pytest.mark.parametrize("fails", [False, True])
def test_a_bar_is_closed_however_the_action_ends(spark_of, monkeypatch, fails):
    log = []

    class Bar:
        n = 0
        update = log.append

        def __init__(self, **_):
            self.close = lambda: log.append("closed")

    monkeypatch.setitem(__import__("sys").modules, "tqdm.auto", SimpleNamespace(tqdm=Bar))
    shown = threading.Event()
    answers = iter([(1, 2)])
    spark_of(lambda: next(answers, shown.set() or (0, 0)))
    with options(progress=True), pytest.raises(ZeroDivisionError) if fails else nullcontext():
        perform(None, lambda: shown.wait(60) // (not fails), Job("write", "cube"))
    assert log == ([1, "closed"] if fails else [1, 2, "closed"])


def test_options_of_the_call_hold_in_tasks(spark):
    def threads(batches):
        import pyarrow as pa

        for _ in batches:
            held = current_options()
            yield pa.record_batch({"n": [held.threads], "progress": [held.progress is False]})

    with options(threads=3, progress=lambda event: None):
        work = in_task(threads)
    assert [tuple(row) for row in spark.range(0, 1, 1, 1).mapInArrow(work, "n long, progress boolean").collect()] == [
        (3, True)
    ]
    with pytest.raises(InvalidInput, match="Unknown options"):
        options(thread=3)
