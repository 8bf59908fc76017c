"""A cube moves to another store under its readers: copied, verified, and then readers switch.

`copy_cube` checks everything before the first write and publishes the seed last, so the
copy appears whole or not at all. A cube that is written to meanwhile stays consistent, but
what came after the start is not in the copy: stop the writers, or copy again with
`overwrite=True`. Readers take the address from one place, here a small text file, which is
replaced in one step; the old cube is deleted when nobody reads it any more.

    python copy_to_another_store.py [store-url]        the copy goes to the directory new-shop-data
    here
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shop import CUBE, new_shop, store_from

from kartothek_cube import copy_cube, count_cube, delete_cube, list_cubes, open_store, query_cube_arrow, verify_cube

TARGET = "hfs://new-shop-data"
ADDRESS = Path("shop-address.txt")


def checked_copy(source: Any, target: Any) -> int:
    """Copy, and compare what a reader would see; returns the rows."""
    copy_cube(CUBE, source, target, overwrite=True)
    report = verify_cube(CUBE, target, deep=True)
    if not report.ok:
        raise SystemExit(str(report))
    if not query_cube_arrow(CUBE, source).equals(query_cube_arrow(CUBE, target)):
        raise SystemExit("The copy is not what the source is now: somebody has written meanwhile. Copy again.")
    return count_cube(CUBE, target)


def switch(url: str) -> None:
    """Readers that start from now on read there."""
    new = ADDRESS.with_suffix(".new")
    new.write_text(url, encoding="utf-8")
    new.replace(ADDRESS)


def main() -> None:
    """Copy, verify, switch, delete."""
    source, target = store_from(), open_store(TARGET)
    new_shop(source)
    print(f"copied and verified: {checked_copy(source, target):,} rows")
    switch(TARGET)
    address = ADDRESS.read_text(encoding="utf-8")
    print(f"readers find {count_cube(CUBE, address):,} rows at {address}")
    delete_cube(CUBE, source)
    print(f"cubes in the old store: {len(list_cubes(source))}")


if __name__ == "__main__":
    main()
