"""S3, Azure Blob and GCS as stores, through obstore.

In order:

- errors of obstore as ours, without credentials
- clients: settings, credentials, endpoints, forked processes
- the store
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, TypeVar
from urllib.parse import quote

from kartothek_cube.core.runtime.options import current_options
from kartothek_cube.core.stores.contract import (
    Buffer,
    Buffers,
    Capabilities,
    ConditionFailed,
    Data,
    Entries,
    Entry,
    Listing,
    Source,
    Span,
    Store,
    Version,
    check_key,
    check_prefix,
    check_spans,
    is_known_to_ignore_conditions,
    supports_conditional_put,
)
from kartothek_cube.core.stores.urls import Kind, Location
from kartothek_cube.errors import (
    AtomicityRequired,
    InvalidInput,
    InvalidType,
    KartothekCubeError,
    KeyNotFound,
    MissingExtra,
    ReadOnlyStore,
    Unsupported,
)

_SHORTEST_SECRET = 4
_MISSING_BUCKET = re.compile(
    r"<Code>(?:NoSuchBucket|ContainerNotFound)</Code>|<Message>The specified bucket does not exist"
)
_SECRET_VARIABLES = re.compile(r"(AWS|AZURE|GOOGLE)_.*(KEY|SECRET|TOKEN|SAS|PASSWORD|CREDENTIALS).*")
_STATUS = re.compile(r"status code: (\d{3})")


@dataclass(frozen=True, slots=True)
class Attempt:
    """A failed call: operation, key or prefix, and the error to raise for an unmet condition."""

    store: Store
    operation: str
    key: str
    secrets: tuple[str, ...] = field(repr=False)
    writes: bool = False
    mismatch: Callable[[], Exception] | None = None


def is_panic(error: BaseException) -> bool:
    """Whether obstore panicked; a panic of Rust is a `BaseException` in Python."""
    return type(error).__name__ == "PanicException"


def explained(error: BaseException, attempt: Attempt) -> BaseException:
    """Return the error to raise: `KeyNotFound`, an `OSError` for the network, others unchanged.

    Raise the result outside of the ``except`` block: the original may contain credentials, and must
    not become its context.
    """
    from obstore import exceptions

    if isinstance(error, KartothekCubeError):
        return error
    if attempt.mismatch is not None and isinstance(
        error, (exceptions.AlreadyExistsError, exceptions.PreconditionError)
    ):
        return attempt.mismatch()
    if isinstance(error, FileNotFoundError) and not _names_missing_bucket(error):
        return attempt.store.missing(attempt.key)
    if isinstance(error, (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)) or has_status(
        error, 401, 403
    ):
        return (ReadOnlyStore if attempt.writes else PermissionError)(
            f"{_text(error, attempt)} Are the credentials right, and do they allow this?"
        )
    if isinstance(error, (exceptions.NotSupportedError, exceptions.InvalidPathError, NotImplementedError)):
        return Unsupported(_text(error, attempt))
    if isinstance(error, ValueError):
        return InvalidInput(_text(error, attempt))
    if isinstance(error, (exceptions.BaseError, FileNotFoundError)) or is_panic(error):
        return ConnectionError(_text(error, attempt))
    return error


def not_opened(error: BaseException, name: str, secrets: tuple[str, ...]) -> InvalidInput:
    """Return the error for a client that could not be made with these credentials and settings."""
    return InvalidInput(
        f"Store {name} cannot be opened with these credentials and settings: {redacted(summary(error), secrets)}."
    )


def _names_missing_bucket(error: BaseException) -> bool:
    text = str(error)
    status = _STATUS.search(text)
    # Search in the answer, behind the status: the text before contains the key, which is arbitrary.
    return status is not None and _MISSING_BUCKET.search(text, status.end()) is not None


def has_status(error: BaseException, *statuses: int) -> bool:
    """Whether an error of obstore is an answer with one of these HTTP status codes."""
    match = _STATUS.search(str(error))
    return match is not None and int(match[1]) in statuses


def _text(error: BaseException, attempt: Attempt) -> str:
    reason = redacted(summary(error), attempt.secrets)
    hint = " The bucket or container does not exist; this library makes none." if _names_missing_bucket(error) else ""
    return f"Store {attempt.store.name}: {attempt.operation} of {attempt.key!r} failed: {reason}.{hint}"


def summary(error: BaseException) -> str:
    """Return the parts of an error of obstore that contain no credentials.

    Queries of URLs are left out, and answers but for their code and message.

    Examples
    --------
    >>> body = "<Error><Code>AccessDenied</Code></Error>"
    >>> summary(OSError(f"GET https://host/b/k?sig=secret - status code: 403 Forbidden: {body}"))
    'GET https://host/b/k - status code: 403 Forbidden (AccessDenied)'
    """
    text = str(error).partition("\n\nDebug source")[0]
    head = re.split(r"<\?xml|<Error|<html|\n", text, maxsplit=1)[0]
    head = re.sub(r"(https?://)(?:[^/\s@]*@)?([^\s?#]*)[?#]?\S*", r"\1\2", head)
    head = re.sub(r"(status code: \d{3}[^:]*):.*", r"\1", head)
    head = re.sub(r"(credential provider: \w+):.*", r"\1", head)  # of the user's function
    parts = [
        match[1].strip() for match in (re.search(rf"<{tag}>([^<\n]*)", text) for tag in ("Code", "Message")) if match
    ]
    return head.strip(" :.-") + (f" ({': '.join(parts)})" if parts else "")


def redacted(text: str, secrets: tuple[str, ...]) -> str:
    """Return a text without these secrets and those of the environment."""
    from_environment = (value for name, value in os.environ.items() if _SECRET_VARIABLES.fullmatch(name))
    forms = set[str]()
    for secret in (*secrets, *from_environment):
        forms |= {secret, quote(secret, safe="")}
        # An error may quote a single text of a service account's JSON.
        if secret.startswith("{"):
            with contextlib.suppress(ValueError):
                forms |= {value for value in json.loads(secret).values() if isinstance(value, str)}
    # The longest first: one secret may contain another.
    for form in sorted(forms, key=len, reverse=True):
        if len(form) >= _SHORTEST_SECRET:
            text = text.replace(form, "***")
    return text


# --- clients --------------------------------------------------------------------------------------


Credentials: TypeAlias = Callable[[], Any]

_CLASSES = {"s3": "S3Store", "azure": "AzureStore", "gcs": "GCSStore"}
_ENDPOINT_VARIABLES = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "azure": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
    "gcs": ("GOOGLE_BASE_URL",),
}
# The default of obstore, 30 seconds for a whole answer, is too short for large files on slow lines.
_TIMEOUTS = {"timeout": "5min", "read_timeout": "1min"}
_RETRIES: dict[str, Any] = {"max_retries": 10, "retry_timeout": timedelta(minutes=3)}
_FIRST_USE: list[int] = []


@dataclass(frozen=True, slots=True)
class _Fixed:
    """Credentials of a URL as a provider, so that none of the environment are mixed in."""

    values: tuple[tuple[str, str], ...] = field(repr=False)

    def __call__(self) -> dict[str, str | None]:
        return {**dict(self.values), "expires_at": None}


def require_extra(kind: Kind) -> None:
    """Raise if the client of this kind of store is not installed."""
    if importlib.util.find_spec("obstore") is None:
        raise MissingExtra(
            f"Stores of kind {kind} need the package obstore, which is not installed: "
            f"pip install 'kartothek-cube[{kind}]'"
        )


def check_not_forked(name: str) -> None:
    """Remember the first process that uses obstore, and raise in its forked children."""
    # Threads of obstore do not survive a fork, so every call of a child would hang for ever.
    if not _FIRST_USE:
        _FIRST_USE.append(os.getpid())
    if _FIRST_USE[0] != os.getpid():
        raise Unsupported(
            f"Store {name} cannot be used here: this process was forked after its parent had used an object store, "
            "and obstore would hang. Start processes by spawn or forkserver, or fork before the first use of an "
            "object store."
        )


def connect(location: Location, credentials: Credentials | None, *, bulk: bool = False) -> Any:
    """Make a client. What location and credentials omit is read from the environment.

    That for S3 deletes key by key, which every server can, or in ``bulk``.
    """
    make = getattr(importlib.import_module("obstore.store"), _CLASSES[location.kind])
    # The endpoint of an emulator of GCS is part of the service account.
    # Without a provider the client searches the environment; that of GCS takes the configured key.
    if credentials is None and location.secrets and location.kind != "gcs":
        credentials = _Fixed(location.secrets)
    insecure = (custom_endpoint(location) or "").startswith("http://") or any(
        '"http://' in secret for _, secret in location.secrets
    )
    return make(
        location.bucket,
        prefix=location.prefix or None,
        config={name: value for name, value in _config(location, bulk=bulk).items() if value is not None},
        client_options={**_TIMEOUTS, "allow_http": True} if insecure else dict(_TIMEOUTS),
        # What fails in bulk is repeated key by key.
        retry_config={**_RETRIES, "max_retries": 1} if bulk else _RETRIES,
        **({} if credentials is None else {"credential_provider": credentials}),
    )


def custom_endpoint(location: Location) -> str | None:
    """Return the server that is not the provider's own, from the location or the environment."""
    variables = (os.environ.get(name) for name in _ENDPOINT_VARIABLES[location.kind])
    return location.endpoint or next(filter(None, variables), None)


def _config(location: Location, *, bulk: bool) -> dict[str, Any]:
    if location.kind == "azure":
        return {"endpoint": location.endpoint, "account_name": location.account}
    if location.kind == "gcs":
        return {"base_url": location.endpoint, **dict(location.secrets)}
    return {
        "conditional_put": "etag",
        "disable_bulk_delete": not bulk,
        "endpoint": location.endpoint,
        "region": location.region,
        "virtual_hosted_style_request": False if location.endpoint else None,
    }


# --- the store ------------------------------------------------------------------------------------


R = TypeVar("R")

# Bytes, as in obstore: larger objects are sent in parts.
_CHUNK = 5 << 20
_PAGE = 1000
# With more folders, listing the folder around them takes fewer requests than listing each.
_MAX_FOLDERS = 16


@dataclass(frozen=True, slots=True)
class ObjectVersion:
    """The version of the content of a key: an ETag or, on GCS, a generation."""

    e_tag: str | None = None
    version: str | None = None


class ObjectStore(Store):
    """Objects in a bucket of S3 or GCS, or in a container of Azure Blob.

    Needs the extra ``s3``, ``azure`` or ``gcs``. The client is made on first use, in the process
    that uses it, whose environment supplies what the location omits.

    Parameters
    ----------
    location : Location
        The bucket and its server, as `parse_location` returns them.
    credentials : Callable | None
        Function without arguments that returns credentials as a ``credential_provider`` of obstore
        does. Default: those of the URL, else those of the environment.

    Examples
    --------
    >>> from kartothek_cube.core.stores.urls import parse_location
    >>> ObjectStore(parse_location("s3://sales-bucket/cubes"))
    <ObjectStore s3://sales-bucket/cubes>
    """

    def __init__(self, location: Location, credentials: Credentials | None = None) -> None:
        if credentials is not None and not callable(credentials):
            raise InvalidType(
                "credentials= is a function without arguments that returns credentials, "
                f"not a {type(credentials).__name__}."
            )
        if credentials is not None and location.secrets:
            raise InvalidInput(f"Store {location.name} has credentials in its URL and credentials=; give one of them.")
        require_extra(location.kind)
        self._location, self._credentials = location, credentials
        self._made: dict[bool, tuple[int, Any]] = {}
        self._whole: ObjectStore | None = None
        # Whether many keys are deleted by one request; GCS has none, and not all servers of S3.
        self._deletes_in_bulk = location.kind != "gcs"
        self._lock = threading.Lock()

    @property
    def capabilities(self) -> Capabilities:
        supported = not is_known_to_ignore_conditions(self._place)
        return Capabilities(atomic_put=True, conditional_put=supported, modification_times=True, shared=True)

    @property
    def name(self) -> str:
        return self._location.name

    @property
    def identity(self) -> Hashable:
        return self._location.identity

    @property
    def is_remote(self) -> bool:
        return True

    @property
    def _place(self) -> Hashable:
        """The bucket and its server: the scope of a probe, whatever the prefix."""
        location = self._location
        return (location.kind, custom_endpoint(location) or location.account, location.bucket)

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self._location, self._credentials))

    def get(self, key: str) -> bytes:
        return self.get_versioned(key)[0]

    def get_versioned(self, key: str) -> tuple[bytes, ObjectVersion]:
        def read(client: Any) -> tuple[bytes, ObjectVersion]:
            answer = client.get(key)
            return answer.bytes().to_bytes(), self._version(answer.meta)

        return self._do("get", key, read)

    def changed(self, key: str, version: Version) -> bool:
        expected = _object_version(version)
        try:
            return self._do("head", key, lambda client: self._version(client.head(key))) != expected
        except KeyNotFound:
            return True

    def contains(self, key: str) -> bool:
        try:
            self._size(key)
        except KeyNotFound:
            return False
        return True

    def tail(self, key: str, n: int) -> tuple[Buffer, int]:
        if n <= 0:
            return b"", self._size(key)
        read = _tail_by_size if self._location.kind == "azure" else _tail
        return self._do("tail", key, lambda client: read(client, key, n))

    def ranges(self, key: str, spans: Sequence[Span]) -> Buffers:
        filled = [(start, stop) for start, stop in check_spans(spans) if start < stop]
        buffers = iter(self._do("ranges", key, lambda client: _ranges(client, key, filled)) if filled else [])
        return [next(buffers) if start < stop else b"" for start, stop in spans]

    def put(self, key: str, data: Data) -> None:
        self._write("put", key, lambda client: client.put(key, _plain(data)))

    def put_file(self, key: str, source: Source) -> None:
        if isinstance(source, str | os.PathLike):
            check_key(key)
            with Path(source).open("rb") as file:
                self.put_file(key, file)
            return
        chunks = _Chunks(source)
        try:
            self._write("put_file", key, lambda client: client.put(key, chunks.content()))
        except Exception:
            if chunks.failure is not None:
                raise chunks.failure from None
            raise

    def put_if(self, key: str, data: Data, version: Version | None) -> ObjectVersion:
        check_key(key)
        expected = None if version is None else _object_version(version)
        if not self._keeps_conditions():
            return self._put_as_only_writer(key, data, expected)
        mode = "create" if expected is None else _token_of(asdict(expected))

        def swap(client: Any) -> ObjectVersion:
            return self._version(client.put(key, _plain(data), mode=mode, use_multipart=False))

        return self._write("put_if", key, swap, lambda: self.mismatch(key, version))

    def probe(self) -> None:
        with contextlib.suppress(Exception):  # the first `put_if` asks again
            self._keeps_conditions()

    def _keeps_conditions(self) -> bool:
        checks = self._location.check_conditions
        # Servers of the providers respect conditions; a probe would cost five requests.
        if not checks and (checks is not None or not custom_endpoint(self._location)):
            return True

        def supported(client: Any) -> bool:
            return supports_conditional_put(self._place, partial(_put_on_condition, client), client.delete)

        return self._write("put_if", "kartothek_cube-conditions", supported)

    def _put_as_only_writer(self, key: str, data: Data, version: ObjectVersion | None) -> ObjectVersion:
        if current_options().require_atomic:
            raise AtomicityRequired(
                f"The server of store {self.name} ignores the conditions of a put, so a concurrent writer's change to "
                f"{key!r} could be lost. Use a server that respects If-Match and If-None-Match, or "
                "options(require_atomic=False) if there is one writer."
            )

        def head(client: Any) -> ObjectVersion:
            return self._version(client.head(key))

        current = None
        with contextlib.suppress(KeyNotFound):
            current = self._do("head", key, head)
        if current != version:
            raise self.mismatch(key, version)
        self.put(key, data)
        return self._do("head", key, head)

    def copy(self, source: str, target: str) -> None:
        check_key(target)
        if source == target:  # S3 refuses to copy an object to itself
            self._size(source)
        else:
            self._write("copy", source, lambda client: client.copy(source, target))

    def copier(self, other: Store) -> Callable[[str, str], None] | None:
        if self == other or not isinstance(other, ObjectStore):
            return super().copier(other)
        (bucket, here), (their_bucket, there) = self._placed(), other._placed()  # noqa: SLF001 - of this class
        if bucket != their_bucket:
            return None
        # One client that reaches both folders, not one for each file.
        whole = self._whole = self._whole or type(self)(*bucket)

        def copy(source: str, target: str) -> None:
            for key in (source, target):
                check_key(key)
            whole.copy(here + source, there + target)

        return copy

    def _placed(self) -> tuple[tuple[Location, Credentials | None], str]:
        """The whole bucket with the credentials, and what each key begins with inside."""
        bucket = replace(self._location, prefix="", check_conditions=None, readonly=False)
        return (bucket, self._credentials), f"{self._location.prefix}/".lstrip("/")

    def delete(self, key: str) -> None:
        with contextlib.suppress(KeyNotFound):
            self._write("delete", key, lambda client: client.delete(key))

    def delete_many(self, keys: Sequence[str]) -> None:
        for key in keys:
            check_key(key)
        is_bulk, is_s3 = self._deletes_in_bulk and len(keys) > 1, self._location.kind == "s3"
        if is_bulk:
            with contextlib.suppress(Exception):
                self._try("delete", keys[0], lambda client: client.delete([*keys]), writes=True, bulk=is_s3)
                return
        # After an error nothing says which keys are left, and for Azure a missing key is one. So
        # all are deleted once more: whatever fails then names its key.
        super().delete_many(keys)
        self._deletes_in_bulk = self._deletes_in_bulk and not (is_bulk and is_s3)

    def list(self, prefix: str = "", recursive: bool = False) -> Listing:
        folder, _, stem = check_prefix(prefix).rpartition("/")
        if recursive and not stem:
            return Listing(self._below(folder, prefix), [])
        level = self._try("list", prefix, lambda client: client.list_with_delimiter(folder or None))
        entries = _entries(level["objects"], prefix)
        folders = sorted(inner for inner in level["common_prefixes"] if inner.startswith(prefix))
        if not recursive:
            return Listing(entries, [f"{inner}/" for inner in folders])
        if len(folders) > _MAX_FOLDERS:
            return Listing(self._below(folder, prefix), [])
        below = [entry for inner in folders for entry in self._below(inner, f"{inner}/")]
        return Listing(_sorted([*entries, *below]), [])

    def _below(self, folder: str, prefix: str) -> Entries:
        # obstore lists whole folders; `_entries` drops the objects without the prefix.
        objects = self._try("list", prefix, lambda client: client.list(folder or None, chunk_size=_PAGE).collect())
        return _entries(objects, prefix)

    def _size(self, key: str) -> int:
        return int(self._do("head", key, lambda client: client.head(key))["size"])

    def _version(self, meta: Mapping[str, Any]) -> ObjectVersion:
        # Put, get and head agree on these. Conditions of GCS take the generation.
        if self._location.kind == "gcs":
            return ObjectVersion(version=meta["version"])
        return ObjectVersion(e_tag=meta["e_tag"])

    def _do(self, operation: str, key: str, action: Callable[[Any], R]) -> R:
        return self._try(operation, check_key(key), action)

    def _write(
        self, operation: str, key: str, action: Callable[[Any], R], mismatch: Callable[[], Exception] | None = None
    ) -> R:
        return self._try(operation, check_key(key), action, writes=True, mismatch=mismatch)

    def _try(
        self,
        operation: str,
        key: str,
        action: Callable[[Any], R],
        *,
        writes: bool = False,
        mismatch: Callable[[], Exception] | None = None,
        bulk: bool = False,
    ) -> R:
        check_not_forked(self.name)
        try:
            return action(self._client(bulk=bulk))
        except BaseException as error:  # panics of obstore are no `Exception`
            failure = explained(error, Attempt(self, operation, key, self._secrets, writes, mismatch))
        # Outside of the handler: the original may contain credentials and must not be the context.
        raise failure

    def _client(self, *, bulk: bool = False) -> Any:
        with self._lock:
            pid, client = self._made.get(bulk, (None, None))
            if pid != os.getpid():
                client = self._open(bulk=bulk)
                self._made[bulk] = (os.getpid(), client)
            return client

    def _open(self, *, bulk: bool) -> Any:
        try:
            return self._connect(bulk=bulk)
        except BaseException as error:
            if not (isinstance(error, Exception) or is_panic(error)):
                raise
            failure = not_opened(error, self.name, self._secrets)
        raise failure

    @property
    def _secrets(self) -> tuple[str, ...]:
        return tuple(secret for _, secret in self._location.secrets)

    def _connect(self, *, bulk: bool = False) -> Any:
        return connect(self._location, self._credentials, bulk=bulk)


class _Chunks:
    """A binary stream in pieces; keeps an error of the stream apart from those of the network."""

    def __init__(self, source: BinaryIO) -> None:
        self.failure: Exception | None = None
        self._source = source
        self._first = self._read()

    def content(self) -> bytes | Iterator[bytes]:
        """Return the bytes of a stream of one piece, else the pieces."""
        return self._first if len(self._first) < _CHUNK else self._pieces()

    def _pieces(self) -> Iterator[bytes]:
        piece = self._first
        while piece:
            yield piece
            piece = self._read()

    def _read(self) -> bytes:
        try:
            pieces, left = [], _CHUNK
            while left and (piece := self._source.read(left)):
                pieces.append(piece)
                left -= len(piece)
            return b"".join(pieces)
        except Exception as error:
            self.failure = error
            raise


def _plain(data: Data) -> memoryview:
    """A view of unsigned bytes, which obstore requires; buffers of Arrow are signed."""
    return memoryview(data).cast("B")


def _object_version(version: Version) -> ObjectVersion:
    if not isinstance(version, ObjectVersion):
        raise InvalidType(
            "A version of an object store is an ObjectVersion as `get_versioned` returns it, "
            f"not {type(version).__name__}."
        )
    return version


def _token_of(meta: Mapping[str, Any]) -> dict[str, str]:
    """The expected version as obstore takes it, from the metadata of an object."""
    return {name: meta[name] for name in ("e_tag", "version") if meta.get(name)}


def _put_on_condition(client: Any, key: str, data: bytes, version: dict[str, str] | None) -> dict[str, str]:
    """One put of the probe; the new version, empty if the server has none."""
    from obstore import exceptions

    try:
        return _token_of(client.put(key, data, mode="create" if version is None else version, use_multipart=False))
    except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
        raise ConditionFailed from None
    except exceptions.BaseError as error:
        if not has_status(error, 501):  # Not Implemented: the server has no conditional puts
            raise
        if version is not None:
            raise ConditionFailed from None
        return {}


def _ranges(client: Any, key: str, spans: Sequence[Span]) -> Buffers:
    """The bytes of spans that are not empty."""
    try:
        return _get_ranges(client, key, spans)
    except BaseException as error:
        if not _may_reach_behind_the_end(error):
            raise
    size = int(client.head(key)["size"])
    inside = [(start, min(stop, size)) for start, stop in spans if start < size]
    buffers = iter(_get_ranges(client, key, inside) if inside else [])
    return [next(buffers) if start < size else b"" for start, _ in spans]


def _get_ranges(client: Any, key: str, spans: Sequence[Span]) -> Buffers:
    starts, ends = [start for start, _ in spans], [stop for _, stop in spans]
    return [memoryview(buffer) for buffer in client.get_ranges(key, starts=starts, ends=ends)]


def _may_reach_behind_the_end(error: BaseException) -> bool:
    # Servers and the client of Azure refuse such a range; among several, obstore panics over it.
    return is_panic(error) or has_status(error, 416) or "range" in str(error).lower()


def _tail(client: Any, key: str, n: int) -> tuple[Buffer, int]:
    from obstore.exceptions import GenericError

    try:
        answer = client.get(key, options={"range": {"suffix": n}})
    except GenericError as error:
        if not _may_reach_behind_the_end(error) or client.head(key)["size"]:
            raise
        return b"", 0  # an empty object has no range
    return memoryview(answer.bytes()), int(answer.meta["size"])


def _tail_by_size(client: Any, key: str, n: int) -> tuple[Buffer, int]:
    """For Azure, which has no ranges from the end."""
    size = int(client.head(key)["size"])
    if not size:
        return b"", 0
    answer = client.get(key, options={"range": (max(0, size - n), size)})
    if answer.meta["size"] != size:  # the object was replaced in between
        return _tail_by_size(client, key, n)
    return memoryview(answer.bytes()), size


def _entries(objects: Sequence[Any], prefix: str) -> Entries:
    return _sorted(
        Entry(item["path"], item["size"], item["last_modified"])
        for item in objects
        if item["path"].startswith(prefix) and not item["path"].endswith("~")
    )


def _sorted(entries: Iterator[Entry] | Entries) -> Entries:
    return sorted(entries, key=lambda entry: entry.key)
