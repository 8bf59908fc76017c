"""Conditions as values: the column `C`, the classes that its comparisons make, their text.

In order:

- the text of comparisons: grammar, literals, constants
- evaluation on a pandas frame
- the base classes, and the conjunction of several
- the conditions
"""

from __future__ import annotations

import ast
import datetime as dt
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Never

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from kartothek_cube.core.arguments import (
    converter_str,
    converter_tuple,
    did_you_mean,
    get_str_to_python_converter,
    join_names,
)
from kartothek_cube.core.arrow.pandas import arrow_array
from kartothek_cube.core.expressions.literals import check_literal, without_arrow
from kartothek_cube.core.expressions.predicates import LISTS, Clause, constants_of, is_null, matching_rows
from kartothek_cube.errors import InvalidInput, InvalidType

if TYPE_CHECKING:
    import pandas as pd

    from kartothek_cube.typing import IntoConditions


# Tried second: column names may have spaces and brackets, so a list with a comparison in one of its
# texts would match.
_COMPARISON = re.compile(r"\(?\s*([^\s!<>=](?:[^!<>=]*[^\s!<>=])?)\s*(==|=|<=|<|>=|>|!=)([^)=]+)\)?\s*")

# An item of a list: text in Python's quotes, or anything without quotes and brackets.
_ITEM = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^'"(),\s](?:[^'"(),]*[^'"(),\s])?"""

_LIST = re.compile(
    rf"\(?\s*([^\s!<>=](?:[^!<>=]*?[^\s!<>=])??)\s+(in|not\s+in)\s*\(((?:\s*(?:{_ITEM})\s*,)*\s*(?:{_ITEM})?\s*)\)\s*\)?\s*"
)

# Words that join conditions in SQL and Python, but not here.
_RULE = "conditions are joined by &, and there is no or"
_SECOND = re.compile(r"\s(?:and|or|[|]+)\s+(\S+?)\s*(?:[=!<>]|in\b|not\s+in\b)", re.IGNORECASE)
_JOINED = re.compile(r"(?:^|\s)(?:and|or|[|]+)\s", re.IGNORECASE)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?")
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""")
# An operator, and a bracket in what follows it; "in (" has none.
_BRACKET_IN_VALUE = re.compile(r"[=<>][^=<>!&]*\(")
_NULLS = frozenset({"null", "none", "nan", "na", "nat"})


def parse_comparison(text: str, types: Mapping[str, pa.DataType]) -> tuple[str, str, Any]:
    """Column, operator and value of a text such as ``PRICE >= 1.5`` or ``WEEK in (10, 11)``.

    Brackets around it are optional.

    Raises
    ------
    InvalidInput
        If the text is no comparison, the column is unknown, or the value is no literal of the
        column's type.

    Examples
    --------
    >>> import pyarrow as pa
    >>> parse_comparison("(PRICE >= 1.5)", {"PRICE": pa.float64()})
    ('PRICE', '>=', 1.5)
    >>> parse_comparison("COUNTRY_CODE not in ('DE', FR)", {"COUNTRY_CODE": pa.string()})
    ('COUNTRY_CODE', 'not in', ('DE', 'FR'))
    """
    match = _LIST.fullmatch(text.lstrip()) or _COMPARISON.fullmatch(text.lstrip())
    if match is None:
        raise InvalidInput(
            f'Cannot parse condition "{text}". Write COLUMN OPERATOR VALUE, with one of the operators '
            "== != < <= > >=, or COLUMN in (VALUE, VALUE), or not in; & joins conditions, and there is no or."
        )
    column, op, literal = match.groups()
    if column not in types:
        is_turned = bool(set(literal.split()[:1]) & set(types))
        hint = " The column stands on the left." if is_turned else did_you_mean([column], types)
        raise InvalidInput(f'Unknown column "{column}" in condition "{text}". Known are: {join_names(types)}.{hint}')
    is_list = op.endswith("in")
    words = re.findall(_ITEM, literal) if is_list else [literal.strip()]
    values = read_literals(words, column, types, text, exact=is_list)
    return column, "==" if op == "=" else " ".join(op.split()), values if is_list else values[0]


def read_literals(
    words: Sequence[str], column: str, types: Mapping[str, pa.DataType], text: str, *, exact: bool
) -> tuple[Any, ...]:
    """The values of words, read as literals of the column's type.

    Parameters
    ----------
    words
        The literals.
    column
        The column of the comparison.
    types
        The type of every column.
    text
        The condition, for the error.
    exact
        Whether a word in quotes is a literal of Python, with its escapes.

    Raises
    ------
    InvalidInput
        If a word is no literal of the column's type, or the type has no literals.

    Examples
    --------
    >>> read_literals(["10", "11"], "WEEK", {"WEEK": pa.int64()}, "WEEK in (10, 11)", exact=True)
    (10, 11)
    >>> types = {"SALES_DATE": pa.date32()}
    >>> read_literals(["2024-01-31"], "SALES_DATE", types, "SALES_DATE > 2024-01-31", exact=False)
    (datetime.date(2024, 1, 31),)
    """
    data_type = types[column].value_type if pt.is_dictionary(types[column]) else types[column]
    is_text = bool(pt.is_string(data_type) or pt.is_large_string(data_type) or pt.is_string_view(data_type))
    read = _reader(pa.string() if is_text else data_type, column)
    values = []
    try:
        for word in words:
            is_quoted = exact and word[0] in "'\""
            value = ast.literal_eval(word) if is_quoted else word
            values.append(value if is_quoted and is_text else read(value))
    except (ValueError, SyntaxError) as error:
        hint = " Nothing can be compared with a null." if any(word.casefold() in _NULLS for word in words) else ""
        if any(word in types for word in words):
            hint = " A column is compared with a value, not with another column."
        elif any(_JOINED.search(word) for word in words):
            hint = " Conditions are joined by &, and there is no or."
        raise InvalidInput(
            f'Condition "{text}": column {column} is {types[column]} and takes {_example(data_type)}.{hint}'
        ) from error
    return tuple(values)


def _reader(data_type: pa.DataType, column: str) -> Callable[[str], Any]:
    """The parser of one value: those of kartothek, and one for dates, which kartothek lacks."""
    if pt.is_date(data_type):
        return lambda text: dt.date.fromisoformat(text.strip("'\""))
    if pt.is_integer(data_type) or pt.is_decimal(data_type):
        return lambda text: _number(text, data_type)
    try:
        convert = get_str_to_python_converter(data_type)
    except InvalidInput as error:
        raise InvalidInput(
            f'{error} of column "{column}": conditions as text are on texts, numbers, booleans, dates and times.'
        ) from error
    if pt.is_floating(data_type):  # a double does not hold every integer
        return lambda text: int(text) if re.fullmatch(r"[+-]?\d+", text) else convert(text)
    return convert


def _number(text: str, data_type: pa.DataType) -> int | Decimal:
    with suppress(ValueError):
        if pt.is_integer(data_type):
            return int(text)
    # Integers are compared with other numbers, too, and a float would round the digits.
    if not _NUMBER.fullmatch(text):
        raise ValueError(text)
    return Decimal(text)


def _example(data_type: pa.DataType) -> str:
    """A literal of a type, for errors."""
    if pt.is_boolean(data_type):
        return "true or false"
    if pt.is_temporal(data_type):
        return "a date such as 2024-01-31" if pt.is_date(data_type) else "a time such as 2024-01-31 12:00"
    is_number = pt.is_integer(data_type) or pt.is_floating(data_type) or pt.is_decimal(data_type)
    return "a number" if is_number else "a text"


def check_brackets(text: str) -> None:
    """Refuse conditions in which a bracket may be of a value: those around them are optional.

    Raises
    ------
    InvalidInput
        If brackets without quotes do not come in pairs, or one opens within a value.
    """
    unquoted = _QUOTED.sub("", text)
    if unquoted.count("(") != unquoted.count(")") or _BRACKET_IN_VALUE.search(unquoted):
        raise InvalidInput(
            f'Condition "{text.strip()}": brackets in a value are ambiguous. Write the value in quotes, in a list: '
            "NAME in ('Food (frozen)')."
        )


def doubt_about(value: object, text: str, columns: Collection[str]) -> str | None:
    """Why a text may not be meant as a value of the condition; None: there is no doubt."""
    if isinstance(value, dt.date):  # pandas reads 01.02.2024 as a day of January, 13.02.2024 as one of February
        is_iso = value.isoformat()[:10] in text
        return None if is_iso else "a moment is written as 2024-01-31, 2024-01-31 12:00 or 2024-01-31T12:00:00+01:00"
    if not isinstance(value, str):
        return None
    quote = next((quote for quote in "'\"" if f"{quote}{value}{quote}" in text), None)
    if quote is not None:
        is_ended = re.search(rf"{quote}\s*(?:,|[|&]|(?:and|or)\s)", value, re.IGNORECASE)
        return f"{_RULE}, and several values are in (...)" if is_ended else None
    if value.startswith(("<", ">", "=", "!")):
        return "the operators are == != < <= > >=; a text that begins so stands in quotes"
    if value.casefold() == "null" or value == "None":
        doubt = "nothing can be compared with a null"
    elif value in columns:
        doubt = "a column is compared with a value, not with another column"
    elif (joined := _SECOND.search(value)) is not None and joined[1] in columns:
        doubt = _RULE
    else:
        return None
    return f"{doubt}. For the text, write {value!r} in quotes"


class NoLiteral:
    """Base of objects that a column cannot be compared with; ``REFUSAL`` says why."""

    __slots__ = ()
    REFUSAL: ClassVar[str]


def check_values(column: str, values: Sequence[Any]) -> None:
    """Raise for nulls, columns, conditions and containers as constants of a comparison."""
    wrong = next((value for value in values if isinstance(value, NoLiteral)), None)
    if any(_is_scalar(value) and is_null(value) for value in values):
        raise InvalidInput(
            f'Cannot use NULL-value to compare w/ column "{column}". Nothing can be compared with a null.'
        )
    if wrong is not None:
        raise InvalidType(f'{wrong.REFUSAL} Give column "{column}" a constant.')
    for value in values:
        if not _is_scalar(value):
            raise InvalidInput(
                f'Cannot compare column "{column}" with a {type(value).__name__}; '
                f'for several values use C("{column}").isin(...).'
            )


def _is_scalar(value: object) -> bool:
    return isinstance(value, (str, bytes)) or not isinstance(value, (Iterable, NoLiteral))


# --- evaluation on a pandas frame -----------------------------------------------------------------


class ColumnNotFound(InvalidInput, KeyError):
    """A condition names a column that the frame does not have."""

    __str__ = Exception.__str__


def filter_frame(df: pd.DataFrame, columns: Collection[str], clauses: Iterable[Clause]) -> pd.DataFrame:
    """The rows of ``df`` that have a value in all ``columns`` and satisfy all ``clauses``.

    Rows keep their labels.

    Examples
    --------
    >>> import pandas as pd
    >>> df = pd.DataFrame({"WEEK": [1, 2, 3], "PRICE": [1.5, 2.5, None]})
    >>> filter_frame(df, ["PRICE"], [Clause("PRICE", ">", 2.0)])
       WEEK  PRICE
    1     2    2.5
    """
    missing = sorted(column for column in columns if column not in df.columns)
    if missing:
        raise ColumnNotFound(
            f"Conditions on columns that the frame does not have: {', '.join(missing)}. "
            f"It has: {', '.join(map(str, df.columns))}."
        )
    names = sorted(columns)
    # In frames a null satisfies no condition, not even `!=`.
    found = df[names]
    if found.shape[1] > len(names):
        raise InvalidInput(f"The frame has several columns of one name: {', '.join(map(str, found.columns))}.")
    mask = found.notna().all(axis=1).to_numpy(dtype=bool, copy=True)
    if names:
        try:
            table = pa.table({name: arrow_array(found.loc[mask, name]) for name in names})
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            raise InvalidType(f"Cannot compare with columns of mixed or unknown types: {error}") from error
        checked = tuple(_checked(clause, table.schema.field(clause.column).type) for clause in clauses)
        mask[np.flatnonzero(mask)] = matching_rows(table, (checked,))
    return df.loc[mask]


def _checked(clause: Clause, data_type: pa.DataType) -> Clause:
    """The clause with constants that can be compared with a column of this type."""
    if clause.value is None:
        return clause
    data_type = data_type.value_type if pt.is_dictionary(data_type) else data_type
    constants: list[Any] = []
    for constant in constants_of(clause):
        value = _as_timestamp(constant, clause.column) if pt.is_timestamp(data_type) else constant
        check_literal(value, data_type, clause.column)
        constants.append(value)
    return Clause(clause.column, clause.op, tuple(constants) if isinstance(clause.value, tuple) else constants[0])


def _as_timestamp(value: object, column: str) -> Any:
    # pandas has no type for dates: timestamp columns are compared with dates and their text, too.
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return dt.datetime(value.year, value.month, value.day)  # noqa: DTZ001 -- as naive as the date
    if not isinstance(value, str):
        return value
    import pandas as pd

    with suppress(ValueError):
        moment = pd.Timestamp(value)
        if not pd.isna(moment):
            return moment
    raise InvalidInput(
        f"Cannot compare column {column!r} with {value!r}, which is no timestamp. "
        "Write it as 2024-12-31 or 2024-12-31 23:59:59."
    )


# --- the base classes -----------------------------------------------------------------------------


PredicatePart = list[tuple[str, str, Any]]
"""``(column, operator, value)`` tuples that all have to hold."""

_ONLY_CONDITIONS = "Can only build conjunction out of conditions."


class Restriction(NoLiteral, ABC):
    """Base of conditions and conjunctions: both filter frames, and ``&`` joins them."""

    __slots__ = ()
    REFUSAL: ClassVar[str] = "Cannot use nested conditions."

    @abstractmethod
    def flat(self) -> tuple[Condition, ...]:
        """The single conditions, in order."""

    @property
    @abstractmethod
    def clauses(self) -> tuple[Clause, ...]:
        """The comparisons in the form that readers take."""

    def __and__(self, other: object) -> Conjunction:
        return Conjunction.from_two(self, other)

    def __rand__(self, other: object) -> Conjunction:
        return Conjunction.from_two(other, self)

    def __or__(self, other: object) -> Never:
        raise InvalidType(
            "Conditions cannot be joined by `|`. For several values of one column there is C(column).isin([...]); "
            "else query without the condition and filter the result, or query once for each alternative."
        )

    __ror__ = __or__

    def __invert__(self) -> Never:
        raise InvalidType(
            "Conditions cannot be inverted by `~`. "
            "Write the opposite comparison: `!=` for `==`, `>=` for `<`, isnotin for isin."
        )


@dataclass(frozen=True, eq=False)
class Condition(Restriction):
    """Base of all conditions: one column, a predicate, a text form, and the operator ``&``.

    Examples
    --------
    >>> from kartothek_cube import C
    >>> isinstance(C("WEEK").in_interval(10, 20), Condition)
    True
    """

    __slots__ = ("column",)
    column: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "column", converter_str(self.column))

    @property
    @abstractmethod
    def active(self) -> bool:
        """Whether the condition excludes anything: false for an interval without bounds."""

    @property
    @abstractmethod
    def predicate_part(self) -> PredicatePart:
        """The condition as ``(column, operator, value)`` tuples that all have to hold."""

    @staticmethod
    def from_string(s: str, all_types: Mapping[str, pa.DataType]) -> Condition:
        """Parse one comparison such as ``PRICE >= 1.5`` or ``COUNTRY_CODE not in (DE, FR)``.

        Brackets around it are optional; ``=`` means ``==``.

        Parameters
        ----------
        s : str
            The text. A string value may be quoted. It cannot contain ``)`` or ``=``, except in a
            list and in Python's quotes.
        all_types : mapping of str to pyarrow.DataType
            The type of every column, which decides how the value is parsed.

        Raises
        ------
        InvalidInput
            If the text is no comparison, the column is unknown, or the value is no literal of the
            column's type.

        Examples
        --------
        >>> import pyarrow as pa
        >>> Condition.from_string("COUNTRY_CODE == DE", {"COUNTRY_CODE": pa.string()})
        EqualityCondition(column='COUNTRY_CODE', value='DE')
        """
        column, op, value = parse_comparison(s, all_types)
        return condition_class(op)(column, value)

    @property
    def clauses(self) -> tuple[Clause, ...]:
        """The comparisons in the form that readers take, as `Conjunction.clauses`."""
        return Conjunction(self).clauses

    def filter_df(self, df: pd.DataFrame) -> pd.DataFrame:
        """The rows of ``df`` that satisfy the condition, as `Conjunction.filter_df`."""
        return Conjunction(self).filter_df(df)

    def flat(self) -> tuple[Condition, ...]:
        """The condition itself."""
        return (self,)

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, field.name) for field in fields(self))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Condition) or type(self) is not type(other):
            return NotImplemented
        return self._values() == other._values()

    def __hash__(self) -> int:
        return hash((type(self).__name__, *self._values()))

    def __reduce__(self) -> tuple[Any, ...]:
        # By default pickle would set the slots one by one, which frozen classes refuse.
        return type(self), self._values()

    def __bool__(self) -> bool:
        raise InvalidType(
            "Cannot check if a condition is non-zero. A condition has no truth value: "
            "write `(1 < C('x')) & (C('x') <= 5)` for a chained comparison, and `&` for `and`."
        )


@dataclass(frozen=True, eq=False)
class SimpleCondition(Condition):
    """A condition with one operator and one value.

    Examples
    --------
    >>> from kartothek_cube import C
    >>> condition = C("WEEK") >= 10
    >>> condition.column, condition.OP, condition.value
    ('WEEK', '>=', 10)
    """

    __slots__ = ("value",)
    value: Any

    OP: ClassVar[str]

    def __post_init__(self) -> None:
        super().__post_init__()
        value = without_arrow(self.value)
        constants = tuple(map(without_arrow, converter_tuple(value))) if self.OP in LISTS else (value,)
        check_values(self.column, constants)
        object.__setattr__(self, "value", constants if self.OP in LISTS else value)

    @property
    def active(self) -> bool:
        """Always true."""
        return True

    @property
    def predicate_part(self) -> PredicatePart:
        """The condition as one ``(column, operator, value)`` tuple."""
        return [(self.column, self.OP, self.value)]

    def __str__(self) -> str:
        return f"{self.column} {self.OP} {self.value}"


@dataclass(frozen=True, init=False)
class Conjunction(Restriction):
    """Conditions that all have to hold. There is no *or*.

    Parameters
    ----------
    conditions : None, Condition, Conjunction or iterable of Condition
        The conditions in their order; None for no restriction.

    Raises
    ------
    InvalidType
        If something else is given.

    Examples
    --------
    >>> from kartothek_cube import C
    >>> str((C("COUNTRY_CODE") == "DE") & (C("PRICE") < 2.5))
    '(COUNTRY_CODE == DE) & (PRICE < 2.5)'
    """

    __slots__ = ("conditions",)
    conditions: tuple[Condition, ...]

    def __init__(self, conditions: Restriction | Iterable[Condition] | None) -> None:
        if isinstance(conditions, Restriction):
            items: Iterable[object] = conditions.flat()
        else:
            try:
                items = iter(() if conditions is None else conditions)
            except TypeError:  # raised by columns of Spark, too: they have `__iter__`, and it refuses
                items = (conditions,)
        flat = tuple(items)
        for item in flat:
            if not isinstance(item, Condition):
                raise InvalidType(f"{_ONLY_CONDITIONS} Got {item!r} ({type(item).__name__}).")
        object.__setattr__(self, "conditions", flat)

    def __reduce__(self) -> tuple[Any, ...]:
        return Conjunction, (self.conditions,)

    @staticmethod
    def from_two(left: object, right: object) -> Conjunction:
        """The conditions of ``left``, then those of ``right``; the same as ``left & right``.

        Examples
        --------
        >>> from kartothek_cube import C
        >>> len(Conjunction.from_two(C("WEEK") > 10, C("STORE_ID") == 7).conditions)
        2
        """
        if not (isinstance(left, Restriction) and isinstance(right, Restriction)):
            raise InvalidType(
                f"{_ONLY_CONDITIONS} Got {left!r} & {right!r}; mind the brackets: `(C('x') == 1) & (C('y') == 2)`."
            )
        return Conjunction((*left.flat(), *right.flat()))

    @staticmethod
    def from_string(s: str, all_types: Mapping[str, pa.DataType]) -> Conjunction:
        """Parse comparisons joined by ``&``, each by `Condition.from_string`.

        A blank text is no restriction.

        Examples
        --------
        >>> import pyarrow as pa
        >>> print(Conjunction.from_string("WEEK >= 10 & WEEK < 20", {"WEEK": pa.int64()}))
        (WEEK >= 10) & (WEEK < 20)
        """
        parts = s.split("&") if s.strip() else []
        return Conjunction(Condition.from_string(part.strip(), all_types) for part in parts)

    @staticmethod
    def from_jsonarray(array: list[dict[str, Any]]) -> Conjunction:
        """The conjunction that `to_jsonarray` has described.

        Raises
        ------
        InvalidType
            If the array is not a list of dicts, or a dict does not describe a condition.
        InvalidInput
            If a dict has no ``"type"``.

        Examples
        --------
        >>> array = [{"type": "LessThanCondition", "column": "PRICE", "value": 2.5}]
        >>> Conjunction.from_jsonarray(array).predicate
        [('PRICE', '<', 2.5)]
        """
        if not isinstance(array, list):
            raise InvalidType(f"jsonarray must be a list, got {type(array).__name__}")
        conditions = []
        for item in array:
            if not isinstance(item, dict):
                raise InvalidType(f"Condition in jsonarray must be a dict, got {type(item).__name__}")
            if "type" not in item:
                raise InvalidInput(f"Missing type value for condition {item!r}")
            name, attributes = item["type"], {key: value for key, value in item.items() if key != "type"}
            if not isinstance(name, str) or name not in _BY_NAME:
                raise InvalidType(f"Unknown condition class {name!r}, use one of {', '.join(_BY_NAME)}")
            try:
                conditions.append(_BY_NAME[name](**attributes))
            except TypeError as error:
                raise InvalidType(f"Cannot make a condition of {item!r}: {error}") from error
        return Conjunction(conditions)

    def to_jsonarray(self) -> list[dict[str, Any]]:
        """One dict for each condition: its attributes and the name of its class.

        Tuples become lists, values stay as they are.

        Examples
        --------
        >>> from kartothek_cube import C
        >>> Conjunction(C("COUNTRY_CODE").isin(["DE", "FR"])).to_jsonarray()
        [{'column': 'COUNTRY_CODE', 'value': ['DE', 'FR'], 'type': 'IsInCondition'}]
        """
        array = []
        for condition in self.conditions:
            values = {field.name: getattr(condition, field.name) for field in fields(condition)}
            plain = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
            array.append({**plain, "type": type(condition).__name__})
        return array

    @property
    def columns(self) -> set[str]:
        """The columns that are restricted.

        Examples
        --------
        >>> from kartothek_cube import C
        >>> Conjunction([C("WEEK") > 10, C("PRICE").in_interval()]).columns
        {'WEEK'}
        """
        return {condition.column for condition in self.conditions if condition.active}

    @property
    def predicate(self) -> PredicatePart | None:
        """All ``(column, operator, value)`` tuples in order, or None if there are none.

        Examples
        --------
        >>> from kartothek_cube import C
        >>> ((C("COUNTRY_CODE") == "DE") & (C("WEEK") < 20)).predicate
        [('COUNTRY_CODE', '==', 'DE'), ('WEEK', '<', 20)]
        """
        return [part for condition in self.conditions for part in condition.predicate_part] or None

    @property
    def clauses(self) -> tuple[Clause, ...]:
        """The comparisons in the form that readers take.

        Readers take ``!=`` as true for stored nulls, as in kartothek; `filter_df` drops nulls.

        Examples
        --------
        >>> from kartothek_cube import C
        >>> Conjunction(C("BRAND") != "Acme").clauses
        (Clause(column='BRAND', op='!=', value='Acme'),)
        """
        return tuple(Clause(*part) for part in self.predicate or ())

    def split_by_column(self) -> dict[str, Conjunction]:
        """One conjunction for each restricted column, by first appearance.

        Examples
        --------
        >>> from kartothek_cube import C
        >>> parts = ((C("WEEK") >= 10) & (C("PRICE") < 2.5) & (C("WEEK") < 20)).split_by_column()
        >>> {column: str(part) for column, part in parts.items()}
        {'WEEK': '(WEEK >= 10) & (WEEK < 20)', 'PRICE': '(PRICE < 2.5)'}
        """
        by_column: dict[str, list[Condition]] = {}
        for condition in self.conditions:
            if condition.active:
                by_column.setdefault(condition.column, []).append(condition)
        return {column: Conjunction(conditions) for column, conditions in by_column.items()}

    def filter_df(self, df: pd.DataFrame) -> pd.DataFrame:
        """The rows of ``df`` that satisfy all conditions, with their row labels, as a new frame.

        Raises
        ------
        KeyError
            If a column is missing.
        InvalidType
            If a value cannot be compared with its column, e.g. an integer with a column of floats.

        Examples
        --------
        >>> from kartothek_cube import C
        >>> import pandas as pd
        >>> df = pd.DataFrame({"COUNTRY_CODE": ["DE", "FR", None], "WEEK": [1, 2, 3]})
        >>> (C("COUNTRY_CODE") != "FR").filter_df(df)
          COUNTRY_CODE  WEEK
        0           DE     1
        """
        return filter_frame(df, self.columns, self.clauses)

    def flat(self) -> tuple[Condition, ...]:
        """The conditions."""
        return self.conditions

    def __str__(self) -> str:
        return " & ".join(f"({condition})" for condition in self.conditions)


# --- texts of users -------------------------------------------------------------------------------


def conditions_in(text: str, types: Mapping[str, pa.DataType]) -> Conjunction:
    """The conditions of one text; unquoted values that may mean something else are refused.

    Raises
    ------
    ValueError
        If the text is no condition, or an ambiguous one.

    Examples
    --------
    >>> import pyarrow as pa
    >>> types = {"BRAND": pa.string(), "WEEK": pa.int64()}
    >>> print(conditions_in("BRAND == 'NULL' & WEEK > 3", types))
    (BRAND == NULL) & (WEEK > 3)
    >>> conditions_in("BRAND == NULL", types)
    Traceback (most recent call last):
    kartothek_cube.errors.InvalidInput: Condition "BRAND == NULL": nothing can be compared...
    """
    conjunction = Conjunction.from_string(text, types)
    for column, op, given in conjunction.predicate or ():
        for value in given if isinstance(given, tuple) else (given,):
            if doubt := doubt_about(value, text, types):
                shown = f"{column} {op} {given}" if "&" in text else text.strip()
                raise InvalidInput(f'Condition "{shown}": {doubt}.')
    check_brackets(text)
    return conjunction


def conjunction_of(conditions: IntoConditions, types: Mapping[str, pa.DataType]) -> Conjunction:
    """The argument ``conditions`` of a verb, with the types of the columns that it may name."""
    if isinstance(conditions, str):
        return conditions_in(conditions, types)
    if isinstance(conditions, (list, tuple)) and conditions and all(isinstance(item, str) for item in conditions):
        return conditions_in(" & ".join(conditions), types)
    return conditions if isinstance(conditions, Conjunction) else Conjunction(conditions)


def conditions_of(clauses: Iterable[Clause]) -> Conjunction:
    """Comparisons with constants as conditions."""
    return Conjunction(condition_class(clause.op)(clause.column, clause.value) for clause in clauses)


def condition_class(op: str) -> type[SimpleCondition]:
    """The condition class of an operator."""
    if op not in _BY_OPERATOR:
        raise InvalidInput(f"Unknown operator {op!r} in a condition, use one of {', '.join(_BY_OPERATOR)}")
    return _BY_OPERATOR[op]


# --- the conditions -------------------------------------------------------------------------------


class EqualityCondition(SimpleCondition):
    """``C(column) == value``.

    Examples
    --------
    >>> (C("COUNTRY_CODE") == "DE").predicate_part
    [('COUNTRY_CODE', '==', 'DE')]
    """

    __slots__ = ()
    OP: ClassVar[str] = "=="


class InequalityCondition(SimpleCondition):
    """``C(column) != value``. In frames a null does not match; in queries a stored one does.

    Examples
    --------
    >>> (C("COUNTRY_CODE") != "DE").predicate_part
    [('COUNTRY_CODE', '!=', 'DE')]
    """

    __slots__ = ()
    OP: ClassVar[str] = "!="


class LessThanCondition(SimpleCondition):
    """``C(column) < value``.

    Examples
    --------
    >>> (C("WEEK") < 10).predicate_part
    [('WEEK', '<', 10)]
    """

    __slots__ = ()
    OP: ClassVar[str] = "<"


class LessEqualCondition(SimpleCondition):
    """``C(column) <= value``.

    Examples
    --------
    >>> (C("WEEK") <= 10).predicate_part
    [('WEEK', '<=', 10)]
    """

    __slots__ = ()
    OP: ClassVar[str] = "<="


class GreaterThanCondition(SimpleCondition):
    """``C(column) > value``.

    Examples
    --------
    >>> (C("WEEK") > 10).predicate_part
    [('WEEK', '>', 10)]
    """

    __slots__ = ()
    OP: ClassVar[str] = ">"


class GreaterEqualCondition(SimpleCondition):
    """``C(column) >= value``.

    Examples
    --------
    >>> (C("WEEK") >= 10).predicate_part
    [('WEEK', '>=', 10)]
    """

    __slots__ = ()
    OP: ClassVar[str] = ">="


class IsInCondition(SimpleCondition):
    """``C(column).isin(value)``; the value is kept as a tuple.

    Examples
    --------
    >>> C("COUNTRY_CODE").isin(["DE", "FR"]).value
    ('DE', 'FR')
    """

    __slots__ = ()
    OP: ClassVar[str] = "in"


class IsNotInCondition(SimpleCondition):
    """``C(column).isnotin(value)``: ``!=`` for each of the values, which are kept as a tuple.

    Examples
    --------
    >>> C("COUNTRY_CODE").isnotin("DE").value
    ('DE',)
    """

    __slots__ = ()
    OP: ClassVar[str] = "not in"


@dataclass(frozen=True, eq=False, init=False)
class InIntervalCondition(Condition):
    """``C(column).in_interval(start, stop)``: start included, stop excluded, None for an open end.

    Examples
    --------
    >>> C("WEEK").in_interval(10, 20).predicate_part
    [('WEEK', '>=', 10), ('WEEK', '<', 20)]
    >>> C("WEEK").in_interval().active
    False
    """

    __slots__ = ("start", "stop")
    start: Any
    stop: Any

    def __init__(self, column: str, start: object = None, stop: object = None) -> None:
        object.__setattr__(self, "column", column)
        object.__setattr__(self, "start", without_arrow(start))
        object.__setattr__(self, "stop", without_arrow(stop))
        self.__post_init__()
        check_values(self.column, [bound for bound in (self.start, self.stop) if bound is not None])

    @property
    def active(self) -> bool:
        """Whether at least one bound is given."""
        return self.start is not None or self.stop is not None

    @property
    def predicate_part(self) -> PredicatePart:
        """One ``(column, operator, value)`` tuple for each bound that is given."""
        return [(self.column, op, bound) for op, bound in ((">=", self.start), ("<", self.stop)) if bound is not None]

    def __str__(self) -> str:
        return f"{self.column}.in_interval({self.start}, {self.stop})"


_BY_OPERATOR: dict[str, type[SimpleCondition]] = {
    cls.OP: cls
    for cls in (
        EqualityCondition,
        InequalityCondition,
        LessThanCondition,
        LessEqualCondition,
        GreaterThanCondition,
        GreaterEqualCondition,
        IsInCondition,
        IsNotInCondition,
    )
}
_BY_NAME: dict[str, type[Condition]] = {cls.__name__: cls for cls in _BY_OPERATOR.values()}
_BY_NAME[InIntervalCondition.__name__] = InIntervalCondition


@dataclass(frozen=True, eq=False)
class VirtualColumn(NoLiteral):
    """A column by name; comparisons with constants make conditions. ``C`` is the short name.

    Parameters
    ----------
    name : str
        Name of the column.

    Examples
    --------
    >>> C("COUNTRY_CODE") == "DE"
    EqualityCondition(column='COUNTRY_CODE', value='DE')
    >>> print((C("PRICE") >= 1.5) & C("BRAND").isin(["Acme", "Umbrella"]))
    (PRICE >= 1.5) & (BRAND in ('Acme', 'Umbrella'))
    """

    __slots__ = ("name",)
    REFUSAL: ClassVar[str] = "Cannot compare two columns."

    name: str

    # `==` returns a condition and not a truth value, so a column cannot be a dict key.
    __hash__: ClassVar[None] = None  # type: ignore[assignment]
    # Makes NumPy return NotImplemented for `numpy.int64(1) < C("x")`, so that `__gt__` is called.
    __array_ufunc__: ClassVar[None] = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", converter_str(self.name))

    def __reduce__(self) -> tuple[Any, ...]:
        return VirtualColumn, (self.name,)

    def __and__(self, other: object) -> Never:
        raise InvalidType(
            f"C({self.name!r}) stands beside `&` or `|`, which bind tighter than comparisons. "
            "Write brackets: `(C('x') == 1) & (C('y') == 2)`."
        )

    # `C("x") == 1 & C("y") == 2` calls `__rand__` with 1, since `&` binds tighter than `==`.
    __rand__ = __or__ = __ror__ = __and__

    def __eq__(self, other: object) -> EqualityCondition:  # type: ignore[override]
        return EqualityCondition(self.name, other)

    def __ne__(self, other: object) -> InequalityCondition:  # type: ignore[override]
        return InequalityCondition(self.name, other)

    def __lt__(self, other: object) -> LessThanCondition:
        return LessThanCondition(self.name, other)

    def __le__(self, other: object) -> LessEqualCondition:
        return LessEqualCondition(self.name, other)

    def __gt__(self, other: object) -> GreaterThanCondition:
        return GreaterThanCondition(self.name, other)

    def __ge__(self, other: object) -> GreaterEqualCondition:
        return GreaterEqualCondition(self.name, other)

    def isin(self, other: object) -> IsInCondition:
        """The column has one of these values.

        A single value needs no list. An empty list matches nothing.

        Examples
        --------
        >>> C("COUNTRY_CODE").isin(["DE", "FR"])
        IsInCondition(column='COUNTRY_CODE', value=('DE', 'FR'))
        """
        return IsInCondition(self.name, other)

    def isnotin(self, other: object) -> IsNotInCondition:
        """The column has none of these values: ``!=`` for each of them.

        A single value needs no list. An empty list matches all rows that ``!=`` can match.

        Examples
        --------
        >>> C("COUNTRY_CODE").isnotin(["DE", "FR"])
        IsNotInCondition(column='COUNTRY_CODE', value=('DE', 'FR'))
        """
        return IsNotInCondition(self.name, other)

    def in_interval(self, start: object = None, stop: object = None) -> InIntervalCondition:
        """The column is at least ``start`` and less than ``stop``; None leaves an end open.

        Examples
        --------
        >>> C("WEEK").in_interval(10, 20).predicate_part
        [('WEEK', '>=', 10), ('WEEK', '<', 20)]
        """
        return InIntervalCondition(self.name, start, stop)


C = VirtualColumn


def write_predicate_as_cube_condition(predicate: Sequence[Any]) -> Condition:
    """One ``(column, operator, value)`` predicate of a dataset as a condition.

    Raises
    ------
    InvalidInput
        If the predicate does not have three parts, or has an operator that conditions lack.
    InvalidType
        If the value is neither text nor number nor boolean nor date nor timestamp.

    Examples
    --------
    >>> write_predicate_as_cube_condition(("COUNTRY_CODE", "==", "DE"))
    EqualityCondition(column='COUNTRY_CODE', value='DE')
    """
    if len(predicate) != 3:
        raise InvalidInput(
            f"Please use predicates consisting of exactly 3 entries: (column, operator, value). Got {predicate!r}."
        )
    column, op, value = predicate
    value = converter_tuple(value) if op in ("in", "not in") else value
    for constant in value if isinstance(value, tuple) else (value,):
        if not isinstance(constant, (str, int, float, dt.date, Decimal, np.generic, pa.Scalar)):
            raise InvalidType(
                "A predicate takes str, int, float, Decimal, bool, date or timestamp, "
                f"got {constant!r} ({type(constant).__name__}) for column {column!r}."
            )
    return condition_class(op)(column, value)


def convert_predicates_to_cube_conditions(predicates: Sequence[Sequence[Sequence[Any]]]) -> tuple[Condition, ...]:
    """Dataset predicates without an *or*, i.e. with one inner list, as conditions.

    Raises
    ------
    InvalidInput
        If there is not exactly one inner list.

    Examples
    --------
    >>> convert_predicates_to_cube_conditions([[("WEEK", ">=", 10), ("WEEK", "<", 20)]])
    (GreaterEqualCondition(column='WEEK', value=10), LessThanCondition(column='WEEK', value=20))
    """
    if not isinstance(predicates, Sequence):
        raise InvalidType(f"Predicates are a list of lists of (column, operator, value), got {predicates!r}.")
    if len(predicates) != 1:
        raise InvalidInput(
            "Cube conditions cannot handle 'or' operators, so exactly one list of predicates is expected, "
            f"got {len(predicates)}."
        )
    return tuple(write_predicate_as_cube_condition(predicate) for predicate in predicates[0])
