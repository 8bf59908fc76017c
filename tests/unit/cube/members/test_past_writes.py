"""The commits of several datasets as one list of writes: what is one row, and in which order."""

from __future__ import annotations

import datetime as dt

from kartothek_cube.core.metadata.commit_log import CubeCommit
from kartothek_cube.core.snapshots.time_travel import PastCommit
from kartothek_cube.cube.members import past_writes, writes_in_order

BOTH = ("cube++seed", "cube++e")
UUIDS = {"seed": "cube++seed", "e": "cube++e", "f": "cube++f"}


def at(minute):
    return None if minute is None else dt.datetime(2024, 5, 1, 12, minute, tzinfo=dt.UTC)


def commit(name, minute, write=None, datasets=BOTH, **more):
    cube = None if write is None else CubeCommit(write, datasets)
    return PastCommit(name, None, "", at(minute), cube, **{"added": 1, "removed": 0, "kept": True, **more})


def order(**chains):
    return ["+".join(f"{name}:{c.id}" for name, c in sorted(commits.items())) for commits in writes_in_order(chains)]


def writes(**histories):
    return past_writes(histories, UUIDS, "seed")


def test_times_decide_between_datasets():
    assert order(seed=[commit("s2", 30), commit("s1", 10)], e=[commit("e2", 40), commit("e1", 20)]) == [
        "e:e2",
        "seed:s2",
        "e:e1",
        "seed:s1",
    ]


def test_a_write_to_several_datasets_is_one_row():
    found = writes(
        seed=[commit("s2", 30, "w", added=2), commit("s1", 10, creates=True)],
        e=[commit("e2", 29, "w", removed=1), commit("e1", 20, creates=True)],
    )
    assert [(w.id, w.time, w.datasets, w.added, w.removed) for w in found] == [
        ("w", at(30), ("e", "seed"), 3, 1),
        ("e1", at(20), ("e",), 1, 0),
        ("s1", at(10), ("seed",), 1, 0),
    ]


def test_each_dataset_has_its_own_order_whatever_the_clocks_say():
    # The clock behind s2 and e3 is slow, that behind s1 is fast.
    seed = [commit("s2", 5), commit("s", 20, "w"), commit("s1", 50)]
    e = [commit("e3", 1), commit("e2", 0), commit("e", 20, "w"), commit("e1", 10)]
    found = order(seed=seed, e=e)
    assert found == ["seed:s2", "e:e3", "e:e2", "e:e+seed:s", "seed:s1", "e:e1"]


def test_writes_that_crossed_each_other_end_and_are_listed_once():
    seed, e = [commit("s2", 20, "b"), commit("s1", 10, "a")], [commit("e2", 20, "a"), commit("e1", 10, "b")]
    assert sorted(order(seed=seed, e=e)) == ["e:e1+seed:s2", "e:e2+seed:s1"]


def test_a_commit_without_time_follows_the_one_after_it():
    assert order(seed=[commit("s2", 30), commit("s1", None)], e=[commit("e2", 25), commit("e1", 5)]) == [
        "seed:s2",
        "seed:s1",
        "e:e2",
        "e:e1",
    ]


def test_a_cube_without_commits_has_no_writes():
    assert writes(seed=[]) == []


def test_a_dataset_that_was_only_touched_is_not_named():
    touched, e = commit("s2", 30, "w", added=0, is_empty=True), commit("e2", 29, "w")
    for datasets in (BOTH, ("cube++e",)):
        cube = CubeCommit("w", datasets)
        for is_empty in (True, False) if datasets is not BOTH else (True,):
            seed = PastCommit("s2", None, "", at(30), cube, 0, 0, kept=True, is_empty=is_empty)
            [write] = writes(seed=[seed], e=[commit("e2", 29, "w", datasets)])
            assert (write.datasets, write.added) == (("e",), 1)
    [write] = writes(seed=[touched], e=[commit("e2", 29, "w", is_empty=True)])
    assert write.datasets == ("e", "seed")
    assert e.cube == touched.cube


def test_a_state_is_kept_as_far_as_every_dataset_has_it():
    created, gone = {"creates": True}, {"kept": False, "added": None, "removed": None}
    # f was made later; e has a history from minute 20 on.
    found = writes(
        seed=[commit("s3", 40), commit("s2", 15), commit("s1", 5, **created)],
        e=[commit("e3", 30), commit("e2", 20), commit("e1", 6, **gone)],
        f=[commit("f1", 35, **created)],
    )
    assert [(w.id, w.kept) for w in found] == [
        ("s3", True),
        ("f1", True),
        ("e3", True),
        ("e2", True),
        ("s2", False),
        ("e1", False),
        ("s1", False),
    ]


def test_there_is_no_state_without_the_seed():
    found = writes(seed=[commit("s", 20, creates=True)], e=[commit("e", 10, creates=True)])
    assert [(w.id, w.kept) for w in found] == [("s", True), ("e", False)]


def test_a_write_of_which_a_part_has_expired_has_no_counts():
    gone = commit("e1", 10, "w", kept=False, added=None, removed=None)
    [write] = writes(seed=[commit("s1", 10, "w")], e=[gone])
    assert (write.added, write.removed, write.kept) == (None, None, False)
