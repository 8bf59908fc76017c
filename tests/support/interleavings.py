"""All interleavings of the machines of `cube_write_model`, the short ones first."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from tests.support.cube_write_model import DONE, Document, Goto, K, Machine, Protocol, Read, pending, rows_of

ROUNDS = 60  # Steps after which a machine that runs alone is said not to end.


class State(NamedTuple):
    """The store, the machines, and what has been promised, as numbers of interned values."""

    documents: tuple[int, ...]
    entries: int
    machines: tuple[int, ...]
    delayed: int  # Puts whose answer was lost, and that may still land.
    visible: int
    failed: int
    faults: int
    tainted: bool  # A foreign writer has put his document over a pending one, or one that he had not read.


def records_kept(now: Document | None, new: Document) -> bool:
    return now is not None and (now.mark, now.ledger) == (new.mark, new.ledger)


class Violation(Exception):
    """What went wrong, and the shortest way there."""


@dataclass(frozen=True)
class Scenario:
    """What there is in the beginning, and who takes steps.

    `machines` are a phase and its arguments; `has_rows` says to which datasets each writer writes.
    `faults` is how many answers get lost: of a put that has landed, or that lands later or never.
    `repeats`: the client of the store may also repeat a put that has landed, and report a conflict.
    Writers of `quits` may find that their change contradicts.
    """

    documents: dict[str, Document | None]
    machines: tuple[tuple[Any, ...], ...]
    has_rows: dict[str, tuple[str, ...]]
    faults: int = 0
    repeats: bool = False
    quits: frozenset[str] = frozenset()
    skipped: frozenset[str] = frozenset()

    def leaving_out(self, *rules: str) -> Scenario:
        return replace(self, skipped=self.skipped | set(rules))


@dataclass
class Explorer:
    scenario: Scenario
    keys: tuple[str, ...] = ()
    values: list[Any] = field(default_factory=list)
    numbers: dict[Any, int] = field(default_factory=dict)
    parents: dict[State, tuple[State, str] | None] = field(default_factory=dict)
    transitions: int = 0
    reads: int = 0

    def __post_init__(self) -> None:
        self.keys = tuple(sorted(self.scenario.documents))
        datasets = tuple(key for key in self.keys if key != K)
        new = {"fresh": (*datasets, K), **{f"new{key}": (key,) for key in self.keys}}
        self.has_rows = self.scenario.has_rows | new
        self.protocol = Protocol(self.has_rows, self.scenario.skipped, self.scenario.quits)
        self.requests: dict[int, Any] = {}
        self.next: dict[tuple[int, int], int] = {}
        self.alone: dict[tuple[tuple[int, ...], int], list[Read]] = {}
        self.judged: set[tuple[Any, ...]] = set()

    # -- interning, and machines as functions of their answers

    def number(self, value: Any) -> int:
        found = self.numbers.get(value)
        if found is None:
            found = self.numbers[value] = len(self.values)
            self.values.append(value)
        return found

    def request(self, machine: int) -> Any:
        """What a machine asks for next; a `Read` or `DONE` when it has ended."""
        if machine not in self.requests:
            phase, args, answers = self.values[machine]
            if phase == "done":
                return DONE
            steps = getattr(self.protocol, phase)(*args)
            try:
                request = next(steps)
                for answer in answers:
                    request = steps.send(answer)
            except StopIteration as end:
                request = end.value
            self.requests[machine] = request
        return self.requests[machine]

    def told(self, machine: int, answer: Any) -> int:
        key = (machine, self.number(answer))
        if key not in self.next:
            phase, args, answers = self.values[machine]
            after = self.number(Machine(phase, args, (*answers, answer)))
            while isinstance(request := self.request(after), Goto):
                after = self.number(Machine(*request))
            self.next[key] = after
        return self.next[key]

    # -- one step

    def start(self) -> State:
        machines = tuple(self.number(Machine(phase, tuple(args))) for phase, *args in self.scenario.machines)
        documents = tuple(self.number(self.scenario.documents[key]) for key in self.keys)
        entries = frozenset(
            (key, d.mark.write)
            for key, d in self.scenario.documents.items()
            if d is not None and d.mark and d.mark.pending
        )
        none = self.number(frozenset())
        rows = [rows_of(document) for document in self.scenario.documents.values()]
        visible = self.number(frozenset().union(*rows) & set(self.has_rows))
        return State(documents, self.number(entries), machines, none, visible, none, self.scenario.faults, False)

    def put(self, state: State, key: str, new: Document | None) -> State:
        place = self.keys.index(key)
        if new is not None and pending(new) and new.mark.rows is not None:
            state = state._replace(entries=self.number(self.values[state.entries] | {(key, new.mark.write)}))
        documents = (*state.documents[:place], self.number(new), *state.documents[place + 1 :])
        return state._replace(documents=documents)

    def document(self, state: State, key: str) -> Document | None:
        return self.values[state.documents[self.keys.index(key)]]

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        for place, sleeping in enumerate(state.machines):
            request = self.request(sleeping)
            if isinstance(request, Machine):
                continue
            # A read begins with its first call.
            machine = self.told(sleeping, self.values[state.visible]) if request[0] == "begin" else sleeping
            request = self.request(machine)
            for label, after, answer in self.answers(state, request):
                yield f"{place} {label}", self.moved(after, place, self.told(machine, answer))
        for key, old, new in self.values[state.delayed]:
            if self.document(state, key) == old:
                after = self.put(state, key, new)
                rest = self.values[state.delayed] - {(key, old, new)}
                yield f"a delayed put lands: {key}", after._replace(delayed=self.number(rest))

    def moved(self, state: State, place: int, machine: int) -> State:
        """The state after an answer: a read that ended is judged, and its machine is done."""
        request = self.request(machine)
        if isinstance(request, Read):
            state = self.judge(state, request)
            machine = self.number(DONE)
        elif isinstance(request, Machine):
            machine = self.number(DONE)
        elif request[0] in ("landed", "failed"):
            state = self.noted(state, *request)
            return self.moved(state, place, self.told(machine, None))
        machines = (*state.machines[:place], machine, *state.machines[place + 1 :])
        return state._replace(machines=machines)

    def noted(self, state: State, outcome: str, name: str) -> State:
        visible, failed = self.values[state.visible], self.values[state.failed]
        if outcome == "landed":
            return state._replace(visible=self.number(visible | {name}))
        if name in visible and not state.tainted:
            raise Violation(f"{name} reports a conflict, and has been seen")
        return state._replace(failed=self.number(failed | {name}))

    def answers(self, state: State, request: tuple[Any, ...]) -> Iterator[tuple[str, State, Any]]:
        verb, *rest = request
        if verb == "get":
            yield f"get {rest[0]}", state, self.document(state, rest[0])
        elif verb == "put":
            yield from self.puts(state, *rest)
        elif verb == "choose":
            for number in range(rest[0]):
                yield f"chooses {number}", state, number
        elif verb == "overwrite":
            key, seen, new = rest
            now = self.document(state, key)
            yield (
                f"overwrites {key}",
                self.put(state, key, new)._replace(
                    tainted=state.tainted or now != seen or pending(now) or not records_kept(now, new)
                ),
                None,
            )
        elif verb == "delete":
            yield f"delete {rest[0]}", self.put(state, rest[0], None), None
        else:
            yield from self.entries_answered(state, verb, *rest)

    def puts(self, state: State, key: str, old: Document | None, new: Document) -> Iterator[tuple[str, State, Any]]:
        same = self.document(state, key) == old
        after = self.put(state, key, new) if same else state
        yield f"put {key} {'ok' if same else 'conflict'}", after, "ok" if same else "conflict"
        if state.faults and same:
            yield f"put {key} ok, answer lost", after._replace(faults=state.faults - 1), "lost"
            if self.scenario.repeats:
                yield f"put {key} ok, and refused when repeated", after._replace(faults=state.faults - 1), "conflict"
            delayed = self.number(self.values[state.delayed] | {(key, old, new)})
            yield f"put {key} delayed", state._replace(faults=state.faults - 1, delayed=delayed), "lost"

    def entries_answered(
        self, state: State, verb: str, dataset: str, write: str = ""
    ) -> Iterator[tuple[str, State, Any]]:
        entries = self.values[state.entries]
        if verb == "entry":
            yield f"entry {dataset} {write}", state, (dataset, write) in entries
        elif verb == "list":
            yield f"list {dataset}", state, frozenset(w for d, w in entries if d == dataset)
        else:
            yield f"remove {dataset} {write}", state._replace(entries=self.number(entries - {(dataset, write)})), None

    # -- what must hold

    def judge(self, state: State, read: Read) -> State:
        """A read has ended: it has whole writes, none that failed, all that it must see."""
        self.reads += 1
        if state.tainted:
            return state
        rows = dict(read.rows)
        seen = frozenset().union(*rows.values())
        for name in sorted(seen | read.must):
            want = [key for key in self.has_rows.get(name, ()) if key in rows]
            have = [key for key in want if name in rows[key]]
            if have and (len(have) < len(want)):
                raise Violation(f"{name} is seen by half: in {have} of {want}")
            if name in read.must and len(have) < len(want):
                raise Violation(f"{name} has landed, and a later read does not see it")
        if bad := seen & self.values[state.failed]:
            raise Violation(f"{sorted(bad)} reported a conflict, and is seen")
        if read.warns:
            raise Violation("a warning, although no foreign writer came between")
        return state._replace(visible=self.number(self.values[state.visible] | (seen & set(self.has_rows))))

    def run_alone(self, state: State, phase: str, *args: Any) -> tuple[State, Read | None]:
        """A new machine that nobody disturbs."""
        state = state._replace(
            machines=(self.number(Machine(phase, args)),), delayed=self.number(frozenset()), faults=0
        )
        read = None
        for _ in range(ROUNDS):
            request = self.request(state.machines[0])
            if isinstance(request, Machine):
                return state, read
            if request[0] == "begin":
                answer = self.values[state.visible]
            else:
                _, state, answer = next(self.answers(state, request))
            after = self.told(state.machines[0], answer)
            if isinstance(ended := self.request(after), Read):
                read = ended
            state = self.moved(state._replace(machines=(after,)), 0, after)
        raise Violation(f"{phase}{args} does not end")

    def check_after_crash(self, state: State) -> None:
        """All machines stop here. Whoever comes next reads, writes, and reads again."""
        key = (state.documents, state.entries, state.visible, state.failed, state.tainted)
        if key in self.judged:
            return
        self.judged.add(key)
        state, _ = self.run_alone(state, "read_cube", self.keys)
        datasets = tuple(key for key in self.keys if key != K)
        for dataset in datasets:
            state, _ = self.run_alone(state, "read_one", dataset)
        each = state
        for dataset in self.keys:
            each, _ = self.run_alone(each, "single", f"new{dataset}", dataset)
            each, _ = self.run_alone(each, "read_cube", self.keys)
        for begin in (state, each):
            after, _ = self.run_alone(begin, "write", "fresh", datasets, 1, 2)
            if "fresh" not in self.values[after.visible]:
                raise Violation("a new writer does not succeed")
            self.run_alone(after, "read_cube", self.keys)

    # -- the search

    def run(self, most: int = 10_000_000) -> Explorer:
        """All interleavings. Raises `Violation` with the shortest that breaks a rule."""
        state = self.start()
        for place, machine in enumerate(state.machines):
            state = self.moved(state, place, machine)
        self.parents[state] = None
        waiting = deque([state])
        while waiting:
            state = waiting.popleft()
            label = ""
            try:
                self.check_after_crash(state)
                steps = iter(self.steps(state))
                while True:
                    try:
                        label, after = next(steps)
                    except StopIteration:
                        break
                    self.transitions += 1
                    if after not in self.parents:
                        self.parents[after] = (state, label)
                        waiting.append(after)
            except Violation as violation:
                raise Violation(f"{violation}\n" + "\n".join(self.way(state))) from None
            if len(self.parents) > most:
                raise RuntimeError(f"more than {most} states")
        return self

    def way(self, state: State) -> list[str]:
        found = []
        while (parent := self.parents[state]) is not None:
            state, label = parent
            machine = label.split()[0]
            who = self.scenario.machines[int(machine)] if machine.isdigit() else ()
            found.append(f"{who} {label}")
        return found[::-1]
