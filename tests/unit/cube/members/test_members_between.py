"""The datasets of a cube at two moments: commits, moments, clocks that differ, and what did not
exist yet.
"""

from __future__ import annotations

import datetime as dt
import re

import pytest

from kartothek_cube.api.cube import (
    append_to_cube,
    build_cube,
    describe_cube_changes,
    extend_cube,
    plan_cube_query,
    query_cube_arrow,
    query_cube_changes,
    tag_cube,
)
from kartothek_cube.api.dataset import delete_dataset, store_dataframes_as_dataset
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.cube.consistent_read import members_between
from kartothek_cube.cube.members import load_members, load_states
from kartothek_cube.errors import ForeignWriterWarning, HistoryUnavailable, InvalidInput, InvalidType
from tests.caches import forget
from tests.support.commits import make_foreign
from tests.support.cubes import CUBE, ENRICH, SEED, table

NEW = table(x=[5], y=["c"], p=[2], i1=[30], v1=[4.5])
NEW_E = table(x=[5, 0], i2=["five", "zero"], v2=[50, 0])


FOREIGN = "a writer that keeps no history (kartothek, plateau)"
PLAIN = re.escape(FOREIGN)


@pytest.fixture
def store():
    return MemoryStore()


def chain(store, dataset="seed"):
    forget(store)
    return load_snapshot(store, f"cube++{dataset}").chain


def between(store, since, until=None):
    """The number of rows of each dataset in two states."""
    forget(store)
    members = load_members("cube", store)
    return tuple(
        {i: len(snapshot.partitions) for i, snapshot in state.items()}
        for state in members_between("cube", store, members, since, until)
    )


def now():
    return dt.datetime.now(dt.UTC)


@pytest.fixture
def history(store):
    """A seed; with an enrichment; with a write to both; with one to the seed: the moments."""
    moments = []
    for step in (
        lambda: build_cube(SEED, CUBE, store),
        lambda: extend_cube({"e": ENRICH}, CUBE, store, partition_on={"e": []}),
        lambda: append_to_cube({"seed": NEW, "e": NEW_E}, CUBE, store),
        lambda: append_to_cube(NEW, CUBE, store),
    ):
        step()
        moments.append(now())
    return moments


SIZES = [{"seed": 2}, {"seed": 2, "e": 1}, {"seed": 3, "e": 2}, {"seed": 4, "e": 2}]


@pytest.mark.parametrize("since", range(4))
@pytest.mark.parametrize("until", [0, 1, 2, 3, None])
def test_two_moments(store, history, since, until):
    last = 3 if until is None else until
    if last < since:
        with pytest.raises(InvalidInput, match=r"Cube 'cube': until=.* comes before since=.*"):
            between(store, history[since], history[last])
        return
    assert between(store, history[since], None if until is None else history[until]) == (SIZES[since], SIZES[last])


def test_the_id_of_a_write_of_a_commit_and_the_commit_of_each_dataset(store, history):
    seed, e = chain(store), chain(store, "e")
    write = seed[1].cube.id
    assert between(store, write) == (SIZES[2], SIZES[3])
    assert between(store, seed[0].id, write) == (SIZES[0], SIZES[2])
    # The commit of the enrichment is part of the write, so the seed has it, too.
    assert between(store, e[0].id, e[1].id) == (SIZES[1], SIZES[2])
    assert between(store, {"seed": seed[0].id, "e": e[0].id}) == (SIZES[1], SIZES[3])
    assert between(store, {"seed": seed[0].id}) == (SIZES[0], SIZES[3])
    assert between(store, {"seed": seed[2].id, "e": e[0].id}, write) == ({"seed": 4, "e": 1}, SIZES[2])


def test_a_dataset_that_is_gone_now_is_in_neither_state(store, history):
    commits = {"seed": chain(store)[-1].id, "e": chain(store, "e")[-1].id}
    delete_dataset("cube++e", store)
    assert between(store, commits) == ({"seed": 4}, {"seed": 4})
    # What the groups had of it is not known, so nobody may believe that they are as they were.
    for query in ({"as_of": commits}, {"changed_since": commits}):
        with pytest.raises(HistoryUnavailable, match="commits of datasets that the cube does not have any more: e"):
            plan_cube_query(CUBE, store, **query)
    assert query_cube_changes(CUBE, store, commits, datasets=["seed"]).read_all().num_rows == 0


def test_a_seed_that_was_built_again_is_no_new_one(store, history):
    """Its rows of then are not known: they must not count as if there had been none."""
    delete_dataset("cube++seed", store)
    build_cube({"seed": SEED, "e": ENRICH}, CUBE, store, partition_on={"e": []}, overwrite=True)
    for query in (query_cube_changes, lambda *state: plan_cube_query(CUBE, store, changed_since=state[-1])):
        with pytest.raises(HistoryUnavailable, match="its seed 'seed' did not exist, but other datasets did"):
            query(CUBE, store, history[2])


def test_a_moment_before_the_cube_is_refused(store, history):
    early = dt.datetime(2001, 1, 1, tzinfo=dt.UTC)
    for since, until in [(early, None), (early, history[1]), (history[0], early)]:
        with pytest.raises((HistoryUnavailable, InvalidInput), match="2001-01-01"):
            between(store, since, until)


def test_a_dataset_whose_last_commit_was_foreign_has_no_commit(store, history):
    with pytest.raises(HistoryUnavailable, match="its last commit then was of a writer that keeps no history"):
        between(store, {"seed": chain(store)[0].id, "e": None})
    with pytest.raises(HistoryUnavailable, match="has no tag 'nobody'"):
        between(store, {"seed": chain(store)[0].id, "e": "nobody"})


ASKED = {
    "changes": lambda store, commit: query_cube_changes(CUBE, store, commit),
    "counts": lambda store, commit: describe_cube_changes(CUBE, store, commit),
    "as_of": lambda store, commit: query_cube_arrow(CUBE, store, as_of=commit),
    "changed_since": lambda store, commit: plan_cube_query(CUBE, store, changed_since=commit),
    "tag": lambda store, commit: tag_cube(CUBE, store, "then", as_of=commit),
}


@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
def test_a_foreign_commit_since_is_said_with_its_dataset_and_its_place(store, ask):
    build_cube(SEED, CUBE, store)
    last = append_to_cube(NEW, CUBE, store)["seed"].commit.id
    extend_cube({"e": ENRICH}, CUBE, store, partition_on={"e": []})
    make_foreign(store, "cube++seed")
    text = f"none of the datasets e, seed has it in the history that is kept. Dataset 'cube++seed': {FOREIGN}"
    with pytest.raises(HistoryUnavailable, match=re.escape(f"{text} came last, after commit {last} of 20")):
        ask(store, last)
    with pytest.warns(ForeignWriterWarning):
        ours = append_to_cube(NEW, CUBE, store)["seed"].commit.id
    with pytest.raises(HistoryUnavailable, match=f"Dataset 'cube..seed': before commit {ours} of 20.* came {PLAIN}"):
        ask(store, last)
    ask(store, ours)


def test_a_commit_that_never_was_blames_nobody(store, history):
    with pytest.raises(HistoryUnavailable, match=r"in the history that is kept\. `history` lists"):
        between(store, "0" * 32)


def test_datasets_may_go_in_different_directions_but_not_all_of_them_back(store):
    """Clocks of two writers may differ: a moment can have a newer seed and an older enrichment."""
    build_cube(SEED, CUBE, store)
    extend_cube({"e": ENRICH}, CUBE, store, partition_on={"e": []})
    append_to_cube(NEW, CUBE, store)
    moment = now()
    append_to_cube({"e": NEW_E}, CUBE, store)
    seed, e = chain(store), chain(store, "e")
    assert between(store, {"seed": seed[0].id, "e": e[1].id}, moment) == ({"seed": 2, "e": 2}, {"seed": 3, "e": 1})
    with pytest.raises(InvalidInput, match="comes before"):
        between(store, {"seed": seed[1].id, "e": e[1].id}, moment)


def test_a_dataset_that_did_not_exist_has_no_rows_and_all_columns(store, history):
    before, after = load_states(CUBE, store, None, history[0], None)
    assert (set(before), set(after)) == ({"seed"}, {"seed", "e"})
    found = query_cube_changes(CUBE, store, history[0], history[1]).read_all()
    now_rows = query_cube_arrow(CUBE, store, as_of=history[1])
    assert found.schema.names[1:] == now_rows.schema.names
    kinds = found.column("_change_type").to_pylist()
    assert kinds.count("update_preimage") == sum(v is not None for v in now_rows.column("v2").to_pylist()) == 2
    assert set(kinds) == {"update_preimage", "update_postimage"}


def test_datasets_that_are_not_asked_for_are_not_loaded(store, history):
    before, after = load_states(CUBE, store, "seed", history[1], history[3])
    assert (set(before), set(after)) == ({"seed"}, {"seed"})
    # The id of a commit may be of another dataset.
    before, _ = load_states(CUBE, store, ["seed"], chain(store, "e")[0].id, None)
    assert set(before) == {"seed"}
    with pytest.raises(InvalidInput, match=r"Could not find the following requested datasets as of .*: e"):
        load_states(CUBE, store, ["seed", "e"], history[0], history[0])


def test_a_state_in_which_the_cube_was_another_one_is_told(store):
    wide = table(x=[1], p=[1], i1=[1], v1=[1.0])
    store_dataframes_as_dataset(store, "cube++seed", [wide], partition_on=["p"], secondary_indices=["i1", "x"])
    then = chain(store)[-1].id
    build_cube({"seed": SEED, "e": ENRICH}, CUBE, store, partition_on={"e": []}, overwrite=True)
    with pytest.raises(InvalidInput, match=r"Cube 'cube' was another one then: .*missing dimension columns: y"):
        query_cube_changes(CUBE, store, then)


def test_the_commits_of_a_plan_are_a_state_everywhere(store, history):
    """Of two plans with a write between, each sees its own state again, whatever came since."""
    first = plan_cube_query(CUBE, store).commits
    before = query_cube_arrow(CUBE, store)
    append_to_cube(table(x=[6], y=["d"], p=[2], i1=[30], v1=[6.5]), CUBE, store)
    second = plan_cube_query(CUBE, store).commits
    append_to_cube(table(x=[7], y=["d"], p=[2], i1=[30], v1=[7.5]), CUBE, store)
    forget(store)
    assert query_cube_arrow(CUBE, store, as_of=first).equals(before)
    assert query_cube_changes(CUBE, store, first, second).read_all().column("x").to_pylist() == [6]
    assert query_cube_changes(CUBE, store, second).read_all().column("x").to_pylist() == [7]
    assert plan_cube_query(CUBE, store, changed_since=first, as_of=second).commits == second
    with pytest.raises(InvalidInput, match="comes before since"):
        query_cube_changes(CUBE, store, second, first)


@pytest.mark.parametrize(
    ("state", "error", "text"),
    [
        ({"cube++seed": "c"}, InvalidInput, r"no commit of the seed 'seed', only of cube\+\+seed.*ids of datasets"),
        ({}, InvalidInput, "no commit of the seed"),
        ({"seed": 3}, InvalidType, "since as a dict has the id of a commit for each dataset, but 'seed': 3"),
        (None, InvalidType, "since is a commit, a moment, or the commit of each dataset, not None"),
        (3, InvalidType, "since is the id of a commit .* not int: 3"),
    ],
)
def test_a_state_that_is_none(store, history, state, error, text):
    with pytest.raises(error, match=text):
        query_cube_changes(CUBE, store, state)
