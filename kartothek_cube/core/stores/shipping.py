"""Work that is pickled for tasks in other processes, in which stores are numbers."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from kartothek_cube.core.stores.contract import InstrumentedStore, Store
from kartothek_cube.core.stores.open import open_instrumented
from kartothek_cube.errors import InvalidType

Opener: TypeAlias = Store | Callable[[], Store]


class Stores:
    """Open stores, each with its opener for other processes. Pickles for tasks hold their numbers.

    A task opens each store once, even if a thousand items refer to it. Stores that cannot be
    pickled travel as their openers.

    Parameters
    ----------
    opened : sequence of tuple
        Open stores with their openers.
    pickler : type
        The ``Pickler`` of cloudpickle, which sends classes of a user's notebook by value.
    """

    def __init__(self, opened: Sequence[tuple[Store, Opener]], pickler: Any) -> None:
        self._numbers = {id(_bare(store)): number for number, (store, _) in enumerate(opened)}
        # Keeps the stores alive: Python would reuse their ids for other objects.
        self._opened, self._pickler = tuple(opened), pickler

    @property
    def openers(self) -> tuple[Opener, ...]:
        """What travels to tasks; the position is the number."""
        return tuple(opener for _, opener in self._opened)

    def dumps(self, value: object) -> bytes:
        """Pickle a value, with numbers in place of stores.

        Raises
        ------
        InvalidType
            If a part of the value cannot be pickled.
        """
        numbers = self._numbers

        class Pickler(self._pickler):  # type: ignore[misc, name-defined]
            def persistent_id(self, obj: object) -> int | None:
                return numbers.get(id(_bare(obj)))

        file = io.BytesIO()
        try:
            Pickler(file).dump(value)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise InvalidType(f"A part of this work cannot be sent to a task: {error}") from error
        return file.getvalue()


def _bare(store: object) -> object:
    # Each verb wraps the store that it opens, so one store has several wrappers.
    return store.inner if isinstance(store, InstrumentedStore) else store


class Unpickler(pickle.Unpickler):
    """The reverse of `Stores.dumps`, in a task."""

    def __init__(self, data: bytes, stores: Sequence[Store]) -> None:
        super().__init__(io.BytesIO(data))
        self._stores = stores

    def persistent_load(self, number: int) -> Store:
        return self._stores[number]


def open_all(openers: Sequence[Opener]) -> list[Store]:
    """The stores of a task, by number."""
    return [open_instrumented(opener) for opener in openers]
