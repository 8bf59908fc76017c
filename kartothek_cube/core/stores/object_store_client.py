"""Clients of obstore: settings, credentials, endpoints, and the check against forked processes."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeAlias

from kartothek_cube.core.stores.urls import Kind, Location
from kartothek_cube.errors import MissingExtra, Unsupported

__all__ = ["Credentials", "check_not_forked", "connect", "custom_endpoint", "require_extra"]

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


def connect(location: Location, credentials: Credentials | None) -> Any:
    """Make a client. What location and credentials omit is read from the environment."""
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
        config={name: value for name, value in _config(location).items() if value is not None},
        client_options={**_TIMEOUTS, "allow_http": True} if insecure else dict(_TIMEOUTS),
        retry_config=_RETRIES,
        **({} if credentials is None else {"credential_provider": credentials}),
    )


def custom_endpoint(location: Location) -> str | None:
    """Return the server that is not the provider's own, from the location or the environment."""
    variables = (os.environ.get(name) for name in _ENDPOINT_VARIABLES[location.kind])
    return location.endpoint or next(filter(None, variables), None)


def _config(location: Location) -> dict[str, Any]:
    if location.kind == "azure":
        return {"endpoint": location.endpoint, "account_name": location.account}
    if location.kind == "gcs":
        return {"base_url": location.endpoint, **dict(location.secrets)}
    return {
        "conditional_put": "etag",
        # Every server can delete key by key; not all can delete in bulk.
        "disable_bulk_delete": True,
        "endpoint": location.endpoint,
        "region": location.region,
        "virtual_hosted_style_request": False if location.endpoint else None,
    }
