"""The commands `publish` and `unpublish`."""

from __future__ import annotations

import pytest

from kartothek_cube import open_store
from tests.support.cli_cubes import CUBE, contents
from tests.support.delta import log_keys, versions

SEED = f"{CUBE.uuid_prefix}++{CUBE.seed_dataset}"


@pytest.fixture
def store(folder):
    return open_store(folder / "store")


def test_all_datasets_are_published(run, store):
    ran = run("my_cube", "publish")
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert [line.partition(":")[0] for line in lines] == sorted(line.partition(":")[0] for line in lines)
    assert all("version 0, " in line and "KiB of log" in line for line in lines)
    assert [*versions(store, SEED)] == [0]
    assert all(line.endswith("version 0, published already") for line in run("my_cube", "publish").out.splitlines())


def test_one_dataset_is_published_always(run, store):
    found = run("my_cube", "publish", "--dataset", "seed", "--always", "--format", "json").json
    assert found["datasets"]["seed"]["version"] == 0
    assert [*found["datasets"]] == ["seed"]
    info = run("my_cube", "info").out
    assert "Delta table: version 0, the newest state; after each commit" in info
    assert run("my_cube", "info", "--format", "json").json["datasets"][0]["delta"] is None


def test_a_dataset_may_stand_in_the_place_of_the_cube(run, store):
    assert run(SEED, "publish").out.startswith(f"{SEED}: version 0, ")
    assert run(SEED, "unpublish").code == 0
    assert log_keys(store, SEED) == []


def test_unpublished_nothing_is_left(run, store, folder):
    before = {key for key in contents(str(folder / "store")) if "/" in key}
    run("my_cube", "publish", "--always")
    ran = run("my_cube", "unpublish")
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert {key for key in contents(str(folder / "store")) if "/" in key} == before


@pytest.mark.usefixtures("at_a_terminal")
def test_on_a_terminal_it_asks_before_logs_are_removed(run, store):
    run("my_cube", "publish", "--dataset", "seed")
    assert run("my_cube", "unpublish", "--dataset", "seed", typed="n\n").code == 1
    assert log_keys(store, SEED) != []


def test_unknown_names_are_errors(run):
    ran = run("my_cube", "publish", "--dataset", "seeds")
    assert ran.code == 2
    assert "seeds" in ran.err
    assert run("nothing", "publish").code == 2
