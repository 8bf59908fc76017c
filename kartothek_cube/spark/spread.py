"""An executor that runs the work per file of maintenance verbs in Spark tasks: packed into few of them, results in order."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from kartothek_cube.core.options import current_options, use_options
from kartothek_cube.core.parallel import THREADS, MaybeRemote, Task, map_in_threads
from kartothek_cube.core.store import Store
from kartothek_cube.core.stores import InstrumentedStore, open_instrumented, store_factory
from kartothek_cube.core.telemetry import counting, record_counts
from kartothek_cube.errors import CorruptData, InvalidType, KartothekCubeError
from kartothek_cube.spark.errors import decode_error, encode_error
from kartothek_cube.spark.jobs import Job, collect
from kartothek_cube.spark.session import cores, find_session
from kartothek_cube.spark.tasks import THREADS_PER_TASK, pack, run_packed, task_count

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["FEWEST_HEAVY", "FEWEST_LIGHT", "SparkExecutor", "Stores", "spark_executor", "tasks_for"]

# From how many items on tasks are worth it: a job costs some tenths of a second, in which threads make a few hundred calls of a store.
FEWEST_LIGHT, FEWEST_HEAVY = 200, 2
# Of light work so many items take about as long as the start of a task. On Connect, where nobody knows how many cores there are, tasks would else be hundreds.
_LIGHT_PER_TASK = 25

_RESULTS = pa.schema([("task", pa.int32()), ("results", pa.binary()), ("error", pa.string())])

Opener: TypeAlias = Store | Callable[[], Store]


class Stores:
    """Stores that are open here, each with what opens it in another process: in what is pickled for a task they stand as numbers.

    Where a store occurs in a thousand items, a task opens it once; and a store that itself cannot be pickled comes along.
    """

    def __init__(self, opened: Sequence[tuple[Store, Opener]]) -> None:
        self._numbers = {id(_bare(store)): number for number, (store, _) in enumerate(opened)}
        self._opened = tuple(opened)  # keeps them alive, so that their ids are not given to others

    @property
    def openers(self) -> tuple[Opener, ...]:
        """What travels; the position is the number."""
        return tuple(opener for _, opener in self._opened)

    def dumps(self, value: object) -> bytes:
        """Pickle something.

        Raises
        ------
        InvalidType
            If a part of it cannot be pickled.
        """
        file = io.BytesIO()
        try:
            _pickler(file, self._numbers).dump(value)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise InvalidType(f"Something of this work cannot travel to a Spark task: {error}") from error
        return file.getvalue()


def _bare(store: Any) -> Any:
    """Each verb wraps the store that it opens, so that one store has several wrappers."""
    return store.inner if isinstance(store, InstrumentedStore) else store


def _pickler(file: io.BytesIO, numbers: Mapping[int, int]) -> pickle.Pickler:
    """One that also takes what executors cannot import: a serializer may be a class of the user's notebook."""
    from pyspark import cloudpickle

    class Pickler(cloudpickle.Pickler):
        def persistent_id(self, obj: object) -> int | None:
            return numbers.get(id(_bare(obj)))

    return Pickler(file)  # type: ignore[no-untyped-call]


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, stores: Sequence[Store]) -> None:
        super().__init__(io.BytesIO(data))
        self._stores = stores

    def persistent_load(self, number: int) -> Store:
        return self._stores[number]


def tasks_for(task: Task, items: int, width: int) -> int:
    """Into how many tasks some items go where so many tasks run at once."""
    n = task_count(items, width)
    return n if task.heavy else min(n, -(-items // _LIGHT_PER_TASK))


@dataclass(frozen=True, slots=True)
class SparkExecutor:
    """Runs tasks of maintenance verbs in Spark, one job for each `map`; in threads of this process if there are few items.

    Attributes
    ----------
    session : SparkSession
        Where Spark tasks run.
    width : int
        How many of them run at once.
    stores : Stores
        The stores of the verb.
    verb, subject : str
        The names of jobs.
    """

    session: SparkSession
    width: int
    stores: Stores
    verb: str
    subject: str

    def map(self, task: Task, items: Sequence[Any], store: MaybeRemote | None = None) -> Generator[Any, None, None]:
        """As of `kartothek_cube.core.parallel.Executor`."""
        if len(items) < (FEWEST_HEAVY if task.heavy else FEWEST_LIGHT):
            return THREADS.map(task, items, store)
        return self._results(task, items)

    def _results(self, task: Task, items: Sequence[Any]) -> Generator[Any, None, None]:
        n = tasks_for(task, len(items), self.width)
        bounds = [i * len(items) // n for i in range(n + 1)]
        # Pickled twice: the inner pickle knows the stores, the outer one is what is packed for a task.
        payloads = [(i, self.stores.dumps(items[a:b])) for i, (a, b) in enumerate(pairwise(bounds))]
        job = Job(self.verb, self.subject, f"{len(items)} {task.phase.unit}", task.phase.name)
        run_payloads = partial(_run_payloads, self.stores.dumps(task), self.stores.openers)
        rows = collect(run_packed(self.session, pack(payloads, n), run_payloads, _RESULTS, job), job)
        yield from _in_order(rows, n)


def _run_payloads(pickled: bytes, openers: Sequence[Opener], payloads: list[tuple[int, bytes]]) -> Iterator[pa.RecordBatch]:
    """In a Spark task: one row for each payload. An error of this library comes as a row, since a retry would not help."""
    stores = [open_instrumented(opener) for opener in openers]
    task: Task = _Unpickler(pickled, stores).load()
    for number, data in payloads:
        results, error = None, None
        try:
            with counting() as counted:
                results = pickle.dumps((_run_task(task, _Unpickler(data, stores).load()), counted.counts))
        except KartothekCubeError as own:
            error = encode_error(own)
        yield pa.record_batch([[number], [results], [error]], schema=_RESULTS)


def _run_task(task: Task, items: Sequence[Any]) -> list[Any]:
    settings = current_options()
    threads = settings.threads or (THREADS_PER_TASK if task.heavy else None)
    with use_options(replace(settings, threads=threads)):
        return list(map_in_threads(task.func, items, weight=task.weight))


def _in_order(rows: Sequence[Any], n_tasks: int) -> Iterator[Any]:
    rows = sorted(rows, key=lambda row: row["task"])
    for row in rows:
        if row["error"]:
            raise decode_error(row["error"])
    if [row["task"] for row in rows] != list(range(n_tasks)):
        raise CorruptData(f"Spark returned results of the tasks {[row['task'] for row in rows]}, not one of each of {n_tasks}.")
    for row in rows:
        results, counts = pickle.loads(bytes(row["results"]))
        record_counts(counts)
        yield from results


def spark_executor(verb: str, subject: str, opened: Sequence[tuple[Store, Any]], spark: SparkSession | None, parallelism: int | None) -> SparkExecutor:
    """Make the executor of one call of a verb.

    Parameters
    ----------
    verb, subject : str
        How Spark's UI calls the jobs.
    opened : sequence of tuple
        The stores of the verb, each with what the user gave for it; executors of Spark open the latter.
    spark, parallelism
        As the user gave them.

    Raises
    ------
    InvalidType
        If a store cannot be opened by other processes.
    InvalidInput
        If there is no session, or no positive parallelism.
    """
    stores = Stores([(store, store_factory(given)) for store, given in opened])
    session = find_session(spark)
    return SparkExecutor(session, cores(session, parallelism), stores, verb, subject)
