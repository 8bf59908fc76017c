"""Stores that count calls or fail on purpose, and the conformance suite `StoreTests`."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, NoReturn, TypeAlias, TypeVar

from kartothek_cube.core.stores.contract import Store, StoreView
from kartothek_cube.testing.store_tests import StoreTests, increment, invalid_keys, valid_keys

__all__ = [
    "Call",
    "CountingStore",
    "Fault",
    "FaultyStore",
    "InjectedFault",
    "SimulatedCrash",
    "StoreTests",
    "increment",
    "invalid_keys",
    "valid_keys",
]

R = TypeVar("R")


class InjectedFault(ConnectionError):
    """The failure that a `FaultyStore` raises.

    Examples
    --------
    >>> issubclass(InjectedFault, ConnectionError)
    True
    """


class SimulatedCrash(BaseException):
    """The simulated death of the process: no ``except Exception`` catches it.

    Every later call of the store raises it again.

    Examples
    --------
    >>> issubclass(SimulatedCrash, Exception)
    False
    """


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a store: the method, the key or prefix, and its number among calls of the method.

    Examples
    --------
    >>> from kartothek_cube.core.stores.local import MemoryStore
    >>> store = CountingStore(MemoryStore())
    >>> _ = store.contains("sales/1.parquet")
    >>> store.calls
    [Call(operation='contains', key='sales/1.parquet', nth=1)]
    """

    operation: str
    key: str
    nth: int


class CountingStore(StoreView):
    """Forwards every call to another store and records it.

    Examples
    --------
    >>> from kartothek_cube.core.stores.local import MemoryStore
    >>> store = CountingStore(MemoryStore())
    >>> store.contains("uuid/table/COUNTRY_CODE=DE/1.parquet")
    False
    >>> dict(store.counts)
    {'contains': 1}
    """

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.calls: list[Call] = []
        self._lock = threading.Lock()

    def around(self, operation: str, key: str, action: Callable[[], R]) -> R:
        """Record the call and forward it."""
        self._record(operation, key)
        return action()

    def _record(self, operation: str, key: str) -> Call:
        # The library calls stores from several threads, and no two calls may have one number.
        with self._lock:
            call = Call(operation, key, self.counts[operation] + 1)
            self.calls.append(call)
            return call

    @property
    def counts(self) -> Counter[str]:
        """The number of calls by method."""
        return Counter(call.operation for call in self.calls)

    def touched(self, *operations: str) -> list[str]:
        """Return the keys of these methods, by default of all calls, in order."""
        return [call.key for call in self.calls if not operations or call.operation in operations]

    def reset(self) -> None:
        """Forget the calls."""
        with self._lock:
            self.calls.clear()


Fault: TypeAlias = Literal["before", "after", "crash", "crash_after"] | None


class FaultyStore(CountingStore):
    """Forwards calls to another store, and fails on demand.

    Parameters
    ----------
    inner : Store
        The other store.
    fail : Callable[[Call], Fault]
        Returns the fault of each call. ``"before"``: the call fails without effect. ``"after"``:
        the call takes effect, but its answer is lost. ``"crash"``, ``"crash_after"``: the process
        dies before or after the effect; from then on every call raises `SimulatedCrash`. None: the
        call works.

    Examples
    --------
    >>> from kartothek_cube.core.stores.local import MemoryStore
    >>> memory = MemoryStore()
    >>> store = FaultyStore(memory, lambda call: "after" if call.operation == "put" else None)
    >>> store.put("sales/1.parquet", b"PAR1")
    Traceback (most recent call last):
    kartothek_cube.testing.stores.InjectedFault: put of 'sales/1.parquet' (call 1) failed after ...
    >>> memory.contains("sales/1.parquet")
    True
    """

    def __init__(self, inner: Store, fail: Callable[[Call], Fault]) -> None:
        super().__init__(inner)
        self.crashed = False
        self._fail = fail

    def around(self, operation: str, key: str, action: Callable[[], R]) -> R:
        """Forward the call, fail, or both."""
        call = self._record(operation, key)
        fault = "crash" if self.crashed else self._fail(call)
        if fault in ("before", "crash"):
            self._raise(fault, call, "before it was done")
        if fault is None:
            return action()
        with suppress(Exception):  # the answer is lost, also an error
            action()
        return self._raise(fault, call, "after it was done")

    def _raise(self, fault: Fault, call: Call, when: str) -> NoReturn:
        text = f"{call.operation} of {call.key!r} (call {call.nth}) failed {when}"
        if fault in ("before", "after"):
            raise InjectedFault(text)
        self.crashed = True
        raise SimulatedCrash(text)
