"""Stores of simplekv and minimalkv: directories become a `LocalStore`, all others are adapted.

In order:

- conditional puts through the clients inside: Azure containers, boto3 buckets
- the store
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import re
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any
from urllib.parse import urlsplit

from kartothek_cube.core.runtime.options import current_options
from kartothek_cube.core.stores.contract import (
    Buffer,
    Buffers,
    Capabilities,
    ConditionFailed,
    Data,
    Entry,
    Listing,
    ReadOnlyView,
    Source,
    Span,
    Store,
    Version,
    check_key,
    check_prefix,
    check_spans,
    is_known_to_ignore_conditions,
    select,
    supports_conditional_put,
)
from kartothek_cube.core.stores.local import LocalStore, check_no_settings, digest
from kartothek_cube.errors import AtomicityRequired, InvalidInput, InvalidType, KeyNotFound, ReadOnlyStore

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
    bucket: Any = vars(store).get("bucket")
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


# --- the store ------------------------------------------------------------------------------------


# One lock for all adapters: two of them may share a dictionary.
_LOCK = threading.RLock()
_TOKENS = itertools.count(1)
_SEEN: dict[int, tuple[Callable[[], object], int]] = {}
# Attributes of the simplekv and minimalkv stores whose backend replaces objects atomically.
_ATOMIC_BACKENDS = ("bucket", "blob_container_client", "redis")


def is_key_value_store(store: object) -> bool:
    """Whether an object has the reading methods of a simplekv or minimalkv store."""
    # A read-only store has no `put`.
    return all(callable(getattr(store, method, None)) for method in ("get", "open", "iter_keys"))


def adapt(store: object, settings: Mapping[str, Any] = MappingProxyType({})) -> Store:
    """Return a simplekv or minimalkv store as a `Store`."""
    readonly = not all(callable(getattr(layer, "put", None)) for layer in layers(store))
    directory = _directory(_attributes(store).get("_dstore") if readonly else store)
    adapted: Store
    if directory is None:
        check_no_settings(settings, type(store).__name__)
        adapted = KeyValueAdapter(store)
    else:
        adapted = LocalStore(directory.root, **{"perm": directory.perm, **settings})
    return ReadOnlyView(adapted) if readonly else adapted


def _directory(store: Any) -> Any:
    """Return a store that keeps plain files, or None."""
    # Decorators delegate attributes, so only the object's own ones count.
    if not hasattr(type(store), "_build_filename") or "root" not in _attributes(store) or not hasattr(store, "perm"):
        return None
    # A subclass may keep its files elsewhere.
    key = "table/COUNTRY_CODE=DE"
    return store if Path(store._build_filename(key)).absolute() == Path(store.root, key).absolute() else None  # noqa: SLF001


def _is_dictionary(store: object) -> bool:
    return isinstance(_attributes(store).get("d"), dict)


def _attributes(store: object) -> dict[str, Any]:
    """Return an object's own attributes, without those that a decorator delegates."""
    return getattr(store, "__dict__", {})


def _token(store: object) -> int:
    """Return a number for this object that no other object of the process has."""
    # The address alone is not enough: a later object may get it.
    address = id(store)
    with _LOCK:
        seen = _SEEN.get(address)
        if seen is None or seen[0]() is not store:
            reference: Callable[[], object]
            try:
                reference = weakref.ref(store, lambda _: _SEEN.pop(address, None))
            except TypeError:  # a class with slots: keeping the object keeps its address taken
                reference = lambda: store  # noqa: E731
            seen = _SEEN[address] = (reference, next(_TOKENS))
        return seen[1]


class KeyValueAdapter(Store):
    """Adapts any store with the methods of simplekv.

    `put_if` is atomic for a store that keeps its objects in a dictionary, and for one whose backend
    compares and swaps: Azure with azure-storage-blob 12, S3 with boto3; their versions are ETags.
    For other stores `put_if` raises, unless ``options(require_atomic=False)`` declares that there
    is only one writer.
    """

    def __init__(self, store: Any) -> None:
        self._store = store
        # A decorator may cache or rename, so a decorated dictionary cannot swap; yet its objects
        # are in this process only.
        self._in_memory = _is_dictionary(store)
        self._shared = not any(_is_dictionary(layer) for layer in layers(store))
        self._client = client_of(store)
        self._identity = ("keyvalue", _token(store))

    @property
    def capabilities(self) -> Capabilities:
        atomic = self._in_memory or holds(self._store, _ATOMIC_BACKENDS)
        exact = self._in_memory or (self._client is not None and not is_known_to_ignore_conditions(self._identity))
        return Capabilities(atomic_put=atomic, conditional_put=exact, modification_times=False, shared=self._shared)

    @property
    def name(self) -> str:
        return f"{type(self._store).__module__.partition('.')[0]}:{type(self._store).__name__}"

    @property
    def identity(self) -> Hashable:
        return self._identity

    @property
    def is_remote(self) -> bool:
        return holds(self._store, _ATOMIC_BACKENDS)

    def __reduce__(self) -> tuple[object, ...]:
        if not self._shared:
            raise InvalidType(
                f"The memory store {self.name} cannot be pickled: another process would get a copy "
                "and its writes would be lost. Use a directory or another shared store; "
                "a URL like hmemory://name finds the same objects only inside one process."
            )
        return (KeyValueAdapter, (self._store,))

    def get(self, key: str) -> bytes:
        with self._errors(key):
            return bytes(self._store.get(key))

    def get_versioned(self, key: str) -> tuple[bytes, Version]:
        if self._client is None:
            data = self.get(key)
            return data, digest(data)
        with self._errors(key):
            return self._client.get(key)

    def changed(self, key: str, version: Version) -> bool:
        if self._client is None:
            return super().changed(key, version)
        try:
            with self._errors(key):
                return self._client.etag(key) != version
        except KeyNotFound:
            return True

    def tail(self, key: str, n: int) -> tuple[Buffer, int]:
        with self._open(key) as file:
            size = _size_of(file)
            return _read_span(file, max(0, size - n), size), size

    def ranges(self, key: str, spans: Sequence[Span]) -> Buffers:
        with self._open(key) as file:
            size = _size_of(file) if spans else 0
            return [_read_span(file, start, min(stop, size)) for start, stop in check_spans(spans)]

    def put(self, key: str, data: Data) -> None:
        with self._errors(key), _LOCK if self._in_memory else contextlib.nullcontext():
            self._store.put(key, bytes(data))

    def put_file(self, key: str, source: Source) -> None:
        if isinstance(source, str | os.PathLike):
            with Path(source).open("rb") as file:  # given a path, simplekv may move the file away
                self.put_file(key, file)
            return
        with self._errors(key):
            self._store.put_file(key, source)

    def put_if(self, key: str, data: Data, version: Version | None) -> Version:
        check_key(key)
        if self._client is not None:
            if not isinstance(version, str | None):
                text = f"A version of {key!r} in store {self.name} is an ETag, not {type(version).__name__}."
                raise InvalidType(text)
            with self._errors(key):
                client = self._client
                swaps = client.trusted or supports_conditional_put(self._identity, client.put_if, self._store.delete)
            if swaps:
                try:
                    with self._errors(key):
                        return self._client.put_if(key, bytes(data), version)
                except ConditionFailed:
                    raise self.mismatch(key, version) from None
        if not self._in_memory and current_options().require_atomic:
            raise AtomicityRequired(
                f"Store {self.name} cannot compare and swap, so a concurrent writer's change to {key!r} could be "
                "lost. Use a store that can, or options(require_atomic=False) if there is one writer."
            )
        # For a dictionary, the lock makes this atomic.
        with _LOCK:
            if self._version(key) != version:
                raise self.mismatch(key, version)
            self.put(key, data)
            return digest(data) if self._client is None else self._version(key)

    def _version(self, key: str) -> Version | None:
        try:
            return self.get_versioned(key)[1]
        except KeyNotFound:
            return None

    def delete(self, key: str) -> None:
        with contextlib.suppress(KeyError), self._errors(key):
            self._store.delete(key)

    def list(self, prefix: str = "", recursive: bool = False) -> Listing:
        check_prefix(prefix)
        with self._foreign(prefix):
            if recursive or not hasattr(self._store, "iter_prefixes"):
                return select((Entry(key) for key in sorted(self._store.iter_keys(prefix))), prefix, recursive)
            names = sorted(self._store.iter_prefixes("/", prefix))
        entries = [Entry(name) for name in names if not name.endswith("/")]
        return Listing(entries, [name for name in names if name.endswith("/")])

    @contextlib.contextmanager
    def _open(self, key: str) -> Iterator[Any]:
        with self._errors(key), contextlib.closing(self._store.open(key)) as file:
            yield file

    @contextlib.contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        """Check a key, and translate errors of the backend."""
        check_key(key)
        try:
            with self._foreign(key):
                yield
        except InvalidInput:
            raise
        except (KeyError, IsADirectoryError, NotADirectoryError):
            raise self.missing(key) from None
        except ValueError as error:
            raise InvalidInput(f"Store {self.name} does not take the key {key!r}: {error}") from error
        except PermissionError as error:
            raise ReadOnlyStore(f"Store {self.name} does not allow this access to {key!r}: {error}") from error

    @contextlib.contextmanager
    def _foreign(self, key: str) -> Iterator[None]:
        """Raise errors of a remote backend without the secrets in their texts."""
        try:
            yield
        except Exception as error:
            if self._client is None or not foreign(error):
                raise
            raise OSError(
                f"Store {self.name} has no answer for {key!r}: {type(error).__name__}: {redacted(error)}"
            ) from None


def _size_of(file: IO[bytes]) -> int:
    return int(file.seek(0, os.SEEK_END) or file.tell())


def _read_span(file: IO[bytes], start: int, stop: int) -> bytes:
    if start >= stop:  # some backends refuse an empty range
        return b""
    file.seek(start)
    return bytes(file.read(stop - start))
