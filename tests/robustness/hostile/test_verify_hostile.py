"""Whatever bytes lie in a store, verifying a dataset ends with a report."""

from __future__ import annotations

import copy
import json

import pytest

from kartothek_cube.api.cube import build_cube, verify_cube
from kartothek_cube.api.dataset import update_dataset_from_dataframes
from kartothek_cube.core.metadata.naming import document_key
from kartothek_cube.core.stores.local import MemoryStore
from tests.support.cubes import CUBE, SEED
from tests.support.damage import ROWS, UUID, document, put, verify, write

JUNK = [None, 1, True, 1.5, "", "../../x", "ä\x00", [], [[1]], [None], {}, {"": ""}, {"files": {"table": 1}}]


def paths(value, path=()):
    """The way to each value inside a document."""
    yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, child in children:
        yield from paths(child, (*path, name))


def replaced(content, path, value):
    if not path:
        return value
    content = copy.deepcopy(content)
    target = content
    for name in path[:-1]:
        target = target[name]
    target[path[-1]] = value
    return content


@pytest.mark.parametrize("junk", JUNK, ids=repr)
def test_a_document_with_nonsense_anywhere_gives_a_report(junk):
    store = MemoryStore()
    write(store)
    update_dataset_from_dataframes([ROWS], store, UUID)
    original = document(store)
    for path in paths(original):
        put(store, replaced(original, path, junk))
        assert verify(store, deep=True).counts.datasets == 1


@pytest.mark.parametrize("junk", JUNK[::2], ids=repr)
def test_a_cube_with_nonsense_in_its_metadata_gives_a_report(junk):
    store = MemoryStore()
    build_cube(SEED, CUBE, store)
    key = document_key("cube++seed")
    original = json.loads(store.get(key))
    for path in paths(
        {"metadata": original["metadata"], "indices": original["indices"], "partition_keys": original["partition_keys"]}
    ):
        if path:
            store.put(key, json.dumps(replaced(original, path, junk)).encode())
            for cube in (CUBE, "cube"):
                assert verify_cube(cube, store, deep=True).counts.datasets == 1


def damages(data):
    yield b""
    yield b"\x00" * len(data)
    for part in range(1, 8):
        cut = len(data) * part // 8
        yield data[:cut]
        yield data[:cut] + b"\xff" * 16 + data[cut + 16 :]


def test_any_object_of_a_dataset_may_be_damaged():
    store = MemoryStore()
    write(store)
    update_dataset_from_dataframes([ROWS], store, UUID, delete_scope=[{"p": "a"}])
    for key in store.list(recursive=True).keys:
        data = store.get(key)
        for damaged in damages(data):
            store.put(key, damaged)
            assert verify(store, deep=True).counts.datasets == 1
        store.put(key, data)
    assert verify(store, deep=True).clean
