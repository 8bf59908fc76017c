"""Concurrent writers, readers and collectors of garbage over faulty stores agree with a serial
history. The long form: make soak.
"""

from __future__ import annotations

import pytest

from tests.robustness.soak.cube_world import run_cube
from tests.robustness.soak.dataset_world import run_dataset, run_rows

pytestmark = pytest.mark.slow

# Runs that once found something, and the first few.
DATASET_SEEDS = (1155, 1164, 1194, 5090, 5105, 10052, 10157, 90374, *range(24))
CUBE_SEEDS = (4, 28, 1026, 1106, 70003, 70043, 70047, 70072, 70313, *range(200, 208))


@pytest.mark.every(5)
@pytest.mark.parametrize("seed", DATASET_SEEDS)
def test_a_dataset_is_as_one_write_after_the_other_makes_it(seed):
    world = run_dataset(seed)
    assert world.scheduler.steps > 0


@pytest.mark.every(5)
@pytest.mark.parametrize("seed", range(16))
def test_changes_of_rows_find_what_is_there_when_they_land(seed):
    world = run_rows(seed)
    assert world.scheduler.steps > 0


@pytest.mark.every(5)
@pytest.mark.parametrize("seed", CUBE_SEEDS)
def test_a_cube_shows_each_write_in_all_of_its_datasets_or_in_none(seed):
    world = run_cube(seed)
    assert world.scheduler.steps > 0


def test_the_same_seed_is_the_same_run():
    first, second = (run_dataset(17) for _ in range(2))
    assert first.scheduler.trace == second.scheduler.trace
