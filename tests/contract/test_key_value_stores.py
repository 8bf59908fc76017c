"""Stores of simplekv and minimalkv that hold a client: their conditional puts go through it."""

from __future__ import annotations

import importlib.util
import pickle

import pytest

from kartothek_cube.core.commit import commit
from kartothek_cube.core.options import options
from kartothek_cube.core.snapshots import find_snapshot
from kartothek_cube.core.store import Capabilities, VersionMismatch
from kartothek_cube.core.stores import open_store, store_factory
from kartothek_cube.core.stores.keyvalue import KeyValueAdapter
from kartothek_cube.errors import AtomicityRequired, InvalidInput, InvalidType, KeyNotFound, ReadOnlyStore
from kartothek_cube.testing.stores import StoreTests
from tests.support import fake_clients
from tests.support.commits import UUID, labels, make_change, write
from tests.support.fake_clients import Blobs, FakeBoto3Bucket, azure_error, azure_store, boto3_store, client_error

DOCUMENT = "uuid.by-dataset-metadata.json"
HAS_MINIMALKV = importlib.util.find_spec("minimalkv") is not None

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

MAKERS = {
    "simplekv Azure": lambda blobs: azure_store("simplekv", blobs),
}
if HAS_MINIMALKV:
    MAKERS |= {
        "minimalkv Azure": lambda blobs: azure_store("minimalkv", blobs),
        "minimalkv boto3": boto3_store,
    }


@pytest.fixture(autouse=True)
def sdks(monkeypatch):
    fake_clients.install(monkeypatch)


@pytest.fixture
def blobs():
    return Blobs()


@pytest.fixture(params=MAKERS)
def key_values(request, blobs):
    return MAKERS[request.param](blobs)


@pytest.fixture
def store(key_values):
    return open_store(key_values)


class TestClients(StoreTests):
    @pytest.fixture
    def store(self, key_values):
        return open_store(key_values)

    def reopen(self, store):
        return open_store(store._store)

    def test_pickle_shows_the_same_objects_or_is_refused(self, store):
        if "Azure" in store.name:  # its client is made anew
            assert pickle.loads(pickle.dumps(store)).capabilities == store.capabilities
        else:
            with pytest.raises(InvalidType, match="function at module level"):
                store_factory(store)


def test_commits_are_allowed_and_versions_are_etags(store, blobs):
    assert store.capabilities == Capabilities(atomic_put=True, conditional_put=True, modification_times=False, shared=True)
    version = store.put_if(DOCUMENT, b"1", None)
    assert version == blobs.items[DOCUMENT][1] == store.get_versioned(DOCUMENT)[1]


def test_of_two_writers_of_equal_bytes_one_wins(store):
    version = store.put_if(DOCUMENT, b"0", None)
    store.put_if(DOCUMENT, b"1", version)
    with pytest.raises(VersionMismatch):
        open_store(store._store).put_if(DOCUMENT, b"1", version)


def test_check_for_changes_reads_no_object(store, blobs):
    _, version = store.put(DOCUMENT, b"1"), store.get_versioned(DOCUMENT)[1]
    blobs.calls.clear()
    store._store.get = None
    assert not store.changed(DOCUMENT, version)
    assert blobs.calls == ["get"]  # for its ETag


def test_opening_asks_nothing(store, blobs):
    assert store.capabilities.conditional_put
    assert store.name
    assert blobs.calls == []


def test_lazy_client_is_not_made_by_looking_at_it():
    import storefact._hstores

    def refuse(_):
        raise AssertionError

    lazy = type("LazyStore", (storefact._hstores.HAzureBlockBlobStore,), {"blob_container_client": property(refuse)})
    assert open_store(lazy("AccountKey=secret", "sales")).capabilities.conditional_put


@pytest.mark.parametrize("version", [7, b"1", ("a", "b")])
def test_version_of_another_store_is_refused(store, version):
    with pytest.raises(InvalidType, match="ETag"):
        store.put_if(DOCUMENT, b"1", version)


# --- what may not be taken for a client


@pytest.mark.parametrize("wrapper", ["URLEncodeKeysDecorator", "PrefixDecorator"])
def test_decorated_store_is_not_written_behind_the_decorator(blobs, wrapper):
    from simplekv import decorator

    inner = azure_store("simplekv", blobs)
    store = open_store(decorator.PrefixDecorator("cubes/", inner) if wrapper == "PrefixDecorator" else decorator.URLEncodeKeysDecorator(inner))
    assert store.capabilities == Capabilities(atomic_put=True, conditional_put=False, modification_times=False, shared=True)
    with pytest.raises(AtomicityRequired):
        store.put_if(DOCUMENT, b"1", None)
    assert blobs.items == {}


def test_read_only_decorator_stays_read_only(blobs):
    from simplekv.decorator import ReadOnlyDecorator

    blobs.put("a", b"1")
    store = open_store(ReadOnlyDecorator(azure_store("simplekv", blobs)))
    assert store.get("a") == b"1"
    with pytest.raises(ReadOnlyStore):
        store.put_if("a", b"2", store.get_versioned("a")[1])


def test_subclass_that_changes_bytes_is_not_written_past_it(blobs):
    class Reversed(type(azure_store("simplekv", blobs))):
        def _put(self, key, data):
            return super()._put(key, data[::-1])

        def _get(self, key):
            return super()._get(key)[::-1]

    key_values = azure_store("simplekv", blobs)
    key_values.__class__ = Reversed
    store = open_store(key_values)
    assert not store.capabilities.conditional_put
    store.put("a", b"123")
    assert (store.get("a"), blobs.items["a"][0]) == (b"123", b"321")


@pytest.mark.skipif(not HAS_MINIMALKV, reason="minimalkv is not installed")
def test_boto3_that_knows_no_conditions_cannot_commit(blobs):
    store = open_store(boto3_store(blobs, bucket=FakeBoto3Bucket(blobs, knows_conditions=False)))
    with pytest.raises(AtomicityRequired):
        store.put_if(DOCUMENT, b"1", None)


# --- what a store is set up with holds for conditional puts too


@pytest.mark.skipif(not HAS_MINIMALKV, reason="minimalkv is not installed")
def test_prefix_of_boto3(blobs):
    store = open_store(boto3_store(blobs, object_prefix="cubes/"))
    store.put_if(DOCUMENT, b"1", None)
    assert list(blobs.items) == [f"cubes/{DOCUMENT}"]
    assert (store.get(DOCUMENT), store.list().keys) == (b"1", [DOCUMENT])


def test_checksum_of_azure(blobs, monkeypatch):
    given = []
    upload = fake_clients.FakeBlob.upload_blob

    def remember(self, data, **settings):
        given.append(settings["content_settings"].content_md5)
        return upload(self, data, **settings)

    monkeypatch.setattr(fake_clients.FakeBlob, "upload_blob", remember)
    store = open_store(azure_store("simplekv", blobs, checksum=True))
    store.put("a", b"1")
    store.put_if("b", b"1", None)
    assert bytes(given[0]) == bytes(given[1])


# --- errors


SECRET = "https://account.blob.core.windows.net/sales/x?sv=2026&sig=TOPSECRET"
FAILURES = {"Azure": azure_error, "boto3": client_error}
OPERATIONS = {
    "get": lambda store: store.get(DOCUMENT),
    "get_versioned": lambda store: store.get_versioned(DOCUMENT),
    "changed": lambda store: store.changed(DOCUMENT, '"1"'),
    "put": lambda store: store.put(DOCUMENT, b"1"),
    "put_if": lambda store: store.put_if(DOCUMENT, b"1", None),
    "tail": lambda store: store.tail(DOCUMENT, 1),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_error_of_the_backend_is_an_os_error_without_secrets(key_values, blobs, operation):
    store = open_store(key_values)
    make = FAILURES[next(name for name in ("Azure", "boto3") if type(key_values).__name__.lower().startswith(f"h{name.lower()}"))]
    blobs.fail = lambda _: make("AuthorizationFailure", f"refused by {SECRET} AccountKey=TOPSECRET;x")
    with pytest.raises(OSError, match=DOCUMENT) as error:
        OPERATIONS[operation](store)
    assert store.name in str(error.value)
    assert "TOPSECRET" not in str(error.value)
    assert error.value.__suppress_context__


def test_name_and_repr_have_no_secrets(store):
    assert "secret" not in (store.name + repr(store))


def test_error_of_our_own_is_not_renamed(key_values, monkeypatch):
    store = open_store(key_values)

    def slip(*_):
        raise TypeError("a slip")

    monkeypatch.setattr(Blobs, "get", slip)
    with pytest.raises(TypeError, match="a slip"):
        store.get(DOCUMENT)


def test_large_object_that_is_replaced_while_it_is_read_is_read_again(blobs):
    store = open_store(azure_store("simplekv", blobs))
    store.put(DOCUMENT, b"1")
    failures = [azure_error("ConditionNotMet"), azure_error("ConditionNotMet")]
    blobs.fail = lambda operation: failures.pop() if operation == "get" and failures else None
    assert store.get_versioned(DOCUMENT)[0] == b"1"
    failures += [azure_error("ConditionNotMet")] * 3
    with pytest.raises(OSError, match="ConditionNotMet"):
        store.get_versioned(DOCUMENT)


def test_missing_container_is_no_conflict(blobs):
    store = open_store(azure_store("simplekv", blobs))
    blobs.fail = lambda _: azure_error("ContainerNotFound")
    with pytest.raises(OSError, match="ContainerNotFound"):
        store.put_if(DOCUMENT, b"1", None)


def test_key_that_the_backend_loses_between_two_calls_is_missing(store, blobs):
    with pytest.raises(KeyNotFound, match=DOCUMENT):
        store.tail(DOCUMENT, 4)


def test_invalid_keys_do_not_reach_the_client(store, blobs):
    with pytest.raises(InvalidInput):
        store.put_if("../a", b"1", None)
    assert blobs.calls == []


# --- look-alikes of S3 that ignore conditions


@pytest.fixture(params=[name for name in MAKERS if "boto" in name])
def look_alike(request, blobs):
    blobs.heeds_conditions = False
    return open_store(MAKERS[request.param](blobs))


def test_server_that_ignores_conditions_is_found_out_before_the_first_commit(look_alike, blobs):
    for _ in range(2):
        with pytest.raises(AtomicityRequired, match="compare and swap"):
            look_alike.put_if(DOCUMENT, b"1", None)
    assert not look_alike.capabilities.conditional_put
    assert not open_store(look_alike._store).capabilities.conditional_put
    assert blobs.items == {}


def test_server_that_ignores_conditions_serves_one_writer(look_alike):
    with options(require_atomic=False):
        version = look_alike.put_if(DOCUMENT, b"1", None)
        assert version == look_alike.get_versioned(DOCUMENT)[1]
        look_alike.put_if(DOCUMENT, b"2", version)
        with pytest.raises(VersionMismatch):
            look_alike.put_if(DOCUMENT, b"3", version)
    assert look_alike.get(DOCUMENT) == b"2"


@pytest.mark.skipif(not HAS_MINIMALKV, reason="minimalkv is not installed")
def test_server_is_asked_once_and_nothing_is_left_behind(blobs):
    kv = boto3_store(blobs)
    open_store(kv).put_if("a", b"1", None)
    first = len(blobs.calls)
    open_store(kv).put_if("b", b"1", None)
    assert len(blobs.calls) == first + 1
    assert sorted(blobs.items) == ["a", "b"]


@pytest.mark.skipif(not HAS_MINIMALKV, reason="minimalkv is not installed")
@pytest.mark.parametrize("host", ["s3.amazonaws.com", "s3.eu-central-1.amazonaws.com", "s3.cn-north-1.amazonaws.com.cn"])
def test_amazon_is_not_asked(blobs, host):
    stores = [boto3_store(blobs, bucket=FakeBoto3Bucket(blobs, endpoint=f"https://{host}"))]
    for number, kv in enumerate(stores, start=1):
        open_store(kv).put_if(f"{number}", b"1", None)
        assert blobs.calls == ["put"] * number


@pytest.mark.skipif(not HAS_MINIMALKV, reason="minimalkv is not installed")
def test_check_of_a_server_survives_a_lost_answer(blobs):
    put, lost = blobs.put, []

    def lose_one(name, data, **condition):
        done = put(name, data, **condition)
        if not lost:  # as a client that tries again, and loses against itself
            lost.append(name)
            return None
        return done

    blobs.put = lose_one
    store = open_store(boto3_store(blobs))
    store.put_if(DOCUMENT, b"1", None)
    assert store.capabilities.conditional_put
    assert lost


# --- commits


def test_datasets_are_committed_through_the_client(store):
    snapshot = write(store, {"x": [1], "v1": [1]}, label="one")
    change = make_change(store, {"x": [2], "v1": [2]}, label="two")
    commit(store, change, snapshot)
    assert labels(find_snapshot(open_store(store._store), UUID)) == ["one", "two"]


def test_answer_that_was_lost_is_found_out(store, blobs):
    """The put takes place; what comes back is an error."""
    snapshot = write(store, {"x": [1], "v1": [1]}, label="one")
    change = make_change(store, {"x": [2], "v1": [2]}, label="two")
    put, lost = blobs.put, []

    def lose_one(name, data, **condition):
        done = put(name, data, **condition)
        if name == DOCUMENT and not lost:
            lost.append(name)
            raise ConnectionResetError
        return done

    blobs.put = lose_one
    assert labels(commit(store, change, snapshot)) == ["one", "two"]
    assert lost == [DOCUMENT]


def test_other_stores_are_as_before(tmp_path):
    import storefact

    store = KeyValueAdapter(storefact.get_store_from_url(f"hfs://{tmp_path}"))
    assert not store.capabilities.conditional_put
    with pytest.raises(AtomicityRequired):
        store.put_if(DOCUMENT, b"1", None)
