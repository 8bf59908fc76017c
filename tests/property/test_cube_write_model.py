"""The protocol of a write to several datasets of a cube, in all interleavings of a few machines.

Each rule of the protocol is left out once: the explorer has to find what it is there for.
"""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from tests.support.cube_write_model import Document, K, Ledger
from tests.support.interleavings import Explorer, Scenario, Violation

BEFORE = frozenset({"before"})
HAS_ROWS = {
    "w1": ("a", K),
    "w2": ("a", K),
    "w3": ("a", "b", K),
    "w4": ("a", "b"),
    "single": ("a",),
    "single in K": (K,),
    "foreign": ("a",),
    "foreign in K": (K,),
}

# Machines: one phase of the protocol with its arguments.
W1, W2 = (("write", name, ("a",), 1, 1) for name in ("w1", "w2"))
# Begin again once if they are aborted.
W1_TWICE, W2_TWICE = (("write", name, ("a",), 1, 2) for name in ("w1", "w2"))
# In opposite order, and without rows in the coordinator.
W3, W4 = ("write", "w3", ("a", "b"), 1, 1), ("write", "w4", ("b", "a"), 1, 1)
SINGLE, SINGLE_IN_K = ("single", "single", "a"), ("single", "single in K", K)
ABORT, ABORT_TOO, ABORT_B = ("abort", "x", "a"), ("abort", "y", "a"), ("abort", "y", "b")
REMOVE, PRUNE, COLLECT = ("remove", "z", "a"), ("prune", "p"), ("collect", "a")
FOREIGN, FOREIGN_IN_K = ("foreign", "foreign", "a"), ("foreign", "foreign in K", K)
FOREIGN_ANEW = ("foreign", "foreign in K", K, True)
READ, READ_A, READ_B = ("read_cube", ("a", K)), ("read_one", "a"), ("read_one", "b")
READ_THREE, READ_IN_ORDER = ("read_cube", ("a", "b", K)), ("read_cube", (K, "a"), False)


def cube(*machines, there="aK", absent="", records=True, faults=0, repeats=False, quits=()):
    documents = {key: Document(BEFORE, frozenset({"before"})) for key in there} | dict.fromkeys(absent)
    if records and documents[K] is not None:
        documents[K] = documents[K]._replace(ledger=Ledger())
    return Scenario(documents, machines, HAS_ROWS, faults, repeats, frozenset(quits))


def three(*machines, **kwargs):
    return cube(*machines, there="abK", **kwargs)


def new_cube(*machines, **kwargs):
    return cube(*machines, there="", absent="aK", **kwargs)


SCENARIOS = {
    "two writers, a reader": cube(W1, W2, READ),
    "two writers, a reader of one dataset, lost answers": cube(W1, W2, READ_A, faults=1),
    "two writers that begin again": cube(W1_TWICE, W2_TWICE),
    "two writers, a collector, and a reader": cube(W1, W2, COLLECT, READ_A),
    "a writer, two aborters, a pruner, lost answers": cube(W1, ABORT, ABORT_TOO, PRUNE, faults=1),
    "a writer, a plain commit, an aborter, a reader": cube(W1, SINGLE, ABORT, READ),
    "a writer, a plain commit to the seed, a reader, lost answers": cube(W1, SINGLE_IN_K, READ, faults=1),
    "a writer, a foreign one, an aborter, a reader": cube(W1, FOREIGN, ABORT, READ),
    "two writers, a foreign one of the seed, lost answers": cube(W1, W2, FOREIGN_IN_K, faults=1),
    "a writer, a foreign one that makes the seed anew, an aborter": cube(W1, FOREIGN_ANEW, ABORT, READ, faults=1),
    "a cube without records": cube(W1, W2, READ_IN_ORDER, records=False, faults=1),
    "three datasets, two writers": three(W3, W4, faults=1),
    "three datasets, a writer that gives up, an aborter, a reader": three(W3, ABORT_B, READ_THREE, quits=["w3"]),
    "three datasets, two aborters, a pruner": three(W3, ABORT, ABORT_B, PRUNE),
    "three datasets, two writers, a reader of one": three(W3, W1, READ_B),
    "two makers of a cube": new_cube(W1, W2, READ),
    "two makers of a cube that begin again": new_cube(W1_TWICE, W2_TWICE, faults=1),
    "two makers of a dataset": cube(W1, W2, READ, there="K", absent="a"),
    "two makers of the seed": cube(W1, W2, READ, there="a", absent="K"),
    "a maker of a cube, a maker of the seed": new_cube(W1, SINGLE_IN_K, ABORT, READ_IN_ORDER),
    "a maker of a cube that is removed, a plain commit": new_cube(W1, REMOVE, SINGLE, PRUNE, faults=1),
}
LARGE = {
    "two writers that begin again, a reader, lost answers": cube(W1_TWICE, W2_TWICE, READ, faults=1),
    "two writers, a reader, a collector, a foreign writer": cube(W1, W2, READ, COLLECT, FOREIGN),
    "two writers, a reader, a pruner, a foreign writer of the seed": cube(W1, W2, READ, PRUNE, FOREIGN_IN_K),
    "two writers, an aborter, a pruner, two lost answers": cube(W1, W2, ABORT, PRUNE, faults=2),
    "three datasets, two writers, a reader": three(W3, W4, READ_THREE),
    "three datasets, two aborters, a pruner, lost answers": three(W3, ABORT, ABORT_B, PRUNE, READ_B, faults=1),
    "two makers of a cube that begin again, a reader": new_cube(W1_TWICE, W2_TWICE, READ, faults=1),
    "two makers of a cube, one that removes, a pruner": new_cube(W1, W2, REMOVE, PRUNE, faults=1),
}
# Then a dataset may be prepared twice: collection relies on its grace there.
REPEATED = {
    name: replace(s, repeats=True) for name, s in SCENARIOS.items() if s.faults and FOREIGN_IN_K not in s.machines
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_write_to_many_datasets_is_seen_whole_or_not_at_all(name):
    explored = Explorer(SCENARIOS[name]).run()
    assert explored.reads > 100


@pytest.mark.parametrize("name", REPEATED)
def test_a_put_that_landed_and_was_refused_when_it_was_repeated_does_no_harm(name):
    Explorer(REPEATED[name]).run()


@pytest.mark.skipif(os.environ.get("HYPOTHESIS_PROFILE") != "fuzz", reason="takes minutes: `make fuzz`")
@pytest.mark.parametrize("name", LARGE)
def test_a_write_is_whole_among_many_others(name):
    explored = Explorer(LARGE[name]).run()
    assert explored.transitions > 100_000


RULES = {
    # What readers do.
    "read again": cube(W1, W2, READ_A),
    "compare": cube(W1, READ),
    "compare what is absent": new_cube(W1, READ),
    # What writers do.
    "mark as pending": cube(W1, READ),
    "compare epochs": cube(W1, ABORT, PRUNE),
    "epochs, not marks": cube(W1, ABORT, ABORT_TOO, PRUNE, faults=1),
    "know the chain": cube(W1, W2, FOREIGN_IN_K, faults=1),
    # What aborters do.
    "abort in K": cube(W1, ABORT),
    "renew the epoch": cube(W1, ABORT, PRUNE),
    "vacancy stays": new_cube(W1, SINGLE, PRUNE),
    "remove what was read": new_cube(W1, REMOVE, SINGLE),
    # What collectors do.
    "keep the entry": cube(W1, COLLECT),
    "list first": cube(W1, COLLECT, READ_A),
}


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_is_there_for_something(rule):
    Explorer(RULES[rule]).run()
    with pytest.raises(Violation):
        Explorer(RULES[rule].leaving_out(rule)).run()
