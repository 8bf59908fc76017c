"""File systems of fsspec and pyarrow as stores."""

from __future__ import annotations

import inspect
import itertools
import pickle
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import fs as arrow_fs

from kartothek_cube import Cube, append_to_cube, build_cube, query_cube
from kartothek_cube.core.runtime.options import options
from kartothek_cube.core.stores.contract import Capabilities, InstrumentedStore, ReadOnlyView, check_store_can_commit
from kartothek_cube.core.stores.file_system import FileSystemStore, FsspecFiles, is_file_system
from kartothek_cube.core.stores.local import LocalStore
from kartothek_cube.core.stores.open import open_store, store_factory
from kartothek_cube.errors import AtomicityRequired, InvalidInput, InvalidType, KeyNotFound, ReadOnlyStore, Unsupported
from kartothek_cube.testing.stores import StoreTests

fsspec = pytest.importorskip("fsspec")

FILE = "uuid/table/p=1/1.parquet"
CUBE = Cube(["x"], ["p"], "cube")
ROWS = pd.DataFrame({"x": [1, 2], "p": [1, 2], "v1": [0.5, 1.5]})
_NUMBERS = itertools.count()


def memory_path():
    """A folder of the memory of fsspec, which all tests of a process share."""
    return f"root{next(_NUMBERS)}/folder"


class UnsafeFiles(fsspec.get_filesystem_class("memory")):
    """A protocol of which nothing is known, as a company may have its own."""

    protocol = "mine"
    store, pseudo_dirs = {}, [""]


class TestFsspecMemory(StoreTests):
    @pytest.fixture
    def store(self):
        return open_store(fsspec.filesystem("memory"), path=memory_path())

    def reopen(self, store):
        return open_store(fsspec.filesystem("memory"), path=store.identity[-1])


class TestFsspecDir(StoreTests):
    @pytest.fixture
    def store(self):
        return open_store(fsspec.filesystem("dir", path=memory_path(), fs=fsspec.filesystem("memory")))


class TestFsspecLocal(StoreTests):
    @pytest.fixture
    def store(self, tmp_path):
        return open_store(fsspec.filesystem("file"), path=tmp_path / "root", fsync=False)

    def reopen(self, store):
        return open_store(fsspec.filesystem("dir", path=store.root, target_protocol="file"))


class TestFsspecOther(StoreTests):
    @pytest.fixture
    def store(self):
        return open_store(UnsafeFiles(), path=memory_path())

    def reopen(self, store):
        return open_store(UnsafeFiles(), path=store.identity[-1])


class TestArrowLocal(StoreTests):
    @pytest.fixture
    def store(self, tmp_path):
        fs = arrow_fs.SubTreeFileSystem(str(tmp_path), arrow_fs.LocalFileSystem())
        return open_store(fs, path="root", fsync=False)

    def reopen(self, store):
        return open_store(arrow_fs.LocalFileSystem(), path=store.root)


class TestArrowHandler(StoreTests):
    @pytest.fixture
    def store(self):
        return open_store(
            arrow_fs.PyFileSystem(arrow_fs.FSSpecHandler(fsspec.filesystem("memory"))), path=memory_path()
        )


class TestArrowOther(StoreTests):
    """Any other file system of pyarrow, here a local one that may not be taken for one."""

    @pytest.fixture
    def store(self, tmp_path):
        return open_store(arrow_fs.PyFileSystem(Delegating(str(tmp_path))), path="root/folder")

    def reopen(self, store):
        return open_store(store._files.fs, path="root/folder")


class Delegating(arrow_fs.FileSystemHandler):
    """A handler as a user may write one, over a folder."""

    def __init__(self, root):
        self.root, self.fs_ = root, arrow_fs.SubTreeFileSystem(root, arrow_fs.LocalFileSystem())

    def __reduce__(self):
        return (Delegating, (self.root,))

    def __eq__(self, other):
        return isinstance(other, Delegating) and self.root == other.root

    def __hash__(self):
        return hash(self.root)

    def get_type_name(self):
        return "delegating"

    def get_file_info(self, paths):
        return self.fs_.get_file_info(paths)

    def get_file_info_selector(self, selector):
        return self.fs_.get_file_info(selector)

    def create_dir(self, path, recursive):
        self.fs_.create_dir(path, recursive=recursive)

    def delete_file(self, path):
        self.fs_.delete_file(path)

    def open_input_file(self, path):
        return self.fs_.open_input_file(path)

    def open_output_stream(self, path, metadata):
        return self.fs_.open_output_stream(path)

    def refuse(self, *args):
        raise NotImplementedError

    delete_dir = delete_dir_contents = delete_root_dir_contents = move = copy_file = refuse
    open_input_stream = open_append_stream = normalize_path = refuse


# --- what a store of a file system can


def test_only_what_can_swap_says_so(tmp_path):
    memory = open_store(fsspec.filesystem("memory"), path="trial")
    assert memory.capabilities == Capabilities(
        atomic_put=True, conditional_put=True, modification_times=True, shared=False
    )
    for fs in (UnsafeFiles(), arrow_fs.PyFileSystem(Delegating(str(tmp_path)))):
        assert open_store(fs, path="trial").capabilities == Capabilities(
            atomic_put=False, conditional_put=False, modification_times=False, shared=True
        )
    bucket = open_store(arrow_fs.S3FileSystem(anonymous=True, region="eu-central-1"), path="bucket/prefix")
    assert bucket.capabilities == Capabilities(
        atomic_put=False, conditional_put=False, modification_times=True, shared=True
    )
    assert bucket.name == "pyarrow+s3://bucket/prefix"
    assert bucket.is_remote


def test_a_memory_that_is_not_shared_is_one_place_whatever_it_holds():
    if "global_store" not in inspect.signature(fsspec.get_filesystem_class("memory").__init__).parameters:
        pytest.skip("this release has one memory for all")
    one, other = (fsspec.filesystem("memory", global_store=False, skip_instance_cache=True) for _ in range(2))
    before = open_store(one, path="trial")
    before.put("d/key", b"1")
    after = open_store(one, path="trial")
    assert before == after
    assert before._files._lock is after._files._lock
    assert open_store(other, path="trial") != before


def test_what_cannot_commit_says_so_before_anything_is_written_and_names_the_way_out():
    fs, folder = UnsafeFiles(), memory_path()
    store = open_store(fs, path=folder)
    with pytest.raises(AtomicityRequired, match=r"fsspec\+mine.*options\(require_atomic=False\)"):
        build_cube(ROWS, CUBE, store)
    assert store.keys() == []
    with options(require_atomic=False):
        build_cube(ROWS, CUBE, store)
    written = store.keys()
    with pytest.raises(AtomicityRequired):
        append_to_cube(ROWS, CUBE, store)
    assert store.keys() == written
    bucket = open_store(arrow_fs.S3FileSystem(anonymous=True, region="eu-central-1"), path="bucket/prefix")
    with pytest.raises(AtomicityRequired, match="URL s3://bucket/prefix instead") as error:
        check_store_can_commit(InstrumentedStore(bucket))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("safe", [True, False])
def test_a_cube_is_built_appended_and_queried(safe):
    store = open_store(fsspec.filesystem("memory") if safe else UnsafeFiles(), path=memory_path())
    with options(require_atomic=safe):
        build_cube(ROWS.head(1), CUBE, store)
        append_to_cube(ROWS.tail(1), CUBE, store)
    # Without the promise of one writer, too.
    (result,) = query_cube(CUBE, store)
    pd.testing.assert_frame_equal(result[["x", "p", "v1"]], ROWS, check_dtype=False)


def test_a_file_system_is_a_store_of_every_verb():
    folder = memory_path()
    fs = fsspec.filesystem("dir", path=folder, fs=fsspec.filesystem("memory"))
    build_cube(ROWS, CUBE, fs)
    assert len(query_cube(CUBE, lambda: fs)[0]) == 2
    assert open_store(fs) == open_store(f"fsspec+memory://{folder}")


def test_stores_of_one_memory_lose_no_commit(tmp_path):
    """Two clients of fsspec that were made with different arguments have the same memory."""
    first = open_store(fsspec.filesystem("memory"), path=memory_path())
    other = open_store(fsspec.filesystem("memory", use_listings_cache=False), path=first.identity[-1])
    assert first == other
    assert first._files.locked() is other._files.locked()


# --- which folder


def test_local_file_systems_become_a_directory_of_ours(tmp_path):
    from fsspec.implementations.arrow import ArrowFSWrapper

    arrow, ours = arrow_fs.LocalFileSystem(), LocalStore(tmp_path)
    local = fsspec.filesystem("file")
    for store in (
        open_store(arrow, path=tmp_path),
        open_store(arrow_fs.SubTreeFileSystem(str(tmp_path), arrow)),
        open_store(arrow_fs.PyFileSystem(arrow_fs.FSSpecHandler(local)), path=str(tmp_path)),
        open_store(local, path=f"file://{tmp_path}"),
        open_store(ArrowFSWrapper(arrow), path=str(tmp_path)),
        open_store(f"dir::file://{tmp_path}"),
        open_store(f"fsspec+file://{tmp_path}"),
        open_store(f"simplecache::file://{tmp_path}"),
    ):
        assert isinstance(store, LocalStore)
        assert store == ours
    assert not open_store(arrow, path=tmp_path, readonly=True).capabilities.writable


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "open_store\\(fs, path='/data/cubes'"),
        ({"path": "a/../b"}, "no folder"),
        ({"path": 5}, "a str or os.PathLike"),
        ({"path": "a", "region": "eu"}, "region"),
    ],
)
def test_folders_that_are_none(arguments, message):
    for fs in (fsspec.filesystem("file"), arrow_fs.LocalFileSystem()):
        with pytest.raises((InvalidInput, InvalidType), match=message):
            open_store(fs, **arguments)


def test_settings_belong_to_their_stores(tmp_path):
    bucket = arrow_fs.S3FileSystem(anonymous=True, region="eu-central-1")
    with pytest.raises(InvalidInput, match="path='bucket/prefix'"):
        open_store(bucket)
    with pytest.raises(InvalidInput, match="fsync"):
        open_store(bucket, path="a/b", fsync=False)
    for other in (str(tmp_path), LocalStore(tmp_path), "hfs:///data", "hmemory://"):
        with pytest.raises(InvalidInput, match=r"'path'.*file systems"):
            open_store(other, path="a")


def test_an_asynchronous_client_is_refused():
    fs = fsspec.filesystem("dir", path="a", fs=fsspec.filesystem("memory"))
    fs.asynchronous, fs.protocol = True, "mine"
    fs.__class__ = type("Own", (fsspec.asyn.AsyncFileSystem,), {"asynchronous": True})
    with pytest.raises(InvalidInput, match="asynchronous=True"):
        open_store(fs, path="a")


# --- URLs


def test_urls_of_fsspec_and_ours():
    assert isinstance(open_store(f"fsspec+memory://{memory_path()}"), FileSystemStore)
    assert open_store("memory://trial") == open_store("hmemory://trial")


def test_a_missing_package_of_a_protocol_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "paramiko", None)
    with pytest.raises(Unsupported, match="paramiko"):
        open_store("sftp://user:secret@localhost/data")


def test_errors_of_fsspec_do_not_show_the_password(monkeypatch):
    def refuse(url, **_):
        raise OSError(f"no answer from {url}")

    monkeypatch.setattr(fsspec, "url_to_fs", refuse)
    with pytest.raises(ConnectionError, match="no answer") as error:
        open_store("sftp://user:p4ssw0rd@localhost/data")
    assert "p4ssw0rd" not in str(error.value)
    assert error.value.__context__ is None


def test_the_name_does_not_show_the_password():
    store = FileSystemStore(FsspecFiles(UnsafeFiles()), "https://user:p4ssw0rd@host:8080/data")
    assert store.name == "fsspec+mine://host:8080/data"


def test_without_fsspec_its_urls_name_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(Unsupported, match="fsspec"):
        open_store("fsspec+memory://a")
    with pytest.raises(InvalidInput, match="extra `fsspec`"):
        open_store("sftp://host/data")


def test_opening_another_store_loads_no_file_system():
    code = "import sys; from kartothek_cube import open_store; open_store('hfs:///tmp'); open_store('hmemory://a'); "
    code += "assert not {'fsspec', 'pyarrow.fs'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


# --- single operations


def test_an_archive_is_read_only(tmp_path):
    fs = fsspec.filesystem("zip", fo=str(tmp_path / "cube.zip"), mode="w")
    target = open_store(fs)
    target.put("a/1", b"PAR1")
    fs.close()
    store = open_store(f"zip://::file://{tmp_path}/cube.zip")
    assert store.get("a/1") == b"PAR1"
    assert isinstance(store, ReadOnlyView)
    with pytest.raises(ReadOnlyStore):
        store.put("a/2", b"")


def test_what_a_protocol_does_not_write_is_read_only(monkeypatch):
    fs = UnsafeFiles()
    store = open_store(fs, path="a")

    def refuse(*_, **__):
        raise NotImplementedError("writing")

    monkeypatch.setattr(fs, "pipe_file", refuse)  # fsspec gives others the same object
    with pytest.raises(ReadOnlyStore, match=r"a/1.*writing"):
        store.put("a/1", b"")


def test_a_key_below_an_object_is_refused():
    store = open_store(fsspec.filesystem("memory"), path=memory_path())
    store.put("a", b"1")
    with pytest.raises(InvalidInput, match="below a key"):
        store.put("a/b", b"1")


def test_the_cached_listing_of_another_client_hides_nothing():
    """Clients of object stores keep listings; what another wrote later is read all the same."""

    class Caching(fsspec.get_filesystem_class("memory")):
        protocol = "caching"
        listed = None

        def info(self, path, **kwargs):
            if self.listed is not None and path not in self.listed:
                raise FileNotFoundError(path)
            return super().info(path, **kwargs)

        def invalidate_cache(self, path=None):
            self.listed = None

    fs = Caching()
    store = open_store(fs, path=memory_path())
    fs.listed = {}
    fsspec.filesystem("memory").pipe_file(f"{store.identity[-1]}/{FILE}", b"PAR1")
    assert store.tail(FILE, 4) == (b"PAR1", 4)


def test_a_listing_leaves_the_rest_of_the_file_system_alone():
    folder = memory_path()
    outside = fsspec.filesystem("memory")
    outside.pipe_file(f"{folder}-other/a", b"1")
    store = open_store(outside, path=folder)
    store.put("b/c", b"1")
    assert store.keys() == ["b/c"]
    assert store.list().prefixes == ["b/"]
    outside.makedirs(f"{folder}/empty")
    store.delete("b")  # a folder is no object
    assert store.keys() == ["b/c"]


def test_executors_get_the_file_system(tmp_path):
    store = open_store(arrow_fs.PyFileSystem(Delegating(str(tmp_path))), path="cubes")
    assert pickle.loads(pickle.dumps(store_factory(store))) == store
    with pytest.raises(InvalidType, match="memory"):
        store_factory(open_store(fsspec.filesystem("memory"), path="cubes"))


def test_what_is_a_file_system():
    assert is_file_system(fsspec.filesystem("memory"))
    assert is_file_system(arrow_fs.LocalFileSystem())
    assert not is_file_system(type(fsspec.filesystem("memory")))
    assert not is_file_system(Path())
    with pytest.raises(InvalidType, match="file system"):
        open_store(pa.table({"x": [1]}))


def test_missing_files_are_named():
    store = open_store(UnsafeFiles(), path="a/folder")
    with pytest.raises(KeyNotFound, match=r"'b' is not in store fsspec\+mine://a/folder"):
        store.get("b")
