"""At the limit: little out of 100 million rows, and all of them."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from cube import DUCKDB, OURS, POLARS, RAW, check_same, rows, stream
from cube import Side as Files
from data import BRANDS, DAYS, Place, tables
from pairs import Row, faster, turns, within
from peers import duckdb, polars, read_raw
from pipe import Engine
from script import Bench, run

from kartothek_cube import Cube, append_to_cube, build_cube

LIMIT = Cube(
    ["PRODUCT_ID", "DAY"],
    ["WEEK"],
    "limit",
    index_columns=["BRAND", "SUPPLIER"],
    suppress_index_on=["PRODUCT_ID", "DAY"],
)
PEERS = {DUCKDB: duckdb, POLARS: polars}
Least: TypeAlias = dict[str, float]
# How many times as fast as each on files of one row group, and on ours.
PRODUCT = {DUCKDB: 4, POLARS: 3}, {DUCKDB: 1, POLARS: 1}
RANGE = {DUCKDB: 3, POLARS: 3}, {DUCKDB: 1.25, POLARS: 1.25}
BRAND = {DUCKDB: 3, POLARS: 1}, {DUCKDB: 1, POLARS: 1}
# Others skip rows inside of a page.
SUPPLIER = {DUCKDB: 2.5, POLARS: 1}, {DUCKDB: 0.77, POLARS: 1}


def products(n: int, groups: int) -> pa.Table:
    """Those of a brand follow each other, those of a supplier lie far apart."""
    ids = np.arange(n)
    return pa.table(
        {
            "PRODUCT_ID": ids,
            "BRAND": [f"brand {i}" for i in (ids * groups // n).tolist()],
            "SUPPLIER": [f"supplier {i}" for i in (ids % groups).tolist()],
        }
    )


def written(bench: Bench, weeks: int, per_week: int, groups: int) -> tuple[Place, Place]:
    """The cube week by week, and the same rows in files of one row group each."""
    ours, plain = Place(LIMIT, bench.folder / "ours"), Place(LIMIT, bench.folder / "plain")
    others = products(-(-per_week // DAYS), groups)
    for week in range(weeks):
        seed = tables(per_week, 1, week)["seed"]
        if week:
            append_to_cube(seed, LIMIT, ours.store)
        else:
            build_cube({"seed": seed, "products": others}, LIMIT, ours.store, partition_on={"products": []})
        _write(plain, "seed", f"WEEK={week}", seed.drop_columns("WEEK"))
    _write(plain, "products", "", others)
    return ours, plain


def _write(place: Place, dataset: str, folder: str, rows: pa.Table) -> None:
    path = place.root / LIMIT.ktk_dataset_uuid(dataset) / "table" / folder / "part.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(rows, path, row_group_size=len(rows))


def little(
    sides: Sequence[Files], work: str, datasets: Sequence[str], least: tuple[Least, Least], **where: Any
) -> Iterator[Row]:
    """Few rows of every file."""
    ours, plain = (side.ask(datasets, **where) for side in sides)
    check_same(sides[0], ours)
    works = {peer: partial(sides[1].engines[peer], rows, read, plain) for peer, read in PEERS.items()}
    works |= {f"{peer}, our files": partial(sides[0].engines[peer], rows, read, ours) for peer, read in PEERS.items()}
    taken = turns({**works, OURS: sides[0].ours(ours)}, 3 * sides[0].bench.rounds)
    for peer in PEERS:
        yield faster(work, taken, peer, OURS, least[0][peer])
        yield faster(work, taken, f"{peer}, our files", OURS, least[1][peer])


def whole(sides: Sequence[Files]) -> Iterator[Row]:
    """All rows, batch by batch."""
    ours, plain = (side.ask(["seed"]) for side in sides)
    works = {RAW: partial(sides[1].engines[RAW], read_raw, plain), OURS: sides[0].ours(ours, stream)}
    yield within("all rows", turns(works, sides[0].bench.rounds), RAW, OURS, 1.1)
    work, peer = "pyarrow reads our files", "files of one row group"
    works = {peer: sides[1].limits(plain)[RAW], OURS: sides[0].limits(ours)[RAW]}
    yield within(work, turns(works, sides[0].bench.rounds), peer, OURS, 0.75)
    size, other = (sum(map(os.path.getsize, side.place.files("seed"))) / 2**20 for side in sides)
    yield Row("size of these files", peer, other, size, size / other, math.nan, "<= 1x", size <= other, "MiB")


def results(bench: Bench) -> Iterator[Row]:
    weeks, per_week, groups = bench.size(100, 2), bench.size(1_000_000, 200_000), bench.size(5_000, BRANDS)
    with ExitStack() as stack:
        engines = [{name: stack.enter_context(Engine()) for name in (RAW, *PEERS, OURS)} for _ in range(2)]
        places = written(bench, weeks, per_week, groups)
        sides = [Files(place, "", bench, own, None) for place, own in zip(places, engines, strict=True)]
        yield from little(sides, "history of one product", ["seed"], PRODUCT, PRODUCT_ID=per_week // DAYS // 2)
        first = per_week // DAYS // 2
        some = range(first, first + per_week // DAYS // 100)
        yield from little(sides, "1 % of the products, neighbours", ["seed"], RANGE, PRODUCT_ID=some)
        both, one = ["seed", "products"], groups // 2
        yield from little(sides, f"one brand of {groups:,}, neighbours", both, BRAND, BRAND=f"brand {one}")
        yield from little(sides, f"one supplier of {groups:,}, far apart", both, SUPPLIER, SUPPLIER=f"supplier {one}")
        yield from whole(sides)


if __name__ == "__main__":
    run(__doc__, results)
