"""The protocol of writes to several datasets of a cube, as small machines.

The page `docs/design/007-cube-writes.md` has the protocol. No code of the library takes part. A
step of a machine is one call to the store. A machine that crashed gets no step any more.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from itertools import permutations
from typing import Any, NamedTuple

K = "K"


class Mark(NamedTuple):
    """The last write to several datasets. `rows` is what the history entry has: those before."""

    write: str
    before: str | None = None
    pending: bool = False
    rows: frozenset[str] | None = None
    datasets: tuple[str, ...] = ()
    makes_coordinator: bool = False
    had_ledger: bool = False


class Ledger(NamedTuple):
    last: frozenset[tuple[str, str]] = frozenset()
    aborted: frozenset[tuple[str, tuple[str, ...]]] = frozenset()
    epoch: str = ""


class Document(NamedTuple):
    """Without `rows` it is no dataset. Its token is its content. `commits` is its chain."""

    rows: frozenset[str] | None
    commits: frozenset[str] = frozenset()
    mark: Mark | None = None
    ledger: Ledger | None = None
    foreign: bool = False


class Goto(NamedTuple):
    """A machine goes on there, and forgets what it has been told."""

    phase: str
    args: tuple[Any, ...]


class Read(NamedTuple):
    rows: tuple[tuple[str, frozenset[str]], ...]
    must: frozenset[str]
    warns: bool = False


class Machine(NamedTuple):
    """A phase, and the answers that it has had so far."""

    phase: str
    args: tuple[Any, ...]
    answers: tuple[Any, ...] = ()


DONE = Machine("done", ())
Steps = Generator[tuple[Any, ...], Any, Any]


def pending(document: Document | None, write: str | None = None) -> bool:
    mark = None if document is None else document.mark
    return mark is not None and mark.pending and write in (None, mark.write)


def last_in_ledger(coordinator: Document | None, dataset: str) -> str | None:
    ledger = None if coordinator is None else coordinator.ledger
    return None if ledger is None else dict(ledger.last).get(dataset)


def aborted_in(coordinator: Document | None) -> dict[str, tuple[str, ...]]:
    ledger = None if coordinator is None else coordinator.ledger
    return {} if ledger is None else dict(ledger.aborted)


def reverted(document: Document) -> Document:
    """The very document of before: its token comes again, and nothing tells of the write."""
    mark = document.mark
    assert mark is not None
    return Document(mark.rows, without(document, mark.write), None if mark.before is None else Mark(mark.before))


def without(document: Document | None, write: str) -> frozenset[str]:
    """The chain of a document without a write that was taken back."""
    return frozenset() if document is None else frozenset(c for c in document.commits if not c.startswith(f"{write}:"))


def is_in_chain(base: Document | None, now: Document | None) -> bool:
    """Whether a state is an ancestor of another, as its chain tells."""
    return base is not None and now is not None and base.commits <= now.commits


def epoch_of(coordinator: Document | None) -> str:
    return "" if coordinator is None or coordinator.ledger is None else coordinator.ledger.epoch


def settled(document: Document, commit: str) -> Document:
    assert document.mark is not None
    return document._replace(mark=Mark(document.mark.write), commits=document.commits | {commit})


@dataclass
class Protocol:
    """The machines. `skipped` names rules that are left out, to see what each is there for."""

    has_rows: dict[str, tuple[str, ...]]
    skipped: frozenset[str] = frozenset()
    quits: frozenset[str] = frozenset()

    # -- what a pending mark means

    def fate(self, dataset: str, document: Document, coordinator: Document | None) -> str:
        mark = document.mark
        assert mark is not None
        if coordinator is None:
            return "before" if mark.makes_coordinator else "lost"
        if coordinator.ledger is None:
            return "lost" if mark.had_ledger or mark.before is not None else "before"
        last = last_in_ledger(coordinator, dataset)
        if last == mark.write:
            return "committed"
        if last == mark.before or mark.write in aborted_in(coordinator) or "read again" in self.skipped:
            return "before"
        return "again"

    def base(self, dataset: str, document: Document | None, who: str) -> Steps:
        """Rows, last write and chain to base a commit on, or None: read again.

        Aborts what is pending there.
        """
        if document is None or not pending(document):
            if document is None:
                return None, None, frozenset()
            return document.rows, document.mark and document.mark.write, document.commits
        mark = document.mark
        assert mark is not None
        coordinator = yield ("get", K)
        fate = self.fate(dataset, document, coordinator)
        if fate == "again":
            if (yield ("get", dataset)) != document:
                return None
            fate = "lost"
        if fate != "before" or document.foreign:
            return document.rows, mark.write, document.commits
        if mark.rows is not None and not (yield ("entry", dataset, mark.write)):
            return None
        if mark.write not in aborted_in(coordinator) and "abort in K" not in self.skipped:
            known = coordinator or Document(None)
            ledger = known.ledger or Ledger()
            ledger = ledger._replace(aborted=ledger.aborted | {(mark.write, mark.datasets)})
            if "renew the epoch" not in self.skipped:
                ledger = ledger._replace(epoch=f"{ledger.epoch} {who}-{mark.write}")
            new = known._replace(ledger=ledger)
            if (yield ("put", K, coordinator, new)) != "ok":
                return None
        return mark.rows, mark.before, without(document, mark.write)

    # -- writers

    def write(self, name: str, order: tuple[str, ...], attempt: int, attempts: int) -> Steps:
        coordinator = yield ("get", K)
        return Goto("prepare", (name, order, attempt, attempts, coordinator, 0))

    def prepare(self, name, order, attempt, attempts, coordinator, done) -> Steps:
        """One dataset after the other; `coordinator` is as it was before the first."""
        dataset, write, here = order[done], f"{name}.{attempt}", (name, order, attempt, attempts)
        if done and name in self.quits and (yield ("choose", 2)):
            return Goto("roll_back_all", (*here, 0))
        document = yield ("get", dataset)
        if not pending(document, write):
            base = yield from self.base(dataset, document, write)
            if base is None:
                return Goto("prepare", (*here, coordinator, done))
            rows, before, commits = base
            ledger = None if coordinator is None else coordinator.ledger
            mark = Mark(write, before, True, rows, order, coordinator is None, ledger is not None)
            if "mark as pending" in self.skipped:
                mark = Mark(write)
            new = Document((rows or frozenset()) | {name}, commits | {f"{write}:{dataset}"}, mark)
            if (yield ("put", dataset, document, new)) != "ok":
                return Goto("prepare", (*here, coordinator, done))
        if done + 1 < len(order):
            return Goto("prepare", (*here, coordinator, done + 1))
        return Goto("commit", (*here, coordinator, epoch_of(coordinator)))

    def commit(self, name, order, attempt, attempts, coordinator, epoch, is_lost=False) -> Steps:
        write, here = f"{name}.{attempt}", (name, order, attempt, attempts)
        known = coordinator or Document(None)
        ledger = known.ledger or Ledger()
        last = dict(ledger.last) | dict.fromkeys(order, write)
        rows = (known.rows or frozenset()) | ({name} if K in self.has_rows[name] else frozenset())
        new = Document(rows, known.commits | {write}, None, ledger._replace(last=frozenset(last.items())))
        answer = yield ("put", K, coordinator, new)
        if answer != "ok":
            return Goto("recheck", (*here, coordinator, epoch, is_lost or answer == "lost"))
        yield ("landed", name)
        return Goto("settle", (*here, 0))

    def recheck(self, name, order, attempt, attempts, seen, epoch, is_lost) -> Steps:
        """After a swap of the coordinator that lost, or whose answer did."""
        write, here = f"{name}.{attempt}", (name, order, attempt, attempts)
        coordinator = yield ("get", K)
        if coordinator is not None and (
            write in coordinator.commits or any(last_in_ledger(coordinator, d) == write for d in order)
        ):
            yield ("landed", name)
            return Goto("settle", (*here, 0))
        if coordinator == seen:
            if (yield ("choose", 2)):
                return DONE  # The outcome is unknown.
            return Goto("commit", (*here, coordinator, epoch, True))
        if is_lost and "know the chain" not in self.skipped and not is_in_chain(seen, coordinator):
            return DONE  # A library without chains came between: the outcome is unknown.
        if "epochs, not marks" in self.skipped:
            has_lost = write in aborted_in(coordinator)
            for dataset in order:
                has_lost = has_lost or not pending((yield ("get", dataset)), write)
        else:
            has_lost = epoch_of(coordinator) != epoch and "compare epochs" not in self.skipped
        if has_lost:
            return Goto("roll_back_all", (*here, 0))
        return Goto("commit", (*here, coordinator, epoch))

    def settle(self, name, order, attempt, attempts, done) -> Steps:
        if done == len(order):
            return DONE
        document = yield ("get", order[done])
        if pending(document, f"{name}.{attempt}"):
            yield ("put", order[done], document, settled(document, f"{name}.{attempt}:settle"))
        return Goto("settle", (name, order, attempt, attempts, done + 1))

    def roll_back_all(self, name, order, attempt, attempts, done) -> Steps:
        write = f"{name}.{attempt}"
        if done == len(order):
            if attempt < attempts:
                return Goto("write", (name, order, attempt + 1, attempts))
            yield ("failed", name)
            return DONE
        document = yield ("get", order[done])
        if pending(document, write) and document.mark.rows is None:
            yield from self.base(order[done], document, f"{write} again")
        elif pending(document, write) and not document.foreign:
            yield ("put", order[done], document, reverted(document))
        return Goto("roll_back_all", (name, order, attempt, attempts, done + 1))

    def single(self, name: str, dataset: str) -> Steps:
        """A plain commit to one dataset, perhaps the coordinator."""
        document = yield ("get", dataset)
        if document is None or name not in document.commits:
            base = yield from self.base(dataset, document, name)
            if base is None:
                return Goto("single", (name, dataset))
            rows, last, commits = base
            mark = None if last is None else Mark(last)
            new = Document((rows or frozenset()) | {name}, commits | {name}, mark, document and document.ledger)
            if (yield ("put", dataset, document, new)) != "ok":
                return Goto("single", (name, dataset))
        yield ("landed", name)
        return DONE

    def abort(self, name: str, dataset: str) -> Steps:
        """What `cleanup_cube` does with a dataset that is pending."""
        document = yield ("get", dataset)
        if not pending(document):
            return DONE
        base = yield from self.base(dataset, document, name)
        if base is None:
            return Goto("abort", (name, dataset))
        if base[1] == document.mark.write:
            yield ("put", dataset, document, settled(document, f"{name}:settle"))
        elif document.mark.rows is not None:
            yield ("put", dataset, document, reverted(document))
        return DONE

    def foreign(self, name: str, dataset: str, drops: bool = False) -> Steps:
        """A library without records: reads, and puts whatever is there by then."""
        document = yield ("get", dataset)
        if document is not None and document.rows is not None:
            new = document._replace(rows=document.rows | {name}, commits=frozenset({name}), foreign=True)
            if drops:
                new = Document(frozenset({name}), frozenset({name}), foreign=True)
            yield ("overwrite", dataset, document, new)
            yield ("landed", name)
        return DONE

    def remove(self, name: str, dataset: str) -> Steps:
        """What `cleanup_cube` does with a dataset that an aborted write was to make."""
        document = yield ("get", dataset)
        if not pending(document) or document.mark.rows is not None:
            return DONE
        base = yield from self.base(dataset, document, name)
        if base is None:
            return Goto("remove", (name, dataset))
        if base[1] != document.mark.write:
            if "remove what was read" in self.skipped:
                yield ("delete", dataset)
            else:
                yield ("put", dataset, document, None)
        return DONE

    # -- garbage

    def prune(self, name: str) -> Steps:
        """Takes those out of the aborted writes that no dataset has."""
        coordinator = yield ("get", K)
        for write, datasets in sorted(aborted_in(coordinator).items()):
            for dataset in datasets:
                if pending((yield ("get", dataset)), write):
                    break
            else:
                ledger = coordinator.ledger
                new = coordinator._replace(ledger=ledger._replace(aborted=ledger.aborted - {(write, datasets)}))
                if "vacancy stays" in self.skipped and new.rows is None:
                    new = None
                yield ("put", K, coordinator, new)
                return DONE
        return DONE

    def collect(self, dataset: str) -> Steps:
        """Removes history entries, all but that of a pending commit."""
        first = (yield ("get", dataset)) if "list first" in self.skipped else None
        entries = yield ("list", dataset)
        document = first or (yield ("get", dataset))
        needed = document.mark.write if pending(document) and "keep the entry" not in self.skipped else None
        for write in sorted(entries - {needed}):
            yield ("remove", dataset, write)
        return DONE

    # -- readers

    def read_one(self, dataset: str) -> Steps:
        must = yield ("begin",)
        return Goto("look", (dataset, must))

    def look(self, dataset: str, must: frozenset[str]) -> Steps:
        document = yield ("get", dataset)
        shown = document
        if pending(document):
            fate = self.fate(dataset, document, (yield ("get", K)))
            if fate == "again" and (yield ("get", dataset)) != document:
                return Goto("look", (dataset, must))
            if fate == "before" and not document.foreign:
                if document.mark.rows is not None and not (yield ("entry", dataset, document.mark.write)):
                    return Goto("look", (dataset, must))
                shown = Document(document.mark.rows)
        return Read(((dataset, rows_of(shown)),), must)

    def read_cube(self, datasets: tuple[str, ...], any_order: bool = True) -> Steps:
        must = yield ("begin",)
        orders = list(permutations(datasets)) if any_order else [datasets]
        order = orders[(yield ("choose", len(orders)))]
        return Goto("collect_documents", (order, (), must))

    def collect_documents(self, order, found, must) -> Steps:
        document = yield ("get", order[len(found)])
        found = (*found, document)
        if len(found) < len(order):
            return Goto("collect_documents", (order, found, must))
        return Goto("compare", (tuple(sorted(zip(order, found, strict=True), key=lambda pair: pair[0])), must))

    def compare(self, found, must) -> Steps:
        """Whether what is shown is what the ledger says, or must be read again."""
        documents = dict(found)
        shown, wrong, warns, coordinator = {K: documents[K]}, [], False, documents[K]
        for dataset, document in found:
            if dataset == K:
                continue
            shown[dataset], last = document, None if document is None or document.mark is None else document.mark.write
            if pending(document):
                fate = self.fate(dataset, document, coordinator)
                warns |= fate == "lost"
                if fate == "before" and not document.foreign:
                    shown[dataset], last = Document(document.mark.rows), document.mark.before
                    if document.mark.rows is not None and not (yield ("entry", dataset, document.mark.write)):
                        wrong.append(dataset)
                        continue
            compared = document is not None or "compare what is absent" not in self.skipped
            if last != last_in_ledger(coordinator, dataset) and compared and "compare" not in self.skipped:
                wrong.append(dataset)
        if not wrong:
            return Read(tuple((d, rows_of(shown[d])) for d in sorted(shown)), must, warns)
        again = dict(documents)
        for key in (*wrong, K) if (yield ("choose", 2)) else (K, *wrong):
            again[key] = yield ("get", key)
        if again == documents:
            return Read(tuple((d, rows_of(documents[d])) for d in sorted(documents)), must, True)
        return Goto("compare", (tuple(sorted(again.items(), key=lambda pair: pair[0])), must))


def rows_of(document: Document | None) -> frozenset[str]:
    return frozenset() if document is None or document.rows is None else document.rows
