"""The action of a verb on every session: progress in the calling thread, Ctrl-C, errors."""

from __future__ import annotations

import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from kartothek_cube import Cube, build_cube, options, query_cube_arrow
from kartothek_cube.api.dataset import history
from kartothek_cube.errors import InvalidInput
from kartothek_cube.spark import append_to_cube_from_spark, build_cube_from_spark, driver_errors, register
from kartothek_cube.spark.session import is_connect, is_sail
from kartothek_cube.spark.tasks import Job, as_task, collect

CUBE = Cube(["x"], ["p"], "cube")


def rows(spark):
    return spark.range(0, 8, 1, 2).selectExpr("id AS x", "id % 2 AS p")


def waiting(server):
    port = server.getsockname()[1]

    def task(batches):
        for batch in batches:
            with socket.create_connection(("127.0.0.1", port)) as line:
                line.recv(1)
            yield batch

    return task


def failing(batches):
    raise InvalidInput("ü" * 5_000 + " to its end")
    yield from batches


def active_jobs(spark):
    return [] if is_connect(spark) else spark.sparkContext.statusTracker().getActiveJobsIds()


class JobBehaviour:
    """A subclass provides the fixtures ``spark`` and ``store_url``."""

    @pytest.fixture
    def server(self):
        """A port that a task calls without an answer: the task waits until it is killed."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(300)
            yield server

    def test_progress_is_told_in_the_calling_thread_until_all_is_done(self, spark, store_url):
        ticks = []
        with options(progress=lambda event: ticks.append((event.done, event.total, threading.current_thread()))):
            build_cube_from_spark(rows(spark), CUBE, store_url)
        # The driver's own steps for the commit come after the tasks of Spark.
        end = next((i for i, (done, total, _) in enumerate(ticks) if done == total), None)
        # The server of Connect may answer before it has heard of its own stages.
        assert is_connect(spark) or ticks[end][1] >= 2
        done = [done for done, _, _ in ticks[: end and end + 1]]
        assert done == sorted(done)
        assert {thread for _, _, thread in ticks} <= {threading.main_thread()}

    @pytest.mark.parametrize("progress", [False, lambda event: None])
    def test_an_interrupt_cancels_the_job_and_leaves_the_old_state(self, spark, store_url, server, progress):
        build_cube_from_spark(rows(spark), CUBE, store_url)
        stuck = rows(spark).coalesce(1).mapInArrow(waiting(server), "x long, p long")
        before = history("cube++seed", store_url)
        main = threading.main_thread().ident
        previous = signal.signal(
            signal.SIGINT, signal.default_int_handler
        )  # Spark's own would cancel the jobs of all threads
        try:
            with ThreadPoolExecutor(1) as pool:
                connection = pool.submit(lambda: (server.accept(), signal.pthread_kill(main, signal.SIGINT)))
                with pytest.raises(KeyboardInterrupt), options(progress=progress):
                    append_to_cube_from_spark(stuck, CUBE, store_url)
        finally:
            signal.signal(signal.SIGINT, previous)
        connection.result()[0][0].close()
        assert active_jobs(spark) == []
        assert history("cube++seed", store_url).equals(before)
        assert query_cube_arrow(CUBE, store_url).num_rows == spark.range(8).count()

    def test_an_error_of_the_progress_function_cancels_the_job(self, spark, server):
        def broken(event):
            raise ZeroDivisionError("of the user")

        with pytest.raises(ZeroDivisionError, match="of the user"), options(progress=broken):
            collect(spark.range(0, 2, 1, 2).mapInArrow(waiting(server), "id long"), Job("wait", "for nothing"))
        assert active_jobs(spark) == []

    def test_a_message_of_a_task_arrives_however_long_it_is(self, spark):
        with (
            pytest.raises(InvalidInput, match=r"^ü{100,} … \([0-9,]+ characters\) … ü{100,} to its end$"),
            driver_errors(),
        ):
            spark.range(0, 1, 1, 1).mapInArrow(as_task(failing), "id long").collect()

    def test_nothing_is_left_behind_on_the_session(self, spark):
        tags = set(spark.getTags())
        with options(progress=lambda event: None):
            assert [row.id for row in collect(spark.range(0, 2, 1, 1), Job("look", "around"))] == [0, 1]
        assert set(spark.getTags()) == tags
        assert not is_connect(spark) or spark.client._progress_handlers == []

    def test_a_cube_is_a_table_and_has_table_functions(self, spark, store_url):
        build_cube(pa.table({"x": [1, 2], "p": [0, 1]}), CUBE, store_url)
        read = spark.read.format("kartothek_cube").options(store=store_url, cube="cube")
        if not is_sail(spark):  # it looks for no module, and pushes filters whatever the setting
            spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")  # as at first
            assert sorted(read.load().collect()) == [(0, 1), (1, 2)]
            with pytest.raises(InvalidInput, match="push_down needs"), driver_errors():
                read.option("push_down", "true").load().collect()
        register(spark)
        assert read.option("push_down", "true").load().where("x = 2").collect() == [(1, 2)]

        def asked(function, arguments=""):
            with driver_errors():
                return spark.sql(f"SELECT * FROM kartothek_{function}(store => '{store_url}'{arguments})").collect()

        target = ", cube => 'cube'"
        (write,) = asked("history", target)
        assert (write.datasets, write.added, write.kept) == (["seed"], 2, True)
        assert [row.partition["p"] for row in asked("files", target)] == ["0", "1"]
        assert any("p=1" in row.plan for row in asked("explain", f"{target}, conditions => 'p == 1'"))
        since = f"{target}, since => '{write.commit}'"
        assert asked("changes", since) == []
        assert asked("change_counts", since) == [("seed", 0, 0, 0)]
        assert asked("cubes") == [("cube", "seed", ["x"], ["p"], [], ["seed"])]
        with pytest.raises(InvalidInput, match="Give the option cube"):
            asked("history")
