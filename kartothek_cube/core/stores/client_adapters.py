"""Conditional puts through the clients inside key-value stores: Azure containers, boto3 buckets."""

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
_REFUSED = _MISSING | {
    "BlobAlreadyExists",
    "ConditionNotMet",
    "TargetConditionNotMet",
    "PreconditionFailed",
    "ConditionalRequestConflict",
    "409",
    "412",
}
_READS = 3


class ObjectClient(ABC):
    """The client of one backend, under the keys of a store.

    Versions are ETags. A missing key is a `KeyError`.

    Attributes
    ----------
    trusted : bool
        Whether the server is the provider's own, which respects conditions. Others are probed.
    """

    def __init__(self, store: Any) -> None:
        self._store = store

    @property
    def trusted(self) -> bool:
        return True

    @abstractmethod
    def get(self, key: str) -> tuple[bytes, str]:
        """Return the object and its ETag, from one answer."""

    @abstractmethod
    def etag(self, key: str) -> str:
        """Return the ETag alone."""

    @abstractmethod
    def put_if(self, key: str, data: bytes, etag: str | None) -> str:
        """Write if the object has this ETag, or for None, does not exist; return the new ETag.

        Raises
        ------
        ConditionFailed
            If the condition does not hold.
        """


def client_of(store: object) -> ObjectClient | None:
    """Return the client of a simplekv or minimalkv store, if it supports conditional puts.

    There is no network access.
    """
    # A decorator or subclass may change keys and bytes: reading and writing must be the library's.
    modules = [str(getattr(getattr(type(store), name, None), "__module__", "")) for name in _METHODS]
    if not hasattr(store, "__dict__") or any(name.partition(".")[0] not in _LIBRARIES for name in modules):
        return None
    if hasattr(type(store), "blob_container_client"):
        return AzureClient(store)
    bucket = vars(store).get("bucket")
    if hasattr(bucket, "Object") and hasattr(store, "_object_prefix"):
        # boto3 before 1.35.69 lacks the condition.
        put = bucket.meta.client.meta.service_model.operation_model("PutObject")
        return Boto3Client(store) if "IfMatch" in put.input_shape.members else None
    return None


def layers(store: object) -> Iterator[Any]:
    """A store and the stores that it decorates, from the outside in."""
    while store is not None:
        yield store
        store = getattr(store, "__dict__", {}).get("_dstore")


def holds(store: object, names: tuple[str, ...]) -> bool:
    """Whether a store, or the store that it decorates, has one of these attributes.

    Lazy attributes are not evaluated.
    """
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
                except Exception as error:
                    # A large object was replaced between two of its parts.
                    if _code(error) != "ConditionNotMet" or attempt == _READS:
                        raise
        raise AssertionError

    def etag(self, key: str) -> str:
        with _missing(key):
            return str(self._blob(key).get_blob_properties().etag)

    def put_if(self, key: str, data: bytes, etag: str | None) -> str:
        from azure.core import MatchConditions

        condition: dict[str, object] = {"overwrite": etag is not None}
        if etag is not None:
            condition |= {"etag": etag, "match_condition": MatchConditions.IfNotModified}
        settings = {"max_concurrency": self._store.max_connections, **self._settings(data)}
        with _conditions():
            return str(self._blob(key).upload_blob(data, **settings, **condition)["etag"])

    def _blob(self, key: str) -> Any:
        return self._store.blob_container_client.get_blob_client(key)

    def _settings(self, data: bytes) -> dict[str, object]:
        if not self._store.checksum:
            return {}
        from azure.storage.blob import ContentSettings

        md5 = bytearray(hashlib.md5(data, usedforsecurity=False).digest())
        return {"content_settings": ContentSettings(content_md5=md5)}


class Boto3Client(ObjectClient):
    """``Boto3Store`` of minimalkv."""

    @property
    def trusted(self) -> bool:
        host = urlsplit(self._store.bucket.meta.client.meta.endpoint_url).hostname or ""
        return host.rstrip(".").endswith((".amazonaws.com", ".amazonaws.com.cn"))

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


def _code(error: BaseException) -> str:
    """The error code of the backend: an attribute in Azure, part of the answer in boto3."""
    answer = getattr(error, "response", None)
    code = answer.get("Error", {}).get("Code") if isinstance(answer, dict) else getattr(error, "error_code", None)
    return str(getattr(code, "value", code) or getattr(error, "status", ""))


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
    """Whether an error is of the network or of an SDK of a backend."""
    return isinstance(error, OSError) or type(error).__module__.partition(".")[0] in _SDKS


def redacted(error: BaseException) -> str:
    """Show an error without secrets: shared access signatures, passwords in URLs, account keys."""
    text = re.sub(r"\?[^\s'\"<>)]*", "?…", str(error))
    text = re.sub(r"//[^/\s@]*@", "//…@", text)
    return re.sub(r"(?i)\b(AccountKey|SharedAccessSignature|sig|Signature|password)=[^\s;&'\"]*", r"\1=…", text)
