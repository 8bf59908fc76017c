"""How costs grow with the number of partitions."""

from __future__ import annotations

import json
import math
import shutil
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from data import EMPTY, INDEXED, PAYLOAD, Place, empty_cube, write_cells, write_index
from pairs import Row, Taken, beside, limited, shown, turns
from planning import ONE, forgotten, plan
from script import Bench, run

from kartothek_cube import C, append_to_cube, query_cube_arrow
from kartothek_cube.core.metadata.naming import document_key

CELL, BY_INDEX = [C("DAY") == 7, C("PRODUCT_ID") == 7], C("PRODUCT_ID") == 7
# The exponent is fitted to the largest sizes: below, what does not grow outweighs what does.
FITTED = 3
MOST = {"plan, cold": 1.1, "append, again": 1.1, "one cell, by its partition": 0.1, "one cell, by an index": 0.1}


def costs(bench: Bench, n: int) -> Taken:
    """All works at one size; two cubes, one of them with an index on the cells of its seed."""
    plain, indexed = Place(EMPTY, bench.folder / "plain"), Place(INDEXED, bench.folder / "indexed")
    empty_cube(plain, n)
    empty_cube(indexed, n, write_index(indexed, n, 1, n))
    for place in (plain, indexed):
        write_cells(place, 7)
    works, rounds = _works(plain, indexed, n), bench.rounds if n < 1_000_000 else 1
    # What a plan forgets and an append changes is not read again by who measures something else.
    cells = {name: work for name, work in works.items() if name.startswith("one cell")}
    taken = turns(cells, rounds) | turns({name: work for name, work in works.items() if name not in cells}, rounds)
    for place in (plain, indexed):
        shutil.rmtree(forgotten(place).root)
    return taken


def _works(plain: Place, indexed: Place, n: int) -> Mapping[str, Callable[[], Any]]:
    documents = [plain.root / document_key(EMPTY.ktk_dataset_uuid(name)) for name in PAYLOAD]
    row = pa.table({"DAY": [n], "PRODUCT_ID": [1], "FORECAST": [1.0]})

    def by_partition() -> pa.Table:
        return query_cube_arrow(EMPTY, plain.store, CELL)

    def by_index() -> pa.Table:
        return query_cube_arrow(INDEXED, indexed.store, BY_INDEX)

    assert by_partition().num_rows == by_index().num_rows == 1
    return {
        "json.loads": lambda: [json.loads(document.read_bytes()) for document in documents],
        "plan, cold": lambda: plan(forgotten(plain), ONE),
        "one cell, by its partition": by_partition,
        "one cell, by an index": by_index,
        "json.loads + json.dumps": lambda: json.dumps(json.loads(documents[1].read_bytes())),
        "append, again": lambda: append_to_cube({"forecast": row}, EMPTY, plain.store),
    }


def exponent(sizes: Sequence[int], taken: Sequence[Taken], work: str) -> float:
    """Of the power of the size with which a work grows."""
    seconds = [statistics.median(cost.wall for cost in one[work]) for one in taken]
    return statistics.linear_regression([math.log(n) for n in sizes], [math.log(s) for s in seconds]).slope


def results(bench: Bench) -> Iterator[Row]:
    sizes, taken = [10**i for i in range(bench.size(2, 1), bench.size(7, 4))], []
    for n in sizes:
        found = costs(bench, n)
        taken.append(found)
        yield beside(f"{n:,} partitions x 2: plan, cold", found, "json.loads", "plan, cold")
        yield beside(f"{n:,} partitions: append, again", found, "json.loads + json.dumps", "append, again")
        for work in ("one cell, by its partition", "one cell, by an index"):
            yield shown(f"{n:,} partitions x 2: {work}", found[work])
    for work, most in MOST.items():
        yield limited(
            f"{work}: exponent, {sizes[-FITTED]:,} to {sizes[-1]:,} partitions",
            exponent(sizes[-FITTED:], taken[-FITTED:], work),
            most,
            "",
        )


if __name__ == "__main__":
    run(__doc__, results)
