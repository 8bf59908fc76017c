"""The executor that maintenance verbs run on in Spark: work on files, packed into a few tasks."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from kartothek_cube.core.runtime.executor import THREADS, MaybeRemote, Task, map_in_threads
from kartothek_cube.core.runtime.options import current_options, use_options
from kartothek_cube.core.runtime.telemetry import counting, record_counts
from kartothek_cube.core.stores.contract import InstrumentedStore, Store
from kartothek_cube.core.stores.open import open_instrumented, store_factory
from kartothek_cube.errors import CorruptData, InvalidType, KartothekCubeError
from kartothek_cube.spark.actions import Job, collect, decode_error, encode_error
from kartothek_cube.spark.session import cores, find_session
from kartothek_cube.spark.tasks import THREADS_PER_TASK, pack, run_packed, task_count

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["FEWEST_HEAVY", "FEWEST_LIGHT", "SparkExecutor", "Stores", "spark_executor", "tasks_for"]

# Fewer items run in threads of the driver process: a job costs some tenths of a second, in which
# threads make a few hundred calls of a store.
FEWEST_LIGHT, FEWEST_HEAVY = 200, 2
# So many light items take about as long as the start of a task. Connect does not show the number of
# cores; without this bound it would start hundreds of tasks.
_LIGHT_PER_TASK = 25

_RESULTS = pa.schema([("task", pa.int32()), ("results", pa.binary()), ("error", pa.string())])

Opener: TypeAlias = Store | Callable[[], Store]


class Stores:
    """Open stores, each with its opener for other processes. Pickles for tasks hold their numbers.

    A task opens each store once, even if a thousand items refer to it. Stores that cannot be
    pickled travel as their openers.
    """

    def __init__(self, opened: Sequence[tuple[Store, Opener]]) -> None:
        self._numbers = {id(_bare(store)): number for number, (store, _) in enumerate(opened)}
        # Keeps the stores alive: Python would reuse their ids for other objects.
        self._opened = tuple(opened)

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
        from pyspark import cloudpickle

        numbers = self._numbers

        # Executors cannot import every class: a serializer may be defined in the user's notebook,
        # so cloudpickle sends the class by value.
        class Pickler(cloudpickle.Pickler):
            def persistent_id(self, obj: object) -> int | None:
                return numbers.get(id(_bare(obj)))

        file = io.BytesIO()
        try:
            Pickler(file).dump(value)  # type: ignore[no-untyped-call]
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise InvalidType(f"A part of this work cannot be sent to a Spark task: {error}") from error
        return file.getvalue()


def _bare(store: object) -> object:
    # Each verb wraps the store that it opens, so one store has several wrappers.
    return store.inner if isinstance(store, InstrumentedStore) else store


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, stores: Sequence[Store]) -> None:
        super().__init__(io.BytesIO(data))
        self._stores = stores

    def persistent_load(self, number: int) -> Store:
        return self._stores[number]


def tasks_for(task: Task, items: int, width: int) -> int:
    """The number of tasks for some items, where ``width`` tasks run at once."""
    n = task_count(items, width)
    return n if task.heavy else min(n, -(-items // _LIGHT_PER_TASK))


@dataclass(frozen=True, slots=True)
class SparkExecutor:
    """Maps functions of maintenance verbs over items: one Spark job each, or threads for few items.

    Attributes
    ----------
    session : SparkSession
        The session that runs the jobs.
    width : int
        The number of tasks that run at once.
    stores : Stores
        The stores of the verb.
    verb, subject : str
        What the jobs are called in Spark's UI.
    """

    session: SparkSession
    width: int
    stores: Stores
    verb: str
    subject: str

    def map(self, task: Task, items: Sequence[Any], store: MaybeRemote | None = None) -> Generator[Any, None, None]:
        """Results in the order of the items, as `core.runtime.executor.Executor` promises."""
        if len(items) < (FEWEST_HEAVY if task.heavy else FEWEST_LIGHT):
            yield from THREADS.map(task, items, store)
            return
        n = tasks_for(task, len(items), self.width)
        bounds = [i * len(items) // n for i in range(n + 1)]
        # Pickled twice: the inner pickle numbers the stores, and `pack` compresses the outer one.
        payloads = [(i, self.stores.dumps(items[a:b])) for i, (a, b) in enumerate(pairwise(bounds))]
        job = Job(self.verb, self.subject, f"{len(items)} {task.phase.unit}", task.phase.name)
        run_payloads = partial(_run_payloads, self.stores.dumps(task), self.stores.openers)
        rows = collect(run_packed(self.session, pack(payloads, n), run_payloads, _RESULTS, job), job)
        yield from _in_order(rows, n)


def _run_payloads(
    pickled: bytes, openers: Sequence[Opener], payloads: list[tuple[int, bytes]]
) -> Iterator[pa.RecordBatch]:
    """In a Spark task: one row of results for each payload."""
    stores = [open_instrumented(opener) for opener in openers]
    task: Task = _Unpickler(pickled, stores).load()
    settings = current_options()
    threads = settings.threads or (THREADS_PER_TASK if task.heavy else None)
    for number, data in payloads:
        results, message = None, None
        try:
            with counting() as counted, use_options(replace(settings, threads=threads)):
                items = _Unpickler(data, stores).load()
                values = list(map_in_threads(task.func, items, weight=task.weight))
            results = pickle.dumps((values, counted.counts))
        except KartothekCubeError as error:
            # A row instead of a failed task: Spark would retry, and no retry helps.
            message = encode_error(error)
        yield pa.record_batch([[number], [results], [message]], schema=_RESULTS)


def _in_order(rows: Sequence[Any], n_tasks: int) -> Iterator[Any]:
    rows = sorted(rows, key=lambda row: row["task"])
    for row in rows:
        if row["error"]:
            raise decode_error(row["error"])
    if [row["task"] for row in rows] != list(range(n_tasks)):
        raise CorruptData(
            f"Spark returned results of the tasks {[row['task'] for row in rows]}, not one of each of {n_tasks}."
        )
    for row in rows:
        results, counts = pickle.loads(bytes(row["results"]))
        record_counts(counts)
        yield from results


def spark_executor(
    verb: str, subject: str, opened: Sequence[tuple[Store, Any]], spark: SparkSession | None, parallelism: int | None
) -> SparkExecutor:
    """Make the executor of one call of a verb.

    Parameters
    ----------
    verb, subject : str
        What the jobs are called in Spark's UI.
    opened : sequence of tuple
        The open stores of the verb, each with the user's argument, which Spark's executors open.
    spark, parallelism
        The user's arguments.

    Raises
    ------
    InvalidType
        If other processes cannot open a store.
    InvalidInput
        If there is no session, or ``parallelism`` is not positive.
    """
    stores = Stores([(store, store_factory(given)) for store, given in opened])
    session = find_session(spark)
    return SparkExecutor(session, cores(session, parallelism), stores, verb, subject)
