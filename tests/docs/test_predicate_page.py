"""The tables of the pages on predicates and conditions are what the code does.

To write them anew: python -m tests.docs.test_predicate_page
"""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from kartothek_cube.core.expressions.literals import CONSTANTS as CONSTANTS_OF_COLUMNS
from kartothek_cube.core.expressions.predicates import OPERATORS, matching_values, parse_predicates
from kartothek_cube.core.scan.plan import check_predicate_columns, rejects_null
from kartothek_cube.errors import InvalidInput, InvalidType

if TYPE_CHECKING:
    from collections.abc import Iterable

DOCS = Path(__file__).parents[2] / "docs"

VALUES = [1, 2, 3, None]
NOON = dt.datetime(2024, 2, 29, 12)
KINDS = {
    "integer": pa.int64(),
    "unsigned integer": pa.uint8(),
    "float": pa.float64(),
    "boolean": pa.bool_(),
    "text": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamp with zone": pa.timestamp("us", tz="UTC"),
    "decimal": pa.decimal128(10, 2),
    "list": pa.list_(pa.int64()),
    "struct": pa.struct([("a", pa.int64())]),
    "time of day": pa.time64("us"),
    "all null": pa.null(),
}
CONSTANTS = {
    "`1`": 1,
    "`np.int8(1)`": np.int8(1),
    "`1.0`": 1.0,
    "`1.5`": 1.5,
    "`0.1`": 0.1,
    "`True`": True,
    '`"a"`': "a",
    '`b"a"`': b"a",
    '`"2024-02-29"`': "2024-02-29",
    "`date`": NOON.date(),
    "`datetime`, `Timestamp`": NOON,
    "the same with a zone": NOON.replace(tzinfo=dt.UTC),
    "`np.datetime64`": np.datetime64(NOON),
    '`Decimal("1.5")`': Decimal("1.5"),
    '`Decimal("0.1")`': Decimal("0.1"),
    "null": None,
}


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Rows that differ by name alone are one."""
    head, names = list(head), dict[tuple[str, ...], list[str]]()
    for name, *cells in rows:
        names.setdefault(tuple(cells), []).append(name)
    merged = [[", ".join(group), *cells] for cells, group in names.items()]
    return "".join(f"| {' | '.join(row)} |\n" for row in [head, ["---"] * len(head), *merged])


def operators() -> str:
    scalars = [op for op in OPERATORS if not op.endswith("in")]
    clauses = [(op, constant) for op in scalars for constant in (2, None)]
    clauses += [(op, constants) for op in ("in", "not in") for constants in ([1, 2], [1, None], [])]
    return table(
        ["Clause", "1", "2", "3", "null", "false for null"], (operator_row(op, constant) for op, constant in clauses)
    )


def operator_row(op: str, constant: object) -> list[str]:
    name = f"`{op} {constant}`"
    try:
        ((clause,),) = parse_predicates([[("x", op, constant)]]) or ()
    except InvalidInput:
        return [name, *["refused"] * 4, ""]
    found = matching_values(pa.array(VALUES, pa.int64()), clause)
    return [name, *("yes" if match else "" for match in found), "yes" if rejects_null(clause) else ""]


def literals() -> str:
    return table(
        ["Column", *CONSTANTS],
        (
            [name, *("yes" if takes(kind, value) else "" for value in CONSTANTS.values())]
            for name, kind in KINDS.items()
        ),
    )


def takes(kind: pa.DataType, value: object) -> bool:
    """Whether a constant is taken, and compared."""
    schema = pa.schema([("x", kind)])
    predicates = parse_predicates([[("x", "==", value)]])
    try:
        check_predicate_columns(predicates, schema, "sales")
    except InvalidType:
        return False
    assert predicates is not None
    assert len(matching_values(pa.nulls(2, kind), predicates[0][0])) == 2
    return True


def constants() -> str:
    return table(
        ["Column", "Its own kind", "Also", "An error"],
        ([rule.columns, rule.own, rule.also, rule.refused] for rule in CONSTANTS_OF_COLUMNS),
    )


TABLES = {"predicates.md": {"operators": operators, "literals": literals}, "conditions.md": {"constants": constants}}


def with_tables(page: str, text: str) -> str:
    """A page with its tables as the code has them."""
    for name, render in TABLES[page].items():
        pattern = re.compile(rf"<!-- generated: {name} -->\n.*?<!-- end -->", re.DOTALL)
        text, count = pattern.subn(f"<!-- generated: {name} -->\n\n{render()}\n<!-- end -->", text)
        assert count == 1
    return text


@pytest.mark.parametrize("page", TABLES)
def test_the_tables_of_the_page_are_what_the_code_does(page):
    text = (DOCS / page).read_text(encoding="utf-8")
    assert with_tables(page, text) == text


def test_every_kind_of_column_has_its_rule():
    named = {rule.columns for rule in CONSTANTS_OF_COLUMNS}
    assert {
        name for name, kind in KINDS.items() if any(takes(kind, v) for v in CONSTANTS.values() if v is not None)
    } <= {
        *named,
        "unsigned integer",
    }


@pytest.mark.parametrize("op", OPERATORS)
def test_every_operator_is_in_the_table(op):
    assert f"`{op} " in operators()


if __name__ == "__main__":
    for name in TABLES:
        (DOCS / name).write_text(with_tables(name, (DOCS / name).read_text(encoding="utf-8")), encoding="utf-8")
