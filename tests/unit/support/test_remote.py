from __future__ import annotations

import http.client
import importlib
import importlib.util
import io
import re
import socket
import threading
from urllib.parse import quote

import pytest
from pyarrow.fs import FileSelector, S3FileSystem

from kartothek_cube.core.commit.commit import commit_change
from kartothek_cube.core.snapshots.loader import find_snapshot
from kartothek_cube.core.stores.contract import VersionMismatch
from kartothek_cube.core.stores.open import open_store
from kartothek_cube.errors import AtomicityRequired, InvalidRequest
from kartothek_cube.testing.stores import StoreTests
from tests.support.commits import UUID, labels, make_change, write
from tests.support.remote import RemoteStandIn

DOCUMENT = "uuid.by-dataset-metadata.json"
needs_obstore = pytest.mark.skipif(importlib.util.find_spec("obstore") is None, reason="not installed: obstore")
needs_boto3 = pytest.mark.skipif(importlib.util.find_spec("boto3") is None, reason="not installed: boto3")


class Wire:
    """One connection; what comes back is status, body, headers."""

    def __init__(self, remote):
        self.connection = http.client.HTTPConnection(remote.endpoint.removeprefix("http://"), timeout=30)

    def __call__(self, method, target, body=None, **headers):
        self.connection.request(
            method, target, body=body, headers={name.replace("_", "-"): value for name, value in headers.items()}
        )
        answer = self.connection.getresponse()
        return answer.status, answer.read(), answer.headers


@pytest.fixture
def remote():
    with RemoteStandIn() as running:
        yield running


@pytest.fixture
def wire(remote):
    wire = Wire(remote)
    yield wire
    wire.connection.close()


def open_s3(remote, bucket="sales"):
    host = remote.endpoint.removeprefix("http://")
    return open_store(f"hs3://key:secret@{host}/{bucket}?is_secure=false&force_bucket_suffix=false&region=us-east-1")


@needs_obstore
class TestStandIn(StoreTests):
    @pytest.fixture
    def store(self, remote):
        return open_s3(remote)


# --- the protocol


def test_an_object_comes_back_as_it_was_put(wire, remote):
    _, _, headers = wire("PUT", "/sales/a/b%20c", b"PAR1")
    status, body, found = wire("GET", "/sales/a/b%20c")
    assert (status, body, found["ETag"]) == (200, b"PAR1", headers["ETag"])
    assert remote.objects("sales") == {"a/b c": b"PAR1"}
    assert remote.objects("other") == {}
    assert wire("HEAD", "/sales/a/b%20c")[2]["Content-Length"] == "4"
    assert wire("DELETE", "/sales/a/b%20c")[0] == 204
    assert wire("GET", "/sales/a/b%20c")[0] == wire("HEAD", "/sales/a/b%20c")[0] == 404


@pytest.mark.parametrize(
    ("asked", "status", "body", "content_range"),
    [
        ("bytes=0-3", 206, b"0123", "bytes 0-3/10"),
        ("bytes=8-99", 206, b"89", "bytes 8-9/10"),
        ("bytes=4-", 206, b"456789", "bytes 4-9/10"),
        ("bytes=-3", 206, b"789", "bytes 7-9/10"),
        ("bytes=-99", 206, b"0123456789", "bytes 0-9/10"),
        ("bytes=10-", 416, None, None),
        ("bytes=-0", 416, None, None),
        ("lines=1-2", 200, b"0123456789", None),
    ],
)
def test_ranges(wire, asked, status, body, content_range):
    wire("PUT", "/sales/a", b"0123456789")
    found = wire("GET", "/sales/a", Range=asked)
    assert (found[0], found[2]["Content-Range"]) == (status, content_range)
    assert body is None or found[1] == body


def test_conditional_puts(wire):
    first = wire("PUT", "/sales/a", b"1", If_None_Match="*")
    assert first[0] == 200
    assert wire("PUT", "/sales/a", b"2", If_None_Match="*")[0] == 412
    assert wire("PUT", "/sales/a", b"2", If_Match=first[2]["ETag"])[0] == 200
    assert wire("PUT", "/sales/a", b"3", If_Match=first[2]["ETag"])[0] == 412
    assert wire("PUT", "/sales/absent", b"3", If_Match=first[2]["ETag"])[0] == 404
    assert wire("GET", "/sales/a")[1] == b"2"


def test_conditional_puts_by_generation(wire):
    first = wire("PUT", "/sales/a", b"1", x_goog_if_generation_match="0")[2]["x-goog-generation"]
    assert wire("PUT", "/sales/a", b"1", x_goog_if_generation_match="0")[0] == 412
    second = wire("PUT", "/sales/a", b"1", x_goog_if_generation_match=first)[2]["x-goog-generation"]
    assert int(second) > int(first)
    assert wire("PUT", "/sales/a", b"1", x_goog_if_generation_match=first)[0] == 412


def test_conditional_gets_and_deletes(wire):
    etag = wire("PUT", "/sales/a", b"1")[2]["ETag"]
    assert wire("GET", "/sales/a", If_None_Match=etag)[:2] == (304, b"")
    assert wire("GET", "/sales/a", If_None_Match='"other"')[0] == 200
    assert wire("GET", "/sales/a", If_Match='"other"')[0] == 412
    assert wire("DELETE", "/sales/a", If_Match='"other"')[0] == 412
    assert wire("DELETE", "/sales/a", If_Match=etag)[0] == 204


def test_one_of_many_concurrent_creators_wins(remote):
    found = []

    def create():
        wire = Wire(remote)
        found.append(wire("PUT", "/sales/a", b"1", If_None_Match="*")[0])
        wire.connection.close()

    threads = [threading.Thread(target=create) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [200] + [412] * 7


def listed(wire, **query):
    text = "&".join(f"{name.replace('_', '-')}={quote(value, safe='')}" for name, value in query.items())
    body = wire("GET", f"/sales?list-type=2&{text}")[1].decode()
    following = re.findall("<NextContinuationToken>(.*?)<", body)
    return re.findall("<Key>(.*?)<", body), re.findall("<CommonPrefixes><Prefix>(.*?)<", body), following


def test_listings(wire):
    for key in ("a.json", "a/t/p=1/f", "a/t/g", "b/f"):
        wire("PUT", f"/sales/{key}", b"12")
    wire("PUT", "/other/x", b"")
    assert listed(wire) == (["a.json", "a/t/g", "a/t/p=1/f", "b/f"], [], [])
    assert listed(wire, delimiter="/") == (["a.json"], ["a/", "b/"], [])
    assert listed(wire, prefix="a/t/", delimiter="/") == (["a/t/g"], ["a/t/p=1/"], [])
    assert listed(wire, prefix="none") == ([], [], [])
    assert listed(wire, start_after="a/t/g") == (["a/t/p=1/f", "b/f"], [], [])
    assert listed(wire, encoding_type="url", prefix="a/t/p")[0] == ["a/t/p%3D1/f"]


@pytest.mark.parametrize("delimiter", ["", "/"])
def test_listings_come_in_pages(wire, delimiter):
    for number in range(5):
        wire("PUT", f"/sales/{number}/f", b"")
        wire("PUT", f"/sales/{number}/g", b"")
    found, token = [], [""]
    while token:
        keys, prefixes, token = listed(wire, delimiter=delimiter, max_keys="3", continuation_token=token[0])
        assert len(keys + prefixes) <= 3
        found += keys + prefixes
    assert found == (
        [f"{number}/" for number in range(5)]
        if delimiter
        else [f"{number}/{name}" for number in range(5) for name in "fg"]
    )


def test_copies(wire, remote):
    wire("PUT", "/sales/a%20b", b"1")
    assert wire("PUT", "/sales/c", x_amz_copy_source="/sales/a%20b")[0] == 200
    assert wire("PUT", "/sales/c", x_amz_copy_source="/sales/a%20b", If_None_Match="*")[0] == 412
    assert wire("PUT", "/sales/d", x_amz_copy_source="/sales/absent")[0] == 404
    assert remote.objects("sales") == {"a b": b"1", "c": b"1"}


def test_uploads_in_parts(wire, remote):
    number = re.search(b"<UploadId>(.*?)<", wire("POST", "/sales/a?uploads")[1])[1].decode()
    for part, data in ((2, b"two"), (1, b"one"), (3, b"unused")):
        assert wire("PUT", f"/sales/a?partNumber={part}&uploadId={number}", data)[0] == 200
    assert remote.objects("sales") == {}
    parts = b"<C><Part><PartNumber>1</PartNumber></Part><Part><PartNumber>2</PartNumber></Part></C>"
    assert wire("POST", f"/sales/a?uploadId={number}", parts)[0] == 200
    assert remote.objects("sales") == {"a": b"onetwo"}
    assert (
        wire("POST", f"/sales/a?uploadId={number}", parts)[0]
        == wire("PUT", f"/sales/a?partNumber=1&uploadId={number}", b"")[0]
        == 404
    )


def test_aborted_upload_leaves_nothing(wire, remote):
    number = re.search(b"<UploadId>(.*?)<", wire("POST", "/sales/a?uploads")[1])[1].decode()
    assert wire("DELETE", f"/sales/a?uploadId={number}")[0] == 204
    assert wire("POST", f"/sales/a?uploadId={number}", b"")[0] == 404
    assert remote.objects("sales") == {}


def test_deletes_of_many(wire, remote):
    for key in ("a&amp;b", "c"):
        wire("PUT", f"/sales/{quote(key.replace('&amp;', '&'))}", b"")
    wire("PUT", "/sales/d", b"")
    assert (
        wire(
            "POST",
            "/sales?delete",
            b"<Delete><Object><Key>a&amp;b</Key></Object><Object><Key>c</Key></Object></Delete>",
        )[0]
        == 200
    )
    assert list(remote.objects("sales")) == ["d"]


def test_bodies_in_chunks(wire, remote):
    signed = (
        b"3;chunk-signature=0a\r\n1\r\n\r\n2;chunk-signature=0b\r\n23\r\n"
        b"0;chunk-signature=0c\r\nx-amz-checksum-crc32:AAA=\r\n\r\n"
    )
    assert wire("PUT", "/sales/signed", signed, Content_Encoding="aws-chunked")[0] == 200
    assert wire("PUT", "/sales/http", iter([b"12", b"3"]))[0] == 200
    assert remote.objects("sales") == {"http": b"123", "signed": b"1\r\n23"}


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: 10\r\n\r\n12345",
        b"Transfer-Encoding: chunked\r\n\r\n5\r\n123",
        b"Transfer-Encoding: chunked\r\n\r\n",
    ],
)
def test_half_a_body_is_not_stored(remote, head):
    host, port = remote.endpoint.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(b"PUT /sales/a HTTP/1.1\r\nHost: x\r\n" + head)
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b""
    assert remote.objects("sales") == {}
    assert remote.requests == []


def test_what_it_does_not_know_it_says(wire, remote):
    assert wire("POST", "/sales/a?restore")[0] == wire("POST", "/sales")[0] == 501
    assert remote.counts == {"unknown": 2}


# --- clients


def test_arrow_reads_and_writes(remote):
    s3 = S3FileSystem(
        access_key="any", secret_key="any", endpoint_override=remote.endpoint, scheme="http", region="us-east-1"
    )
    data = bytes(range(256)) * 50_000
    with s3.open_output_stream("sales/t/a") as file:
        file.write(data)
    with s3.open_input_file("sales/t/a") as file:
        assert file.read_at(10, 256) == data[256:266]
    s3.copy_file("sales/t/a", "sales/t/b c")
    assert [info.path for info in s3.get_file_info(FileSelector("sales/t"))] == ["sales/t/a", "sales/t/b c"]
    s3.delete_dir("sales/t")
    assert remote.objects("sales") == {}


@needs_boto3
def test_boto3_reads_and_writes(remote):
    s3 = importlib.import_module("boto3").client(
        "s3",
        endpoint_url=remote.endpoint,
        aws_access_key_id="any",
        aws_secret_access_key="any",
        region_name="us-east-1",
    )
    s3.create_bucket(Bucket="sales")
    etag = s3.put_object(Bucket="sales", Key="a/ü &", Body=b"1", IfNoneMatch="*")["ETag"]
    with pytest.raises(s3.exceptions.ClientError, match="PreconditionFailed"):
        s3.put_object(Bucket="sales", Key="a/ü &", Body=b"1", IfNoneMatch="*")
    s3.put_object(Bucket="sales", Key="a/ü &", Body=io.BytesIO(b"2" * 100), IfMatch=etag)
    assert s3.get_object(Bucket="sales", Key="a/ü &", Range="bytes=-3")["Body"].read() == b"222"
    large = bytes(9 << 20)
    s3.upload_fileobj(io.BytesIO(large), "sales", "large")
    assert s3.head_object(Bucket="sales", Key="large")["ContentLength"] == len(large)
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket="sales", PaginationConfig={"PageSize": 1})
    assert [entry["Key"] for page in pages for entry in page["Contents"]] == ["a/ü &", "large"]
    s3.delete_objects(Bucket="sales", Delete={"Objects": [{"Key": "a/ü &"}, {"Key": "large"}]})
    with pytest.raises(s3.exceptions.NoSuchKey):
        s3.get_object(Bucket="sales", Key="large")
    s3.close()


# --- the log, latency and faults


def test_requests_are_logged(wire, remote):
    wire("PUT", "/sales/a%20b", b"123", If_None_Match="*")
    wire("GET", "/sales?list-type=2&prefix=x%2F")
    wire("GET", "/sales/a")
    wire("GET", "/sales/b")
    assert [(r.operation, r.bucket, r.key, r.nth, r.size, r.conditional) for r in remote.requests] == [
        ("put", "sales", "a b", 1, 3, True),
        ("list", "sales", "", 1, 0, False),
        ("get", "sales", "a", 1, 0, False),
        ("get", "sales", "b", 2, 0, False),
    ]
    assert remote.requests[1].query == {"list-type": "2", "prefix": "x/"}
    assert remote.counts == {"put": 1, "list": 1, "get": 2}
    remote.reset()
    wire("GET", "/sales/a%20b")
    assert [(r.operation, r.nth) for r in remote.requests] == [("get", 1)]


def test_each_request_waits_for_the_latency(wire, remote, monkeypatch):
    waited = []
    monkeypatch.setattr(remote._stopping, "wait", waited.append)
    wire("GET", "/sales/a")
    remote.latency = 0.25
    wire("GET", "/sales/a")
    assert waited == [0.0, 0.25]


@pytest.mark.parametrize(
    ("fault", "status", "stored"), [("before", 500, {}), ("after", 500, {"a": b"1"}), ("throttle", 503, {})]
)
def test_faults_that_are_answered(wire, remote, fault, status, stored):
    remote.fail = lambda request: fault if request.nth == 1 else None
    assert wire("PUT", "/sales/a", b"1")[0] == status
    assert remote.objects("sales") == stored
    assert wire("PUT", "/sales/a", b"2")[0] == 200


@pytest.mark.parametrize(("fault", "stored"), [("close", {}), ("close_after", {"a": b"1"})])
def test_faults_that_close_the_connection(wire, remote, fault, stored):
    remote.fail = lambda request: fault
    with pytest.raises(http.client.RemoteDisconnected):
        wire("PUT", "/sales/a", b"1")
    assert remote.objects("sales") == stored


def test_error_of_the_users_function_comes_out_at_the_end():
    def slip(request):
        raise ZeroDivisionError(request.key)

    remote = RemoteStandIn(fail=slip).start()
    wire = Wire(remote)
    assert wire("GET", "/sales/a")[0] == 500
    wire.connection.close()
    with pytest.raises(ZeroDivisionError, match="a"):
        remote.__exit__(None, None, None)


def test_nothing_is_left_when_it_ends():
    before = set(threading.enumerate())
    with RemoteStandIn() as remote:
        wire = Wire(remote)  # keeps its connection open
        wire("PUT", "/sales/a", b"1")
        host = wire.connection.host, wire.connection.port
    assert {
        thread
        for thread in threading.enumerate()
        if thread not in before and thread.is_alive() and "process_request" in thread.name
    } == set()
    again = http.client.HTTPConnection(*host)
    with pytest.raises(ConnectionRefusedError):
        again.connect()
    wire.connection.close()
    with pytest.raises(InvalidRequest, match="does not run"):
        _ = remote.endpoint
    assert remote.objects("sales") == {"a": b"1"}


def test_it_ends_although_requests_are_waiting():
    with RemoteStandIn(latency=3600) as remote:
        wire = Wire(remote)
        wire.connection.request("GET", "/sales/a")
    wire.connection.close()


# --- what stores and commits make of it


@needs_obstore
@pytest.mark.parametrize("fault", ["after", "close_after"])
def test_a_put_whose_answer_is_lost_comes_back_as_a_mismatch(remote, fault):
    """The client tries again, and loses against itself."""
    store = open_s3(remote)
    version = store.put_if(DOCUMENT, b"1", None)
    remote.reset()
    remote.fail = lambda request: fault if (request.operation, request.nth) == ("put", 1) else None
    with pytest.raises(VersionMismatch):
        store.put_if(DOCUMENT, b"2", version)
    assert store.get(DOCUMENT) == b"2"
    assert remote.counts["put"] == 2


@needs_obstore
@pytest.mark.parametrize("fault", ["before", "after", "close", "close_after", "throttle"])
@pytest.mark.parametrize("exists", [False, True])
def test_a_commit_lands_once_whatever_becomes_of_the_first_answer(remote, fault, exists):
    store = open_s3(remote)
    snapshot = write(store, {"x": [1], "v1": [1]}, label="one") if exists else None
    change = make_change(store, {"x": [2], "v1": [2]}, label="two")
    store.put_if("warm-up", b"", None)  # the server has been asked whether it heeds conditions
    failed = []

    def fail(request):
        if request.operation != "put" or request.key != DOCUMENT or failed:
            return None
        failed.append(request)
        return fault

    remote.fail = fail
    assert labels(commit_change(store, change, snapshot)) == ["one", "two"][not exists :]
    assert failed
    assert labels(find_snapshot(open_s3(remote), UUID)) == ["one", "two"][not exists :]


@needs_obstore
def test_a_look_alike_that_ignores_conditions_takes_no_commits():
    with RemoteStandIn(heeds_conditions=False) as remote, pytest.raises(AtomicityRequired):
        open_s3(remote).put_if(DOCUMENT, b"1", None)
    assert remote.objects("sales") == {}
