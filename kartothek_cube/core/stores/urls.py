"""Store URLs, parsed without access to the store: object stores, local and memory stores."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NoReturn, TypeAlias
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from msgspec import Struct

from kartothek_cube.core.stores.contract import check_key
from kartothek_cube.core.stores.local import ON_WINDOWS
from kartothek_cube.errors import InvalidInput

Kind: TypeAlias = Literal["s3", "azure", "gcs"]

_S3 = ("s3", "hs3", "s3a", "s3n", "boto")
_AZURE = ("azure", "hazure", "az")
_HADOOP_AZURE = ("abfs", "abfss", "wasb", "wasbs")
_GCS = ("gs", "gcs", "hgs", "hgcs")
OBJECT_SCHEMES = frozenset({*_S3, *_AZURE, *_HADOOP_AZURE, *_GCS})
LOCAL_SCHEMES = frozenset({"hfs", "fs", "file"})
MEMORY_SCHEMES = frozenset({"hmemory", "memory"})

_URL = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.\-]*)://(?P<path>[^?#]*)(?:\?(?P<query>[^#]*))?(?:#(?P<fragment>.*))?", re.DOTALL
)
_LOCATION_URL = re.compile(
    r"(?:readonly\+)?[A-Za-z0-9]+://(?P<authority>[^/?#]*)(?P<path>/[^?#]*)?(?:\?(?P<query>[^#]*))?(?:#(?P<fragment>.*))?",
    re.DOTALL,
)

_BUCKET = re.compile(r"[A-Za-z0-9$][A-Za-z0-9._\-]*")
_ENDPOINT = re.compile(r"https?://[^\s/?#@]+(?:/[^\s?#@]*)?")
_AWS_HOST = re.compile(r"s3(?:[.-](?P<region>[a-z]{2}(?:-[a-z]+)+-\d))?\.amazonaws\.com(?::443)?")

# Settings of the clients of storefact and minimalkv, and of buckets that they make.
_IGNORED = frozenset(
    {"create_if_missing", "bucket_creation_location", "project", "verify", "checksum", "socket_timeout"}
    | {f"max_{what}" for what in ("connections", "block_size", "single_put_size")}
)

_COMMON = frozenset({"readonly", "check_conditions", "endpoint"})
_KNOWN = {
    "s3": _COMMON | {"region", "region_name", "is_secure", "force_bucket_suffix", "session_token"},
    "azure": _COMMON | {"use_sas", "blob_endpoint", "default_endpoints_protocol", "account_name"},
    "gcs": _COMMON,
}

_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
# In the URL of an object store, a flag without a value is true.
_FLAGS = {**_BOOLEANS, "": True}
_NAMES = {"s3": "s3", "azure": "az", "gcs": "gs"}


@dataclass(frozen=True, slots=True)
class Location:
    """The place of the objects of one store.

    Attributes
    ----------
    kind : {"s3", "azure", "gcs"}
        The protocol.
    bucket, prefix : str
        The bucket or container, and the folder inside that is the root: empty, or without slashes
        around it.
    endpoint, account, region : str | None
        The URL of the server, the account of Azure, the region of AWS. None: as set by the
        environment of the process, else the default of the provider.
    check_conditions : bool | None
        Whether conditional puts are probed before the first commit. None: if the server is not the
        provider's own.
    readonly : bool
        Whether the URL forbids writing.
    secrets : tuple
        Credentials of the URL, as pairs. Texts omit them, a pickle contains them.
    """

    kind: Kind
    bucket: str
    prefix: str = ""
    endpoint: str | None = None
    account: str | None = None
    region: str | None = None
    check_conditions: bool | None = None
    readonly: bool = False
    secrets: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @property
    def identity(self) -> Hashable:
        """Equal for locations of the same objects."""
        return (self.kind, self.endpoint or self.account, self.bucket, self.prefix)

    @property
    def name(self) -> str:
        """The URL without credentials."""
        values = {"account_name": self.account, "endpoint": self.endpoint, "region": self.region}
        query = urlencode({name: value for name, value in values.items() if value}, safe=":/")
        path = f"{self.bucket}/{quote(self.prefix, safe='/+=@,~')}" if self.prefix else self.bucket
        return f"{_NAMES[self.kind]}://{path}" + (f"?{query}" if query else "")

    def with_settings(self, settings: Mapping[str, Any]) -> Location:
        """Return the location with ``region``, ``endpoint`` and ``check_conditions`` overridden."""
        names = ("region", "endpoint", "check_conditions")
        overrides = {name: settings[name] for name in names if settings.get(name) is not None}
        if "endpoint" in overrides:
            _check_endpoint(overrides["endpoint"])
        if "region" in overrides and self.kind != "s3":
            raise InvalidInput(f"region= is for S3; {self.name} has none.")
        return replace(self, **overrides)


@dataclass(frozen=True, slots=True)
class _Parts:
    """The parts of a URL: decoded, except for the user."""

    scheme: str
    user: str | None = field(repr=False)
    host: str
    path: str
    query: dict[str, str] = field(repr=False)

    def flag(self, name: str, default: bool) -> bool:
        if name not in self.query:
            return default
        try:
            return _FLAGS[self.query[name].lower()]
        except KeyError:
            return _refuse(self.scheme, f"{name} is neither true nor false")

    def secrets(self, form: str) -> tuple[str, str]:
        name, colon, secret = (self.user or "").partition(":")
        if not (name and colon and secret):
            _refuse(
                self.scheme,
                f"it looks like {form}, with special characters of the credentials percent-encoded "
                "('/' as %2F, '+' as %2B)",
            )
        return unquote(name), unquote(secret)


def scheme_of(url: str) -> str:
    """Return the scheme, without the ``readonly+`` of old URLs."""
    return url.partition("://")[0].lower().removeprefix("readonly+")


def parse_location(url: str) -> Location:
    """Parse the URL of an object store. No error shows the URL, which may contain credentials.

    Raises
    ------
    InvalidInput
        If the URL is malformed, or has parts that its scheme does not take.

    Examples
    --------
    >>> parse_location("s3://sales-bucket/cubes?endpoint=http://minio:9000").name
    's3://sales-bucket/cubes?endpoint=http://minio:9000'
    >>> parse_location("hs3://key:secret@minio:9000/sales?force_bucket_suffix=false").name
    's3://sales?endpoint=https://minio:9000'
    """
    scheme = scheme_of(url)
    match = _LOCATION_URL.fullmatch(url)
    if match is None:
        _refuse(scheme, "it is no URL")
    kind: Kind = "s3" if scheme in _S3 else "gcs" if scheme in _GCS else "azure"
    parts = _split(scheme, match, kind)
    location = {"s3": _s3, "gcs": _gcs, "azure": _azure}[kind](parts)
    readonly, fragment = url.lower().startswith("readonly+"), match["fragment"] or ""
    if not readonly and fragment not in ("", "wrap:readonly"):
        _refuse(scheme, "after its '#' it takes wrap:readonly only; a '#' in a path is written %23")
    readonly = readonly or bool(fragment) or parts.flag("readonly", False)
    checks = parts.flag("check_conditions", True) if "check_conditions" in parts.query else None
    if not _BUCKET.fullmatch(location.bucket):
        _refuse(
            scheme,
            "it names no bucket or container; one looks like s3://bucket/prefix, az://container/prefix, "
            "gs://bucket/prefix or hs3://key:secret@host/bucket",
        )
    if location.prefix:
        check_key(location.prefix)
    if location.endpoint is not None:
        _check_endpoint(location.endpoint)
    return replace(location, readonly=readonly, check_conditions=checks)


def _split(scheme: str, match: re.Match[str], kind: Kind) -> _Parts:
    user, at, host = match["authority"].rpartition("@")
    query = {k: v for k, v in parse_qsl(match["query"] or "", keep_blank_values=True) if k not in _IGNORED}
    unknown = sorted(query.keys() - _KNOWN[kind])
    if kind == "gcs" and not at and "@" in (match["path"] or ""):
        _refuse(scheme, "a '/' in the base64 before the '@' is written %2F, and an '@' in a path %40")
    # Without the user part, these names may be a piece of the secret: the error must not show them.
    if unknown and not at and "@" in (match["query"] or ""):
        _refuse(scheme, "a '?' in credentials is written %3F")
    if unknown:
        _refuse(scheme, f"after its '?' it takes {sorted(_KNOWN[kind])}, not {unknown}")
    return _Parts(scheme, user if at else None, host, unquote(match["path"] or "").strip("/"), query)


def _s3(parts: _Parts) -> Location:
    region = parts.query.get("region") or parts.query.get("region_name")
    if parts.user is None:
        return Location("s3", parts.host, parts.path, endpoint=parts.query.get("endpoint"), region=region)
    key, secret = parts.secrets(f"{parts.scheme}://key:secret@endpoint/bucket")
    bucket, _, prefix = parts.path.partition("/")
    if parts.flag("force_bucket_suffix", True) and not bucket.lower().endswith(f"-{key.lower()}"):
        bucket = f"{bucket}-{key.lower()}"
    endpoint = parts.query.get("endpoint")
    amazon = _AWS_HOST.fullmatch(parts.host.lower())
    if amazon or not parts.host:  # in minimalkv, a missing host is Amazon
        # The client finds the server of Amazon by the region.
        region = region or (amazon["region"] if amazon else None)
    else:
        protocol = "https" if parts.flag("is_secure", True) else "http"
        endpoint = endpoint or f"{protocol}://{parts.host}"
    secrets = {"access_key_id": key, "secret_access_key": secret, "token": parts.query.get("session_token")}
    present = tuple((name, value) for name, value in secrets.items() if value)
    return Location("s3", bucket, prefix, endpoint=endpoint, region=region, secrets=present)


def _azure(parts: _Parts) -> Location:
    endpoint = parts.query.get("blob_endpoint") or parts.query.get("endpoint")
    if parts.user is None:
        return Location("azure", parts.host, parts.path, endpoint=endpoint, account=parts.query.get("account_name"))
    if parts.scheme in _HADOOP_AZURE:  # abfss://container@account.dfs.core.windows.net/prefix
        host_account = parts.host.partition(".")[0]
        return Location("azure", unquote(parts.user), parts.path, endpoint=endpoint, account=host_account)
    account, secret = parts.secrets(f"{parts.scheme}://account:key@container")
    if endpoint is None and parts.query.get("default_endpoints_protocol", "https") == "http":
        endpoint = f"http://{account}.blob.core.windows.net"
    secrets = (("sas_token", secret.removeprefix("?")),) if parts.flag("use_sas", False) else (("access_key", secret),)
    return Location("azure", parts.host, parts.path, endpoint=endpoint, account=account, secrets=secrets)


def _gcs(parts: _Parts) -> Location:
    if parts.user is None:
        return Location("gcs", parts.host, parts.path, endpoint=parts.query.get("endpoint"))
    encoded = unquote(parts.user).replace("+", "-").replace("/", "_")
    try:
        account = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
        fields = json.loads(account)
    except (binascii.Error, ValueError):
        fields = None
    if not isinstance(fields, dict):
        _refuse(parts.scheme, "before the '@' stands the JSON of a service account in base64")
    # The base URL is that of an emulator, which may ignore conditions.
    endpoint = parts.query.get("endpoint") or fields.get("gcs_base_url")
    return Location("gcs", parts.host, parts.path, endpoint=endpoint, secrets=(("service_account_key", account),))


def _check_endpoint(endpoint: object) -> None:
    try:
        is_valid = isinstance(endpoint, str) and _ENDPOINT.fullmatch(endpoint) and urlsplit(endpoint).port != 0
    except ValueError:  # the port is no number
        is_valid = False
    if not is_valid:
        raise InvalidInput(
            "The endpoint of a store is a URL such as https://minio.example.com:9000, without user, password or query."
        )


def _refuse(scheme: str, reason: str) -> NoReturn:
    raise InvalidInput(f"Malformed {scheme}:// URL: {reason}.")


class StoreUrl(Struct, frozen=True):
    """A parsed URL of a local or memory store: the decoded path, and the settings of the query."""

    scheme: str
    path: str
    settings: dict[str, object] = {}
    wrappers: tuple[str, ...] = ()

    def storefact(self, path: str) -> str:
        """Return the URL that makes storefact open the same store at an absolute path."""
        return f"{self.scheme}://{quote(path)}#wrap:{'+'.join(self.wrappers)}"


def looks_like_url(text: str) -> bool:
    """Whether a text is meant as a URL."""
    # `hfs:/data` is, too: it gets an error of its syntax instead of becoming a directory.
    scheme, colon, _ = text.partition(":")
    return "://" in text or (bool(colon) and scheme.lower() in LOCAL_SCHEMES | MEMORY_SCHEMES | OBJECT_SCHEMES)


def fsspec_url(text: str) -> str | None:
    """Return the URL for fsspec, if a text is explicitly one: marked, or a chain of protocols.

    Examples
    --------
    >>> fsspec_url("fsspec+sftp://host/cubes"), fsspec_url("simplecache::s3://bucket/cubes")
    ('sftp://host/cubes', 'simplecache::s3://bucket/cubes')
    """
    url = text.removeprefix("fsspec+")
    return url if url != text or re.match(r"[A-Za-z0-9+.\-]+::.*://", text) else None


def names_object_store(url: str) -> bool:
    """Whether a URL is one of S3, Azure Blob or GCS."""
    return "://" in url and scheme_of(url) in OBJECT_SCHEMES


def parse_url(url: str) -> StoreUrl | None:
    """Parse the URL of a local or memory store; None for another scheme, perhaps of storefact.

    Raises
    ------
    InvalidInput
        If the text is no URL, or has parts that its scheme does not take.

    Examples
    --------
    >>> parse_url("hfs:///data/My%20Cubes").path
    '/data/My Cubes'
    """
    match = _URL.fullmatch(url)
    if match is None:
        shown = re.sub(r"(?s)(:/*).*@", r"\1***@", url)  # without what may be a password
        raise InvalidInput(
            f"{shown!r} is no store URL; one looks like hfs:///absolute/path, hfs://relative/path or hmemory://name."
        )
    scheme = match["scheme"].lower()
    if scheme not in LOCAL_SCHEMES | MEMORY_SCHEMES:
        return None
    path, settings = _path(scheme, unquote(match["path"])), _settings(scheme, match["query"] or "")
    fragment = match["fragment"] or ""
    if fragment and not fragment.startswith("wrap:"):
        raise InvalidInput(
            f"'#{fragment}' in a store URL is no wrapper as '#wrap:readonly'; a '#' in a path is written %23."
        )
    wrappers = fragment.removeprefix("wrap:").split("+") if fragment else ()
    return StoreUrl(scheme, path, settings, tuple(wrappers))


def _path(scheme: str, path: str) -> str:
    if "\0" in path or (scheme in LOCAL_SCHEMES and not path):
        raise InvalidInput(f"The {scheme}:// URL names no directory; write {scheme}:///absolute/path.")
    if scheme == "file" and not path.startswith("/"):
        path = path.removeprefix("localhost")
        if not path.startswith("/"):
            raise InvalidInput(
                f"A file:// URL has an absolute path after three slashes, as file:///{path}; "
                f"for a relative one write hfs://{path}."
            )
    # The drive of Windows stands where POSIX has the root: hfs:///C:/cubes.
    return path[1:] if ON_WINDOWS and re.match("/[A-Za-z]:", path) else path


def _settings(scheme: str, query: str) -> dict[str, object]:
    values = dict(parse_qsl(query, keep_blank_values=True))
    values.pop("create_if_missing", None)  # of storefact; here the first write makes the directory
    known = {"readonly", "lock", "fsync"} if scheme in LOCAL_SCHEMES else {"readonly"}
    unknown = sorted(values.keys() - known)
    if unknown:
        raise InvalidInput(
            f"A {scheme}:// URL takes {sorted(known)} after its '?', not {unknown}; a '?' in a path is written %3F."
        )
    for name, value in values.items():
        if name != "lock" and value.lower() not in _BOOLEANS:
            raise InvalidInput(f"{name}={value!r} in a store URL is neither true nor false.")
    return {name: value if name == "lock" else _BOOLEANS[value.lower()] for name, value in values.items()}
