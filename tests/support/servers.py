"""Servers of object stores for tests, as child processes on the loopback interface: S3 (moto),
Azure Blob (Azurite) and a stand-in for GCS.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from kartothek_cube.errors import InvalidRequest, Unsupported

__all__ = ["AZURE_ACCOUNT", "AZURE_KEY", "ServerProcess", "azure_server", "gcs_server", "s3_server"]

REPOSITORY: Final = Path(__file__).parents[2]

AZURITE_VERSION: Final = "3.35.0"
# The default account of Azurite; its documentation prints the key.
AZURE_ACCOUNT: Final = "devstoreaccount1"
AZURE_KEY: Final = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

START_SECONDS: Final = 60
STOP_SECONDS: Final = 60
POLL_SECONDS: Final = 0.02

_ADDRESS: Final = re.compile(r"https?://127\.0\.0\.1:[1-9]\d*")
_AZURITE_MAIN: Final = Path("node_modules", "azurite", "dist", "src", "blob", "main.js")
# Without this flag Azurite refuses the newest client libraries.
_AZURITE_FLAGS: Final = ("--inMemoryPersistence", "--skipApiVersionCheck", "--silent", "--disableTelemetry")
_END_WITH_STDIN: Final = (
    "process.stdin.resume(); "
    "process.stdin.on('end', () => process.exit(0)); process.stdin.on('error', () => process.exit(0));\n"
)


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """A running server.

    Attributes
    ----------
    name : str
        What it is.
    endpoint : str
        Its URL on the loopback interface.
    pid : int
        Its process.
    log : Path
        The file that has its output.
    """

    name: str
    endpoint: str
    pid: int
    log: Path
    _make_bucket: Callable[[str, str], None]

    def new_bucket(self) -> str:
        """Make an empty bucket (in Azure a container) with a new name, and return the name."""
        name = f"bucket-{uuid.uuid4().hex}"
        self._make_bucket(self.endpoint, name)
        return name


@contextmanager
def s3_server(folder: Path) -> Iterator[ServerProcess]:
    """Run moto's S3 server with one lock around writes: moto compares first and stores later.

    Parameters
    ----------
    folder : Path
        Where the server's output is written.

    Raises
    ------
    Unsupported
        If the package ``moto[server]`` is not installed.
    InvalidRequest
        If the server does not answer within a minute; the text has its output.

    See Also
    --------
    gcs_server : has an example; all servers are used alike.
    tests.support.remote.RemoteStandIn : a server in a thread, which needs no package.
    """
    if any(importlib.util.find_spec(package) is None for package in ("moto", "werkzeug", "flask", "flask_cors")):
        raise Unsupported("The test server of S3 needs the package moto: pip install 'moto[server]>=5.2'")
    with _running("s3", [sys.executable, "-m", __name__, "s3"], folder, _make_s3_bucket) as server:
        yield server


@contextmanager
def gcs_server(folder: Path) -> Iterator[ServerProcess]:
    """Run a stand-in for Google Cloud Storage: the requests for objects, generations as versions.

    The stand-in proves nothing about Google's own server.

    Parameters and errors are those of `s3_server`; it needs no package.

    Examples
    --------
    >>> import tempfile
    >>> with gcs_server(Path(tempfile.mkdtemp())) as server:
    ...     server.endpoint.rpartition(":")[0]
    'http://127.0.0.1'
    """
    with _running("gcs", [sys.executable, "-m", __name__, "gcs"], folder, lambda *_: None) as server:
        yield server


@contextmanager
def azure_server(folder: Path, node_folder: Path = Path(".node")) -> Iterator[ServerProcess]:
    """Run Azurite, Microsoft's emulator of Azure Blob Storage, with its data in memory.

    Parameters
    ----------
    folder : Path
        Where the server's output is written.
    node_folder : Path
        The folder whose ``node_modules`` has the package ``azurite``.

    Raises
    ------
    Unsupported
        If Node, its package or the package ``azure-storage-blob`` (which makes the containers) is
        missing.
    InvalidRequest
        If the server does not answer within a minute; the text has its output.

    Examples
    --------
    Where something is missing, the error says how to get it:

    >>> with azure_server(Path("logs"), node_folder=Path("nowhere")) as server:
    ...     container = server.new_bucket()
    Traceback (most recent call last):
    kartothek_cube.errors.Unsupported: The test server of Azure needs Node and its package ...
    """
    node, main = shutil.which("node"), node_folder.absolute() / _AZURITE_MAIN
    if node is None or not main.exists():
        raise Unsupported(
            f"The test server of Azure needs Node and its package azurite@{AZURITE_VERSION} in {node_folder}: "
            "make system-deps"
        )
    if importlib.util.find_spec("azure") is None or importlib.util.find_spec("azure.storage.blob") is None:
        raise Unsupported(
            "The test server of Azure needs the package azure-storage-blob: pip install azure-storage-blob"
        )
    script = folder / "end-with-stdin.js"
    script.write_text(_END_WITH_STDIN)
    command = [
        node,
        "--require",
        str(script.absolute()),
        str(main),
        "--blobHost",
        "127.0.0.1",
        "--blobPort",
        "0",
        *_AZURITE_FLAGS,
    ]
    with _running("azure", command, folder, _make_azure_container) as server:
        yield server


@contextmanager
def _running(
    name: str, command: Sequence[str], folder: Path, make_bucket: Callable[[str, str], None]
) -> Iterator[ServerProcess]:
    """Run a server until the block ends.

    It ends too when its standard input does, so it does not outlive a test run that is killed.
    """
    log = folder / f"{name}-{uuid.uuid4().hex[:8]}.log"
    with log.open("wb") as output, _process(command, output) as process:
        yield ServerProcess(name, _address(name, process, log), process.pid, log, make_bucket)


@contextmanager
def _process(command: Sequence[str], output: Any) -> Iterator[subprocess.Popen[bytes]]:
    # The child finds `-m tests.support.servers` from any working directory.
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
    }
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT, env=environment)
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _address(name: str, process: subprocess.Popen[bytes], log: Path) -> str:
    """Wait until the server has printed its port and answers on the port."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        found = _ADDRESS.search(log.read_text(errors="replace"))
        if found is not None and _answers(found[0]):
            return found[0]
        time.sleep(POLL_SECONDS)
    ended = (
        f"ended with {process.returncode}" if process.poll() is not None else f"did not answer within {START_SECONDS} s"
    )
    raise InvalidRequest(f"The test server {name!r} {ended}. Its output:\n{log.read_text(errors='replace')}")


def _answers(address: str) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", urlsplit(address).port or 0), timeout=1):
            return True
    except OSError:
        return False


def _make_s3_bucket(endpoint: str, name: str) -> None:
    with urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{name}", method="PUT")):
        pass


def _make_azure_container(endpoint: str, name: str) -> None:
    from azure.storage.blob import BlobServiceClient

    credential = {"account_name": AZURE_ACCOUNT, "account_key": AZURE_KEY}
    with BlobServiceClient(f"{endpoint}/{AZURE_ACCOUNT}", credential=credential) as client:
        client.create_container(name)


# --- what the child processes run


def _serve(name: str) -> None:
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    {"s3": _serve_moto, "gcs": _serve_stand_in}[name]()


def _end_with_stdin() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


def _serve_stand_in() -> None:
    from tests.support.remote import RemoteStandIn

    with RemoteStandIn() as remote:
        print(remote.endpoint, flush=True)  # noqa: T201 - the parent reads it
        threading.Event().wait()


def _serve_moto() -> None:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Handler(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_request(self, *_: object) -> None:
            """Only errors are of interest."""

    server = make_server(
        "127.0.0.1", 0, _locked(DomainDispatcherApplication(create_backend_app)), threaded=True, request_handler=Handler
    )
    print(f"http://127.0.0.1:{server.port}", flush=True)  # noqa: T201 - the parent reads it
    server.serve_forever()


def _locked(application: Callable[..., Any]) -> Callable[..., Any]:
    """Let one write in at a time."""
    lock = threading.Lock()

    def answer(environ: dict[str, Any], start_response: object) -> Any:
        if environ["REQUEST_METHOD"] in ("PUT", "POST", "DELETE"):
            with lock:
                return [b"".join(application(environ, start_response))]
        return application(environ, start_response)

    return answer


if __name__ == "__main__":
    _serve(sys.argv[1])
