"""Two actors at one store, each call to which waits for its turn."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from kartothek_cube.core.stores.contract import Store, StoreView

_PATIENCE = 30


class Turns:
    """Whose turn it is: ``schedule`` has actors and numbers of their calls; then all are free."""

    def __init__(self, schedule: Sequence[tuple[int, int]]) -> None:
        self._schedule = list(schedule)
        self._changed = threading.Condition()

    def take(self, actor: int) -> None:
        with self._changed:
            mine = self._changed.wait_for(lambda: not self._schedule or self._schedule[0][0] == actor, _PATIENCE)
            assert mine, "the other actor does not go on"
            if self._schedule:
                _, left = self._schedule[0]
                self._schedule[:1] = [(actor, left - 1)] if left > 1 else []
            self._changed.notify_all()

    def leave(self, actor: int) -> None:
        """The actor is done."""
        with self._changed:
            self._schedule = [turn for turn in self._schedule if turn[0] != actor]
            self._changed.notify_all()


class TurnStore(StoreView):
    """The store as one actor sees it. A call is done before the next one begins."""

    def __init__(self, inner: Store, turns: Turns, actor: int) -> None:
        super().__init__(inner)
        self._turns, self._actor = turns, actor

    def around(self, operation, key, action):
        self._turns.take(self._actor)
        return action()


def run_interleaved(
    store: Store, schedule: Sequence[tuple[int, int]], actors: Sequence[Callable[[Store], object]]
) -> list[Exception | None]:
    """Run the actors in threads by a schedule; return what each one raised."""
    turns, errors = Turns(schedule), [None] * len(actors)

    def run(actor: int) -> None:
        try:
            actors[actor](TurnStore(store, turns, actor))
        except Exception as error:
            errors[actor] = error
        finally:
            turns.leave(actor)

    threads = [threading.Thread(target=run, args=(actor,)) for actor in range(len(actors))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors
