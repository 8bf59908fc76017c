"""Clients of object stores: made by obstore where and when they are used, and never in a process forked after the first use."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeAlias

from kartothek_cube.core.stores.locations import Kind, Location
from kartothek_cube.errors import MissingExtra, Unsupported

__all__ = ["Credentials", "connect", "custom_endpoint", "refuse_after_fork", "require_extra"]

Credentials: TypeAlias = Callable[[], Any]

_CLASSES = {"s3": "S3Store", "azure": "AzureStore", "gcs": "GCSStore"}
_ENDPOINT_VARIABLES = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "azure": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
    "gcs": ("GOOGLE_BASE_URL",),
}
# obstore's own limit, 30 seconds for a whole answer, is too short for large files on thin lines.
_TIMEOUTS = {"timeout": "5min", "read_timeout": "1min"}
_RETRIES: dict[str, Any] = {"max_retries": 10, "retry_timeout": timedelta(minutes=3)}
_FIRST_USE: list[int] = []


@dataclass(frozen=True, slots=True)
class _Fixed:
    """Credentials that were inside the URL. Given this way, nothing of the environment is mixed into them."""

    values: tuple[tuple[str, str], ...] = field(repr=False)

    def __call__(self) -> dict[str, str | None]:
        return {**dict(self.values), "expires_at": None}


def require_extra(kind: Kind) -> None:
    """Refuse a store whose client is not installed."""
    if importlib.util.find_spec("obstore") is None:
        raise MissingExtra(f"Stores of kind {kind} need the package obstore, which is not installed: pip install 'kartothek-cube[{kind}]'")


def refuse_after_fork(name: str) -> None:
    """Remember the process that uses obstore first, and refuse its forked children, in which obstore's threads are gone and every call hangs for ever."""
    if not _FIRST_USE:
        _FIRST_USE.append(os.getpid())
    if _FIRST_USE[0] != os.getpid():
        raise Unsupported(
            f"Store {name} cannot be used here: this process was forked after its parent had used an object store, and obstore would hang. "
            "Start processes by spawn or forkserver, or fork before the first use of an object store."
        )


def connect(location: Location, credentials: Credentials | None) -> Any:
    """Make a client. What location and credentials leave open comes from the environment of this process."""
    make = getattr(importlib.import_module("obstore.store"), _CLASSES[location.kind])
    options = {"client_options": _client_options(location), "retry_config": _RETRIES, **_credentials(location, credentials)}
    return make(location.bucket, prefix=location.prefix or None, config=_config(location), **options)


def custom_endpoint(location: Location) -> str | None:
    """Return the server that is not the provider's own, from the location or the environment."""
    variables = (os.environ.get(name) for name in _ENDPOINT_VARIABLES[location.kind])
    return location.endpoint or next(filter(None, variables), None)


def _credentials(location: Location, credentials: Credentials | None) -> dict[str, Any]:
    if credentials is not None:
        return {"credential_provider": credentials}
    if location.secrets and location.kind != "gcs":
        return {"credential_provider": _Fixed(location.secrets)}
    return {}


def _client_options(location: Location) -> dict[str, Any]:
    insecure = (custom_endpoint(location) or "").startswith("http://") or any('"http://' in secret for _, secret in location.secrets)
    return {**_TIMEOUTS, "allow_http": True} if insecure else dict(_TIMEOUTS)


def _config(location: Location) -> dict[str, Any]:
    config = {"s3": _s3_config, "azure": _azure_config, "gcs": _gcs_config}[location.kind](location)
    return {name: value for name, value in config.items() if value is not None}


def _s3_config(location: Location) -> dict[str, Any]:
    # Deleting key by key is understood by every server, a bulk request of one key is not.
    fixed = {"conditional_put": "etag", "disable_bulk_delete": True}
    path_style = False if location.endpoint else None
    return {**fixed, "endpoint": location.endpoint, "region": location.region, "virtual_hosted_style_request": path_style}


def _azure_config(location: Location) -> dict[str, Any]:
    return {"endpoint": location.endpoint, "account_name": location.account}


def _gcs_config(location: Location) -> dict[str, Any]:
    return {"base_url": location.endpoint, **dict(location.secrets)}
