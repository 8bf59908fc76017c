"""Errors of obstore as errors of this library, without credentials in their texts."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import quote

from kartothek_cube.core.stores.contract import Store
from kartothek_cube.errors import InvalidInput, KartothekCubeError, ReadOnlyStore, Unsupported

__all__ = ["Attempt", "explained", "has_status", "is_panic", "not_opened", "redacted", "summary"]

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
