"""The store contract on servers: S3 (moto), Azure Blob (Azurite), GCS (a stand-in); through our
object stores, and through stores of simplekv and minimalkv.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pyarrow.fs import S3FileSystem

from kartothek_cube.core.commit.commit import commit_change
from kartothek_cube.core.runtime.options import options
from kartothek_cube.core.snapshots.loader import find_snapshot
from kartothek_cube.core.stores.contract import VersionMismatch
from kartothek_cube.core.stores.open import open_store, store_factory
from kartothek_cube.errors import AtomicityRequired, InvalidRequest, InvalidType, Unsupported
from kartothek_cube.testing.stores import StoreTests, invalid_keys
from tests.support import servers
from tests.support.commits import UUID, labels, make_change, write
from tests.support.server_urls import needs, url_of_azure, url_of_gcs, url_of_s3
from tests.support.servers import AZURE_ACCOUNT, AZURE_KEY

DOCUMENT = "uuid.by-dataset-metadata.json"
REPOSITORY = Path(__file__).parents[3]


class ServerTests(StoreTests):
    """The contract, and a commit."""

    increments = 5

    # All keys in one bucket: nothing is sent, so making a bucket for each would be all that takes
    # time.
    def test_invalid_key_is_refused(self, store):
        for operation in ("get", "get_versioned", "contains", "delete", "local_path"):
            for key in invalid_keys:
                super().test_invalid_key_is_refused(store, operation, key)

    def test_invalid_key_is_not_written(self, store):
        for key in invalid_keys:
            super().test_invalid_key_is_not_written(store, key)

    def test_of_two_commits_on_one_snapshot_one_is_a_conflict_or_both_are_kept(self, store):
        snapshot = write(store, {"x": [1], "v1": [1]}, label="one")
        commit_change(store, make_change(store, {"x": [2], "v1": [2]}, label="two"), snapshot)
        version = snapshot.token
        with pytest.raises(VersionMismatch):
            self.reopen(store).put_if(snapshot.key, b"{}", version)
        assert labels(find_snapshot(self.reopen(store), UUID)) == ["one", "two"]

    def test_objects_of_more_than_one_part(self, store):
        data = os.urandom(9 << 20)
        store.put("large", data)
        assert store.get("large") == data
        version = store.get_versioned("large")[1]
        assert not store.changed("large", version)
        store.put_if("large", data[:-1], version)
        assert store.tail("large", 3) == (data[-4:-1], len(data) - 1)

    def test_more_keys_than_one_answer_lists(self, store):
        keys = [f"a/{number:04d}" for number in range(30)]
        for key in keys:
            store.put(key, b"")
        assert store.list("a/").keys == keys


@needs("obstore")
class TestS3(ServerTests):
    @pytest.fixture
    def store(self, s3_process):
        return open_store(url_of_s3(s3_process))


@needs("obstore")
class TestAzure(ServerTests):
    @pytest.fixture
    def store(self, azure_process):
        return open_store(url_of_azure(azure_process))


@needs("obstore")
class TestGcs(ServerTests):
    @pytest.fixture
    def store(self, gcs_process):
        return open_store(url_of_gcs(gcs_process))


@needs("moto")
class TestS3OfArrow(ServerTests):
    """Through a file system of pyarrow, which has no conditional puts."""

    @pytest.fixture
    def store(self, s3_process):
        fs = S3FileSystem(
            access_key="key",
            secret_key="secret",
            endpoint_override=s3_process.endpoint.removeprefix("http://"),
            scheme="http",
            region="us-east-1",
        )
        return open_store(fs, path=f"{s3_process.new_bucket()}/cubes")

    def test_of_two_commits_on_one_snapshot_one_is_a_conflict_or_both_are_kept(self, store):
        with pytest.raises(AtomicityRequired, match=f"s3://{store.identity[-1]}"):
            write(store, {"x": [1], "v1": [1]}, label="one")
        with options(require_atomic=False):
            super().test_of_two_commits_on_one_snapshot_one_is_a_conflict_or_both_are_kept(store)

    def test_objects_of_more_than_one_part(self, store):
        with options(require_atomic=False):
            super().test_objects_of_more_than_one_part(store)

    def test_the_store_by_url_has_the_same_objects(self, store, s3_process):
        store.put("uuid/table/1", b"1")
        bucket = store.identity[-1].partition("/")[0]
        host = s3_process.endpoint.removeprefix("http://")
        ours = open_store(f"hs3://key:secret@{host}/{bucket}/cubes?is_secure=false&force_bucket_suffix=false")
        assert ours.keys() == store.keys() == ["uuid/table/1"]
        ours.put_if(DOCUMENT, b"{}", None)
        assert store.get(DOCUMENT) == b"{}"


class KeyValueTests(ServerTests):
    """The same through a store of simplekv or minimalkv."""

    def reopen(self, store):
        return open_store(store._store)

    def test_versions_are_etags(self, store):
        assert store.capabilities.conditional_put
        assert isinstance(store.put_if(DOCUMENT, b"1", None), str)


@needs("azure")
@pytest.mark.parametrize("package", ["storefact", "minimalkv"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
class TestAzureOfKeyValueStores(KeyValueTests):
    @pytest.fixture
    def store(self, azure_process, package):
        hstores = importlib.import_module(f"{package}._hstores")
        endpoint = f"BlobEndpoint={azure_process.endpoint}/{AZURE_ACCOUNT}"
        text = f"DefaultEndpointsProtocol=http;AccountName={AZURE_ACCOUNT};AccountKey={AZURE_KEY};{endpoint}"
        kv = hstores.HAzureBlockBlobStore(text, azure_process.new_bucket(), create_if_missing=False)
        yield open_store(kv)
        kv.blob_container_client.close()

    def test_pickle_shows_the_same_objects_or_is_refused(self, store):
        store.put("a", b"1")
        travelled = pickle.loads(pickle.dumps(store))
        assert travelled.get("a") == b"1"
        assert travelled.put_if("a", b"2", store.get_versioned("a")[1])
        travelled._store.blob_container_client.close()


@needs("boto3", "minimalkv")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
class TestBoto3OfMinimalkv(KeyValueTests):
    @pytest.fixture(scope="class")
    def s3(self, s3_process):
        settings = {"aws_access_key_id": "key", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
        resource = importlib.import_module("boto3").resource("s3", endpoint_url=s3_process.endpoint, **settings)
        yield resource
        resource.meta.client.close()

    @pytest.fixture
    def store(self, s3, s3_process):
        return open_store(
            importlib.import_module("minimalkv._hstores").HBoto3Store(
                s3.Bucket(s3_process.new_bucket()), object_prefix="cubes/"
            )
        )

    def test_pickle_shows_the_same_objects_or_is_refused(self, store):
        with pytest.raises(InvalidType, match="function at module level"):
            store_factory(store)


# --- the servers themselves


def test_a_server_ends_with_its_block(tmp_path):
    with servers.gcs_server(tmp_path) as server:
        os.kill(server.pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(server.pid, 0)


def test_a_server_does_not_outlive_whoever_started_it(tmp_path):
    code = "from pathlib import Path; from tests.support.servers import gcs_server; import os, sys\n"
    code += f"with gcs_server(Path({str(tmp_path)!r})) as server: print(server.pid, flush=True); os._exit(1)"
    pid = int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stdout)
    assert wait_for_end(pid)


def wait_for_end(pid):
    """Whether a process that is no child of ours ends within two minutes.

    It is asked for, so nothing sleeps.
    """
    watch = subprocess.run(["timeout", "120", "tail", f"--pid={pid}", "-f", "/dev/null"], check=False)
    return watch.returncode == 0


def test_output_of_a_server_that_does_not_start_is_shown(tmp_path):
    command = [sys.executable, "-c", "print('no port for you'); raise SystemExit(3)"]
    with (
        pytest.raises(InvalidRequest, match=r"(?s)ended with 3.*no port for you"),
        servers._running("s3", command, tmp_path, print),
    ):
        pass


def test_server_that_says_nothing_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(servers, "START_SECONDS", 0.1)
    command = [sys.executable, "-c", "input()"]
    with pytest.raises(InvalidRequest, match="did not answer"), servers._running("s3", command, tmp_path, print):
        pass


def test_missing_packages_are_named(tmp_path, monkeypatch):
    with pytest.raises(Unsupported, match="make system-deps"), servers.azure_server(tmp_path, tmp_path):
        pass
    monkeypatch.setattr(servers.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Unsupported, match=r"pip install 'moto\[server\]"), servers.s3_server(tmp_path):
        pass


def test_one_write_at_a_time():
    inside, most = [], []

    def application(environ, start_response):
        inside.append(1)
        most.append(len(inside))
        yield b"done"
        inside.pop()

    locked = servers._locked(application)
    assert b"".join(locked({"REQUEST_METHOD": "PUT"}, None)) == b"done"
    assert inside == []  # the answer was complete before the next may come
    assert isinstance(locked({"REQUEST_METHOD": "GET"}, None), type(x for x in ()))


def test_installed_azurite_is_the_one_that_is_named():
    script = (REPOSITORY / "scripts" / "system-deps.sh").read_text()
    assert re.search(r"^azurite=(.+)$", script, flags=re.MULTILINE)[1] == servers.AZURITE_VERSION


def test_a_bucket_is_nobody_elses(tmp_path):
    made = []
    server = servers.ServerProcess("s3", "http://127.0.0.1:1", 1, tmp_path, lambda endpoint, name: made.append(name))
    assert [server.new_bucket(), server.new_bucket()] == made
    assert len(set(made)) == 2
