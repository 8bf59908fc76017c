from __future__ import annotations

import base64
import json
import logging
import os
import pickle
import subprocess
import sys
import traceback
import uuid
from datetime import timedelta
from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore import exceptions
from obstore.store import MemoryStore as ObstoreMemory

from kartothek_cube import Cube, build_cube, copy_cube, query_cube
from kartothek_cube.core.io.reader import FileRequest, read_rows
from kartothek_cube.core.runtime.options import options
from kartothek_cube.core.stores import contract as conditional_put
from kartothek_cube.core.stores import object_store
from kartothek_cube.core.stores import object_store as object_store_client
from kartothek_cube.core.stores.contract import VersionMismatch
from kartothek_cube.core.stores.object_store import ObjectStore, summary
from kartothek_cube.core.stores.open import open_store
from kartothek_cube.core.stores.urls import Location
from kartothek_cube.errors import AtomicityRequired, InvalidInput, InvalidType, KeyNotFound, ReadOnlyStore, Unsupported
from kartothek_cube.testing.stores import StoreTests
from tests.support.remote import RemoteStandIn
from tests.support.s3 import Answer, failure

DOCUMENT = "uuid.by-dataset-metadata.json"
FILE = "uuid/table/p=1/1.parquet"
SECRET = "wJalrXUtnFEMI/K7MDENG"
KEY = "AKIAEXAMPLEKEY"

_BUCKETS: dict[str, ObstoreMemory] = {}


class MemoryBacked(ObjectStore):
    """An object store whose client is obstore's store in memory."""

    def _connect(self, *, bulk=False):
        return _BUCKETS.setdefault(self._location.bucket, ObstoreMemory())


def credentials():
    return {"access_key_id": KEY, "secret_access_key": SECRET, "expires_at": None}


def token():
    return {"token": SECRET, "expires_at": None}


def new_bucket():
    return f"b{uuid.uuid4().hex}"


@pytest.fixture(autouse=True)
def no_credentials_in_the_environment(monkeypatch):
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_")):
            monkeypatch.delenv(name)


@pytest.fixture
def hasty(monkeypatch):
    """Clients give up after one retry."""
    monkeypatch.setattr(
        object_store_client, "_RETRIES", {"max_retries": 1, "backoff": {"init_backoff": timedelta(milliseconds=1)}}
    )


@pytest.fixture
def memory():
    return MemoryBacked(Location("s3", new_bucket()))


@pytest.fixture
def remote():
    with RemoteStandIn() as running:
        yield running


@pytest.fixture
def s3(remote):
    return open_store(
        f"s3://{new_bucket()}/pre/fix", endpoint=remote.endpoint, credentials=credentials, check_conditions=False
    )


class TestMemoryBacked(StoreTests):
    @pytest.fixture
    def store(self, memory):
        return memory

    def reopen(self, store):
        return MemoryBacked(store._location)


@pytest.fixture(scope="module")
def server():
    with RemoteStandIn() as running:
        yield running


class OverTheWire(StoreTests):
    threads = 4
    increments = 10

    def reopen(self, store):
        return type(store)(store._location, store._credentials)


class TestS3(OverTheWire):
    @pytest.fixture
    def store(self, server):
        return open_store(f"s3://{new_bucket()}/pre/fix", endpoint=server.endpoint, credentials=credentials)


class TestGcs(OverTheWire):
    @pytest.fixture
    def store(self, server):
        return open_store(f"gs://{new_bucket()}/pre/fix", endpoint=server.endpoint, credentials=token)


# --- what goes over the wire


def operations(remote):
    return [request.operation for request in remote.requests]


def test_opening_does_no_request(remote, s3):
    assert s3.capabilities.conditional_put
    assert hash(s3) == hash(pickle.loads(pickle.dumps(s3)))
    assert operations(remote) == []


def test_a_prefix_is_a_folder_of_the_bucket(remote, s3):
    s3.put(FILE, b"1")
    s3.copy(FILE, "other")
    bucket = s3._location.bucket
    assert sorted(remote.objects(bucket)) == [f"pre/fix/{key}" for key in ("other", FILE)]
    assert s3.list(recursive=True).keys == ["other", FILE]
    whole = open_store(f"s3://{bucket}", endpoint=remote.endpoint, credentials=credentials)
    assert whole.list("pre/f").prefixes == ["pre/fix/"]
    assert whole != s3
    assert whole.get("pre/fix/other") == b"1"


def test_a_put_on_condition_is_one_request(remote, s3):
    data = b"x" * (9 << 20)
    version = s3.put_if(DOCUMENT, data, None)
    s3.put_if(DOCUMENT, data + b"y", version)
    assert operations(remote) == ["put", "put"]


def test_large_objects_are_sent_in_parts(remote, s3):
    data = os.urandom(20 << 20)
    s3.put("a", data)
    s3.put_file("b", BytesIO(data))
    assert remote.counts["put"] == 0
    assert remote.counts["complete_upload"] == 2
    assert s3.get("a") == s3.get("b") == data


def test_many_keys_are_deleted_by_one_request(remote, s3):
    keys = [f"uuid/p=%C3%A4 &<{n}>/1" for n in range(1100)]
    for key in (*keys[::100], "kept"):
        s3.put(key, b"1")
    remote.reset()
    s3.delete_many(keys)
    s3.delete_many(["kept"])
    assert operations(remote) == ["delete_many", "delete_many", "delete"]
    assert s3.list(recursive=True).keys == []


def test_a_server_without_bulk_deletion_is_asked_for_it_once(s3, remote):
    def respond(method, target, headers, body, answer=remote.respond):
        answered = answer(method, target, headers, body)
        return failure(501, "NotImplemented") if method == "POST" else answered

    remote.respond = respond
    for _ in range(2):
        s3.delete_many(["a", "b", "c"])
    assert remote.counts == {"delete_many": 2, "delete": 6}  # the client asks twice


def test_a_key_that_cannot_be_deleted_is_named(s3, remote):
    def respond(method, target, headers, body, answer=remote.respond):
        if method == "POST":
            answered = "<DeleteResult><Error><Key>pre/fix/b</Key><Code>AccessDenied</Code></Error></DeleteResult>"
            return Answer(200, answered.encode(), {"content-type": "application/xml"})
        is_refused = method == "DELETE" and target.endswith("/b")
        return failure(403, "AccessDenied") if is_refused else answer(method, target, headers, body)

    remote.respond = respond
    for key in "abc":
        s3.put(key, b"1")
    with pytest.raises(ReadOnlyStore, match="delete of 'b' failed"):
        s3.delete_many(["a", "b", "c"])
    assert s3.contains("b")


def test_buffers_of_arrow_are_written(memory):
    for data in (pa.py_buffer(b"1"), memoryview(pa.py_buffer(b"1"))):
        memory.put("a", data)
        memory.delete("b")
        memory.put_if("b", data, None)
        assert memory.get("a") == memory.get("b") == b"1"


@pytest.mark.parametrize("size", [0, 1, object_store._CHUNK - 1])
def test_small_files_are_sent_whole(remote, s3, size):
    s3.put_file("a", BytesIO(b"x" * size))
    assert operations(remote) == ["put"]
    assert s3.get("a") == b"x" * size


def test_a_copy_stays_on_the_server(remote, s3):
    s3.put(FILE, b"1")
    remote.reset()
    s3.copy(FILE, "a")
    assert operations(remote) == ["copy"]
    s3.copy(FILE, FILE)
    with pytest.raises(KeyNotFound, match="missing"):
        s3.copy("missing", "missing")


def test_copies_inside_a_bucket_stay_on_the_server(remote, s3):
    def other(url):
        return open_store(url, endpoint=remote.endpoint, credentials=credentials)

    s3.put(FILE, b"1")
    inside, outside = other(f"s3://{s3._location.bucket}"), other(f"s3://{new_bucket()}/pre/fix")
    remote.reset()
    s3.copier(inside)(FILE, "a")
    inside.copier(s3)("a", "b")
    assert operations(remote) == ["copy", "copy"]
    assert inside.get("a") == s3.get("b") == b"1"
    with pytest.raises(KeyNotFound):
        s3.copier(inside)("missing", "c")
    assert s3.copier(outside) is outside.copier(s3) is None
    with_other_rights = open_store(f"s3://{s3._location.bucket}", endpoint=remote.endpoint, credentials=token)
    assert s3.copier(with_other_rights) is None


def test_one_client_copies_all_files_inside_a_bucket(remote, s3, monkeypatch):
    inside = open_store(f"s3://{s3._location.bucket}", endpoint=remote.endpoint, credentials=credentials)
    s3.put(FILE, b"1")
    made, connect = [], object_store.connect
    monkeypatch.setattr(object_store, "connect", lambda *args, **more: made.append(args) or connect(*args, **more))
    for key in ("a", "b"):
        s3.copier(inside)(FILE, key)
    assert len(made) == 1


def test_a_cube_is_copied_inside_a_bucket_by_the_server_and_else_through_this_process(remote, s3):
    cube, rows = Cube(["x"], ["p"], "cube"), pa.table({"x": range(4), "p": range(4)})
    build_cube(rows, cube, s3)
    bucket, elsewhere = s3._location.bucket, new_bucket()
    for url, copies in ((f"s3://{bucket}/other", 5), (f"s3://{elsewhere}", 0)):
        target = open_store(url, endpoint=remote.endpoint, credentials=credentials, check_conditions=False)
        remote.reset()
        copy_cube(cube, s3, target)
        assert remote.counts["copy"] == copies
        assert len(query_cube(cube, target)[0]) == 4


@pytest.mark.parametrize("answer", [failure(400, "InvalidRequest", "too large"), failure(403, "AccessDenied")])
def test_what_the_server_does_not_copy_passes_through_this_process(remote, s3, answer):
    cube = Cube(["x"], ["p"], "cube")
    build_cube(pa.table({"x": range(4), "p": range(4)}), cube, s3)
    url = f"s3://{s3._location.bucket}/other"
    target = open_store(url, endpoint=remote.endpoint, credentials=credentials, check_conditions=False)

    def respond(method, path, headers, body, others=remote.respond):
        return answer if "x-amz-copy-source" in headers else others(method, path, headers, body)

    remote.respond = respond
    copy_cube(cube, s3, target)
    assert len(query_cube(cube, target)[0]) == 4


def test_an_unchanged_document_is_not_read_again(remote, s3):
    version = s3.put_if(DOCUMENT, b"1", None)
    remote.reset()
    assert not s3.changed(DOCUMENT, version)
    assert operations(remote) == ["head"]


def test_the_beginning_of_a_name_does_not_list_the_whole_bucket(remote, s3):
    for key in ("cube++seed/t/1", "cube++other/t/1", "cub/t/1", *(f"u{i}/t/1" for i in range(3))):
        s3.put(key, b"1")
    remote.reset()
    assert s3.list("cube++", recursive=True).keys == ["cube++other/t/1", "cube++seed/t/1"]
    prefixes = [request.query.get("prefix", "") for request in remote.requests]
    assert prefixes == ["pre/fix/", "pre/fix/cube++other/", "pre/fix/cube++seed/"]


def test_many_folders_are_listed_together(remote, s3):
    keys = [f"t/p={i:02}/1" for i in range(object_store._MAX_FOLDERS + 1)]
    for key in keys:
        s3.put(key, b"1")
    remote.reset()
    assert s3.list("t/p=", recursive=True).keys == keys
    assert remote.counts == {"list": 2}


def test_temporary_names_are_hidden(s3, remote):
    s3.put("a/f", b"1")
    s3._client().put("a/backup~", b"1")
    assert s3.list("a/").keys == s3.list(recursive=True).keys == ["a/f"]


def test_a_parquet_file_is_read_with_one_tail_and_one_request_for_ranges(memory, monkeypatch):
    table = pa.table({c: pa.array(range(200_000), pa.int64()) for c in ("x", "v1", "v2", "v3")})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="NONE", use_dictionary=False, row_group_size=50_000)
    memory.put(FILE, sink.getvalue())
    calls = []
    for name in ("tail", "ranges", "get_versioned"):
        inner = getattr(memory, name)
        monkeypatch.setattr(memory, name, lambda *a, name=name, inner=inner: calls.append(name) or inner(*a))
    assert read_rows(memory, FILE, FileRequest("uuid", table.schema, ("x", "v2"))).equals(table.select(["x", "v2"]))
    assert calls == ["tail", "ranges"]


class Azure(MemoryBacked):
    """Azure takes no range counted from the end, and a missing key fails to be deleted."""

    def _connect(self, *, bulk=False):
        client = super()._connect()

        class Strict:
            def get(self, key, *, options=None):
                if options and isinstance(options["range"], dict):
                    raise exceptions.NotSupportedError("Azure does not support suffix range requests")
                return client.get(key, options=options)

            def delete(self, keys):
                for key in [keys] if isinstance(keys, str) else keys:
                    client.head(key)  # a missing key is an error, and nothing behind it is deleted
                    client.delete(key)

            def __getattr__(self, name):
                return getattr(client, name)

        return Strict()


class TestAzure(StoreTests):
    @pytest.fixture
    def store(self):
        return Azure(Location("azure", new_bucket(), account="acc"))

    def reopen(self, store):
        return Azure(store._location)


# --- errors


class Answering(RemoteStandIn):
    """Gives every request the same answer."""

    answer = failure(500, "InternalError")

    def respond(self, method, target, headers, body):
        super().respond(method, target, headers, body)
        return self.answer


def answering(status, code, message=""):
    server = Answering()
    server.answer = failure(status, code, message)
    return server


WRITES = {
    "put": lambda store: store.put(FILE, b"1"),
    "put_file": lambda store: store.put_file(FILE, BytesIO(b"1")),
    "put_if": lambda store: store.put_if(FILE, b"1", None),
    "copy": lambda store: store.copy(FILE, "a"),
    "delete": lambda store: store.delete(FILE),
    "delete many": lambda store: store.delete_many([FILE, "a"]),
}
READS = {
    "get": lambda store: store.get(FILE),
    "tail": lambda store: store.tail(FILE, 4),
    "ranges": lambda store: store.ranges(FILE, [(0, 1)]),
    "contains": lambda store: store.contains(FILE),
    "list": lambda store: store.list("uuid/"),
    "recursive list": lambda store: store.list("uuid/", recursive=True),
}


def opened(server, url="s3://bucket/pre"):
    return open_store(url, endpoint=server.endpoint, credentials=credentials, check_conditions=False)


@pytest.mark.parametrize("operation", WRITES)
@pytest.mark.parametrize("status", [401, 403])
def test_a_forbidden_write_is_a_read_only_store(operation, status):
    with (
        answering(status, "AccessDenied", "Access Denied") as server,
        pytest.raises(ReadOnlyStore, match="AccessDenied: Access Denied") as error,
    ):
        WRITES[operation](opened(server))
    assert isinstance(error.value, OSError)


@pytest.mark.parametrize("operation", READS)
def test_a_forbidden_read_is_a_permission_error(operation):
    with answering(403, "AccessDenied") as server, pytest.raises(PermissionError, match="credentials") as error:
        READS[operation](opened(server))
    assert not isinstance(error.value, ReadOnlyStore)


@pytest.mark.parametrize("operation", [*WRITES, *(read for read in READS if read != "contains")])
def test_a_missing_bucket_is_no_missing_key(operation):
    with (
        answering(404, "NoSuchBucket") as server,
        pytest.raises(OSError, match="does not exist; this library makes none"),
    ):
        (WRITES | READS)[operation](opened(server))


class Unreachable(MemoryBacked):
    def _connect(self, *, bulk=False):
        class Client:
            def __getattr__(self, name):
                def fail(*args, **kwargs):
                    raise exceptions.GenericError(
                        "Generic S3 error: HTTP error: error sending request\n\nDebug source:\nsecret"
                    )

                return fail

        return Client()


@pytest.mark.parametrize("operation", [*WRITES, *READS])
def test_every_failure_of_the_network_is_an_os_error(operation):
    with pytest.raises(ConnectionError, match="error sending request") as error:
        (WRITES | READS)[operation](Unreachable(Location("s3", "bucket")))
    assert "secret" not in str(error.value)


def test_a_dead_server_is_an_os_error(hasty, remote, s3):
    remote.fail = lambda request: "close"
    with pytest.raises(OSError, match=FILE):
        s3.put_if(FILE, b"1", None)


@pytest.mark.parametrize("fault", ["after", "close_after"])
def test_a_put_whose_answer_was_lost_says_mismatch_although_it_landed(remote, s3, fault):
    version = s3.put_if(DOCUMENT, b"1", None)
    remote.reset()
    remote.fail = lambda request: fault if (request.operation, request.nth) == ("put", 1) else None
    with pytest.raises(VersionMismatch, match="changed"):
        s3.put_if(DOCUMENT, b"2", version)
    assert s3.get(DOCUMENT) == b"2"


def test_an_error_of_the_source_is_not_one_of_the_store(s3):
    class Broken:
        def __init__(self, good):
            self.good = good

        def read(self, size):
            if not self.good:
                raise ValueError("torn tape")
            self.good -= 1
            return b"x" * size

    for good in (0, 2):
        with pytest.raises(ValueError, match="torn tape") as error:
            s3.put_file(FILE, Broken(good))
        assert not isinstance(error.value, InvalidInput)
    assert not s3.contains(FILE)


def test_a_version_of_another_store_is_refused(memory):
    for use in (lambda: memory.put_if(DOCUMENT, b"1", 7), lambda: memory.changed(DOCUMENT, "7")):
        with pytest.raises(InvalidType, match="ObjectVersion"):
            use()


def test_foreign_keys_that_no_client_can_name_are_reported(remote):
    store = open_store("s3://bucket", endpoint=remote.endpoint, credentials=credentials)
    store.put("a", b"1")
    remote._stored.answer(remote.requests[0].__class__("put", "bucket", "x//y"), b"")
    with pytest.raises(Unsupported, match="x//y"):
        store.list(recursive=True)


# --- a server that ignores conditions


class Careless(RemoteStandIn):
    """Takes every put, whatever its condition, as some look-alikes of S3 do."""

    ignored = frozenset({"if-match", "if-none-match"})

    def respond(self, method, target, headers, body):
        return super().respond(
            method, target, {name: value for name, value in headers.items() if name not in self.ignored}, body
        )


@pytest.fixture(autouse=True)
def nothing_is_known_of_servers(monkeypatch):
    monkeypatch.setattr(conditional_put, "_SUPPORTED", {})


@pytest.mark.parametrize("ignored", [{"if-match", "if-none-match"}, {"if-match"}, {"if-none-match"}])
def test_a_server_that_ignores_conditions_gets_no_commit(ignored):
    with Careless() as server:
        server.ignored = frozenset(ignored)
        store = open_store("s3://bucket/pre", endpoint=server.endpoint, credentials=credentials)
        assert store.capabilities.conditional_put
        for _ in range(2):
            with pytest.raises(AtomicityRequired, match="require_atomic"):
                store.put_if(DOCUMENT, b"1", None)
        assert not store.capabilities.conditional_put
        assert server.objects("bucket") == {}
        assert server.counts["delete"] == 1


def test_a_single_writer_may_commit_there(monkeypatch):
    with Careless() as server, options(require_atomic=False):
        store = open_store("s3://bucket/pre", endpoint=server.endpoint, credentials=credentials)
        version = store.put_if(DOCUMENT, b"1", None)
        assert store.put_if(DOCUMENT, b"2", version) == store.get_versioned(DOCUMENT)[1]
        for stale in (None, version):
            with pytest.raises(VersionMismatch):
                store.put_if(DOCUMENT, b"3", stale)
        assert store.get(DOCUMENT) == b"2"


def test_a_server_is_asked_once_per_bucket_and_leaves_no_object(remote):
    for prefix in ("/pre", "/other"):
        store = open_store(f"s3://bucket{prefix}", endpoint=remote.endpoint, credentials=credentials)
        store.put_if(DOCUMENT, b"1", None)
    assert remote.counts == {"put": 6, "delete": 1}
    assert sorted(remote.objects("bucket")) == [f"other/{DOCUMENT}", f"pre/{DOCUMENT}"]
    open_store("s3://second", endpoint=remote.endpoint, credentials=credentials).put_if(DOCUMENT, b"1", None)
    assert remote.counts == {"put": 11, "delete": 2}


def test_a_lost_answer_does_not_make_a_server_careless(remote):
    remote.fail = lambda request: "after" if (request.operation, request.nth) == ("put", 1) else None
    store = open_store("s3://bucket", endpoint=remote.endpoint, credentials=credentials)
    store.put_if(DOCUMENT, b"1", None)
    assert store.get(DOCUMENT) == b"1"
    assert sorted(remote.objects("bucket")) == [DOCUMENT]


def test_an_unreachable_server_is_not_judged(hasty, remote):
    store = open_store("s3://bucket", endpoint=remote.endpoint, credentials=credentials)
    remote.fail = lambda request: "close"
    with pytest.raises(OSError, match="bucket"):
        store.put_if(DOCUMENT, b"1", None)
    remote.fail = None
    store.put_if(DOCUMENT, b"1", None)


@pytest.mark.parametrize(
    ("settings", "puts"), [({}, 5), ({"check_conditions": True}, 5), ({"check_conditions": False}, 1)]
)
def test_whether_the_server_is_asked_can_be_set(remote, settings, puts):
    open_store("s3://bucket", endpoint=remote.endpoint, credentials=credentials, **settings).put_if(
        DOCUMENT, b"1", None
    )
    assert remote.counts["put"] == puts


def test_an_endpoint_of_the_environment_is_asked_too(remote, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", remote.endpoint)
    open_store("s3://bucket", credentials=credentials).put_if(DOCUMENT, b"1", None)
    assert remote.counts["put"] == 5


# --- credentials


def everything_said(error):
    """The text, the repr and the traceback of an error, with those of its causes and contexts."""
    said = ["".join(traceback.format_exception(error))]
    while error is not None:
        said += [str(error), repr(error)]
        error = error.__cause__ or error.__context__
    return "".join(said)


def quoted(text):
    return text.replace("/", "%2F")


@pytest.mark.parametrize("operation", [*WRITES, *READS])
def test_no_credential_is_in_an_error_a_repr_or_a_log(operation, caplog):
    caplog.set_level(logging.DEBUG)
    with answering(400, f"Bad{SECRET}", f"{KEY} {SECRET} {quoted(SECRET)}") as server:
        host = server.endpoint.removeprefix("http://")
        store = open_store(
            f"hs3://{KEY}:{quoted(SECRET)}@{host}/bucket?is_secure=false&force_bucket_suffix=false&check_conditions=false"
        )
        with pytest.raises(OSError, match="bucket") as error:
            (WRITES | READS)[operation](store)
    said = (
        everything_said(error.value)
        + caplog.text
        + repr(store)
        + store.name
        + repr(store.identity)
        + repr(store._location)
    )
    for secret in (KEY, SECRET, quoted(SECRET)):
        assert secret not in said


def test_credentials_of_the_environment_are_not_in_errors(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    with (
        answering(400, "BadRequest", f"no such {KEY}, {SECRET}") as server,
        pytest.raises(OSError, match=r"no such \*\*\*, \*\*\*") as error,
    ):
        open_store("s3://bucket", endpoint=server.endpoint).get("a")
    assert SECRET not in everything_said(error.value)


def test_what_a_function_for_credentials_says_is_not_repeated(remote):
    def forgetful():
        raise ValueError(SECRET)

    store = open_store("s3://bucket", endpoint=remote.endpoint, credentials=forgetful)
    with pytest.raises(PermissionError, match="ValueError") as error:
        store.get("a")
    assert SECRET not in everything_said(error.value)


@pytest.mark.parametrize(
    "text",
    [
        "Error performing GET https://acc.blob/c/k?sv=1&sig=secret in 2ms",
        "Error performing GET https://user:secret@host/k in 2ms",
        "Server returned non-2xx status code: 400 Bad Request: {'refresh_token': 'secret'}",
        "status code: 403 Forbidden: <?xml?><Error><Code>Denied</Code><StringToSign>secret</StringToSign></Error>",
        "Generic S3 error\n\nDebug source:\nsecret",
    ],
)
def test_parts_of_an_error_that_may_hold_a_credential_are_cut_off(text):
    assert "secret" not in summary(OSError(text))


def test_a_pickle_has_the_credentials_of_the_url_and_none_of_the_environment(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    store = open_store("s3://bucket")
    assert store._client() is not None
    assert SECRET.encode() not in pickle.dumps(store)
    assert KEY.encode() not in pickle.dumps(store)
    assert SECRET.encode() in pickle.dumps(open_store(f"hs3://{KEY}:{quoted(SECRET)}@host/bucket"))


def test_credentials_of_the_environment_are_looked_up_where_the_store_is_used(remote, monkeypatch):
    store = open_store("s3://bucket", endpoint=remote.endpoint)
    travelled = pickle.loads(pickle.dumps(store))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "THEOTHERMACHINE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    travelled.put("a", b"1")
    assert "THEOTHERMACHINE" in remote.requests[0].headers["authorization"]


def test_credentials_of_a_url_are_not_mixed_with_the_environment(remote, monkeypatch):
    monkeypatch.setenv("AWS_SESSION_TOKEN", "OTHERTOKEN")
    host = remote.endpoint.removeprefix("http://")
    open_store(f"s3://{KEY}:{quoted(SECRET)}@{host}/bucket?is_secure=false&force_bucket_suffix=false").put("a", b"1")
    assert KEY in remote.requests[0].headers["authorization"]
    assert "x-amz-security-token" not in remote.requests[0].headers


def test_credentials_come_from_a_function(remote):
    open_store("s3://bucket", endpoint=remote.endpoint, credentials=credentials).put("a", b"1")
    assert KEY in remote.requests[0].headers["authorization"]


def test_malformed_credentials_are_refused_at_first_use():
    account = base64.urlsafe_b64encode(json.dumps({"private_key": SECRET}).encode()).decode()
    for url, error, text in [
        (f"hgcs://{account}@bucket", InvalidInput, "cannot be opened with these credentials and settings"),
        (f"azure://acc:{quoted(SECRET)}!@container", PermissionError, "Are the credentials right"),
        ("az://container", InvalidInput, "cannot be opened.*[Aa]ccount"),
    ]:
        store = open_store(url)
        with pytest.raises(error, match=text) as caught:
            store.get("a")
        assert SECRET not in everything_said(caught.value)


# --- other processes


def test_a_pickled_store_opens_the_same_objects(remote, s3):
    s3.put(FILE, b"1")
    travelled = pickle.loads(pickle.dumps(s3))
    assert travelled == s3
    assert travelled.get(FILE) == b"1"


FORK = """
import os, signal, sys
from kartothek_cube.core.stores.open import open_store
from kartothek_cube.errors import Unsupported

store = open_store("s3://bucket", endpoint=sys.argv[1])
if sys.argv[2] == "used":
    store.put("a", b"1")
pid = os.fork()
if pid == 0:
    signal.alarm(20)  # a call that hangs ends the child
    for candidate in (store, open_store("s3://other", endpoint=sys.argv[1])):
        try:
            candidate.put("b", b"2")
            print("put", flush=True)
        except Unsupported as error:
            print(error, flush=True)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
store.put("c", b"3")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform does not fork")
@pytest.mark.parametrize(("parent", "said"), [("used", "spawn or forkserver"), ("unused", "put")])
def test_a_forked_child_does_not_hang(remote, parent, said):
    environment = {**os.environ, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORK, remote.endpoint, parent]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    assert all(said in line for line in lines)
    assert "c" in remote.objects("bucket")
