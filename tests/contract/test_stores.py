from __future__ import annotations

import errno
import functools
import importlib.util
import os
import pickle
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import storefact

from kartothek_cube.core.runtime.options import options
from kartothek_cube.core.stores import local
from kartothek_cube.core.stores import local as atomic
from kartothek_cube.core.stores.contract import Capabilities, ReadOnlyView, VersionMismatch, check_key
from kartothek_cube.core.stores.key_value import KeyValueAdapter
from kartothek_cube.core.stores.local import LocalStore, MemoryStore
from kartothek_cube.core.stores.open import StoreFactory, open_store, store_factory
from kartothek_cube.errors import AtomicityRequired, InvalidInput, InvalidType, KeyNotFound, ReadOnlyStore, Unsupported
from kartothek_cube.testing.stores import (
    CountingStore,
    FaultyStore,
    InjectedFault,
    SimulatedCrash,
    StoreTests,
    invalid_keys,
    valid_keys,
)

DOCUMENT = "uuid.by-dataset-metadata.json"
FILE = "uuid/table/p=1/1.parquet"


class TestLocal(StoreTests):
    @pytest.fixture
    def store(self, tmp_path):
        return LocalStore(tmp_path / "root")

    def reopen(self, store):
        return LocalStore(store.root)


class TestLocalSidecar(StoreTests):
    @pytest.fixture
    def store(self, tmp_path):
        return LocalStore(tmp_path / "root", lock="sidecar", fsync=False)

    def reopen(self, store):
        return LocalStore(store.root, lock="sidecar", fsync=False)


class TestMemory(StoreTests):
    @pytest.fixture
    def store(self):
        return MemoryStore()


class TestView(StoreTests):
    @pytest.fixture
    def store(self, tmp_path):
        return CountingStore(LocalStore(tmp_path / "root", fsync=False))

    def test_pickle_shows_the_same_objects_or_is_refused(self, store):
        store.inner.put(FILE, b"1")
        assert pickle.loads(pickle.dumps(store.inner)).get(FILE) == b"1"


class TestSimplekvFiles(StoreTests):
    @pytest.fixture
    def store(self, tmp_path):
        return open_store(storefact.get_store_from_url(f"hfs://{tmp_path}/root"))


class TestSimplekvMemory(StoreTests):
    @pytest.fixture
    def store(self):
        return open_store(storefact.get_store_from_url("hmemory://"))


class TestSimplekvOther(StoreTests):
    """Any other key-value store; here one of files that may not be taken for a directory."""

    @pytest.fixture
    def store(self, tmp_path):
        return KeyValueAdapter(storefact.get_store_from_url(f"hfs://{tmp_path}/root"))

    def reopen(self, store):
        return KeyValueAdapter(store._store)


if importlib.util.find_spec("minimalkv"):

    @pytest.mark.filterwarnings("ignore::DeprecationWarning")
    class TestMinimalkvFiles(StoreTests):
        @pytest.fixture
        def store(self, tmp_path):
            return open_store(importlib.import_module("minimalkv._hstores").HFilesystemStore(str(tmp_path / "root")))

    @pytest.mark.filterwarnings("ignore::DeprecationWarning")
    class TestMinimalkvMemory(StoreTests):
        @pytest.fixture
        def store(self):
            return open_store(importlib.import_module("minimalkv._hstores").HDictStore())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_minimalkv_directory_becomes_ours(tmp_path):
    fs = pytest.importorskip("minimalkv.fs")
    decorator = pytest.importorskip("minimalkv.decorator")
    kv = fs.FilesystemStore(str(tmp_path))
    assert isinstance(open_store(kv), LocalStore)
    assert open_store(decorator.ReadOnlyDecorator(kv)) == LocalStore(tmp_path)


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file())


# --- keys


@pytest.mark.parametrize("key", valid_keys)
def test_valid_keys(key):
    assert check_key(key) == key


@pytest.mark.parametrize("key", invalid_keys)
def test_invalid_keys(key):
    with pytest.raises(InvalidInput, match="Invalid key"):
        check_key(key)


def test_key_is_a_str():
    with pytest.raises(InvalidType):
        check_key(b"a")


# --- a local directory


def test_processes_lose_no_increment(tmp_path):
    LocalStore(tmp_path).put("n", b"0")
    imports = (
        "from kartothek_cube.testing.stores import increment; from kartothek_cube.core.stores.local import LocalStore"
    )
    code = f"{imports}; increment(LocalStore({str(tmp_path)!r}), 'n', 50)"
    for process in [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]:
        assert process.wait() == 0
    assert LocalStore(tmp_path).get("n") == b"100"
    assert files(tmp_path) == ["n"]


def test_concurrent_puts_and_deletes_in_one_folder_do_not_disturb_each_other(tmp_path):
    stores = [LocalStore(tmp_path, fsync=False) for _ in range(2)]

    def churn(number):
        for _ in range(300):
            stores[number].put(f"a/b/c/{number}", b"1")
            assert stores[number].get(f"a/b/c/{number}") == b"1"
            stores[number].delete(f"a/b/c/{number}")

    other = threading.Thread(target=churn, args=(0,))
    other.start()
    churn(1)
    other.join()
    assert list(tmp_path.iterdir()) == []


def test_delete_removes_emptied_folders_but_not_the_root(tmp_path):
    store = LocalStore(tmp_path / "root")
    store.put("a/b/c", b"1")
    store.put("a/d", b"1")
    store.delete("a/b/c")
    assert [path.name for path in (tmp_path / "root" / "a").iterdir()] == ["d"]
    store.delete("a/d")
    assert list((tmp_path / "root").iterdir()) == []


def test_opening_does_no_io(tmp_path):
    open_store(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    with pytest.raises(KeyNotFound):
        open_store(tmp_path / "new").get("a")
    assert open_store(tmp_path / "new").list().entries == []


def test_relative_path_is_absolute_at_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = LocalStore("Rel/Path")
    monkeypatch.chdir("/")
    assert store.root == pickle.loads(pickle.dumps(store)).root == str(tmp_path / "Rel" / "Path")


def test_failed_write_leaves_no_file(tmp_path):
    class Broken:
        def read(self, _):
            raise ConnectionError

    store = LocalStore(tmp_path)
    store.put(FILE, b"old")
    with pytest.raises(ConnectionError):
        store.put_file(FILE, Broken())
    assert store.get(FILE) == b"old"
    assert files(tmp_path) == [FILE]


@pytest.fixture
def flushed(monkeypatch):
    """What was flushed, and what was renamed, in order."""
    steps, lock = [], threading.Lock()

    def logged(step, real):
        def call(what, *others):
            path = os.path.realpath(f"/proc/self/fd/{what}") if isinstance(what, int) else others[0]
            real(what, *others)
            with lock:
                steps.append((step, path))

        return call

    monkeypatch.setattr(os, "fsync", logged("fsync", os.fsync))
    monkeypatch.setattr(os, "replace", logged("rename", os.replace))
    return steps


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="asks /proc which file a descriptor is")
def test_files_of_one_put_are_flushed_before_they_appear_and_each_folder_once(tmp_path, flushed):
    store, root = LocalStore(tmp_path / "root"), tmp_path / "root"
    store.put_many([(f"uuid/p={i % 2}/{i}", b"1") for i in range(50)])
    names = [step for step, _ in flushed]
    assert names == ["fsync"] * 50 + ["rename"] * 50 + ["fsync"] * 5
    assert len({path for _, path in flushed[:50]}) == 50
    assert all(path.endswith("~") for _, path in flushed[:50])
    folders = [tmp_path, root, root / "uuid", root / "uuid/p=0", root / "uuid/p=1"]
    assert sorted(path for _, path in flushed[100:]) == sorted(map(str, folders))


def test_files_of_one_put_wait_for_the_disk_side_by_side(tmp_path, monkeypatch):
    everyone = threading.Barrier(8, timeout=60)
    monkeypatch.setattr(os, "fsync", lambda fd: everyone.wait())
    folders = [(f"p={i}/1", b"1") for i in range(7)]  # and the one above them
    monkeypatch.setattr(atomic, "_WAITING", 8)
    (tmp_path / "p=0").mkdir()
    LocalStore(tmp_path).put_many([*folders, ("p=0/2", b"1")])
    assert not everyone.broken


def test_files_that_nobody_may_write_are_flushed_all_the_same(tmp_path, monkeypatch):
    """Only for root does a mode without writing not matter."""
    plain_open = os.open

    def strict_open(path, flags, *more, **named):
        is_for_writing = flags & (os.O_RDWR | os.O_WRONLY)
        if is_for_writing and Path(path).is_file() and not Path(path).stat().st_mode & 0o200:
            raise PermissionError(errno.EACCES, "nobody may write", path)
        return plain_open(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", strict_open)
    LocalStore(tmp_path, perm=0o444).put_many([("p=0/1", b"1"), ("p=1/1", b"2")])
    assert (tmp_path / "p=1" / "1").read_bytes() == b"2"


def test_files_of_one_put_do_not_wait_where_nobody_asks_for_it(tmp_path, flushed):
    LocalStore(tmp_path, fsync=False).put_many([(f"p={i}/1", b"1") for i in range(9)])
    assert {step for step, _ in flushed} == {"rename"}


@pytest.mark.parametrize("fsync", [True, False])
def test_failed_put_of_many_names_its_key_and_leaves_no_temporary_file(tmp_path, fsync):
    store = LocalStore(tmp_path, fsync=fsync)
    store.put("b", b"1")
    with pytest.raises(InvalidInput, match=r"'b/2' of store .* is below a key that is an object"):
        store.put_many([("a", b"1"), ("b/2", b"1"), ("c", b"1")])
    assert store.contains("a") is not fsync
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith("~")] == []


def test_conflict_leaves_no_file(tmp_path):
    store = LocalStore(tmp_path)
    version = store.put_if(DOCUMENT, b"1", None)
    store.put(DOCUMENT, b"2")
    for expected in (version, None):
        with pytest.raises(VersionMismatch):
            store.put_if(DOCUMENT, b"3", expected)
    assert files(tmp_path) == [DOCUMENT]


def test_temporary_and_backup_files_are_hidden(tmp_path):
    store = LocalStore(tmp_path)
    store.put("a/f", b"1")
    for name in ("a/f.0123456789abcdef~", "a/f.lock~", "a/backup~"):
        (tmp_path / name).write_bytes(b"")
    assert store.list("a/").keys == store.list(recursive=True).keys == ["a/f"]


def test_only_old_leftovers_of_ours_are_removed(tmp_path):
    store = LocalStore(tmp_path)
    names = ("uuid/f.0123456789abcdef~", "uuid/f.lock~", "uuid/backup~", "other/f.0123456789abcdef~")
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    now = datetime.now(UTC)
    assert store.leftovers("uuid", now - timedelta(days=1), remove=True) == []
    later = now + timedelta(minutes=1)
    assert [entry.key for entry in store.leftovers("uuid", later)] == [names[0]]
    assert [entry.key for entry in store.leftovers("uuid", later, remove=True)] == [names[0]]
    assert files(tmp_path) == sorted(names[1:])


def test_link_out_of_the_store_is_refused(tmp_path):
    (tmp_path / "secret").write_bytes(b"secret")
    store = LocalStore(tmp_path / "root")
    store.put("inside", b"1")
    (tmp_path / "root" / "out").symlink_to(tmp_path / "secret")
    (tmp_path / "root" / "in").symlink_to(tmp_path / "root" / "inside")
    for read in (store.get, store.get_versioned, store.local_path, lambda key: store.tail(key, 1)):
        with pytest.raises(InvalidInput, match="leads out"):
            read("out")
    assert not store.contains("out")
    assert store.get("in") == b"1"
    assert store.list().keys == ["in", "inside"]


def test_link_to_a_parent_does_not_loop(tmp_path):
    store = LocalStore(tmp_path)
    store.put("a/f", b"1")
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    assert store.list(recursive=True).keys == ["a/f"]


def test_object_and_folder_of_one_name_are_refused(tmp_path):
    store = LocalStore(tmp_path)
    store.put("a/b", b"1")
    for write in (
        lambda: store.put("a", b"1"),
        lambda: store.put_if("a", b"1", None),
        lambda: store.put("a/b/c", b"1"),
    ):
        with pytest.raises(InvalidInput, match="cannot hold"):
            write()
    assert files(tmp_path) == ["a/b"]


def test_directory_without_permission_is_a_read_only_store(tmp_path, monkeypatch):
    def refuse(path, *_):
        raise PermissionError(13, "Permission denied", path)

    store = LocalStore(tmp_path)
    monkeypatch.setattr(atomic.os, "open", refuse)
    with pytest.raises(ReadOnlyStore, match=DOCUMENT):
        store.put_if(DOCUMENT, b"1", None)


def test_file_system_without_hard_links_is_unsupported(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(atomic.os, "link", refuse)
    with pytest.raises(Unsupported, match="hard links"):
        LocalStore(tmp_path).put_if(DOCUMENT, b"1", None)
    assert files(tmp_path) == []


def test_platform_without_file_locks_reads_but_does_not_commit(tmp_path, monkeypatch):
    for module in (atomic, local):
        monkeypatch.setattr(module, "CAN_LOCK", False)
    store = LocalStore(tmp_path)
    store.put(FILE, b"1")
    store.delete(FILE)
    assert not store.capabilities.conditional_put
    with pytest.raises(Unsupported, match="locks"):
        store.put_if(DOCUMENT, b"1", None)


def test_permissions(tmp_path):
    LocalStore(tmp_path, perm=0o640).put("a", b"1")
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


@pytest.fixture
def later(monkeypatch):
    """The clock goes a minute ahead, so that every file has settled."""

    class Clock:
        @staticmethod
        def time():
            return datetime.now(UTC).timestamp() + 60

    monkeypatch.setattr(local, "time", Clock)


def test_settled_file_is_not_read_again(tmp_path, later, monkeypatch):
    store = LocalStore(tmp_path)
    store.put(DOCUMENT, b"1")
    _, version = store.get_versioned(DOCUMENT)
    monkeypatch.setattr(store, "get_versioned", None)
    assert not store.changed(DOCUMENT, version)


def test_version_of_a_write_settles_with_the_first_check(tmp_path, later, monkeypatch):
    store = LocalStore(tmp_path)
    version = store.put_if(DOCUMENT, b"1", None)
    assert not store.changed(DOCUMENT, version)
    monkeypatch.setattr(store, "get_versioned", None)
    assert not store.changed(DOCUMENT, version)


def test_fresh_file_is_compared_by_content(tmp_path):
    store = LocalStore(tmp_path)
    store.put(DOCUMENT, b"1")
    _, version = store.get_versioned(DOCUMENT)
    assert version.stamp is None
    assert not store.changed(DOCUMENT, version)
    (tmp_path / DOCUMENT).write_bytes(b"2")
    assert store.changed(DOCUMENT, version)


def test_settled_file_that_a_foreign_writer_rewrote_in_place_is_changed(tmp_path, later):
    store = LocalStore(tmp_path)
    store.put(DOCUMENT, b"1")
    _, version = store.get_versioned(DOCUMENT)
    status = (tmp_path / DOCUMENT).stat()
    (tmp_path / DOCUMENT).write_bytes(b"2")
    os.utime(tmp_path / DOCUMENT, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert store.changed(DOCUMENT, version)


def test_touched_file_is_not_changed(tmp_path, later):
    store = LocalStore(tmp_path)
    store.put(DOCUMENT, b"1")
    _, version = store.get_versioned(DOCUMENT)
    os.utime(tmp_path / DOCUMENT, (1, 1))
    assert not store.changed(DOCUMENT, version)


def test_version_of_another_store_is_refused(tmp_path):
    with pytest.raises(InvalidType, match="LocalVersion"):
        LocalStore(tmp_path).put_if(DOCUMENT, b"1", 7)


def test_unknown_lock_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="sidecar"):
        LocalStore(tmp_path, lock="none")


# --- memory and other stores


def test_named_memory_is_shared_in_the_process():
    MemoryStore("shared/Name").put("a", b"1")
    assert open_store("hmemory://shared/Name").get("a") == b"1"
    assert not MemoryStore("shared/name").contains("a")
    assert MemoryStore("shared/Name") == MemoryStore("shared/Name") != MemoryStore("other")
    assert MemoryStore() != MemoryStore()


def test_a_simplekv_store_that_takes_no_slashes_says_so():  # A07
    store = open_store(storefact.get_store_from_url("memory://"))
    with pytest.raises(InvalidInput, match=r"does not take the key 'uuid/table/x\.parquet'"):
        store.put("uuid/table/x.parquet", b"")


def test_two_adapters_of_one_simplekv_store_compare_and_swap_together():
    kv = storefact.get_store_from_url("hmemory://")
    first, second = open_store(kv), open_store(kv)
    assert first == second
    assert first != open_store(storefact.get_store_from_url("hmemory://"))
    version = first.put_if(DOCUMENT, b"1", None)
    second.put_if(DOCUMENT, b"2", version)
    with pytest.raises(VersionMismatch):
        first.put_if(DOCUMENT, b"3", version)
    assert kv.get(DOCUMENT) == b"2"


def test_store_without_conditional_put_commits_only_when_told_to(tmp_path):
    store = KeyValueAdapter(storefact.get_store_from_url(f"hfs://{tmp_path}"))
    assert store.capabilities == Capabilities(
        atomic_put=False, conditional_put=False, modification_times=False, shared=True
    )
    with pytest.raises(AtomicityRequired, match=DOCUMENT):
        store.put_if(DOCUMENT, b"1", None)
    with options(require_atomic=False):
        store.put_if(DOCUMENT, b"2", store.put_if(DOCUMENT, b"1", None))
        with pytest.raises(VersionMismatch):
            store.put_if(DOCUMENT, b"3", None)
    assert store.get(DOCUMENT) == b"2"


def test_simplekv_directory_becomes_ours(tmp_path):
    kv = storefact.get_store_from_url(f"hfs://{tmp_path}")
    assert open_store(kv) == LocalStore(tmp_path)
    assert isinstance(open_store(kv), LocalStore)
    view = open_store(storefact.get_store_from_url(f"hfs://{tmp_path}#wrap:readonly"))
    assert isinstance(view, ReadOnlyView)
    assert isinstance(view.inner, LocalStore)


def test_subclass_that_keeps_its_files_elsewhere_does_not_become_a_directory(tmp_path):
    class Elsewhere(type(storefact.get_store_from_url(f"hfs://{tmp_path}"))):
        def _build_filename(self, key):
            return super()._build_filename(key.replace("/", "_"))

    assert isinstance(open_store(Elsewhere(str(tmp_path))), KeyValueAdapter)


def test_store_that_renames_keys_is_adapted(tmp_path):
    store = open_store(f"hfs://{tmp_path}/Root#wrap:urlencode")
    assert isinstance(store, KeyValueAdapter)
    store.put("a/b", b"1")
    assert files(tmp_path) == ["Root/a%2Fb"]
    assert (store.list().prefixes, store.get("a/b")) == (["a/"], b"1")


def test_read_only_simplekv_store():
    kv = storefact.get_store_from_url("hmemory://")
    kv.put("a/b", b"1")
    from simplekv.decorator import ReadOnlyDecorator

    store = open_store(ReadOnlyDecorator(kv))
    assert (store.list().prefixes, store.get("a/b"), store.capabilities.writable) == (["a/"], b"1", False)
    with pytest.raises(ReadOnlyStore):
        store.delete("a/b")


# --- opening


@pytest.mark.parametrize(
    ("url", "root"),
    [
        ("hfs:///data/Cubes", "/data/Cubes"),
        ("HFS:///data/Cubes", "/data/Cubes"),
        ("hfs://Rel/Path", "{cwd}/Rel/Path"),
        ("hfs://10.0.0.1/x", "{cwd}/10.0.0.1/x"),
        ("hfs:///data/a%20b%3Fc", "/data/a b?c"),
        ("hfs:///data/a b", "/data/a b"),
        ("hfs:///data?create_if_missing=false", "/data"),
        ("hfs:///data?lock=sidecar&fsync=false", "/data"),
        ("fs:///data", "/data"),
        ("file:///data", "/data"),
        ("file://localhost/data", "/data"),
        ("/data/Cubes", "/data/Cubes"),
        ("Rel/Path", "{cwd}/Rel/Path"),
        ("~/cubes", "{home}/cubes"),
        (Path("/data/Cubes"), "/data/Cubes"),
    ],
)
def test_urls_of_directories(url, root):
    store = open_store(url)
    assert isinstance(store, LocalStore)
    assert store.root == root.format(cwd=Path.cwd(), home=Path.home())
    assert open_store(store.name) == store


@pytest.mark.parametrize(
    ("x", "error", "text"),
    [
        ("", InvalidInput, "directory"),
        ("hfs://", InvalidInput, "names no directory"),
        ("hfs:/data", InvalidInput, "hfs:///absolute/path"),
        ("file://data", InvalidInput, "hfs://data"),
        ("hfs:///data?x=1", InvalidInput, "%3F"),
        ("hfs:///data#x", InvalidInput, "%23"),
        ("hfs:///data?fsync=maybe", InvalidInput, "neither true nor false"),
        ("hfs:///data?lock=none", InvalidInput, "sidecar"),
        ("hmemory://a?lock=inode", InvalidInput, "readonly"),
        ("nfs://host/x", InvalidInput, "Unknown storage type"),
        ("://x", InvalidInput, "no store URL"),
        (None, InvalidType, "Provided incompatible store type"),
        (1, InvalidType, "Provided incompatible store type"),
        ({}, InvalidType, "Provided incompatible store type"),
        (b"/data", InvalidType, "Provided incompatible store type"),
        (int, InvalidType, "Provided incompatible store type int"),
        (lambda: None, InvalidType, "Provided incompatible store type"),
    ],
)
def test_what_is_no_store_is_refused(x, error, text):
    with pytest.raises(error, match=text) as caught:
        open_store(x)
    assert "secret" not in str(caught.value)


def test_endless_factory_is_refused():
    def factory():
        return factory

    with pytest.raises(InvalidType, match="function"):
        open_store(factory)


def test_factories_are_called(tmp_path):
    store = LocalStore(tmp_path)
    for factory in (
        lambda: store,
        lambda: str(tmp_path),
        functools.partial(storefact.get_store_from_url, f"hfs://{tmp_path}"),
        lambda: lambda: tmp_path,
    ):
        assert open_store(factory) == store
    assert open_store(store) is store


def test_settings(tmp_path):
    assert open_store(tmp_path, lock="sidecar", fsync=False)._writer == atomic.FileWriter("sidecar", False)
    assert open_store(f"hfs://{tmp_path}?lock=sidecar")._writer.lock == "sidecar"
    kv = storefact.get_store_from_url(f"hfs://{tmp_path}")
    assert open_store(kv, lock="sidecar")._writer.lock == "sidecar"
    for url in (tmp_path, f"hfs://{tmp_path}", MemoryStore(), kv):
        assert not open_store(url, readonly=True).capabilities.writable
    assert not open_store(f"hfs://{tmp_path}?readonly=true").capabilities.writable
    assert not open_store(f"hfs://{tmp_path}#wrap:readonly").capabilities.writable


@pytest.mark.parametrize("x", [MemoryStore(), "hmemory://", storefact.get_store_from_url("hmemory://")])
def test_settings_of_local_stores_are_refused_elsewhere(x):
    with pytest.raises(InvalidInput, match="lock"):
        open_store(x, lock="inode")


def test_unknown_setting_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="lokc"):
        open_store(tmp_path, lokc="inode")


def make_unpicklable():
    class Unpicklable(LocalStore):
        pass

    Unpicklable.__reduce__ = lambda self: 1 / 0
    return Unpicklable("/data")


def test_store_factory_travels(tmp_path):
    for x in (tmp_path, f"hfs://{tmp_path}", lambda: str(tmp_path), LocalStore(tmp_path)):
        made = store_factory(x)
        assert made == pickle.loads(pickle.dumps(made)) == LocalStore(tmp_path)
    made = store_factory(make_unpicklable)
    assert isinstance(made, StoreFactory)
    assert open_store(made) == LocalStore("/data")


@pytest.mark.parametrize(
    "x",
    [
        MemoryStore(),
        "hmemory://name",
        functools.partial(storefact.get_store_from_url, "hmemory://"),
        make_unpicklable(),
        lambda: [make_unpicklable()][0],
    ],
)
def test_store_that_cannot_travel_is_refused(x):
    with pytest.raises(InvalidType):
        store_factory(x)


# --- counting and failing


def test_counting_store():
    store = CountingStore(MemoryStore())
    store.put("a", b"1")
    store.put("b", b"1")
    store.list()
    assert store.counts == {"put": 2, "list": 1}
    assert store.touched("put") == ["a", "b"]
    store.reset()
    assert store.touched() == []


@pytest.mark.parametrize(
    ("fault", "error", "written"), [("before", InjectedFault, False), ("after", InjectedFault, True)]
)
def test_faulty_store_fails_before_or_after(fault, error, written):
    inner = MemoryStore()
    store = FaultyStore(inner, lambda call: fault if (call.operation, call.nth) == ("put", 2) else None)
    store.put("a", b"1")
    with pytest.raises(error):
        store.put("b", b"1")
    assert inner.contains("b") is written
    store.put("c", b"1")


@pytest.mark.parametrize(("fault", "written"), [("crash", False), ("crash_after", True)])
def test_crashed_store_stays_dead(fault, written):
    inner = MemoryStore()
    store = FaultyStore(inner, lambda call: fault if call.key == "a" else None)
    for key in ("a", "b"):
        with pytest.raises(SimulatedCrash):
            store.put(key, b"1")
    assert (inner.contains("a"), inner.contains("b")) == (written, False)
