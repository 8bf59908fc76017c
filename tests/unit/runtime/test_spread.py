from __future__ import annotations

import operator
import pickle
from functools import partial

import pytest

from kartothek_cube.core.parallel import READ_FILES, Work, run, spread, use_driver
from kartothek_cube.core.progress import Phase
from kartothek_cube.errors import KeyNotFound


class Driver:
    """Takes work from three items on, and does it with copies of everything, as another process would."""

    def __init__(self):
        self.taken = []

    def __call__(self, work, items):
        if len(items) < 3:
            return None
        self.taken.append((work, list(items)))
        return self.results(*pickle.loads(pickle.dumps((work, items))))

    @staticmethod
    def results(work, items):
        yield from (work.func(item) for item in items)


@pytest.fixture
def driver():
    found = Driver()
    with use_driver(found):
        yield found


def refuse(limit, item):
    if item >= limit:
        raise KeyNotFound(f"no {item}")
    return item


def spread_twice(item):
    return list(spread(operator.neg, [item, item, item]))


@pytest.mark.parametrize("n", [0, 1, 2, 50])
def test_results_come_in_the_order_of_the_items(n):
    assert list(spread(operator.neg, range(n))) == [-i for i in range(n)]


def test_nothing_happens_before_the_first_result_is_asked_for():
    done = []
    results = spread(done.append, [1, 2])
    assert done == []
    list(results)
    assert sorted(done) == [1, 2]


def test_the_first_error_is_raised():
    with pytest.raises(KeyNotFound, match="no 7"):
        list(spread(partial(refuse, 7), range(8)))


def test_a_driver_gets_the_work_and_all_items(driver):
    assert list(spread(partial(refuse, 9), [3, 1, 2], heavy=True, weight=int, phase=Phase("write", "merges"))) == [3, 1, 2]
    ((work, items),) = driver.taken
    assert (work.heavy, work.weight, work.phase.unit, items) == (True, int, "merges", [3, 1, 2])


def test_work_is_light_and_about_files_unless_it_says_so(driver):
    list(spread(operator.neg, [1, 2, 3]))
    assert driver.taken == [(Work(operator.neg, heavy=False, weight=None, phase=READ_FILES), [1, 2, 3])]


def test_an_error_of_the_driver_is_raised(driver):
    with pytest.raises(KeyNotFound, match="no 2"):
        list(spread(partial(refuse, 2), [0, 1, 2]))
    assert driver.taken


def test_what_the_driver_does_not_want_is_done_here(driver):
    done = []
    list(spread(done.append, [1, 2]))
    assert (done, driver.taken) == ([1, 2], [])


def test_a_driver_holds_for_its_block_only():
    outer, inner = Driver(), Driver()
    with use_driver(outer):
        with use_driver(inner):
            list(spread(operator.neg, [1, 2, 3]))
        list(spread(operator.neg, [4, 5, 6]))
    list(spread(operator.neg, [7, 8, 9]))
    assert [items for _, items in inner.taken] == [[1, 2, 3]]
    assert [items for _, items in outer.taken] == [[4, 5, 6]]


@pytest.mark.parametrize("outer", [run, spread])
@pytest.mark.parametrize("n", [1, 2])
def test_work_inside_of_work_stays_where_it_is(driver, outer, n):
    assert list(outer(spread_twice, range(n))) == [[-i] * 3 for i in range(n)]
    assert driver.taken == []


def test_run_never_asks_the_driver(driver):
    assert list(run(operator.neg, [1, 2, 3])) == [-1, -2, -3]
    assert driver.taken == []
