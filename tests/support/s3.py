"""The S3 protocol over a dictionary, as far as clients of objects use it.

Requests come in and answers go out, without sockets.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Final, TypeAlias
from urllib.parse import quote, unquote
from xml.sax.saxutils import escape, unescape

__all__ = ["Answer", "RemoteRequest", "StoredObject", "StoredObjects", "failure", "operation_of"]

PAGE: Final = 1000

_CONDITIONS: Final = frozenset({"if-match", "if-none-match", "x-goog-if-generation-match"})

_BY_METHOD: Final = {"GET": "get", "HEAD": "head", "DELETE": "delete", "PUT": "put"}
_OF_UPLOADS: Final = {"PUT": "upload_part", "POST": "complete_upload", "DELETE": "abort_upload"}
_OF_BUCKETS: Final = {"GET": "list", "HEAD": "head_bucket", "PUT": "create_bucket", "POST": "delete_many"}
_RANGE: Final = re.compile(r"bytes=(\d*)-(\d*)")


@dataclass(frozen=True, slots=True)
class RemoteRequest:
    """One request that came over the wire.

    Attributes
    ----------
    operation : str
        ``get``, ``head``, ``put``, ``copy``, ``delete``, ``delete_many``, ``list``,
        ``create_upload``, ``upload_part``, ``complete_upload``, ``abort_upload``, ``head_bucket``,
        ``create_bucket`` or ``unknown``.
    bucket, key : str
        What it is about; the key is empty for requests about a bucket.
    nth : int
        The how manieth request of this operation it is, from 1.
    method : str
        The method of HTTP.
    query, headers : Mapping[str, str]
        Decoded; names of headers in lower case.
    size : int
        Bytes of the body.
    """

    operation: str
    bucket: str
    key: str
    nth: int = 1
    method: str = "GET"
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    size: int = 0

    @property
    def conditional(self) -> bool:
        """Whether the request has a condition."""
        return not _CONDITIONS.isdisjoint(self.headers)


@dataclass(frozen=True, slots=True)
class Answer:
    """Status, headers and body. An answer to HEAD keeps its body, for the length in the headers."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoredObject:
    """Bytes with an ETag (equal for equal bytes) and a generation (never used twice)."""

    data: bytes
    etag: str
    generation: int
    modified: datetime

    @property
    def headers(self) -> dict[str, str]:
        """The headers that describe the object."""
        return {
            "ETag": self.etag,
            "Last-Modified": format_datetime(self.modified, usegmt=True),
            "x-goog-generation": str(self.generation),
            "Accept-Ranges": "bytes",
            "Content-Type": "application/octet-stream",
        }


def operation_of(method: str, key: str, query: Mapping[str, str], headers: Mapping[str, str]) -> str:
    """Name the operation of a request."""
    if not key:
        return "unknown" if method == "POST" and "delete" not in query else _OF_BUCKETS.get(method, "unknown")
    if "uploadId" in query:
        return _OF_UPLOADS.get(method, "unknown")
    if method == "POST":
        return "create_upload" if "uploads" in query else "unknown"
    return "copy" if method == "PUT" and _copy_source(headers) else _BY_METHOD.get(method, "unknown")


def failure(status: int, code: str, message: str = "") -> Answer:
    """Make the answer that reports an error."""
    return _xml(f"<Error><Code>{code}</Code><Message>{escape(message or code)}</Message></Error>", status)


def _xml(text: str, status: int = 200) -> Answer:
    return Answer(status, f'<?xml version="1.0" encoding="UTF-8"?>{text}'.encode(), {"Content-Type": "application/xml"})


def _copy_source(headers: Mapping[str, str]) -> str:
    return unquote(headers.get("x-amz-copy-source", headers.get("x-goog-copy-source", "")).partition("?")[0]).lstrip(
        "/"
    )


_Handler: TypeAlias = Callable[[RemoteRequest, bytes], Answer]


class StoredObjects:
    """All objects of a server.

    One lock makes each request one step. Every bucket exists. Some look-alikes of S3 do not heed
    conditions.

    Examples
    --------
    >>> objects, create = StoredObjects(), {"if-none-match": "*"}
    >>> request = RemoteRequest("put", "sales", "COUNTRY_CODE=DE/1.parquet", headers=create)
    >>> objects.answer(request, b"PAR1").status
    200
    >>> objects.answer(request, b"PAR1").status
    412
    """

    def __init__(self, *, heeds_conditions: bool = True) -> None:
        self.heeds_conditions = heeds_conditions
        self._objects: dict[tuple[str, str], StoredObject] = {}
        self._uploads: dict[str, dict[int, bytes]] = {}
        self._numbers = itertools.count(1_000)
        self._lock = threading.Lock()
        self._handlers: dict[str, _Handler] = {
            "get": self._get,
            "head": self._get,
            "put": self._put,
            "copy": self._copy,
            "delete": self._delete,
            "delete_many": self._delete_many,
            "list": self._list,
            "create_upload": self._create_upload,
            "upload_part": self._upload_part,
            "complete_upload": self._complete_upload,
            "abort_upload": self._abort_upload,
            "head_bucket": lambda *_: Answer(200, headers={"x-amz-bucket-region": "us-east-1"}),
            "create_bucket": lambda *_: Answer(200),
        }

    def answer(self, request: RemoteRequest, body: bytes) -> Answer:
        """Carry out a request."""
        handler = self._handlers.get(request.operation)
        if handler is None:
            return failure(501, "NotImplemented", f"{request.method} with {sorted(request.query)}")
        if not self.heeds_conditions:
            request = replace(
                request, headers={name: value for name, value in request.headers.items() if name not in _CONDITIONS}
            )
        with self._lock:
            return handler(request, body)

    def of(self, bucket: str) -> dict[str, bytes]:
        """Return the bytes of each key of a bucket."""
        with self._lock:
            return {key: stored.data for (of, key), stored in sorted(self._objects.items()) if of == bucket}

    def _current(self, request: RemoteRequest) -> StoredObject | None:
        return self._objects.get((request.bucket, request.key))

    def _store(self, request: RemoteRequest, data: bytes, etag: str | None = None) -> StoredObject:
        stored = StoredObject(data, etag or _etag(data), next(self._numbers), datetime.now(UTC))
        self._objects[request.bucket, request.key] = stored
        return stored

    def _get(self, request: RemoteRequest, _: bytes) -> Answer:
        stored = self._current(request)
        if stored is None:
            return failure(404, "NoSuchKey")
        if stored.etag in _tags(request.headers.get("if-none-match", "")):
            return Answer(304, headers=stored.headers)
        refused = _refusal({name: value for name, value in request.headers.items() if name == "if-match"}, stored)
        return refused or _part(stored, request.headers.get("range", ""))

    def _put(self, request: RemoteRequest, body: bytes) -> Answer:
        refused = _refusal(request.headers, self._current(request))
        if refused is not None:
            return refused
        stored = self._store(request, body)
        return Answer(200, headers={"ETag": stored.etag, "x-goog-generation": str(stored.generation)})

    def _copy(self, request: RemoteRequest, _: bytes) -> Answer:
        bucket, _slash, key = _copy_source(request.headers).partition("/")
        source = self._objects.get((bucket, key))
        refused = failure(404, "NoSuchKey") if source is None else _refusal(request.headers, self._current(request))
        if refused is not None or source is None:
            return refused or failure(404, "NoSuchKey")
        stored = self._store(request, source.data)
        return _xml(
            f"<CopyObjectResult><LastModified>{_time(stored)}</LastModified><ETag>{escape(stored.etag)}</ETag></CopyObjectResult>"
        )

    def _delete(self, request: RemoteRequest, _: bytes) -> Answer:
        stored = self._current(request)
        refused = _refusal(request.headers, stored) if stored is not None else None
        if refused is None:
            self._objects.pop((request.bucket, request.key), None)
        return refused or Answer(204)

    def _delete_many(self, request: RemoteRequest, body: bytes) -> Answer:
        keys = [
            unescape(key, {"&quot;": '"', "&apos;": "'"})
            for key in re.findall(r"<Key>(.*?)</Key>", body.decode(), flags=re.DOTALL)
        ]
        for key in keys:
            self._objects.pop((request.bucket, key), None)
        return _xml(
            f"<DeleteResult>{''.join(f'<Deleted><Key>{escape(key)}</Key></Deleted>' for key in keys)}</DeleteResult>"
        )

    def _create_upload(self, request: RemoteRequest, _: bytes) -> Answer:
        number = f"upload-{next(self._numbers)}"
        self._uploads[number] = {}
        names = f"<Bucket>{escape(request.bucket)}</Bucket><Key>{escape(request.key)}</Key>"
        return _xml(
            f"<InitiateMultipartUploadResult>{names}<UploadId>{number}</UploadId></InitiateMultipartUploadResult>"
        )

    def _upload_part(self, request: RemoteRequest, body: bytes) -> Answer:
        parts = self._uploads.get(request.query["uploadId"])
        if parts is None:
            return failure(404, "NoSuchUpload")
        parts[int(request.query["partNumber"])] = body
        return Answer(200, headers={"ETag": _etag(body)})

    def _complete_upload(self, request: RemoteRequest, body: bytes) -> Answer:
        parts = self._uploads.get(request.query["uploadId"])
        refused = failure(404, "NoSuchUpload") if parts is None else _refusal(request.headers, self._current(request))
        if refused is not None or parts is None:
            return refused or failure(404, "NoSuchUpload")
        del self._uploads[request.query["uploadId"]]
        numbers = [int(number) for number in re.findall(rb"<PartNumber>(\d+)</PartNumber>", body)] or sorted(parts)
        data = b"".join(parts[number] for number in numbers)
        stored = self._store(request, data, f'{_etag(data)[:-1]}-{len(numbers)}"')
        names = f"<Bucket>{escape(request.bucket)}</Bucket><Key>{escape(request.key)}</Key>"
        return _xml(
            f"<CompleteMultipartUploadResult>{names}<ETag>{escape(stored.etag)}</ETag></CompleteMultipartUploadResult>"
        )

    def _abort_upload(self, request: RemoteRequest, _: bytes) -> Answer:
        self._uploads.pop(request.query["uploadId"], None)
        return Answer(204)

    def _list(self, request: RemoteRequest, _: bytes) -> Answer:
        if "location" in request.query:
            return _xml("<LocationConstraint>us-east-1</LocationConstraint>")
        query = request.query
        start = query.get("continuation-token") or query.get("start-after") or query.get("marker") or ""
        keys = sorted(
            key for bucket, key in self._objects if bucket == request.bucket and key.startswith(query.get("prefix", ""))
        )
        names = [name for name in _cut(keys, query.get("prefix", ""), query.get("delimiter", "")) if name > start]
        limit = min(int(query.get("max-keys") or PAGE), PAGE)
        page = names[:limit]
        items = "".join(self._item(request, name) for name in page)
        return _xml(f"<ListBucketResult>{_head(request, page, truncated=len(names) > limit)}{items}</ListBucketResult>")

    def _item(self, request: RemoteRequest, name: str) -> str:
        stored = self._objects.get((request.bucket, name))
        shown = _shown(request, name)
        delimiter = request.query.get("delimiter", "")
        if stored is None or (delimiter and delimiter in name[len(request.query.get("prefix", "")) :]):
            return f"<CommonPrefixes><Prefix>{shown}</Prefix></CommonPrefixes>"
        about = f"<LastModified>{_time(stored)}</LastModified><ETag>{escape(stored.etag)}</ETag>"
        about += f"<Size>{len(stored.data)}</Size>"
        return f"<Contents><Key>{shown}</Key>{about}<StorageClass>STANDARD</StorageClass></Contents>"


def _etag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


def _tags(header: str) -> set[str]:
    return {f'"{tag.strip().strip(chr(34))}"' for tag in header.split(",") if tag.strip()}


def _time(stored: StoredObject) -> str:
    return stored.modified.strftime("%Y-%m-%dT%H:%M:%S.") + f"{stored.modified.microsecond // 1000:03d}Z"


def _refusal(headers: Mapping[str, str], stored: StoredObject | None) -> Answer | None:
    """Say why the condition of a request does not hold, if it does not."""
    expected, absent = headers.get("if-match"), headers.get("if-none-match")
    generation = headers.get("x-goog-if-generation-match")
    if expected is not None and stored is None:
        return failure(404, "NoSuchKey")
    wrong = (
        (expected not in (None, "*") and stored is not None and stored.etag not in _tags(str(expected)))
        or (absent is not None and stored is not None and (absent == "*" or stored.etag in _tags(absent)))
        or (generation is not None and int(generation) != (0 if stored is None else stored.generation))
    )
    return (
        failure(412, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold")
        if wrong
        else None
    )


def _part(stored: StoredObject, header: str) -> Answer:
    """The whole object, or the range that the request asks for."""
    match = _RANGE.fullmatch(header)
    size = len(stored.data)
    if match is None or not any(match.groups()):
        return Answer(200, stored.data, stored.headers)
    if not match[1]:
        start, stop = max(0, size - int(match[2])), size
    else:
        start, stop = int(match[1]), min(size, int(match[2]) + 1 if match[2] else size)
    if start >= stop:
        return failure(416, "InvalidRange")
    return Answer(206, stored.data[start:stop], {**stored.headers, "Content-Range": f"bytes {start}-{stop - 1}/{size}"})


def _cut(keys: Iterable[str], prefix: str, delimiter: str) -> Iterator[str]:
    """The keys; those that agree up to a delimiter behind the prefix are one name."""
    last = None
    for key in keys:
        end = key.find(delimiter, len(prefix)) if delimiter else -1
        name = key if end < 0 else key[: end + len(delimiter)]
        if name != last:
            yield name
        last = name


def _head(request: RemoteRequest, page: list[str], *, truncated: bool) -> str:
    last = page[-1] if page else ""
    following = (
        f"<NextContinuationToken>{escape(last)}</NextContinuationToken><NextMarker>{_shown(request, last)}</NextMarker>"
    )
    encoding = "<EncodingType>url</EncodingType>" if request.query.get("encoding-type") == "url" else ""
    about = "".join(
        f"<{tag}>{_shown(request, request.query[name])}</{tag}>"
        for tag, name in (("Prefix", "prefix"), ("Delimiter", "delimiter"))
        if name in request.query
    )
    counted = (
        f"<KeyCount>{len(page)}</KeyCount><MaxKeys>{PAGE}</MaxKeys><IsTruncated>{str(truncated).lower()}</IsTruncated>"
    )
    return f"<Name>{escape(request.bucket)}</Name>{about}{encoding}{counted}{following if truncated else ''}"


def _shown(request: RemoteRequest, name: str) -> str:
    return quote(name) if request.query.get("encoding-type") == "url" else escape(name)
