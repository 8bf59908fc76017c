"""Store URLs: what they name, parsed without touching the store."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote, unquote

from kartothek_cube.core.stores.locations import OBJECT_SCHEMES, scheme_of
from kartothek_cube.errors import InvalidInput

__all__ = ["LOCAL_SCHEMES", "MEMORY_SCHEMES", "StoreUrl", "looks_like_url", "names_object_store", "parse_url"]

LOCAL_SCHEMES = frozenset({"hfs", "fs", "file"})
MEMORY_SCHEMES = frozenset({"hmemory", "memory"})

_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.\-]*)://(?P<path>[^?#]*)(?:\?(?P<query>[^#]*))?(?:#(?P<fragment>.*))?", re.DOTALL)
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """A parsed URL of a local or memory store: the decoded path in its own case, and the settings of the query."""

    scheme: str
    path: str
    settings: dict[str, object] = field(default_factory=dict)
    wrappers: tuple[str, ...] = ()

    def storefact(self, path: str) -> str:
        """Return the URL that makes storefact open the same store at an absolute path."""
        return f"{self.scheme}://{quote(path)}#wrap:{'+'.join(self.wrappers)}"


def looks_like_url(text: str) -> bool:
    """Whether a text is meant as a URL; ``hfs:/data`` is, and gets an error that says what is wrong."""
    scheme, colon, _ = text.partition(":")
    return "://" in text or (bool(colon) and scheme.lower() in LOCAL_SCHEMES | MEMORY_SCHEMES | OBJECT_SCHEMES)


def names_object_store(url: str) -> bool:
    """Whether a URL is one of S3, Azure Blob or GCS."""
    return "://" in url and scheme_of(url) in OBJECT_SCHEMES


def parse_url(url: str) -> StoreUrl | None:
    """Parse the URL of a local or memory store; None if its scheme is another one that storefact may know.

    Raises
    ------
    InvalidInput
        If it is no URL, or has parts that its scheme does not take.

    Examples
    --------
    >>> parse_url("hfs:///data/My%20Cubes").path
    '/data/My Cubes'
    """
    match = _URL.fullmatch(url)
    if match is None:
        raise InvalidInput(f"{_hidden(url)!r} is no store URL; one looks like hfs:///absolute/path, hfs://relative/path or hmemory://name.")
    scheme = match["scheme"].lower()
    if scheme not in LOCAL_SCHEMES | MEMORY_SCHEMES:
        return None
    return StoreUrl(scheme, _path(scheme, unquote(match["path"])), _settings(scheme, match["query"] or ""), _wrappers(match["fragment"] or ""))


def _path(scheme: str, path: str) -> str:
    if "\0" in path or (scheme in LOCAL_SCHEMES and not path):
        raise InvalidInput(f"The {scheme}:// URL names no directory; write {scheme}:///absolute/path.")
    if scheme == "file" and not path.startswith("/"):
        path = path.removeprefix("localhost")
        if not path.startswith("/"):
            raise InvalidInput(f"A file:// URL has an absolute path after three slashes, as file:///{path}; for a relative one write hfs://{path}.")
    return path


def _settings(scheme: str, query: str) -> dict[str, object]:
    values = dict(parse_qsl(query, keep_blank_values=True))
    values.pop("create_if_missing", None)  # storefact's; directories are made by the first write
    known = {"readonly", "lock", "fsync"} if scheme in LOCAL_SCHEMES else {"readonly"}
    unknown = sorted(values.keys() - known)
    if unknown:
        raise InvalidInput(f"A {scheme}:// URL takes {sorted(known)} after its '?', not {unknown}; a '?' in a path is written %3F.")
    return {name: value if name == "lock" else _boolean(name, value) for name, value in values.items()}


def _boolean(name: str, value: str) -> bool:
    try:
        return _BOOLEANS[value.lower()]
    except KeyError:
        raise InvalidInput(f"{name}={value!r} in a store URL is neither true nor false.") from None


def _wrappers(fragment: str) -> tuple[str, ...]:
    if not fragment:
        return ()
    if not fragment.startswith("wrap:"):
        raise InvalidInput(f"'#{fragment}' in a store URL is no wrapper as '#wrap:readonly'; a '#' in a path is written %23.")
    return tuple(fragment.removeprefix("wrap:").split("+"))


def _hidden(url: str) -> str:
    """Show a URL without what may be a password."""
    return re.sub(r"(?s)(:/*).*@", r"\1***@", url)
