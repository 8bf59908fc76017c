"""What an error of obstore means, in this library's errors and without credentials."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
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
    """What was tried: the operation, on which key or prefix, and what the caller is told if a condition did not hold."""

    store: Store
    operation: str
    key: str
    secrets: tuple[str, ...] = field(repr=False)
    writes: bool = False
    mismatch: Callable[[], Exception] | None = None


def is_panic(error: BaseException) -> bool:
    """Whether obstore gave up by a panic, which is no `Exception` in Python."""
    return type(error).__name__ == "PanicException"


def explained(error: BaseException, attempt: Attempt) -> BaseException:
    """Return the error to raise: of the network always an `OSError`, of a missing key `KeyNotFound`.

    What is not obstore's passes.

    It has to be raised outside the ``except`` block: the original, which may repeat credentials,
    must not come along as its context.
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
        return _forbidden(error, attempt)
    if isinstance(error, (exceptions.NotSupportedError, exceptions.InvalidPathError, NotImplementedError)):
        return Unsupported(_text(error, attempt))
    if isinstance(error, ValueError):
        return InvalidInput(_text(error, attempt))
    if isinstance(error, (exceptions.BaseError, FileNotFoundError)) or is_panic(error):
        return ConnectionError(_text(error, attempt))
    return error


def not_opened(error: BaseException, name: str, secrets: tuple[str, ...]) -> InvalidInput:
    """Return the error that says that no client could be made, because credentials or settings are incomplete or malformed."""
    return InvalidInput(
        f"Store {name} cannot be opened with these credentials and settings: {redacted(summary(error), secrets)}."
    )


def _forbidden(error: BaseException, attempt: Attempt) -> Exception:
    return (ReadOnlyStore if attempt.writes else PermissionError)(
        f"{_text(error, attempt)} Are the credentials right, and do they allow this?"
    )


def _names_missing_bucket(error: BaseException) -> bool:
    text = str(error)
    status = _STATUS.search(text)
    # Only in the answer behind the status: what stands before has the key, which may be any text.
    return status is not None and _MISSING_BUCKET.search(text, status.end()) is not None


def has_status(error: BaseException, *statuses: int) -> bool:
    """Whether an error of obstore is an answer with one of these HTTP status codes."""
    found = _STATUS.search(str(error))
    return found is not None and int(found[1]) in statuses


def _text(error: BaseException, attempt: Attempt) -> str:
    hint = " The bucket or container does not exist; this library makes none." if _names_missing_bucket(error) else ""
    return f"Store {attempt.store.name}: {attempt.operation} of {attempt.key!r} failed: {redacted(summary(error), attempt.secrets)}.{hint}"


def summary(error: BaseException) -> str:
    """Return the parts of a text of obstore that cannot hold a credential: no query of a URL, of an answer's body only code and message.

    Examples
    --------
    >>> summary(OSError("GET https://host/b/k?sig=secret in 2ms - status code: 403 Forbidden: <Error><Code>AccessDenied</Code></Error>"))
    'GET https://host/b/k in 2ms - status code: 403 Forbidden (AccessDenied)'
    """
    text = str(error).partition("\n\nDebug source")[0]
    head = re.split(r"<\?xml|<Error|<html|\n", text, maxsplit=1)[0]
    head = re.sub(r"(https?://)(?:[^/\s@]*@)?([^\s?#]*)[?#]?\S*", r"\1\2", head)
    head = re.sub(r"(status code: \d{3}[^:]*):.*", r"\1", head)
    head = re.sub(r"(credential provider: \w+):.*", r"\1", head)  # the text is of the user's function
    parts = [
        match[1].strip() for match in (re.search(rf"<{tag}>([^<\n]*)", text) for tag in ("Code", "Message")) if match
    ]
    return head.strip(" :.-") + (f" ({': '.join(parts)})" if parts else "")


def redacted(text: str, secrets: tuple[str, ...]) -> str:
    """Return a text without these secrets and those of the environment."""
    found = {
        part for secret in (*secrets, *_from_environment()) for part in _parts(secret) if len(part) >= _SHORTEST_SECRET
    }
    for secret in sorted(found, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def _from_environment() -> Iterator[str]:
    return (value for name, value in os.environ.items() if _SECRET_VARIABLES.fullmatch(name))


def _parts(secret: str) -> Iterator[str]:
    """A secret as it may occur; of JSON, each text inside."""
    yield from (secret, quote(secret, safe=""))
    if secret.startswith("{"):
        try:
            yield from (value for value in json.loads(secret).values() if isinstance(value, str))
        except ValueError:
            return
