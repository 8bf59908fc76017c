"""What an adversary would try on stores: spans behind the end, odd keys, settings of the wrong
type, secrets in the wrong place, threads and forks.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import subprocess
import sys
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, timedelta
from functools import partial
from io import BytesIO

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import storefact
from simplekv.decorator import PrefixDecorator, ReadOnlyDecorator, URLEncodeKeysDecorator
from simplekv.fs import FilesystemStore
from simplekv.memory import DictStore

from kartothek_cube import C, Cube, build_cube, query_cube
from kartothek_cube.core.io.reader import FileRequest, read_rows
from kartothek_cube.core.stores import contract as conditional_put
from kartothek_cube.core.stores import object_store as object_store_client
from kartothek_cube.core.stores.contract import ConditionFailed, ReadOnlyView, StoreView, supports_conditional_put
from kartothek_cube.core.stores.local import LocalStore, MemoryStore
from kartothek_cube.core.stores.object_store import ObjectStore
from kartothek_cube.core.stores.open import StoreFactory, open_store, store_factory
from kartothek_cube.core.stores.urls import Location, parse_location
from kartothek_cube.errors import (
    AtomicityRequired,
    CorruptData,
    InvalidInput,
    InvalidType,
    KartothekCubeError,
    KeyNotFound,
    ReadOnlyStore,
    Unsupported,
)
from tests.caches import forget
from tests.support.remote import RemoteStandIn
from tests.support.server_urls import needs, url_of_azure, url_of_gcs, url_of_s3

KEY = "AKIAEXAMPLEKEY"
SECRET = "wJalrXUtnFEMIK7MDENG"
DOCUMENT = "uuid.by-dataset-metadata.json"


def credentials():
    return {"access_key_id": KEY, "secret_access_key": SECRET, "expires_at": None}


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_")):
            monkeypatch.delenv(name)
    monkeypatch.setattr(conditional_put, "_SUPPORTED", {})


@pytest.fixture
def hasty(monkeypatch):
    monkeypatch.setattr(
        object_store_client, "_RETRIES", {"max_retries": 1, "backoff": {"init_backoff": timedelta(milliseconds=1)}}
    )


@pytest.fixture
def remote():
    with RemoteStandIn() as running:
        yield running


@pytest.fixture
def s3(remote):
    return open_store("s3://bucket/pre", endpoint=remote.endpoint, credentials=credentials, check_conditions=False)


# --- spans, on every store and server

SPANS = [
    ([(0, 4), (2, 6)], [b"0123", b"2345"]),
    ([(0, 4), (0, 4)], [b"0123", b"0123"]),
    ([(8, 20)], [b"89"]),
    ([(10, 12)], [b""]),
    ([(20, 30)], [b""]),
    ([(0, 4), (20, 30), (9, 11)], [b"0123", b"", b"9"]),  # obstore asks for them together, and panics
    ([(5, 2), (3, 3), (0, 1)], [b"", b"", b"0"]),
    ([(0, 1 << 45)], [b"0123456789"]),
]

ODD_KEYS = [
    "p%=1/a%3Ab",
    "a b/c+d=e&f#g?h",
    "p%20/x",
    "p%25%2F/x",
    "x'y\"z/<&>",
    " lead/x",
    "trail /x ",
    "`^{}[]/~!$(),-@",
    "v?versionId=3/x",
    "NoSuchBucket/<Code>ContainerNotFound",
]


def check_spans_behind_the_end(store):
    store.put("ten", b"0123456789")
    store.put("empty", b"")
    for spans, expected in SPANS:
        assert [bytes(part) for part in store.ranges("ten", spans)] == expected
    assert [bytes(part) for part in store.ranges("empty", [(0, 1), (3, 4)])] == [b"", b""]
    assert [(bytes(data), size) for data, size in (store.tail("empty", 5), store.tail("ten", 99))] == [
        (b"", 0),
        (b"0123456789", 10),
    ]
    assert store.get("empty") == b""
    for wrong in ([(-3, 2)], [(0, 1), (2, -1)]):
        with pytest.raises(InvalidInput, match="not negative"):
            store.ranges("ten", wrong)


def check_odd_key(store, key):
    with pytest.raises(KeyNotFound):
        store.get(key)
    folder = key.rpartition("/")[0] + "/"
    store.put(key, b"1")
    assert (store.get(key), store.contains(key)) == (b"1", True)
    assert (
        store.list(folder).keys
        == store.list(key[:-1], recursive=True).keys
        == store.list(folder, recursive=True).keys
        == [key]
    )
    store.copy(key, f"{key}c")
    assert store.list(folder).keys == [key, f"{key}c"]
    (entry,) = store.list(f"{key}c").entries
    assert entry.modified is None or entry.modified.tzinfo == UTC
    for again in (key, key, f"{key}c"):
        store.delete(again)
    assert store.list(recursive=True).keys == []


LOCAL = {
    "directory": LocalStore,
    "memory": lambda _: MemoryStore(),
    "simplekv in memory": lambda _: open_store(DictStore()),
    "simplekv behind a decorator": lambda folder: open_store(URLEncodeKeysDecorator(FilesystemStore(str(folder)))),
}


@pytest.mark.parametrize("make", LOCAL.values(), ids=LOCAL)
def test_spans_behind_the_end_are_short(make, tmp_path):
    check_spans_behind_the_end(make(tmp_path))


def test_spans_behind_the_end_of_an_object_are_short(s3):
    check_spans_behind_the_end(s3)


@pytest.mark.parametrize("key", ODD_KEYS)
def test_odd_keys(s3, tmp_path, key):
    check_odd_key(s3, key)
    check_odd_key(LocalStore(tmp_path), key)


@pytest.mark.parametrize("folder", ["a%253Ab", "a%20b", "x=1/y+z", "%25", "q%26%23%3F"])
def test_odd_prefixes_of_urls(remote, folder):
    store = open_store(f"s3://bucket/{folder}", endpoint=remote.endpoint, credentials=credentials)
    check_odd_key(store, "f/g")
    assert open_store(store.name, credentials=credentials) == store


class OnServers:
    def test_spans_behind_the_end_are_short(self, store):
        check_spans_behind_the_end(store)

    def test_odd_keys(self, store):
        for key in ODD_KEYS:
            check_odd_key(store, key)


@needs("obstore")
class TestS3(OnServers):
    @pytest.fixture
    def store(self, s3_process):
        return open_store(url_of_s3(s3_process))


@needs("obstore")
class TestAzure(OnServers):
    @pytest.fixture
    def store(self, azure_process):
        return open_store(url_of_azure(azure_process))


@needs("obstore")
class TestGcs(OnServers):
    @pytest.fixture
    def store(self, gcs_process):
        return open_store(url_of_gcs(gcs_process))


def test_more_keys_and_folders_than_one_page(remote, s3):
    s3.put("many/0", b"")
    put = remote.requests[0].__class__
    for number in range(1100):
        for key in (f"pre/many/{number:04}", f"pre/dirs/{number:04}/f"):
            remote._stored.answer(put("put", "bucket", key), b"")
    assert len(s3.list("many/").keys) == 1101
    assert len(s3.list("many/01", recursive=True).keys) == 100
    assert len(s3.list("dirs/").prefixes) == 1100
    assert len(s3.list("dirs/00", recursive=True).keys) == 100


class Shortening(StoreView):
    """Its objects are replaced by shorter ones between two requests."""

    def local_path(self, key):
        return None

    def ranges(self, key, spans):
        return [part[:-1] for part in super().ranges(key, spans)]


def test_file_that_is_replaced_by_a_shorter_one_while_it_is_read_is_corrupt():
    store = Shortening(MemoryStore())
    table = pa.table({c: pa.array(range(60_000), pa.int64()) for c in ("x", "v1", "v2")})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="NONE", use_dictionary=False)
    store.put("uuid/table/1.parquet", sink.getvalue())
    with pytest.raises(CorruptData, match="shorter one while it was read"):
        read_rows(store, "uuid/table/1.parquet", FileRequest("uuid", table.schema, ("x",)))


# --- errors


def test_torn_upload_is_aborted(remote, s3):
    class Tape:
        reads = 0

        def read(self, size):
            self.reads += 1
            if self.reads > 4:
                raise RuntimeError("torn")
            return b"x" * size

    with pytest.raises(RuntimeError, match="torn"):
        s3.put_file("a", Tape())
    assert remote.counts["abort_upload"] == 1
    assert remote._stored._uploads == {}
    assert s3.list().keys == []


def test_throttled_requests_are_tried_again(remote, s3):
    remote.fail = lambda request: "throttle" if request.nth % 2 else None
    s3.put("a", b"1")
    s3.put_if("b", b"1", None)
    assert (s3.get("a"), s3.list().keys, s3.contains("b")) == (b"1", ["a", "b"], True)


def test_endless_throttling_is_an_os_error(hasty, remote, s3):
    remote.fail = lambda request: "throttle"
    for use in (
        lambda: s3.get("a"),
        lambda: s3.tail("a", 4),
        lambda: s3.put_if("a", b"1", None),
        lambda: s3.put_file("a", BytesIO(b"1")),
    ):
        with pytest.raises(OSError, match="SlowDown"):
            use()


def test_tail_of_a_server_in_trouble_does_not_ask_twice(hasty, remote, s3):
    remote.fail = lambda request: "throttle"
    with pytest.raises(OSError, match="SlowDown"):
        s3.tail("a", 4)
    assert remote.counts == {"get": 2}


class PanicException(BaseException):
    """Like that of obstore, which is no `Exception`."""


class Panicking(ObjectStore):
    def _connect(self, *, bulk=False):
        class Client:
            def __getattr__(self, name):
                def panic(*args, **kwargs):
                    raise PanicException(f"called `Result::unwrap()` on an `Err` value: {SECRET}")

                return panic

        return Client()


def test_panic_of_the_client_is_an_os_error():
    store = Panicking(Location("s3", "bucket", secrets=(("secret_access_key", SECRET),)))
    for use in (lambda: store.get("a"), lambda: store.put("a", b"1"), store.list, lambda: store.ranges("a", [(0, 1)])):
        with pytest.raises(ConnectionError, match="unwrap") as error:
            use()
        assert SECRET not in "".join(traceback.format_exception(error.value))


def test_interrupt_passes():
    class Interrupted(Panicking):
        def _connect(self, *, bulk=False):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Interrupted(Location("s3", "bucket")).get("a")


def test_port_of_the_environment_that_is_none_is_an_os_error(monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://host:99999")
    with pytest.raises(OSError, match="bucket"):
        open_store("s3://bucket", credentials=credentials).get("a")


def wrong_credentials():
    async def coming():
        return credentials()

    def raising():
        raise FileNotFoundError(SECRET)

    return {
        "None": lambda: None,
        "empty": dict,
        "text": lambda: SECRET,
        "half": lambda: {"access_key_id": KEY, "expires_at": None},
        "coming": coming,
        "raising": raising,
    }


@pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning")
@pytest.mark.parametrize("kind", wrong_credentials())
def test_functions_that_give_no_credentials_are_refused_without_repeating_them(remote, kind):
    store = open_store("s3://bucket", endpoint=remote.endpoint, credentials=wrong_credentials()[kind])
    for use, error in ((lambda: store.get("a"), PermissionError), (lambda: store.put("a", b"1"), ReadOnlyStore)):
        with pytest.raises(error, match="credential provider") as caught:
            use()
        assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert remote.requests == []


# --- settings and URLs


@pytest.mark.parametrize(
    ("settings", "error", "text"),
    [
        ({"readonly": "false"}, InvalidType, "readonly= of a store is True or False, not str"),
        ({"readonly": None}, InvalidType, "readonly="),
        ({"fsync": None}, InvalidType, "fsync= of a store is True or False, not NoneType"),
        ({"fsync": 0}, InvalidType, "fsync="),
        ({"perm": "640"}, InvalidType, "perm= of a store is an int, not str"),
        ({"perm": True}, InvalidInput, "permission bits"),
        ({"perm": -1}, InvalidInput, "permission bits"),
        ({"perm": 0o100000}, InvalidInput, "permission bits"),
    ],
)
def test_settings_of_the_wrong_type_are_refused_at_once(tmp_path, settings, error, text):
    with pytest.raises(error, match=text):
        open_store(tmp_path, **settings)


@pytest.mark.parametrize(
    "settings", [{"check_conditions": "no"}, {"check_conditions": 1}, {"region": 5}, {"readonly": SECRET}]
)
def test_settings_of_object_stores_of_the_wrong_type_are_refused(settings):
    with pytest.raises(InvalidType, match=next(iter(settings))) as error:
        open_store("s3://bucket", **settings)
    assert SECRET not in str(error.value)


def test_settings_may_be_none_where_that_is_the_default(tmp_path):
    assert open_store(tmp_path, perm=None) == LocalStore(tmp_path)
    assert open_store("s3://b", region=None, check_conditions=None, endpoint=None, credentials=None) == open_store(
        "s3://b"
    )


@pytest.mark.parametrize("endpoint", ["http://h:99999", "http://h:x", "http://h:0", "http://[::1"])
def test_endpoint_with_a_wrong_port_is_refused(endpoint):
    with pytest.raises(InvalidInput, match="endpoint of a store is a URL"):
        open_store("s3://b", endpoint=endpoint)
    with pytest.raises(InvalidInput):
        open_store(f"hs3://k:{SECRET}@{endpoint.removeprefix('http://')}/b")


def test_url_with_credentials_and_without_a_server_is_amazons():
    location = parse_location(f"s3://{KEY}:{SECRET}@/bucket/pre?force_bucket_suffix=false&region=eu-west-1")
    assert (location.endpoint, location.region, location.bucket, location.prefix) == (
        None,
        "eu-west-1",
        "bucket",
        "pre",
    )


@pytest.mark.parametrize("url", [f"hs3://{KEY}:x?{SECRET}&y@h/b", f"azure://acc:?sv=1&{SECRET}=abc@cont?use_sas=true"])
def test_secret_with_a_question_mark_is_not_repeated(url):
    with pytest.raises(InvalidInput, match="%3F") as error:
        open_store(url)
    assert SECRET not in str(error.value)


@pytest.mark.parametrize(
    "url", [f"hs3:/{KEY}:x/{SECRET}@h/b", f"azure:acc:{SECRET}/y@cont", f"hs3:/{KEY}:{SECRET}@x@h/b"]
)
def test_secret_of_what_is_no_url_is_not_repeated(url):
    with pytest.raises(InvalidInput, match="no store URL") as error:
        open_store(url)
    assert SECRET not in str(error.value)
    assert KEY not in str(error.value)


def test_function_that_opens_a_store_shows_no_url():
    assert SECRET not in repr(StoreFactory(partial(open_store, f"hs3://{KEY}:{SECRET}@h/b")))


def test_server_inside_a_service_account_is_asked_whether_it_heeds_conditions():
    account = {
        "gcs_base_url": "ENDPOINT",
        "disable_oauth": True,
        "client_email": "",
        "private_key": "",
        "private_key_id": "",
    }
    with RemoteStandIn(heeds_conditions=False) as careless:
        text = json.dumps(account).replace("ENDPOINT", careless.endpoint)
        store = open_store(f"gs://{base64.urlsafe_b64encode(text.encode()).decode()}@bucket")
        assert careless.endpoint in store.name
        with pytest.raises(AtomicityRequired, match=r"options\(require_atomic=False\)"):
            store.put_if("a", b"1", None)
        assert careless.objects("bucket") == {}


def test_missing_package_of_a_store_is_named(monkeypatch):
    def get_store_from_url(url):
        raise ModuleNotFoundError("No module named 'redis'")

    monkeypatch.setattr(storefact, "get_store_from_url", get_store_from_url)
    with pytest.raises(Unsupported, match="package that is not installed: No module named 'redis'") as error:
        open_store(f"redis://:{SECRET}@host/0")
    assert SECRET not in "".join(traceback.format_exception(error.value)).replace(SECRET + "@host", "")
    assert "\n" not in str(error.value)


def test_missing_obstore_is_named_by_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore", None)
    travelling = Location("s3", "bucket")
    with pytest.raises(Unsupported, match=r"pip install 'kartothek-cube\[s3\]'") as error:
        ObjectStore(travelling)
    assert "\n" not in str(error.value)
    assert error.value.__cause__ is None


# --- stores of simplekv behind decorators

DECORATED = {
    "prefix": lambda inner: PrefixDecorator("x", inner),
    "read only": ReadOnlyDecorator,
    "names": URLEncodeKeysDecorator,
}


@pytest.mark.parametrize("decorate", DECORATED.values(), ids=DECORATED)
def test_decorated_memory_does_not_travel(decorate):
    store = open_store(decorate(DictStore()))
    assert not store.capabilities.shared
    with pytest.raises(InvalidType, match="memory"):
        store_factory(store)
    with pytest.raises(InvalidType, match="copy"):
        pickle.dumps(store)


@pytest.mark.parametrize("decorate", DECORATED.values(), ids=DECORATED)
def test_read_only_store_behind_a_decorator_is_read_only(decorate, tmp_path):
    store = open_store(decorate(ReadOnlyDecorator(FilesystemStore(str(tmp_path)))))
    assert not store.capabilities.writable
    with pytest.raises(ReadOnlyStore):
        store.put("a", b"1")


def test_order_of_wrappers_of_a_url_does_not_make_it_writable(tmp_path):
    for wrappers in ("readonly", "readonly+urlencode", "urlencode+readonly"):
        store = open_store(f"hfs://{tmp_path}#wrap:{wrappers}")
        assert isinstance(store, ReadOnlyView)


# --- does the server heed conditions?


def test_read_only_store_does_not_ask_the_server(remote):
    store = open_store("s3://bucket", endpoint=remote.endpoint, credentials=credentials, readonly=True)
    for write in (lambda: store.put_if("a", b"1", None), lambda: store.put("a", b"1"), lambda: store.delete("a")):
        with pytest.raises(ReadOnlyStore):
            write()
    assert remote.requests == []


def test_threads_ask_a_server_once(remote):
    stores = [
        open_store(f"s3://bucket/{number % 3}", endpoint=remote.endpoint, credentials=credentials)
        for number in range(6)
    ]
    with ThreadPoolExecutor(6) as threads:
        list(threads.map(lambda store: store.put_if(f"{id(store)}", b"1", None), stores))
    assert remote.counts == {"put": 4 + 6, "delete": 1}


def test_server_that_does_not_answer_holds_up_no_other():
    asked, answer, other = threading.Event(), threading.Event(), threading.Event()

    def hangs(key, data, version):
        asked.set()
        answer.wait(10)
        raise ConditionFailed

    def answers(key, data, version):
        raise ConditionFailed

    def nothing(key):
        pass

    first = threading.Thread(target=supports_conditional_put, args=("a", hangs, nothing))
    second = threading.Thread(target=lambda: (supports_conditional_put("b", answers, nothing), other.set()))
    first.start()
    assert asked.wait(10)
    second.start()
    waited_for_nobody = other.wait(10)
    answer.set()
    first.join()
    second.join()
    assert waited_for_nobody


def test_what_is_known_of_a_server_does_not_hold_for_another_endpoint_of_the_environment(monkeypatch):
    with RemoteStandIn(heeds_conditions=False) as careless, RemoteStandIn() as careful:
        for server, heeds in ((careless, False), (careful, True)):
            monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
            store = open_store("s3://bucket", credentials=credentials)
            try:
                store.put_if("a", b"1", None)
            except KartothekCubeError as error:
                assert "options(require_atomic=False)" in str(error)  # noqa: PT017 - only of one of them
            assert store.capabilities.conditional_put is heeds
        assert list(careful.objects("bucket")) == ["a"]
        assert careless.objects("bucket") == {}


# --- threads and processes


def test_threads_share_a_store(remote, s3):
    def work(number):
        for step in range(1, 20):
            s3.put(f"{number}/{step}", bytes([number]) * step)
            assert s3.get(f"{number}/{step}") == bytes([number]) * step
            assert s3.tail(f"{number}/{step}", 1) == (bytes([number]), step)

    shared = s3
    with ThreadPoolExecutor(16) as threads:
        list(threads.map(work, range(16)))
    assert len(shared.list(recursive=True).keys) == 16 * 19


FRESH = """
import pickle, sys
store = pickle.load(sys.stdin.buffer)
store.put("b", store.get("a") + b"2")
"""


@pytest.mark.parametrize("where", ["url", "environment"])
def test_pickled_store_works_in_a_fresh_process(remote, monkeypatch, where):
    host = remote.endpoint.removeprefix("http://")
    if where == "url":
        store = open_store(f"hs3://{KEY}:{SECRET}@{host}/bucket?is_secure=false&force_bucket_suffix=false")
        environment = dict(os.environ)
    else:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "HERE")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "here")
        store = open_store("s3://bucket", endpoint=remote.endpoint)
        environment = {**os.environ, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
    store.put("a", b"1")
    remote.reset()
    subprocess.run([sys.executable, "-c", FRESH], input=pickle.dumps(store), env=environment, check=True, timeout=60)
    assert store.get("b") == b"12"
    assert KEY in remote.requests[0].headers["authorization"]


FORKS = """
import multiprocessing, signal, sys, threading
from kartothek_cube.core.stores.open import open_store

store = open_store("s3://bucket", endpoint=sys.argv[1])

def child(_):
    signal.alarm(20)  # a call that hangs ends the child
    said = []
    def use():
        try:
            store.get("a")
        except Exception as error:
            said.append(type(error).__name__)
    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    use()
    return said

store.put("a", b"1")
stop = threading.Event()
busy = threading.Thread(target=lambda: [store.get("a") for _ in iter(stop.is_set, True)])
busy.start()
with multiprocessing.get_context("fork").Pool(2) as pool:
    print(pool.map(child, range(2), chunksize=1))
stop.set()
busy.join()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform does not fork")
def test_pool_that_is_forked_while_threads_use_the_store_does_not_hang(remote):
    environment = {**os.environ, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKS, remote.endpoint],
        env=environment,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.stdout.strip() == str([["Unsupported", "Unsupported"]] * 2), done.stderr


def test_python_workers_of_spark_use_a_store_that_the_driver_has_used(spark, s3):
    """Workers are forked from a daemon that Spark starts anew, not from the driver."""
    s3.put("a", b"1")

    def use(numbers):
        for number in numbers:
            s3.put(f"task{number}", s3.get("a"))
            yield number

    for _ in range(2):  # workers are used again
        assert sorted(spark.sparkContext.parallelize(range(4), 4).mapPartitions(use).collect()) == [0, 1, 2, 3]
    assert s3.list("task").keys == [f"task{number}" for number in range(4)]


# --- how many requests


def test_query_of_one_cell_is_a_listing_a_request_per_document_index_and_file(remote, s3):
    cells = {"x": range(8), "y": range(8), "p": [i % 4 for i in range(8)]}
    cube = Cube(uuid_prefix="cube", dimension_columns=["x", "y"], partition_columns=["p"])
    build_cube(
        {
            "seed": pd.DataFrame(cells),
            "first": pd.DataFrame({**cells, "v1": range(8)}),
            "second": pd.DataFrame({**cells, "v2": range(8)}),
        },
        cube,
        s3,
    )
    forget(s3)
    for expected in ({"list": 1, "get": 3 + 1 + 3}, {"list": 1, "head": 3, "get": 3}):
        remote.reset()
        (found,) = query_cube(cube, s3, conditions=C("x") == 5)
        assert found["v2"].tolist() == [5]
        assert remote.counts == expected
