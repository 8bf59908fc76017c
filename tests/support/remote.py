"""An S3 server in a thread, for tests of object stores: with latency, a request log, and faults."""

from __future__ import annotations

import io
import sys
import threading
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import SHUT_RDWR, socket
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

from kartothek_cube.errors import InvalidRequest
from tests.support.s3 import Answer, RemoteRequest, StoredObjects, failure, operation_of

__all__ = ["RemoteFault", "RemoteRequest", "RemoteStandIn"]

STOP_SECONDS: Final = 60

RemoteFault: TypeAlias = Literal["before", "after", "close", "close_after", "throttle"] | None
"""The fault of a request, see `RemoteStandIn`."""

_ANSWERS: Final = {
    "before": failure(500, "InternalError", "We encountered an internal error. Please try again."),
    "after": failure(500, "InternalError", "We encountered an internal error. Please try again."),
    "throttle": failure(503, "SlowDown", "Please reduce your request rate."),
}


class RemoteStandIn:
    """An S3 server on the loopback interface that keeps its objects in memory.

    It is one while its ``with`` block runs.

    Conditional puts are one step each, as on S3. Every bucket exists, and any credentials are good.
    GCS clients are understood too, for objects.

    Parameters
    ----------
    latency : float, default 0
        Seconds that each request waits before it is carried out. May be set while the server runs.
    fail : Callable[[RemoteRequest], RemoteFault], optional
        Asked for every request, from several threads. May be set while the server runs.
        ``"before"``: answered 500, nothing was done. ``"after"``: it was done, but the answer is
        500. ``"close"``: the connection is closed, nothing was done. ``"close_after"``: it was
        done, then the connection is closed. ``"throttle"``: answered 503 SlowDown, nothing was
        done. If the function raises, the request is answered 500, and leaving the ``with`` block
        raises the error.
    heeds_conditions : bool, default True
        False makes it one of those look-alikes of S3 that ignore ``If-Match`` and ``If-None-Match``
        and overwrite.

    Attributes
    ----------
    requests : list[RemoteRequest]
        The log: what came, in order, retries of the clients included.

    Examples
    --------
    >>> from pyarrow.fs import S3FileSystem
    >>> with RemoteStandIn() as remote:
    ...     at = {"scheme": "http", "endpoint_override": remote.endpoint, "region": "us-east-1"}
    ...     s3 = S3FileSystem(access_key="any", secret_key="any", **at)
    ...     with s3.open_output_stream("sales/uuid/COUNTRY_CODE=DE.parquet") as file:
    ...         _ = file.write(b"PAR1")
    ...     with s3.open_input_file("sales/uuid/COUNTRY_CODE=DE.parquet") as file:
    ...         content = file.read()
    >>> content
    b'PAR1'
    >>> remote.objects("sales")
    {'uuid/COUNTRY_CODE=DE.parquet': b'PAR1'}
    >>> remote.counts["get"]
    1

    The first put is carried out, but its answer is lost:

    >>> def lose_first_answer(request):
    ...     return "close_after" if (request.operation, request.nth) == ("put", 1) else None
    >>> remote = RemoteStandIn(latency=0.001, fail=lose_first_answer)
    """

    def __init__(
        self,
        *,
        latency: float = 0.0,
        fail: Callable[[RemoteRequest], RemoteFault] | None = None,
        heeds_conditions: bool = True,
    ) -> None:
        self.latency = latency
        self.fail = fail
        self.requests: list[RemoteRequest] = []
        self._stored = StoredObjects(heeds_conditions=heeds_conditions)
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._errors: list[BaseException] = []
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def endpoint(self) -> str:
        """The URL that clients are given as endpoint.

        Raises
        ------
        InvalidRequest
            If the server does not run.
        """
        if self._server is None:
            raise InvalidRequest("The server does not run; use it inside `with RemoteStandIn() as remote:`.")
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def counts(self) -> Counter[str]:
        """The number of requests by operation."""
        with self._lock:
            return Counter(request.operation for request in self.requests)

    def objects(self, bucket: str) -> dict[str, bytes]:
        """Return the objects of a bucket."""
        return self._stored.of(bucket)

    def reset(self) -> None:
        """Forget the requests, and count them from 1 again. The objects stay."""
        with self._lock:
            self.requests.clear()
            self._counts.clear()

    def start(self) -> Self:
        """Open the port and serve; what ``with`` does."""
        self._stopping.clear()
        self._server = _Server(self)
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, name="RemoteStandIn", daemon=True
        )
        self._thread.start()
        return self

    def stop(self) -> None:
        """End all connections and close the port. Objects and log stay."""
        server, self._server = self._server, None
        if server is not None and self._thread is not None:
            self._stopping.set()
            server.shutdown()
            self._thread.join()
            server.server_close()
            server.hang_up()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
        if error is None and self._errors:
            raise self._errors[0]

    def respond(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Answer | None:
        """Log a request, wait, and carry it out up to its fault; None closes the connection."""
        request = self._log(method, target, headers, len(body))
        self._stopping.wait(self.latency)
        fault = None if self.fail is None else self.fail(request)
        if fault in (None, "after", "close_after"):
            answer = self._stored.answer(request, body)
            return answer if fault is None else _ANSWERS.get(str(fault))
        return _ANSWERS.get(str(fault))

    def remember(self, error: BaseException) -> None:
        """Keep an error of the function `fail`; the end of the ``with`` block raises it."""
        self._errors.append(error)

    def _log(self, method: str, target: str, headers: dict[str, str], size: int) -> RemoteRequest:
        url = urlsplit(target)
        bucket, _, key = unquote(url.path).lstrip("/").partition("/")
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        operation = operation_of(method, key, query, headers)
        with self._lock:
            self._counts[operation] += 1
            request = RemoteRequest(operation, bucket, key, self._counts[operation], method, query, headers, size)
            self.requests.append(request)
        return request


class _Server(ThreadingHTTPServer):
    """Knows its open connections, so that no thread and no socket is left behind."""

    request_queue_size = 128
    daemon_threads = True

    def __init__(self, remote: RemoteStandIn) -> None:
        self.remote = remote
        self._open: set[socket] = set()
        self._closed = threading.Condition()
        super().__init__(("127.0.0.1", 0), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._closed:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        with self._closed:
            self._open.discard(request)
            self._closed.notify_all()

    def hang_up(self) -> None:
        """End the connections that clients keep open, and wait for the end of their threads."""
        with self._closed:
            for connection in self._open:
                _end(connection)
            self._closed.wait_for(lambda: not self._open, timeout=STOP_SECONDS)

    def handle_error(self, request: object, client_address: object) -> None:
        error = sys.exception()
        if error is not None and not isinstance(error, ConnectionError):  # a client that left is no error
            self.remote.remember(error)


def _end(connection: socket) -> None:
    try:
        connection.shutdown(SHUT_RDWR)
    except OSError:  # the client was faster
        return


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def log_message(self, *_: object) -> None:
        """Write nothing: the log is `RemoteStandIn.requests`."""

    def _handle(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self._body(headers)
        try:
            answer = self.server.remote.respond(self.command, self.path, headers, body)
        except Exception as error:
            self.server.remote.remember(error)
            answer = _ANSWERS["before"]
        if answer is None:
            self.close_connection = True
        else:
            self._send(answer)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle  # noqa: N815 - the names that http.server looks for

    def _body(self, headers: dict[str, str]) -> bytes:
        chunked = headers.get("transfer-encoding", "").lower() == "chunked"
        body = _dechunked(self.rfile) if chunked else _read(self.rfile, int(headers.get("content-length", 0)))
        return _decoded(body) if "aws-chunked" in headers.get("content-encoding", "") else body

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if answer.status not in (204, 304):
            self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD" and answer.status not in (204, 304):
            self.wfile.write(answer.body)


def _read(file: io.BufferedIOBase, size: int) -> bytes:
    data = bytes(file.read(size))
    if len(data) < size:  # the client is gone: do nothing
        raise ConnectionResetError
    return data


def _dechunked(file: io.BufferedIOBase) -> bytes:
    """Read the chunks of HTTP up to the empty one, and its trailers."""
    chunks: list[bytes] = []
    while size := int(file.readline().partition(b";")[0] or _read(file, 1), 16):
        chunks.append(_read(file, size))
        file.readline()
    while file.readline().strip():
        pass
    return b"".join(chunks)


def _decoded(body: bytes) -> bytes:
    """Undo ``aws-chunked``: lengths and signatures before each chunk, checksums behind the last."""
    chunks: list[bytes] = []
    at = 0
    while True:
        end = body.index(b"\r\n", at)
        size = int(body[at:end].partition(b";")[0], 16)
        if size == 0:
            return b"".join(chunks)
        chunks.append(body[end + 2 : end + 2 + size])
        at = end + size + 4
