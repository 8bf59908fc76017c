"""URLs and settings of object stores, and the page of the documentation about stores."""

from __future__ import annotations

import base64
import importlib.util
import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

from kartothek_cube.core.stores.contract import Capabilities, ReadOnlyView
from kartothek_cube.core.stores.key_value import KeyValueAdapter
from kartothek_cube.core.stores.local import LocalStore, MemoryStore
from kartothek_cube.core.stores.object_store import ObjectStore
from kartothek_cube.core.stores.open import open_store
from kartothek_cube.core.stores.urls import OBJECT_SCHEMES, parse_location
from kartothek_cube.errors import InvalidInput, InvalidType, ReadOnlyStore, Unsupported

SECRET = "se/cr+et=="
QUOTED = "se%2Fcr%2Bet%3D%3D"
ACCOUNT = json.dumps({"client_email": "a@b", "private_key": SECRET})
ENCODED = base64.urlsafe_b64encode(ACCOUNT.encode()).decode()


def place(location):
    return (
        location.kind,
        location.endpoint,
        location.account,
        location.region,
        location.bucket,
        location.prefix,
        dict(location.secrets),
    )


S3_KEYS = {"access_key_id": "Key", "secret_access_key": SECRET}


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("s3://bucket", ("s3", None, None, None, "bucket", "", {})),
        ("s3://bucket/", ("s3", None, None, None, "bucket", "", {})),
        ("S3://bucket/Pre/Fix/", ("s3", None, None, None, "bucket", "Pre/Fix", {})),
        ("s3a://bucket/a%20b@c", ("s3", None, None, None, "bucket", "a b@c", {})),
        ("s3n://bucket?region=eu-central-1", ("s3", None, None, "eu-central-1", "bucket", "", {})),
        ("s3://bucket?endpoint=http://h:9000&region_name=x", ("s3", "http://h:9000", None, "x", "bucket", "", {})),
        (f"hs3://Key:{QUOTED}@h:9000/bucket", ("s3", "https://h:9000", None, None, "bucket-key", "", S3_KEYS)),
        (
            f"s3://Key:{QUOTED}@h/bucket-KEY?create_if_missing=true",
            ("s3", "https://h", None, None, "bucket-KEY", "", S3_KEYS),
        ),
        (
            f"boto://Key:{QUOTED}@h/b/p/q?is_secure=false&force_bucket_suffix=false",
            ("s3", "http://h", None, None, "b", "p/q", S3_KEYS),
        ),
        (
            f"hs3://Key:{QUOTED}@s3.amazonaws.com/b?force_bucket_suffix=false",
            ("s3", None, None, None, "b", "", S3_KEYS),
        ),
        (
            f"hs3://Key:{QUOTED}@s3-eu-west-1.amazonaws.com/b?force_bucket_suffix=false",
            ("s3", None, None, "eu-west-1", "b", "", S3_KEYS),
        ),
        (
            f"hs3://Key:{QUOTED}@h/b?force_bucket_suffix=0&session_token=t",
            ("s3", "https://h", None, None, "b", "", {**S3_KEYS, "token": "t"}),
        ),
        (f"azure://acc:{QUOTED}@cont", ("azure", None, "acc", None, "cont", "", {"access_key": SECRET})),
        (
            f"hazure://acc:{QUOTED}@cont/p?create_if_missing=false&max_connections=2",
            ("azure", None, "acc", None, "cont", "p", {"access_key": SECRET}),
        ),
        (
            "hazure://acc:%3Fsv%3D1%26sig%3Dx%252F@cont?use_sas",
            ("azure", None, "acc", None, "cont", "", {"sas_token": "sv=1&sig=x%2F"}),
        ),
        (
            f"hazure://acc:{QUOTED}@cont?default_endpoints_protocol=http&blob_endpoint=http://127.0.0.1:10000/acc",
            ("azure", "http://127.0.0.1:10000/acc", "acc", None, "cont", "", {"access_key": SECRET}),
        ),
        (
            f"azure://acc:{QUOTED}@cont?default_endpoints_protocol=http",
            ("azure", "http://acc.blob.core.windows.net", "acc", None, "cont", "", {"access_key": SECRET}),
        ),
        ("az://cont/p", ("azure", None, None, None, "cont", "p", {})),
        ("azure://cont?account_name=acc", ("azure", None, "acc", None, "cont", "", {})),
        ("abfs://cont/p", ("azure", None, None, None, "cont", "p", {})),
        ("abfss://cont@acc.dfs.core.windows.net/p", ("azure", None, "acc", None, "cont", "p", {})),
        ("wasbs://cont@acc.blob.core.windows.net/p", ("azure", None, "acc", None, "cont", "p", {})),
        ("gs://bucket/p", ("gcs", None, None, None, "bucket", "p", {})),
        ("gcs://bucket?endpoint=http://h:1", ("gcs", "http://h:1", None, None, "bucket", "", {})),
        (
            f"hgcs://{ENCODED}@bucket?project=x&create_if_missing=true",
            ("gcs", None, None, None, "bucket", "", {"service_account_key": ACCOUNT}),
        ),
        (
            f"hgs://{ENCODED.rstrip('=')}@bucket/p",
            ("gcs", None, None, None, "bucket", "p", {"service_account_key": ACCOUNT}),
        ),
    ],
)
def test_urls(url, expected):
    location = parse_location(url)
    assert place(location) == expected
    assert SECRET not in repr(location) + location.name + repr(location.identity)
    again = parse_location(location.name)
    assert place(again)[:-1] == expected[:-1]
    assert again.identity == location.identity
    assert open_store(url) == open_store(location.name)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("s3://", "names no bucket"),
        ("s3:///bucket", "names no bucket"),
        ("s3:/bucket", "no store URL"),
        ("s3://bucket:9000", "names no bucket"),
        (f"hs3://Key@h/{SECRET}", "hs3://key:secret@endpoint/bucket"),
        (f"hs3://Key:{SECRET}@h/b", "names no bucket|percent-encoded"),
        (f"hs3://:{QUOTED}@h/b", "percent-encoded"),
        (f"hs3://Key:{QUOTED}@h", "names no bucket"),
        (f"azure://acc:{SECRET}@cont", "names no bucket|percent-encoded"),
        (f"hgcs://{SECRET}@bucket", "names no bucket|base64"),
        ("hgcs://WzFd@bucket", "base64"),
        (f"s3://bucket?token={SECRET}", "not .*token"),
        (f"s3://bucket?endpoint=http://user:{SECRET}@h", "without user"),
        ("s3://bucket?endpoint=minio:9000", "endpoint of a store is a URL"),
        ("s3://bucket?use_sas=true", "use_sas"),
        ("gs://bucket?region=x", "region"),
        (f"s3://bucket?is_secure={SECRET}&readonly=maybe", "neither true nor false"),
        ("s3://bucket/a/../b", "Invalid key"),
        ("s3://bucket/a//b", "Invalid key"),
        ("s3://bucket/ä", "Invalid key"),
        ("s3://bucket#wrap:urlencode", "wrap:readonly"),
        ("nfs://bucket", "Unknown storage type"),
    ],
)
def test_malformed_urls_are_refused_and_not_repeated(url, text):
    with pytest.raises(InvalidInput, match=text) as error:
        open_store(url)
    assert SECRET not in str(error.value)
    assert error.value.__cause__ is None


@pytest.mark.parametrize(
    "url",
    [
        "s3://b?readonly=true",
        "s3://b?readonly",
        "s3://b#wrap:readonly",
        f"readonly+hs3://Key:{QUOTED}@h/b",
        "gs://b#wrap:readonly",
    ],
)
def test_read_only_urls(url):
    store = open_store(url)
    assert isinstance(store, ReadOnlyView)
    assert isinstance(store.inner, ObjectStore)


def test_settings_of_object_stores():
    def credentials():
        return {}

    store = open_store(
        "s3://b/p",
        region="eu-west-1",
        endpoint="https://h",
        credentials=credentials,
        check_conditions=False,
        readonly=True,
    )
    location = store.inner._location
    assert (location.region, location.endpoint, location.check_conditions) == ("eu-west-1", "https://h", False)
    assert store.inner._credentials is credentials
    assert store.name == "s3://b/p?endpoint=https://h&region=eu-west-1"


def test_settings_win_over_the_url():
    location = open_store(
        "s3://b?endpoint=https://h&region=x&check_conditions=true",
        endpoint="https://i",
        region="y",
        check_conditions=False,
    )._location
    assert (location.endpoint, location.region, location.check_conditions) == ("https://i", "y", False)
    assert open_store("s3://b?check_conditions=false")._location.check_conditions is False


@pytest.mark.parametrize(
    ("url", "settings", "error", "text"),
    [
        ("s3://b", {"lock": "inode"}, InvalidInput, "local stores"),
        ("gs://b", {"region": "x"}, InvalidInput, "is for S3"),
        ("s3://b", {"endpoint": SECRET}, InvalidInput, "endpoint"),
        ("s3://b", {"endpoint": 1}, InvalidInput, "endpoint"),
        ("s3://b", {"credentials": {"secret": SECRET}}, InvalidType, "function"),
        (f"hs3://Key:{QUOTED}@h/b", {"credentials": dict}, InvalidInput, "one of them"),
        ("/data", {"region": "x"}, InvalidInput, "object stores"),
        ("hfs:///data", {"credentials": dict}, InvalidInput, "object stores"),
        ("hmemory://", {"endpoint": "https://h"}, InvalidInput, "object stores"),
        (MemoryStore(), {"endpoint": "https://h"}, InvalidInput, "object stores"),
        ("s3://b", {"regoin": "x"}, InvalidInput, "regoin"),
    ],
)
def test_settings_that_do_not_fit_are_refused(url, settings, error, text):
    with pytest.raises(error, match=text) as caught:
        open_store(url, **settings)
    assert SECRET not in str(caught.value)


def test_stores_of_the_same_place_are_equal():
    assert open_store("s3://b/p") == open_store("s3a://b/p/", credentials=dict)
    assert open_store("s3://b/p", region="x") == open_store("s3://b/p")
    assert (
        len(
            {
                open_store(url)
                for url in (
                    "s3://b",
                    "s3://c",
                    "s3://b/p",
                    "gs://b",
                    "az://b",
                    "s3://b?endpoint=https://h",
                    "az://b?account_name=a",
                )
            }
        )
        == 7
    )


@pytest.mark.parametrize(("url", "extra"), [("s3://b", "s3"), (f"hazure://a:{QUOTED}@b", "azure"), ("gs://b", "gcs")])
def test_without_its_extra_an_object_store_is_unsupported(url, extra, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "obstore" else find(name, *rest)
    )
    with pytest.raises(Unsupported, match=re.escape(f"pip install 'kartothek-cube[{extra}]'")) as error:
        open_store(url)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("scheme", ["hfs", "fs"])
def test_a_directory_that_minimalkv_opens_for_reading_is_not_written(tmp_path, scheme):
    pytest.importorskip("minimalkv")
    (tmp_path / "a").write_bytes(b"1")
    store = open_store(f"{scheme}+readonly://{tmp_path}")
    assert store.get("a") == b"1"
    with pytest.raises(ReadOnlyStore):
        store.put("a", b"2")


def test_minimalkv_opens_what_storefact_does_not_know(monkeypatch):
    minimalkv = pytest.importorskip("minimalkv")
    memory = pytest.importorskip("minimalkv.memory")
    opened = {}

    def get_store_from_url(url):
        return opened.setdefault(url, memory.DictStore())

    monkeypatch.setattr(minimalkv, "get_store_from_url", get_store_from_url)
    assert isinstance(open_store("other://host/x"), KeyValueAdapter)
    assert list(opened) == ["other://host/x"]


# --- the page

PAGE = Path(__file__).parents[3] / "docs" / "stores.md"

_PROMISES = {
    "atomic_put": "readers see old or new, never a part",
    "conditional_put": "concurrent commits cannot lose each other",
    "modification_times": "listings say when an object was written",
    "shared": "other processes see the same objects",
}


class Held:
    """What a simplekv or minimalkv store of Azure or S3 looks like from outside."""

    blob_container_client = None

    def get(self, key): ...

    get.__module__ = "simplekv"
    put = open = iter_keys = _get = _put = get


def table_of_capabilities(stores):
    lines = ["| | " + " | ".join(stores) + " |", "|---" * (len(stores) + 1) + "|"]
    for name, meaning in _PROMISES.items():
        answers = ("yes" if getattr(store.capabilities, name) else "no" for store in stores.values())
        lines.append(f"| `{name}`: {meaning} | " + " | ".join(answers) + " |")
    return "\n".join(lines)


def test_the_page_shows_the_capabilities_that_the_stores_declare(tmp_path):
    import storefact

    stores = {
        "directory": LocalStore(tmp_path),
        "memory": MemoryStore(),
        "S3, Azure Blob, GCS": open_store("s3://b"),
        "Azure or S3 through simplekv or minimalkv": KeyValueAdapter(Held()),
        "simplekv or minimalkv in memory": KeyValueAdapter(storefact.get_store_from_url("hmemory://")),
        "other key-value store": KeyValueAdapter(storefact.get_store_from_url(f"hfs://{tmp_path}")),
    }
    assert set(_PROMISES) | {"writable"} == {field.name for field in fields(Capabilities)}
    assert (
        open_store("gs://b").capabilities
        == open_store("az://b").capabilities
        == stores["S3, Azure Blob, GCS"].capabilities
    )
    assert table_of_capabilities(stores) in PAGE.read_text()


def test_the_page_names_every_scheme():
    text = PAGE.read_text()
    assert {scheme for scheme in OBJECT_SCHEMES if f"`{scheme}://" not in text} == set()
