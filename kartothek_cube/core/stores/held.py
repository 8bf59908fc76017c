"""Conditional puts through the clients that key-value stores hold: the container client of Azure and the bucket of boto3."""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from kartothek_cube.core.stores.conditional_put import ConditionFailed

__all__ = ["ObjectClient", "client_of", "foreign", "holds", "layers", "redacted"]

_LIBRARIES = frozenset({"simplekv", "storefact", "minimalkv"})
_METHODS = ("get", "put", "_get", "_put")
_SDKS = frozenset({"azure", "boto", "boto3", "botocore", "requests", "urllib3"})
_MISSING = frozenset({"BlobNotFound", "NoSuchKey", "404"})
_REFUSED = _MISSING | {"BlobAlreadyExists", "ConditionNotMet", "TargetConditionNotMet", "PreconditionFailed", "ConditionalRequestConflict", "409", "412"}
_READS = 3


class ObjectClient(ABC):
    """One backend's client, under the keys of a store. Versions are ETags. A missing key is a `KeyError`.

    Attributes
    ----------
    trusted : bool
        Whether the server is the provider's own, which respects conditions. A look-alike has to be tried.
    """

    def __init__(self, store: Any) -> None:
        self._store = store

    @property
    def trusted(self) -> bool:
        return True

    @abstractmethod
    def get(self, key: str) -> tuple[bytes, str]:
        """Return the object and the ETag of the same answer."""

    @abstractmethod
    def etag(self, key: str) -> str:
        """Return the ETag alone."""

    @abstractmethod
    def put_if(self, key: str, data: bytes, etag: str | None) -> str:
        """Write if the object has this ETag still, or with None if there is none; return the new ETag, or raise `ConditionFailed`."""


def client_of(store: object) -> ObjectClient | None:
    """Return the client of a simplekv or minimalkv store, if it has one that can put on condition; nothing is asked over the network.

    What a decorator or a subclass makes of keys and bytes is not known, so a store counts only if reading and writing are the library's own.
    """
    if not _is_plain(store):
        return None
    if hasattr(type(store), "blob_container_client"):
        return AzureClient(store)
    bucket = vars(store).get("bucket")
    if hasattr(bucket, "Object") and hasattr(store, "_object_prefix") and _boto3_can(bucket):
        return Boto3Client(store)
    return None


def _is_plain(store: object) -> bool:
    methods = [getattr(type(store), name, None) for name in _METHODS]
    return hasattr(store, "__dict__") and all(str(getattr(method, "__module__", "")).partition(".")[0] in _LIBRARIES for method in methods)


def _boto3_can(bucket: Any) -> bool:
    """Whether this boto3 knows the condition; older ones than 1.35.69 do not."""
    return "IfMatch" in bucket.meta.client.meta.service_model.operation_model("PutObject").input_shape.members


def layers(store: object) -> Iterator[Any]:
    """A store, and those that its decorators pass on to, from the outside in."""
    while store is not None:
        yield store
        store = getattr(store, "__dict__", {}).get("_dstore")


def holds(store: object, names: tuple[str, ...]) -> bool:
    """Whether a store, or the one that its decorators pass on to, has one of these attributes. A lazy one is not made."""
    *_, store = layers(store)
    return any(name in getattr(store, "__dict__", {}) or hasattr(type(store), name) for name in names)


class AzureClient(ObjectClient):
    """``AzureBlockBlobStore`` of simplekv and minimalkv, with azure-storage-blob 12."""

    def get(self, key: str) -> tuple[bytes, str]:
        for attempt in range(1, _READS + 1):
            with _missing(key):
                try:
                    download = self._blob(key).download_blob()
                    return download.readall(), str(download.properties.etag)
                except Exception as error:  # a large object that is replaced between two of its parts
                    if _code(error) != "ConditionNotMet" or attempt == _READS:
                        raise
        raise AssertionError

    def etag(self, key: str) -> str:
        with _missing(key):
            return str(self._blob(key).get_blob_properties().etag)

    def put_if(self, key: str, data: bytes, etag: str | None) -> str:
        from azure.core import MatchConditions

        condition = {"overwrite": False} if etag is None else {"overwrite": True, "etag": etag, "match_condition": MatchConditions.IfNotModified}
        with _conditions():
            return str(self._blob(key).upload_blob(data, max_concurrency=self._store.max_connections, **self._settings(data), **condition)["etag"])

    def _blob(self, key: str) -> Any:
        return self._store.blob_container_client.get_blob_client(key)

    def _settings(self, data: bytes) -> dict[str, object]:
        if not self._store.checksum:
            return {}
        from azure.storage.blob import ContentSettings

        return {"content_settings": ContentSettings(content_md5=bytearray(hashlib.md5(data, usedforsecurity=False).digest()))}


class Boto3Client(ObjectClient):
    """``Boto3Store`` of minimalkv."""

    @property
    def trusted(self) -> bool:
        return _is_amazon(self._store.bucket.meta.client.meta.endpoint_url)

    def get(self, key: str) -> tuple[bytes, str]:
        with _missing(key):
            answer = self._object(key).get()
            return answer["Body"].read(), str(answer["ETag"])

    def etag(self, key: str) -> str:
        with _missing(key):
            return str(self._object(key).e_tag)

    def put_if(self, key: str, data: bytes, etag: str | None) -> str:
        condition = {"IfNoneMatch": "*"} if etag is None else {"IfMatch": etag}
        with _conditions():
            return str(self._object(key).put(Body=data, **self._settings(), **condition)["ETag"])

    def _object(self, key: str) -> Any:
        return self._store.bucket.Object(self._store._object_prefix + key)  # noqa: SLF001 - `prefix` warns

    def _settings(self) -> dict[str, object]:
        store = self._store
        acl = {"ACL": "public-read"} if store.public else {}
        storage = {"StorageClass": "REDUCED_REDUNDANCY"} if store.reduced_redundancy else {}
        return {"Metadata": store.metadata, **acl, **storage}


def _is_amazon(url: str) -> bool:
    host = (urlsplit(url).hostname or "").rstrip(".")
    return host.endswith((".amazonaws.com", ".amazonaws.com.cn"))


def _code(error: BaseException) -> str:
    """The backend's word for what went wrong: an attribute in Azure, part of the answer in boto3."""
    answer = getattr(error, "response", None)
    named = answer.get("Error", {}).get("Code") if isinstance(answer, dict) else getattr(error, "error_code", None)
    return str(getattr(named, "value", named) or getattr(error, "status", ""))


@contextmanager
def _missing(key: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if _code(error) in _MISSING:
            raise KeyError(key) from None
        raise


@contextmanager
def _conditions() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if _code(error) in _REFUSED:
            raise ConditionFailed from None
        raise


def foreign(error: BaseException) -> bool:
    """Whether an error comes from a backend: of the network, or of an SDK."""
    return isinstance(error, OSError) or type(error).__module__.partition(".")[0] in _SDKS


def redacted(error: BaseException) -> str:
    """Show an error without what may be a secret: the query of a URL (shared access signatures), what stands before its ``@``, keys of connection strings."""
    text = re.sub(r"\?[^\s'\"<>)]*", "?…", str(error))
    text = re.sub(r"//[^/\s@]*@", "//…@", text)
    return re.sub(r"(?i)\b(AccountKey|SharedAccessSignature|sig|Signature|password)=[^\s;&'\"]*", r"\1=…", text)
