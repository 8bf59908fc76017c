"""Building cubes and appending to them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from data import (
    EMPTY,
    INDEXED,
    KEYS,
    LONG,
    WIDE,
    Place,
    Tables,
    empty_cube,
    few_rows,
    shuffled,
    tables,
    with_products,
    write_index,
)
from pairs import Row, absent, at_most, faster, turns, within
from peers import write_plain
from pipe import Kartothek, start_kartothek, where
from planning import forgotten
from script import Bench, run

from kartothek_cube import Cube, append_to_cube, build_cube
from kartothek_cube.core.metadata.naming import document_key
from kartothek_cube.core.stores.contract import Store

PYARROW, KARTOTHEK = "pyarrow, the same partitions", "kartothek 5.3"


@dataclass(frozen=True)
class Builder:
    """Builds in a new folder each time, by us, by pyarrow or by kartothek."""

    folder: Path
    cube: Cube
    numbers: Iterator[int] = field(default_factory=count)

    def fresh(self) -> Path:
        """A new folder."""
        path = self.folder / str(next(self.numbers))
        path.mkdir(parents=True)
        return path

    def ours(self, data: Tables) -> None:
        build_cube(dict(data), self.cube, Place(self.cube, self.fresh()).store, partition_on=_partition_on(data))

    def plain(self, data: Tables) -> None:
        """Rows that are in order."""
        write_plain(data, self.fresh())

    def sorted(self, data: Tables) -> None:
        """What pyarrow has to do where they are not."""
        keys = [(key, "ascending") for key in KEYS]
        self.plain(
            {name: table.sort_by([key for key in keys if key[0] in table.column_names]) for name, table in data.items()}
        )

    def kartothek(self, kartothek: Kartothek, data: Tables) -> None:
        """Of frames that it has loaded."""
        kartothek("build", **where(Place(self.cube, self.fresh())), partition_on=_partition_on(data))


def _partition_on(data: Tables) -> dict[str, list[str]] | None:
    return {"products": []} if "products" in data else None


def building(bench: Bench, name: str, cube: Cube, data: Tables) -> Iterator[Row]:
    """Rows in order, rows in no order, and kartothek, which takes long and does so once."""
    builder, mixed = Builder(bench.folder / cube.uuid_prefix, cube), shuffled(data)
    kinds = (("build, rows in order", data, builder.plain), ("build, rows in no order", mixed, builder.sorted))
    for work, rows, by_pyarrow in kinds:
        taken = turns({PYARROW: partial(by_pyarrow, rows), "ours": partial(builder.ours, rows)}, bench.rounds)
        yield within(f"{name}: {work}", taken, PYARROW, "ours", 1.3)
    yield beside_kartothek(f"{name}: build, rows in order", builder, data)
    shutil.rmtree(builder.folder)


def beside_kartothek(work: str, builder: Builder, data: Tables) -> Row:
    with start_kartothek() as kartothek:
        if not kartothek:
            return absent(work, KARTOTHEK, ">= 2x")
        kartothek("load", frames=_frames(builder.fresh(), data))
        taken = turns(
            {KARTOTHEK: partial(builder.kartothek, kartothek, data), "ours": partial(builder.ours, data)},
            1,
            warm_up=False,
        )
        return faster(work, taken, KARTOTHEK, "ours", 2)


def _frames(folder: Path, data: Tables) -> dict[str, str]:
    paths = {name: str(folder / f"{name}.arrow") for name in data}
    for name, path in paths.items():
        with pa.ipc.new_file(path, data[name].schema) as writer:
            writer.write_table(data[name])
    return paths


def many_partitions(bench: Bench) -> Iterator[Row]:
    """From one frame: no step may be quadratic."""
    weeks = bench.size(16_000, 160)
    data = {"seed": shuffled(tables(100 * weeks, weeks))["seed"]}
    builder = Builder(bench.folder / "split", LONG)
    taken = turns({PYARROW: partial(builder.sorted, data), "ours": partial(builder.ours, data)}, 1)
    work = f"{weeks:,} partitions from one frame"
    yield within(work, taken, PYARROW, "ours", 1.3)
    yield at_most(work, taken["ours"], 20)
    shutil.rmtree(builder.folder)


def appending(bench: Bench) -> Iterator[Row]:
    """One row to many partitions; the document is the work."""
    n = bench.size(100_000, 1000)
    place = Place(EMPTY, bench.folder / "empty")
    document = place.root / document_key(EMPTY.ktk_dataset_uuid("forecast"))
    empty_cube(place, n)
    row = pa.table({"DAY": [n], "PRODUCT_ID": [1], "FORECAST": [1.0]})
    works: dict[str, Callable[[], Any]] = {
        "json.loads + json.dumps": lambda: json.dumps(json.loads(document.read_bytes())),
        "first": lambda: append_to_cube({"forecast": row}, EMPTY, forgotten(place).store),
        "again": lambda: append_to_cube({"forecast": row}, EMPTY, place.store),
    }
    taken = turns(works, bench.rounds)
    for ours in ("first", "again"):
        yield within(f"append to {n:,} partitions, {ours}", taken, "json.loads + json.dumps", ours, 0.5)


def many_pairs(bench: Bench) -> Iterator[Row]:
    """A few rows of a seed whose index has many pairs, in a small file, as all lists are equal."""
    values, partitions = bench.size(140_000, 2000), 100
    place, peer = Place(INDEXED, bench.folder / "pairs"), "pq.read_table + pq.write_table"
    key = write_index(place, values, partitions, partitions)
    empty_cube(place, partitions, key)
    days, index = count(partitions), place.root / key

    def append(store: Store) -> None:
        append_to_cube({"seed": few_rows(next(days), values)}, INDEXED, store)

    works: dict[str, Callable[[], Any]] = {
        peer: lambda: pq.write_table(pq.read_table(index), place.root / "copy"),
        "first": lambda: append(forgotten(place).store),
        "again": lambda: append(place.store),
    }
    taken = turns(works, bench.rounds)
    for ours, most in (("first", 1), ("again", 0.5)):
        yield within(f"append to an index of {values * partitions:,} pairs, {ours}", taken, peer, ours, most)


def results(bench: Bench) -> Iterator[Row]:
    yield from building(bench, "50 partitions", WIDE, with_products(tables(bench.size(5_000_000, 20_000), 50)))
    weeks = bench.size(5000, 50)
    yield from building(bench, f"{weeks:,} partitions", LONG, tables(bench.size(2_500_000, 5000), weeks))
    yield from many_partitions(bench)
    yield from appending(bench)
    yield from many_pairs(bench)


if __name__ == "__main__":
    run(__doc__, results)
