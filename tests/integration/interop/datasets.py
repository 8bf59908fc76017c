"""What the tests of single datasets share: rows of every type, and a script that does what a list
of steps says, in kartothek or in plateau.
"""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kartothek_cube.core.arrow.types import stored_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

# --- the script -----------------------------------------------------------------------------------

STEPS = """
import json, pathlib, sys
from functools import partial
import pandas as pd
import pyarrow as pa, pyarrow.parquet as pq
KARTOTHEK = "kartothek" in sys.argv[1]
if KARTOTHEK:
    from storefact import get_store_from_url
    import kartothek.api.dataset as api
    from kartothek.api.serialization import CsvSerializer
    from kartothek.core.dataset import DatasetMetadata
    from kartothek.core.common_metadata import make_meta
else:
    from minimalkv import get_store_from_url
    import plateau.api.dataset as api
    from plateau.api.serialization import CsvSerializer
    from plateau.core.dataset import DatasetMetadata
    from plateau.core.common_metadata import make_meta
STORE = partial(get_store_from_url, sys.argv[2])
FOLDER = pathlib.Path(sys.argv[3])
STAGED = {}
KEYS = ("partition_on", "secondary_indices", "delete_scope", "metadata", "metadata_storage_format")

def frame(name):
    table = pq.read_table(FOLDER / (name + ".parquet"))
    exact = [f.name for f in table.schema if f.type == pa.int64() and table.column(f.name).null_count]
    result = table.to_pandas()
    for name in exact:
        result[name] = pd.array(table.column(name).to_pylist(), dtype="Int64")
    return result

def data(step):
    if "tables" in step:
        return [{table: frame(name) for table, name in step["tables"].items()}]
    return [frame(step["rows"])]

def arguments(step):
    return {k: step[k] for k in KEYS if k in step}

def loaded(step):
    return DatasetMetadata.load_from_store(step["uuid"], STORE()).load_all_indices(STORE())

def result(step):
    kwargs = {"table": step.get("table", "table")} if KARTOTHEK else {}
    return api.read_table(step["uuid"], STORE, dates_as_object=True, **kwargs)

def read(step):
    table = pa.Table.from_pandas(result(step), preserve_index=False)
    pq.write_table(table, FOLDER / (step["to"] + ".parquet"), coerce_timestamps="us")
    return {f.name: str(f.type) for f in table.schema}

def show(step):
    return [repr(v) for v in result(step).sort_values("n")[step["column"]]]

def one_value(step):
    value = frame(step["rows"])[step["column"]].iloc[0]
    return value.tz_convert("UTC").tz_localize(None) if getattr(value, "tzinfo", None) is not None else value

def ask(step):
    found = api.read_table(step["uuid"], STORE, predicates=[[(step["column"], step.get("op", "=="), one_value(step))]])
    return sorted(int(n) for n in found["n"])

def labels(step):
    return sorted(loaded(step).indices[step["column"]].eval_operator(step.get("op", "=="), one_value(step)))

def store(step):
    rows, given = data(step), arguments(step)
    dataset = api.store_dataframes_as_dataset(store=STORE, dataset_uuid=step["uuid"], dfs=rows, **given)
    return len(dataset.partitions)

def csv(step):
    serializer = CsvSerializer(compress=step["compress"])
    api.store_dataframes_as_dataset(
        store=STORE, dataset_uuid=step["uuid"], dfs=data(step), df_serializer=serializer
    )

def update(step):
    rows = data(step) if "rows" in step or "tables" in step else []
    dataset = api.update_dataset_from_dataframes(rows, store=STORE, dataset_uuid=step["uuid"], **arguments(step))
    return len(dataset.partitions)

def header(step):
    meta = make_meta(frame(step["rows"]), origin="header", partition_keys=step["partition_on"])
    schema = {"table_meta": {"table": meta}} if KARTOTHEK else {"schema": meta}
    api.create_empty_dataset_header(store=STORE, dataset_uuid=step["uuid"], **schema, **arguments(step))

def single(step):
    part = api.write_single_partition(store=STORE, dataset_uuid=step["uuid"], data=data(step)[0], **arguments(step))
    STAGED.setdefault(step["uuid"], []).append(part)

def commit(step):
    parts = STAGED.get(step["uuid"], [])
    given = arguments(step)
    dataset = api.commit_dataset(store=STORE, dataset_uuid=step["uuid"], new_partitions=parts, **given)
    return len(dataset.partitions)

def build(step):
    from_factory = api.DatasetFactory(step["uuid"], STORE) if hasattr(api, "DatasetFactory") else None
    if from_factory is None:
        from importlib import import_module
        from_factory = import_module(api.__name__.split(".")[0] + ".core.factory").DatasetFactory(step["uuid"], STORE)
    api.build_dataset_indices(store=None, dataset_uuid=None, columns=[step["column"]], factory=from_factory)

def collect(step):
    before = set(STORE().keys())
    api.garbage_collect_dataset(dataset_uuid=step["uuid"], store=STORE)
    return sorted(before - set(STORE().keys()))

def describe(step):
    dataset = loaded(step)
    known = {k: v for k, v in dataset.metadata.items() if not k.startswith(("creation", "kartothek_cube."))}
    return {
        "metadata": known, "partitions": len(dataset.partitions),
        "explicit": dataset.explicit_partitions, "indices": sorted(dataset.indices),
    }

answers = []
for step in json.loads((FOLDER / "steps.json").read_text()):
    try:
        answers.append({"ok": globals()[step["do"]](step)})
    except Exception as error:
        answers.append({"error": f"{type(error).__name__}: {error}"})
(FOLDER / "answers.json").write_text(json.dumps(answers))
print(json.dumps(None))
"""


@dataclass(slots=True)
class Other:
    """The other library on the store of a session: it is given files and a list of steps, and its
    answers are kept by the names of the steps.
    """

    name: str
    run: Callable[..., Any]
    url: str
    folder: Path
    steps: list[dict[str, Any]] = field(default_factory=list)
    answers: dict[str, Any] = field(default_factory=dict)

    def give(self, name: str, rows: pa.Table) -> str:
        """Rows for the next steps."""
        pq.write_table(rows, self.folder / f"{name}.parquet", coerce_timestamps="us")
        return name

    def plan(self, answer: str, do: str, uuid: str, **arguments: Any) -> None:
        """One more step; ``answer`` names what it says."""
        assert answer not in {step["answer"] for step in self.steps}
        assert answer not in self.answers, answer
        self.steps.append(
            {"answer": answer, "do": do, "uuid": uuid, **arguments, **({"to": f"{answer}"} if do == "read" else {})}
        )

    def go(self) -> None:
        """Run the steps in one process."""
        (self.folder / "steps.json").write_text(json.dumps(self.steps))
        self.run(STEPS, self.name, self.url, self.folder)
        for step, answer in zip(self.steps, json.loads((self.folder / "answers.json").read_text()), strict=True):
            self.answers[step["answer"]] = answer
        self.steps = []

    def said(self, answer: str) -> Any:
        """What a step said that went well."""
        assert "ok" in self.answers[answer], f"{answer}: {self.answers[answer]['error']}"
        return self.answers[answer]["ok"]

    def refused(self, answer: str) -> str:
        """The error of a step that failed."""
        assert "error" in self.answers[answer], f"{answer} should have failed"
        return str(self.answers[answer]["error"])

    def rows(self, answer: str) -> list[dict[str, Any]]:
        """The rows that a step read."""
        self.said(answer)
        return plain(pq.read_table(self.folder / f"{answer}.parquet"))


def plain(table: pa.Table) -> list[dict[str, Any]]:
    """Rows in the order of their numbers, values as Python has them and zones in UTC."""
    rows = sorted(table.to_pylist(), key=lambda row: row["n"])
    return [{name: plain_value(row[name]) for name in sorted(row)} for row in rows]


def plain_value(value: Any) -> Any:
    if isinstance(value, list):
        return [plain_value(v) for v in value]
    if isinstance(value, float) and value != value:  # noqa: PLR0124 - NaN
        return None
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).replace(tzinfo=None) if value.tzinfo else value.replace(tzinfo=None)
    return value.to_pytimedelta() if hasattr(value, "to_pytimedelta") else value


# --- rows of every type ---------------------------------------------------------------------------

D, T = dt.date, dt.datetime


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of columns, and what each of three deliveries has of it; the last value of a delivery
    is for the payload only.
    """

    type: pa.DataType
    deliveries: Sequence[Sequence[Any]]
    key: bool = False
    index: bool = False

    @property
    def layout(self) -> dict[str, Any]:
        """How a dataset of such columns is written."""
        return {"partition_on": ["p"] if self.key else [], "secondary_indices": ["i1"] if self.index else []}

    def rows(self, delivery: int, *, stored: bool = False) -> pa.Table:
        """The rows of one delivery: in the type itself, or as they are stored."""
        values = self.deliveries[delivery]
        used = [*values[:-1], values[0]]
        columns = {"n": pa.array([10 * delivery + i for i in range(len(values))], pa.int64())}
        columns |= {name: self.array(used) for name, wanted in (("p", self.key), ("i1", self.index)) if wanted}
        table = pa.table({**columns, "v1": self.array(values)})
        return table.cast(stored_schema(table.schema)) if stored else table

    def array(self, values: Sequence[Any]) -> pa.Array:
        if pa.types.is_float16(self.type):
            values = [np.float16(v) for v in values]  # older pyarrow takes nothing else
        return (
            pa.array(values, self.type.value_type).dictionary_encode()
            if pa.types.is_dictionary(self.type)
            else pa.array(values, self.type)
        )


def anywhere(kind: pa.DataType, *deliveries: Sequence[Any]) -> Kind:
    return Kind(kind, deliveries, key=True, index=True)


INTEGERS = ([1, 2, 3], [2, 5, 6], [7, 1, 1])
FLOATS = ([1.5, -0.25, None], [1.5, 1e10, 2.0], [-0.25, 7.0, None])
TEXTS = (["DE", "FR, Süd 1%", None], ["DE", "IT", "x"], ["FR, Süd 1%", "", None])
BYTES = ([b"DE", "ä".encode(), None], [b"DE", b"IT", b"\xff\x00"], [b"FR", b"a b", None])
PAIRS = ([b"DE", b"FR", b"IT"], [b"DE", b"IT", b"ES"], [b"FR", b"PT", b"SE"])
DATES = (
    [D(2024, 2, 29), D(1969, 12, 31), None],
    [D(2024, 2, 29), D(2020, 1, 1), D(2020, 1, 1)],
    [D(1969, 12, 31), D(2021, 5, 6), None],
)
MOMENTS = (
    [T(2024, 2, 29, 1, 2, 3), T(2020, 1, 1, 0, 0, 0, 5), None],
    [T(2024, 2, 29, 1, 2, 3), T(2020, 1, 1), T(1969, 1, 1)],
    [T(2021, 1, 1), T(2022, 1, 1), None],
)
ZONED = tuple([None if v is None else v.replace(tzinfo=dt.UTC) for v in moments] for moments in MOMENTS)

KINDS = {
    "bool": anywhere(pa.bool_(), [True, False, True], [False, True, True], [True, False, False]),
    **{f"int{n}": anywhere(getattr(pa, f"int{n}")(), *INTEGERS) for n in (8, 64)},
    "uint16": anywhere(pa.uint16(), *INTEGERS),
    "uint64": anywhere(pa.uint64(), [2**64 - 1, 1, 2], [2**64 - 1, 2**63, 3], [1, 5, 2**63]),
    "float16": anywhere(pa.float16(), [1.5, -0.25, 2.0], [1.5, 3.0, 2.0], [-0.25, 7.0, 1.0]),
    "float32": anywhere(pa.float32(), *FLOATS),
    "float64": anywhere(pa.float64(), *FLOATS),
    "text": anywhere(pa.string(), *TEXTS),
    "text_view": anywhere(pa.string_view(), *TEXTS),
    "category": anywhere(pa.dictionary(pa.int32(), pa.string()), *TEXTS),
    "bytes": anywhere(pa.binary(), *BYTES),
    "bytes_of_fixed_size": anywhere(pa.binary(2), *PAIRS),
    "date": anywhere(pa.date32(), *DATES),
    "timestamp": anywhere(pa.timestamp("us"), *MOMENTS),
    "timestamp_with_zone": Kind(pa.timestamp("us", "Europe/Berlin"), ZONED, index=True),
    "int_with_nulls": Kind(pa.int64(), ([1, None], [2, None], [3, None])),
    "decimal": Kind(
        pa.decimal128(4, 2),
        [[Decimal(v) for v in values] for values in (("1.10", "22.55"), ("33.10", "-0.55"), ("0.01", "44.00"))],
    ),
    "time": Kind(pa.time64("us"), ([dt.time(1, 2, 3), None], [dt.time(4), dt.time(5)], [dt.time(23, 59), None])),
    "time_in_seconds": Kind(
        pa.time32("s"), ([dt.time(1, 2, 3), None], [dt.time(4), dt.time(5)], [dt.time(23, 59), None])
    ),
    "duration": Kind(
        pa.duration("s"),
        ([dt.timedelta(1), None], [dt.timedelta(2), dt.timedelta(3)], [dt.timedelta(seconds=-4), None]),
    ),
    "list": Kind(pa.list_(pa.int16()), ([[1, 2], None], [[3], []], [[4], None])),
    "list_of_text": Kind(pa.list_(pa.large_string()), ([["a", None], None], [["b"], []], [["c"], None])),
    "list_of_fixed_size": Kind(pa.list_(pa.int64(), 2), ([[1, 2], None], [[3, 4], [5, 6]], [[7, 8], None])),
    "struct": Kind(
        pa.struct([("a", pa.int64()), ("b", pa.string())]),
        (
            [{"a": 1, "b": "x"}, {"a": 5, "b": None}],
            [{"a": 2, "b": "y"}, {"a": 3, "b": "z"}],
            [{"a": 4, "b": "w"}, {"a": 6, "b": ""}],
        ),
    ),
    "null": Kind(pa.null(), ([None, None], [None, None], [None, None])),
}


def expected(name: str, deliveries: Mapping[int, Any] | Sequence[int]) -> list[dict[str, Any]]:
    """What a dataset should hold after these deliveries."""
    return [row for i in deliveries for row in plain(KINDS[name].rows(i))]


def numbers(name: str, deliveries: Sequence[int], column: str, value: Any) -> list[int]:
    """The numbers of the rows that have a value in a column."""
    return [row["n"] for row in expected(name, deliveries) if row[column] == value]
