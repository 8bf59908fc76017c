"""How far a call travels: the files of the package that one call of a verb passes through."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pytest

from kartothek_cube import (
    C,
    Cube,
    append_to_cube,
    build_cube,
    compact_cube,
    cube_history,
    merge_dataset,
    open_store,
    options,
    query_cube_arrow,
)
from kartothek_cube.api.dataset import (
    garbage_collect_dataset,
    read_table,
    store_dataframes_as_dataset,
    undo,
    update_dataset_from_dataframes,
    verify_dataset,
)
from tests.support.source import PACKAGE

CUBE = Cube(["x"], ["p"], "cube", index_columns=["i1"])
SEED = pa.table({"x": [1, 2, 3], "p": [0, 0, 1], "i1": [1, 2, 1], "v1": [1.0, 2.0, 3.0]})
NEW = pa.table({"x": [7], "p": [0], "i1": [1], "v1": [1.0]})
ENRICHMENT = pa.table({"x": [1, 2], "v2": [1.0, 2.0]})

# What a reader has to open. A figure may be lowered only.
MOST_FILES = {
    "build": (39, lambda store: build_cube({"seed": SEED, "e": ENRICHMENT}, CUBE, store, partition_on={"e": []})),
    "append": (39, lambda store: append_to_cube({"seed": NEW}, CUBE, store)),
    "query": (37, lambda store: query_cube_arrow(CUBE, store, (C("i1") == 1) & (C("v2") > 0))),
    "compact": (39, lambda store: compact_cube(CUBE, store)),
    "history": (19, lambda store: cube_history(CUBE, store)),
    "store": (
        34,
        lambda store: store_dataframes_as_dataset(store, "d", [SEED], partition_on="p", secondary_indices=["i1"]),
    ),
    "update": (34, lambda store: update_dataset_from_dataframes([SEED], store, "d")),
    "read": (25, lambda store: read_table("d", store, predicates=[[("i1", "==", 1)]])),
    "merge": (40, lambda store: merge_dataset(SEED, store, "d", on="x")),
    "undo": (28, lambda store: undo("d", store)),
    "verify": (29, lambda store: verify_dataset("d", store)),
    "collect garbage": (21, lambda store: garbage_collect_dataset("d", store)),
}


def files_of(call):
    """The files whose functions run; loading a module, which happens once, does not count."""
    files = set()

    def profile(frame, event, _):
        if event == "call" and frame.f_code.co_name != "<module>" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            files.add(Path(frame.f_code.co_filename).relative_to(PACKAGE).as_posix())

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(before)
    return files


@pytest.fixture(scope="module")
def flows():
    """Verb → its files, one verb after the other on one store."""
    store = open_store("hmemory://flows")
    with options(threads=1):
        return {verb: files_of(lambda call=call: call(store)) for verb, (_, call) in MOST_FILES.items()}


@pytest.mark.parametrize("verb", MOST_FILES)
def test_a_call_passes_few_files(flows, verb):
    assert len(flows[verb]) <= MOST_FILES[verb][0], sorted(flows[verb])
