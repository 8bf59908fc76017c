"""Directories on Windows, as far as Linux can show it: its code path, rules and refusals."""

from __future__ import annotations

import subprocess
import sys
import threading

import pandas as pd
import pytest

from kartothek_cube import Cube, append_to_cube, build_cube, cleanup_cube, compact_cube, query_cube
from kartothek_cube.core.stores import local as atomic
from kartothek_cube.core.stores.contract import check_key
from kartothek_cube.core.stores.local import LocalStore
from kartothek_cube.core.stores.open import open_store
from kartothek_cube.core.stores.urls import looks_like_url, parse_url
from kartothek_cube.errors import InvalidInput, ReadOnlyStore
from kartothek_cube.testing.stores import StoreTests, invalid_keys, valid_keys
from tests.support.windows import become_windows

pytest.importorskip("filelock")
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")

DOCUMENT = "uuid.by-dataset-metadata.json"
NO_NAMES = (
    "aux",
    "a/CON/b",
    "nul.txt",
    "COM1.parquet",
    "lpt9",
    "prn .txt",
    "conin$",
    "a./b",
    "a /b",
    "a<b",
    'a"b',
    "a?",
)

# Valid keys with a character that Windows refuses, or a dot or space at the end of a name.
REFUSED = (valid_keys[2], valid_keys[3], "...", " ")


@pytest.fixture(autouse=True)
def windows(monkeypatch):
    become_windows(monkeypatch.setattr)


class TestWindows(StoreTests):
    @pytest.fixture
    def store(self, tmp_path):
        return LocalStore(tmp_path / "root")

    def reopen(self, store):
        return LocalStore(store.root)

    @pytest.mark.parametrize("key", [key for key in valid_keys if key not in REFUSED])
    def test_every_valid_key_is_taken_verbatim(self, store, key):
        super().test_every_valid_key_is_taken_verbatim(store, key)


@pytest.mark.parametrize("key", [*NO_NAMES, *REFUSED])
def test_what_is_no_name_on_windows_is_refused(tmp_path, key):
    check_key(key)  # it is one elsewhere
    store = LocalStore(tmp_path)
    for write in (lambda: store.put(key, b"1"), lambda: store.put_if(key, b"1", None), lambda: store.get(key)):
        with pytest.raises(InvalidInput, match="no name of a file on Windows"):
            write()
    assert store.keys() == []


@pytest.mark.parametrize("key", ["p=aux/1.parquet", "auxiliary", "con-1", "com", "a.aux", "console.txt", ".nul"])
def test_names_that_only_look_like_devices_are_taken(tmp_path, key):
    store = LocalStore(tmp_path)
    store.put(key, b"1")
    assert store.keys() == [key]


def test_colons_and_backslashes_are_in_no_key():
    assert {"a:b", "a\\b", "a*", "a|b"} <= set(invalid_keys)


def test_nothing_of_posix_is_needed(tmp_path):
    store = LocalStore(tmp_path, perm=0o640)
    version = store.put_if(DOCUMENT, b"1", None)
    store.put_if(DOCUMENT, b"2", version)
    store.put_many([("a/1", b"1"), ("a/2", b"2")])
    assert (tmp_path / "a" / "1").stat().st_mode & 0o777 == 0o640


def test_a_commit_waits_for_a_reader(tmp_path):
    store = LocalStore(tmp_path)
    version = store.put_if(DOCUMENT, b"1", None)
    reader = (tmp_path / DOCUMENT).open("rb")
    asked, real = threading.Event(), atomic.time.sleep

    class Clock:
        @staticmethod
        def sleep(_seconds):
            asked.set()
            reader.close()
            real(0)

    atomic.time, before = Clock, atomic.time
    try:
        store.put_if(DOCUMENT, b"2", version)
    finally:
        atomic.time = before
    assert asked.is_set()
    assert store.get(DOCUMENT) == b"2"


def test_a_file_that_stays_open_is_not_deleted_and_named(tmp_path, monkeypatch):
    monkeypatch.setattr(atomic, "_WAITS", 2)
    store = LocalStore(tmp_path)
    store.put("a/1", b"1")
    with (tmp_path / "a" / "1").open("rb"), pytest.raises(ReadOnlyStore, match="a/1"):
        store.delete("a/1")
    store.delete("a/1")
    assert store.keys() == []


def test_processes_lose_no_increment(tmp_path):
    LocalStore(tmp_path).put("n", b"0")
    code = (
        "from tests.support.windows import become_windows; become_windows(); "
        "from kartothek_cube.core.stores.local import LocalStore; "
        "from kartothek_cube.testing.stores import increment; "
        f"increment(LocalStore({str(tmp_path)!r}, fsync=False), 'n', 25)"
    )
    running = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(3)]
    assert [process.wait() for process in running] == [0, 0, 0]
    assert LocalStore(tmp_path).get("n") == b"75"


def test_a_cube_lives(tmp_path):
    cube = Cube(["x"], ["p"], "cube")
    rows = pd.DataFrame({"x": [1, 2], "p": ["aux", "a b:c"], "v1": [0.5, 1.5]})
    build_cube(rows, cube, str(tmp_path))
    append_to_cube(rows.assign(x=[3, 4]), cube, str(tmp_path))
    compact_cube(cube, str(tmp_path))
    cleanup_cube(cube, str(tmp_path))
    (result,) = query_cube(cube, str(tmp_path))
    assert sorted(result["x"]) == [1, 2, 3, 4]


def test_a_value_that_is_no_name_is_refused(tmp_path):
    cube = Cube(["x"], ["p"], "cube")
    with pytest.raises(InvalidInput, match="no name of a file on Windows"):
        build_cube(pd.DataFrame({"x": [1], "p": ["a."], "v1": [0.5]}), cube, str(tmp_path))
    assert "cube++seed.by-dataset-metadata.json" not in LocalStore(tmp_path).keys()  # noqa: SIM118 - a method


# --- paths


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("hfs:///C:/data/My%20Cubes", "C:/data/My Cubes"),
        ("hfs://C:/data", "C:/data"),
        ("file:///c:/data", "c:/data"),
        ("hfs:////server/share/cubes", "//server/share/cubes"),
        ("hfs:///data", "/data"),
    ],
)
def test_urls_of_drives(url, path):
    assert parse_url(url).path == path


@pytest.mark.parametrize(
    ("root", "name"),
    [
        ("C:\\data\\My Cubes", "hfs:///C:/data/My%20Cubes"),
        ("\\\\server\\share\\cubes", "hfs:////server/share/cubes"),
    ],
)
def test_the_name_is_a_url_that_opens_the_directory(tmp_path, root, name):
    store = LocalStore(tmp_path)
    store.root = root
    assert store.name == name
    assert parse_url(name).path == root.replace("\\", "/")


def test_a_drive_is_no_scheme():
    assert not looks_like_url("C:\\data\\cubes")
    assert not looks_like_url("c:/data/cubes")
    assert isinstance(open_store("C:\\data\\cubes"), LocalStore)


def test_without_filelock_commits_name_it(tmp_path):
    code = (
        "import sys; sys.modules['fcntl'] = sys.modules['filelock'] = None; "
        "from kartothek_cube.core.stores.local import LocalStore; store = LocalStore(sys.argv[1]); "
        "assert not store.capabilities.conditional_put; store.put('a', b'1'); store.put_if('b', b'1', None)"
    )
    run = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert "Install the package filelock." in run.stderr
    assert LocalStore(tmp_path).keys() == ["a"]
