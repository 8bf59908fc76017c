from __future__ import annotations

import contextvars
import gc
import threading
from contextlib import nullcontext

import pytest

from kartothek_cube.core.runtime.executor import READ_FILES, map_batches, map_in_threads
from kartothek_cube.core.runtime.options import current_options, options

WAIT = 30


def run(func, items, threads=None, **arguments):
    with nullcontext() if threads is None else options(threads=threads):
        return map_in_threads(func, items, **arguments)


def workers():
    return [thread for thread in threading.enumerate() if thread.name.startswith("kartothek_cube")]


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    assert workers() == []


@pytest.mark.parametrize("threads", [1, 2, 8, None])
@pytest.mark.parametrize("count", [0, 1, 2, 50])
def test_results_come_in_the_order_of_the_items(threads, count):
    assert list(run(lambda x: x * x, range(count), threads=threads)) == [x * x for x in range(count)]
    assert list(run(lambda x: x * x, iter(range(count)), threads=threads)) == [x * x for x in range(count)]


def test_results_come_in_order_when_the_first_is_the_slowest():
    last = threading.Event()

    def work(x):
        if x == 0:
            assert last.wait(WAIT)
        if x == 3:
            last.set()
        return x

    assert list(run(work, range(4), threads=2)) == [0, 1, 2, 3]


def test_tasks_run_at_the_same_time():
    barrier = threading.Barrier(3, timeout=WAIT)
    list(run(lambda _: barrier.wait(), range(3), threads=3))


@pytest.mark.parametrize(("items", "threads"), [([1], 8), ([1, 2], 1)])
def test_one_item_or_one_thread_runs_in_the_calling_thread(items, threads):
    assert set(run(lambda _: threading.current_thread(), items, threads=threads)) == {threading.current_thread()}


def test_nothing_happens_before_the_first_result_is_asked_for():
    started = []
    results = run(started.append, range(3), threads=2)
    assert (started, workers()) == ([], [])
    results.close()


def test_items_are_taken_only_so_far_ahead():
    taken = []

    def items():
        for x in range(100):
            taken.append(x)
            yield x

    results = run(lambda x: x, items(), threads=2)
    next(results)
    assert len(taken) <= 4
    results.close()


def test_weights_bound_what_is_in_flight():
    started, most = [], []

    def work(x):
        started.append(x)
        return x

    with options(bytes_in_flight=100):
        for done, _ in enumerate(run(work, range(20), threads=4, weight=lambda _: 40)):
            most.append(len(started) - done)
    assert max(most) <= 2


def test_item_above_the_bound_runs_alone():
    with options(bytes_in_flight=1):
        assert list(run(str, range(5), threads=4, weight=lambda _: 100)) == list("01234")


@pytest.mark.parametrize("threads", [1, 4])
def test_first_error_cancels_the_rest_and_is_raised(threads):
    started = []

    def work(x):
        started.append(x)
        if x == 2:
            raise KeyError(x)

    with pytest.raises(KeyError, match="2"):
        list(run(work, range(1000), threads=threads))
    assert len(started) <= 2 * threads + 3


def test_error_of_a_later_item_does_not_wait_for_an_earlier_one():
    failed = threading.Event()

    def work(x):
        if x == 1:
            failed.set()
            raise KeyError(x)
        assert failed.wait(WAIT)
        return x

    with pytest.raises(KeyError):
        next(run(work, range(2), threads=2))


def test_error_of_the_items_is_raised():
    def items():
        yield 1
        raise KeyError

    with pytest.raises(KeyError):
        list(run(str, items(), threads=2))


def test_closing_stops_the_threads():
    started = []
    results = run(started.append, iter(range(1000)), threads=2)
    next(results)
    results.close()
    assert workers() == []
    assert len(started) < 10


def test_interrupt_stops_the_threads():
    def items():
        yield from range(3)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(run(str, items(), threads=2))
    assert workers() == []


def test_tasks_see_the_context_of_the_caller():
    variable = contextvars.ContextVar("variable", default=0)
    variable.set(7)
    with options(commit_retries=3):
        results = run(lambda _: (variable.get(), current_options().commit_retries), range(4), threads=2)
    assert set(results) == {(7, 3)}


def test_task_that_runs_tasks_gets_its_share_of_the_threads():
    def outer(_):
        return list(run(lambda _: threading.current_thread().name, range(4)))

    with options(threads=2):
        for names in run(outer, range(2)):
            assert len(set(names)) == 1
        (names,) = run(outer, [0])
        assert all(name.startswith("kartothek_cube") for name in names)


@pytest.mark.parametrize("threads", [1, 3])
def test_progress_is_told_of_the_outermost_run_if_it_is_a_phase(threads):
    events = []
    with options(progress=events.append, threads=threads):
        list(run(lambda x: list(run(str, [x, x], phase=READ_FILES)), range(2), phase=READ_FILES))
        list(run(str, iter("ab"), phase=READ_FILES))
        list(run(str, range(9)))
        list(run(str, [], phase=READ_FILES))
    assert [(event.done, event.total) for event in events] == [(0, 2), (1, 2), (2, 2), (0, None), (1, None), (2, None)]
    assert {(event.phase, event.unit) for event in events} == {("read", "files")}


def test_error_of_the_progress_function_stops_the_threads():
    def report(event):
        return 1 // (1 - event.done)

    with pytest.raises(ZeroDivisionError), options(progress=report):
        list(run(str, range(9), threads=2, phase=READ_FILES))
    assert workers() == []


# --- batches --------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("limit", [1, 4, 1000])
def test_batches_grow_and_results_come_one_by_one(threads, limit):
    sizes, events = [], []

    def square(batch):
        sizes.append(len(batch))
        return [x * x for x in batch]

    with options(threads=threads, progress=lambda event: events.append((event.done, event.total))):
        assert list(map_batches(square, range(40), lambda: limit, weight=lambda _: 1, phase=READ_FILES)) == [
            x * x for x in range(40)
        ]
    assert events == [(i, 40) for i in range(41)]
    assert max(sizes) == min(limit, 16)
    assert sizes.count(1) == (40 if limit == 1 else 2)


def test_who_takes_the_first_results_does_not_wait_for_many():
    taken = []
    with options(threads=1):
        results = map_batches(lambda batch: taken.extend(batch) or batch, range(1000), lambda: 1000)
    assert [next(results), next(results)] == [0, 1]
    results.close()
    assert taken == [0, 1]


def test_results_that_the_garbage_collector_finds_are_not_waited_for():
    # The collector may interrupt code that holds a lock which the running tasks need.
    going_on, ended = threading.Event(), []

    def work(x):
        ended.append(x == 0 or going_on.wait(WAIT))

    results = run(work, range(3), threads=2)
    next(results)
    cycle = [results]
    cycle.append(cycle)
    gc.disable()
    try:
        del results, cycle
        gc.collect()
        left = workers()
        assert ended == [True]
    finally:
        gc.enable()
        going_on.set()
    for thread in left:
        thread.join(WAIT)
