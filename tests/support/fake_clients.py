"""Stand-ins for the SDKs inside key-value stores: boto3 and azure-storage-blob over a dictionary.

They have as much of the SDKs as those stores and we call.
"""

from __future__ import annotations

import importlib
import io
import itertools
import sys
import threading
from types import ModuleType, SimpleNamespace


class Blobs:
    """Names and bytes. Every write makes a new ETag; a conditional write is one step."""

    def __init__(self):
        self.items = {}
        self.calls = []
        self.fail = lambda operation: None
        self.heeds_conditions = True
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def get(self, name):
        self._called("get")
        return self.items.get(name)

    def put(self, name, data, if_match=None, if_absent=False):
        self._called("put")
        data = data if isinstance(data, bytes) else data.read()
        with self._lock:
            found = self.items.get(name)
            if self.heeds_conditions and (
                (if_absent and found) or (if_match is not None and (found is None or found[1] != if_match))
            ):
                return None
            self.items[name] = (data, f'"{next(self._numbers)}"')
            return self.items[name][1]

    def delete(self, name):
        self.items.pop(name, None)

    def names(self, prefix=""):
        return sorted(name for name in list(self.items) if name.startswith(prefix or ""))

    def _called(self, operation):
        self.calls.append(operation)
        error = self.fail(operation)
        if error is not None:
            raise error


def _error_class(module, name):
    return type(name, (Exception,), {"__module__": module})


# --- azure-storage-blob 12

AzureError = _error_class("azure.core.exceptions", "AzureError")


def azure_error(code, text=""):
    error = AzureError(text or code)
    error.error_code = code
    return error


class FakeContainer:
    def __init__(self, blobs):
        self.blobs = blobs

    def get_blob_client(self, name):
        return FakeBlob(self.blobs, name)

    def delete_blob(self, name):
        if name not in self.blobs.items:
            raise azure_error("BlobNotFound")
        self.blobs.delete(name)

    def list_blobs(self, name_starts_with=None):
        return [SimpleNamespace(name=name) for name in self.blobs.names(name_starts_with)]

    def walk_blobs(self, name_starts_with, delimiter):
        names = (self._cut(name, name_starts_with, delimiter) for name in self.blobs.names(name_starts_with))
        return [SimpleNamespace(name=name) for name in dict.fromkeys(names)]

    @staticmethod
    def _cut(name, prefix, delimiter):
        head, found, _ = name[len(prefix) :].partition(delimiter)
        return prefix + head + found


class FakeBlob:
    def __init__(self, blobs, name):
        self.blobs, self.name = blobs, name

    def _found(self):
        found = self.blobs.get(self.name)
        if found is None:
            raise azure_error("BlobNotFound")
        return found

    def get_blob_properties(self):
        data, etag = self._found()
        return SimpleNamespace(etag=etag, size=len(data))

    def download_blob(self, offset=0, length=None, max_concurrency=1):
        data, etag = self._found()
        return SimpleNamespace(readall=lambda: data[offset:][:length], properties=SimpleNamespace(etag=etag))

    def upload_blob(
        self, data, overwrite=False, etag=None, match_condition=None, content_settings=None, max_concurrency=1
    ):
        assert (etag is None) == (match_condition is None)
        done = self.blobs.put(self.name, data, if_match=etag, if_absent=not overwrite)
        if done is None:
            raise azure_error("ConditionNotMet" if overwrite else "BlobAlreadyExists")
        return {"etag": done}


# --- boto3

ClientError = _error_class("botocore.exceptions", "ClientError")


def client_error(code, text=""):
    error = ClientError(text or code)
    error.response = {"Error": {"Code": code}}
    return error


class FakeBoto3Bucket:
    name = "bucket"

    def __init__(self, blobs, knows_conditions=True, endpoint="http://127.0.0.1:9000"):
        self.blobs = blobs
        members = {"Body", "IfNoneMatch", "IfMatch"} if knows_conditions else {"Body"}
        shape = SimpleNamespace(input_shape=SimpleNamespace(members=members))
        model = SimpleNamespace(operation_model=lambda _: shape)
        self.meta = SimpleNamespace(
            client=SimpleNamespace(meta=SimpleNamespace(service_model=model, endpoint_url=endpoint))
        )
        self.objects = SimpleNamespace(
            filter=lambda Prefix: [SimpleNamespace(key=name) for name in blobs.names(Prefix)]
        )

    def Object(self, name):
        return FakeBoto3Object(self.blobs, name)


class FakeBoto3Object:
    def __init__(self, blobs, name):
        self.blobs, self.name = blobs, name

    def _found(self, code="NoSuchKey"):
        found = self.blobs.get(self.name)
        if found is None:
            raise client_error(code)
        return found

    def load(self):
        self._found("404")

    @property
    def content_length(self):
        return len(self._found("404")[0])

    @property
    def e_tag(self):
        return self._found("404")[1]

    def get(self, Range=None):
        data, etag = self._found()
        if Range is not None:
            start, _, last = Range.removeprefix("bytes=").partition("-")
            data = data[int(start) : int(last) + 1 if last else None]
            if not data:
                raise client_error("InvalidRange")
        return {"Body": io.BytesIO(data), "ETag": etag}

    def put(self, Body, IfMatch=None, IfNoneMatch=None, **settings):
        done = self.blobs.put(self.name, Body, if_match=IfMatch, if_absent=IfNoneMatch == "*")
        if done is None:
            raise client_error("PreconditionFailed")
        return {"ETag": done}

    def delete(self):
        self.blobs.delete(self.name)


def install(monkeypatch):
    """Put these classes where the stores look for the classes of the SDK."""
    contents = {
        "azure": {},
        "azure.core": {"MatchConditions": SimpleNamespace(IfNotModified="IfNotModified")},
        "azure.core.exceptions": {"AzureError": AzureError},
        "azure.storage": {},
        "azure.storage.blob": {"ContentSettings": SimpleNamespace},
        "botocore": {},
        "botocore.exceptions": {"ClientError": ClientError},
    }
    for name, content in contents.items():
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)


def azure_store(package, blobs, **settings):
    """A store of simplekv or minimalkv that holds a fake container."""
    store = _class(package, "HAzureBlockBlobStore").__new__(_class(package, "HAzureBlockBlobStore"))
    known = {"container": "sales", "public": False, "create_if_missing": False, "max_connections": 2, "checksum": False}
    vars(store).update(
        known | {"conn_string": "AccountKey=secret"} | settings, _lazy_blob_container_client=FakeContainer(blobs)
    )
    return store


def boto3_store(blobs, object_prefix="", **settings):
    store = _class("minimalkv", "HBoto3Store").__new__(_class("minimalkv", "HBoto3Store"))
    bucket = settings.pop("bucket", FakeBoto3Bucket(blobs))
    vars(store).update(
        {
            "bucket": bucket,
            "_object_prefix": object_prefix,
            "reduced_redundancy": False,
            "public": False,
            "metadata": {},
        }
        | settings
    )
    return store


def _class(package, name):
    return getattr(
        importlib.import_module({"simplekv": "storefact._hstores", "minimalkv": "minimalkv._hstores"}[package]), name
    )
