from __future__ import annotations

import operator
import pickle
from functools import partial
from threading import Barrier

import pytest

from kartothek_cube.core.runtime.executor import READ_FILES, Task, map_files
from kartothek_cube.core.runtime.options import Phase
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import KeyNotFound


class Elsewhere:
    """Runs tasks with copies of everything, as another process would."""

    def __init__(self):
        self.taken = []

    def map(self, task, items, store=None):
        self.taken.append((task, list(items), store))
        task, items = pickle.loads(pickle.dumps((task, items)))
        yield from map(task.func, items)


@pytest.fixture
def executor():
    return Elsewhere()


def refuse(limit, item):
    if item >= limit:
        raise KeyNotFound(f"no {item}")
    return item


@pytest.mark.parametrize("n", [0, 1, 2, 50])
def test_results_come_in_the_order_of_the_items(n):
    assert list(map_files(operator.neg, range(n))) == [-i for i in range(n)]


def test_nothing_happens_before_the_first_result_is_asked_for():
    done = []
    results = map_files(done.append, [1, 2])
    assert done == []
    list(results)
    assert sorted(done) == [1, 2]


def test_the_first_error_is_raised():
    with pytest.raises(KeyNotFound, match="no 7"):
        list(map_files(partial(refuse, 7), range(8)))


def test_an_executor_gets_the_task_all_items_and_the_store(executor):
    phase, store = Phase("write", "merges"), MemoryStore()
    found = map_files(
        partial(refuse, 9), [3, 1, 2], executor=executor, heavy=True, store=store, weight=int, phase=phase
    )
    assert list(found) == [3, 1, 2]
    ((task, items, waits_for),) = executor.taken
    assert (task.heavy, task.weight, task.phase.unit, items, waits_for) == (True, int, "merges", [3, 1, 2], store)


def test_a_task_is_light_and_about_files_unless_it_says_so(executor):
    list(map_files(operator.neg, [1, 2, 3], executor=executor))
    assert executor.taken == [(Task(operator.neg, heavy=False, weight=None, phase=READ_FILES), [1, 2, 3], None)]


def test_an_error_of_the_executor_is_raised(executor):
    with pytest.raises(KeyNotFound, match="no 2"):
        list(map_files(partial(refuse, 2), [0, 1, 2], executor=executor))
    assert executor.taken


def test_an_executor_is_asked_only_where_it_is_given(executor):
    list(map_files(lambda item: list(map_files(operator.neg, [item])), [1, 2, 3]))
    assert executor.taken == []


def test_threads_wait_for_a_remote_store_many_at_a_time():
    class Remote(MemoryStore):
        is_remote = True

    together = Barrier(32)
    list(map_files(lambda _: together.wait(30), range(32), store=Remote()))
