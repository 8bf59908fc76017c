"""Work in dask: calls that run in tasks, the state that a write began from, and the executor.

In order:

- calls in tasks, with the options of the client
- the begin of a write, as a small value
- the executor of maintenance verbs
"""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, ParamSpec, TypeVar
from uuid import UUID, uuid5

import cloudpickle
from dask.base import compute
from dask.delayed import Delayed, delayed
from msgspec.structs import replace

from kartothek_cube.core.metadata.commit_log import fingerprint
from kartothek_cube.core.metadata.naming import new_id
from kartothek_cube.core.metadata.snapshot import CommitResult, Snapshot
from kartothek_cube.core.runtime.executor import THREADS, MaybeRemote, Task, map_in_threads
from kartothek_cube.core.runtime.options import Options, current_options, use_options
from kartothek_cube.core.runtime.telemetry import counting, record_counts
from kartothek_cube.core.snapshots.time_travel import load_snapshot_as_of
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.stores.open import open_instrumented, store_factory
from kartothek_cube.core.stores.shipping import Opener, Stores, Unpickler, open_all
from kartothek_cube.errors import CommitConflict, InvalidInput, InvalidType
from kartothek_cube.typing import StoreLike

P = ParamSpec("P")
R = TypeVar("R")

# A worker runs several tasks at once.
THREADS_PER_TASK = 2


def in_task(work: Callable[P, R]) -> Callable[P, R]:
    """The same call for a task, under the options of now without ``progress``.

    Threads and processes of dask do not see the options of the caller.
    """
    settings = current_options()
    threads = settings.threads or THREADS_PER_TASK
    return partial(_with_options, dataclasses.replace(settings, progress=False, threads=threads), work)


def _with_options(settings: Options, work: Callable[..., R], *arguments: Any, **named: Any) -> R:
    with use_options(settings):
        return work(*arguments, **named)


def task(name: str, work: Callable[..., Any], *arguments: Any) -> Delayed:
    """One lazy call, with a new key: its graph holds the arguments."""
    made: Delayed = delayed(in_task(work), pure=False)(*arguments, dask_key_name=f"{name}-{new_id()}")
    return made


def constant(value: object) -> Delayed:
    """A value that many tasks need, which each worker gets once."""
    made: Delayed = delayed(value, name=f"kartothek_cube-{new_id()}", traverse=False)
    return made


# --- the begin of a write -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BaseState:
    """Which state of a dataset a write began from, without its partitions."""

    commit: str | None
    partitions: str

    @classmethod
    def of(cls, snapshot: Snapshot) -> BaseState:
        """The state as it is."""
        return cls(snapshot.commit, fingerprint(snapshot.document.partitions))

    def find(self, store: Store, newest: Snapshot | None, uuid: str, *, removes: bool) -> Snapshot:
        """The snapshot of the state, from the history if others have committed since.

        A write that only adds may also begin from the newest one.

        Raises
        ------
        CommitConflict
            If the dataset is gone, or its history does not reach back.
        """
        if newest is None:
            raise CommitConflict(f"Dataset {uuid!r} was deleted after this write began. Nothing of it is visible.")
        if BaseState.of(newest) == self:
            return newest
        if self.commit is not None:
            with suppress(InvalidInput):
                return load_snapshot_as_of(store, uuid, self.commit)
        if removes:
            raise CommitConflict(
                f"Dataset {uuid!r} has been changed after this write began, and the history does not say how: nothing "
                "was removed. Make the write again, from the dataset as it is now."
            )
        return newest


def id_of(write: str, name: str) -> str:
    """The id of the commit to one of the datasets of a write: the same in each run of its task."""
    return uuid5(UUID(write), name).hex


def landed(write: str, newest: Snapshot | None) -> Snapshot | None:
    """The dataset as it is, if it has the commit of this write already; else None.

    dask runs a task again if it loses the result. The document has the last commits.
    """
    if newest is None or write not in [commit.id for commit in newest.chain]:
        return None
    return replace(newest, result=CommitResult(write, 1))


# --- the executor ---------------------------------------------------------------------------------


# Fewer items run in threads: the scheduler costs some milliseconds a task.
_FEWEST_LIGHT, _FEWEST_HEAVY = 50, 2
_LIGHT_PER_TASK, _TASKS_PER_CORE = 25, 4


@dataclass(frozen=True, slots=True)
class DaskExecutor:
    """Runs the work of a maintenance verb on files in dask's tasks: its argument ``executor``.

    Few items run in threads. Tasks run where ``dask.compute`` would run them: on the cluster of the
    default client, or in threads of this process. Rows never pass through the client.

    Parameters
    ----------
    client : distributed.Client, optional
        The client of another cluster.
    stores : Stores, optional
        Stores that cannot be pickled, with their openers.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.api.dataset import compact_dataset, store_dataframes_as_dataset
    >>> from kartothek_cube.dask import DaskExecutor
    >>> sales = pa.table({"COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = store_dataframes_as_dataset("hfs://merged_by_dask", "sales", [sales, sales])
    >>> report = compact_dataset("sales", "hfs://merged_by_dask", executor=DaskExecutor())
    >>> report.files_before, report.files_after
    (2, 1)
    """

    client: Any = None
    stores: Stores = field(default_factory=lambda: Stores([], cloudpickle.Pickler))

    def map(self, task: Task, items: Sequence[Any], store: MaybeRemote | None = None) -> Generator[Any, None, None]:
        """Results in the order of the items, as `core.runtime.executor.Executor` promises."""
        if len(items) < (_FEWEST_HEAVY if task.heavy else _FEWEST_LIGHT):
            yield from THREADS.map(task, items, store)
            return
        with self._client() as client:
            width = _width(client)
            n = min(len(items), _TASKS_PER_CORE * width)
            n = n if task.heavy else min(n, -(-len(items) // _LIGHT_PER_TASK))
            bounds = [i * len(items) // n for i in range(n + 1)]
            run = in_task(partial(_run, self.stores.dumps(task), self.stores.openers))
            calls = [delayed(run, pure=False)(self.stores.dumps(items[a:b])) for a, b in pairwise(bounds)]
            results = compute(*calls) if client is None else client.gather(client.compute(calls))
        for values, counts in results:
            record_counts(counts)
            yield from values

    def _client(self) -> Any:
        """The client to run on, or None for ``dask.compute``; a task gives up its thread."""
        if self.client is not None:
            return nullcontext(self.client)
        try:
            from distributed import get_worker, worker_client

            get_worker()
        except (ImportError, ValueError):
            return nullcontext()
        return worker_client()


def _width(client: Any) -> int:
    """How many tasks run at once."""
    if client is None:
        with suppress(ImportError, ValueError):
            from distributed import default_client

            client = default_client()
    if client is not None and (client.asynchronous is False):
        return max(1, sum(client.nthreads().values()))
    return current_options().thread_count


def _run(pickled: bytes, openers: Sequence[Opener], data: bytes) -> tuple[list[Any], Any]:
    """In a task: the results of some items, and what was counted."""
    stores = open_all(openers)
    work: Task = Unpickler(pickled, stores).load()
    with counting() as counted:
        values = list(map_in_threads(work.func, Unpickler(data, stores).load(), weight=work.weight))
    return values, pickle.loads(pickle.dumps(counted.counts))


def executor_of(*opened: tuple[Store, StoreLike]) -> DaskExecutor:
    """The executor of one call, for these open stores, each with the argument of the user."""
    return DaskExecutor(stores=Stores([(s, store_factory(given)) for s, given in opened], cloudpickle.Pickler))


def run_verb(verb: Callable[..., Any], stores: Mapping[str, Opener], named: Mapping[str, Any]) -> Any:
    """In a task: an eager verb of maintenance, whose work on files other tasks share."""
    opened = {name: open_instrumented(opener) for name, opener in stores.items()}
    executor = executor_of(*((opened[name], stores[name]) for name in stores))
    return verb(**opened, **named, executor=executor)


def check_blocksize(blocksize: object) -> int:
    """The argument ``blocksize``: how many groups or files a task has.

    Raises
    ------
    InvalidType, InvalidInput
        If it is no integer, or below one.
    """
    if not isinstance(blocksize, int) or isinstance(blocksize, bool):
        raise InvalidType(f"blocksize must be an integer but is {type(blocksize).__name__}")
    if blocksize < 1:
        raise InvalidInput(f"blocksize must be > 0 but is {blocksize}")
    return blocksize
