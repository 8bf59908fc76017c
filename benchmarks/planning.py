"""Planning a query of many partitions."""

from __future__ import annotations

import json
from collections.abc import Iterator

from data import EMPTY, PAYLOAD, Place, empty_cube, forget
from pairs import Row, absent, faster, turns, within
from pipe import start_kartothek, where
from script import Bench, run

from kartothek_cube import C, plan_cube_query
from kartothek_cube.core.naming import document_key

ONE = C("DAY") == 7


def forgotten(place: Place) -> Place:
    """The same as nobody has seen it before."""
    forget()
    return place


def plan(place: Place, condition: object = None) -> int:
    """The number of groups."""
    return len(plan_cube_query(place.cube, place.store, condition).groups)


def results(bench: Bench) -> Iterator[Row]:
    n = bench.size(100_000, 1000)
    place = Place(EMPTY, bench.folder / "empty")
    empty_cube(place, n)
    documents = [place.root / document_key(EMPTY.ktk_dataset_uuid(name)) for name in PAYLOAD]
    assert (plan(place, ONE), plan(place)) == (1, n)
    works = {
        "json.loads": lambda: [json.loads(document.read_bytes()) for document in documents],
        "one, cold": lambda: plan(forgotten(place), ONE),
        "all, cold": lambda: plan(forgotten(place)),
        "one, again": lambda: plan(place, ONE),
        "all, again": lambda: plan(place),
    }
    taken = turns(works, bench.rounds)
    for work, most in (("one, cold", 1), ("all, cold", 1), ("one, again", 0.05), ("all, again", 0.05)):
        yield within(f"plan {n:,} partitions x 2: {work}", taken, "json.loads", work, most)
    yield beside_kartothek(place, n)


def beside_kartothek(place: Place, n: int) -> Row:
    """It takes a quarter of a minute, so it does so once."""
    work, peer = f"plan {n:,} partitions x 2: one, cold", "kartothek 5.3"
    with start_kartothek() as kartothek:
        if not kartothek:
            return absent(work, peer, ">= 100x")
        works = {peer: lambda: kartothek("plan", **where(place), conditions={"DAY": 7}), "ours": lambda: plan(forgotten(place), ONE)}
        return faster(work, turns(works, 1, warm_up=False), peer, "ours", 100)


if __name__ == "__main__":
    run(__doc__, results)
