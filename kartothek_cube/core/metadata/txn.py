"""Numbered writes of applications, e.g. batches of a stream: a repeated number is skipped. Pure."""

from __future__ import annotations

import json
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kartothek_cube.errors import CorruptDocument, InvalidInput, InvalidType

__all__ = ["TXN_KEY", "Txn", "is_applied", "last_number", "parse_txn", "with_txn"]

TXN_KEY = "kartothek_cube.txn"
_LIMIT = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Txn:
    """One write of an application that numbers its writes.

    Attributes
    ----------
    application : str
        The application that numbers its writes, e.g. the id of a streaming query.
    number : int
        0 to 2**63 - 1. A dataset takes each application's numbers in ascending order, and each at
        most once; some may be left out.
    """

    application: str
    number: int


def parse_txn(value: object) -> Txn | None:
    """The argument ``txn`` of a writing verb: None, or a pair ``(application id, number)``.

    Raises
    ------
    InvalidType
        If it is something else, or the application is no text or the number no integer.
    InvalidInput
        If the application is empty or the number is negative or above 2**63 - 1.

    Examples
    --------
    >>> parse_txn(("weekly sales", 18))
    Txn(application='weekly sales', number=18)
    """
    if value is None or isinstance(value, Txn):
        return value
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise InvalidType(f'txn is a pair (application id, number), e.g. ("weekly sales", 18), not {value!r:.200}.')
    application, number = value
    if not isinstance(application, str) or isinstance(number, bool) or not hasattr(number, "__index__"):
        raise InvalidType(f'txn is a text and an integer, e.g. ("weekly sales", 18), not {value!r:.200}.')
    if not application:
        raise InvalidInput(
            "txn has an empty application id. Give each application, e.g. each streaming query, an id of its own."
        )
    number = operator.index(number)
    if not 0 <= number <= _LIMIT:
        raise InvalidInput(f"The number of txn is 0 to 2**63 - 1, not {number}; application {application!r}.")
    return Txn(application, number)


def last_number(metadata: Mapping[str, Any], application: str) -> int | None:
    """The number of an application's last write in the metadata of a document; None: no write.

    Raises
    ------
    CorruptDocument
        If the numbers are damaged: then it is unknown which writes were applied.

    Examples
    --------
    >>> last_number({"kartothek_cube.txn": '{"weekly sales": 18}'}, "weekly sales")
    18
    """
    return _numbers(metadata).get(application)


def is_applied(txn: Txn | None, metadata: Mapping[str, Any]) -> bool:
    """Whether a write was applied already: its number is not above the last one."""
    last = None if txn is None else last_number(metadata, txn.application)
    return txn is not None and last is not None and txn.number <= last


def with_txn(txn: Txn | None, metadata: Mapping[str, Any]) -> dict[str, str]:
    """The entry of a document about numbered writes after one more; ``metadata`` is that before."""
    if txn is not None:
        return {TXN_KEY: json.dumps({**_numbers(metadata), txn.application: txn.number})}
    return {TXN_KEY: metadata[TXN_KEY]} if TXN_KEY in metadata else {}


def _numbers(metadata: Mapping[str, Any]) -> dict[str, int]:
    text = metadata.get(TXN_KEY, "{}")
    try:
        numbers = json.loads(text)
        if isinstance(numbers, dict) and all(type(n) is int for n in numbers.values()):
            return numbers
    except (TypeError, ValueError, RecursionError):
        pass
    raise CorruptDocument(
        f"The metadata {TXN_KEY!r} should be a JSON map application id → last number, but are {text!r:.200}. "
        "Nothing was written."
    )
