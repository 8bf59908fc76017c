"""kartothek 5.3 and plateau 4.6 read and update files that a compaction has put in order."""

from __future__ import annotations

import pytest

from kartothek_cube.api.dataset import compact_dataset, read_table_arrow, store_dataframes_as_dataset, verify_dataset
from kartothek_cube.core.stores.open import open_store
from tests.integration.interop.datasets import KINDS, Other, plain

pytestmark = pytest.mark.interop

NAMES = ["int64", "text", "date", "decimal", "list", "struct"]


def in_order(rows):
    return sorted(rows, key=lambda row: row["n"])


@pytest.mark.parametrize("library", ["kartothek", "plateau"])
def test_ordered_files_are_read_and_updated_there_and_sorted_again_here(library, request, tmp_path):
    url = f"hfs://{tmp_path / 'store'}"
    other, store = Other(library, request.getfixturevalue(f"run_{library}"), url, tmp_path), open_store(url)
    expected = {}
    for name in NAMES:
        deliveries = [KINDS[name].rows(n) for n in range(2)]
        layout = {**KINDS[name].layout, "secondary_indices": []}  # plateau updates only those of its own
        store_dataframes_as_dataset(store, name, deliveries[::-1], **layout)
        compact_dataset(name, store, 3, sort_by="n")
        expected[name] = in_order(row for rows in deliveries for row in plain(rows))
        other.give(f"{name} 2", KINDS[name].rows(2, stored=True))
        other.plan(f"{name} read", "read", name)
        other.plan(f"{name} update", "update", name, rows=f"{name} 2")
    other.go()
    for name in NAMES:
        assert in_order(other.rows(f"{name} read")) == expected[name]
        assert compact_dataset(name, store, 3, sort_by="n").commit
        assert compact_dataset(name, store, 3, sort_by="n").commit is None
        found = in_order(plain(read_table_arrow(name, store)))
        assert found == in_order([*expected[name], *plain(KINDS[name].rows(2))])
        assert verify_dataset(name, store, deep=True).errors == ()
