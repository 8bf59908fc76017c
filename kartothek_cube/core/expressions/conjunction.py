"""The base classes of all conditions, and the conjunction of several conditions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, fields
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Never

from kartothek_cube.core.arguments import converter_str
from kartothek_cube.core.arrow.literals import without_arrow
from kartothek_cube.core.expressions.frame_filter import filter_frame
from kartothek_cube.core.expressions.parsing import (
    NoLiteral,
    check_brackets,
    check_values,
    doubt_about,
    parse_comparison,
)
from kartothek_cube.core.expressions.predicates import Clause
from kartothek_cube.errors import InvalidInput, InvalidType

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd
    import pyarrow as pa

    from kartothek_cube.typing import IntoConditions

__all__ = [
    "Condition",
    "Conjunction",
    "PredicatePart",
    "Restriction",
    "SimpleCondition",
    "condition_class",
    "conditions_in",
    "conjunction_of",
    "register",
]

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
    >>> from kartothek_cube.core.expressions.conditions import C
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
    >>> from kartothek_cube.core.expressions.conditions import C
    >>> condition = C("WEEK") >= 10
    >>> condition.column, condition.OP, condition.value
    ('WEEK', '>=', 10)
    """

    __slots__ = ("value",)
    value: Any

    OP: ClassVar[str]

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "value", without_arrow(self.value))
        self._check_value()

    def _check_value(self) -> None:
        check_values(self.column, (self.value,))

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
    >>> from kartothek_cube.core.expressions.conditions import C
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
        >>> from kartothek_cube.core.expressions.conditions import C
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
        import_module(_CONCRETE)
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
        >>> from kartothek_cube.core.expressions.conditions import C
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
        >>> from kartothek_cube.core.expressions.conditions import C
        >>> Conjunction([C("WEEK") > 10, C("PRICE").in_interval()]).columns
        {'WEEK'}
        """
        return {condition.column for condition in self.conditions if condition.active}

    @property
    def predicate(self) -> PredicatePart | None:
        """All ``(column, operator, value)`` tuples in order, or None if there are none.

        Examples
        --------
        >>> from kartothek_cube.core.expressions.conditions import C
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
        >>> from kartothek_cube.core.expressions.conditions import C
        >>> Conjunction(C("BRAND") != "Acme").clauses
        (Clause(column='BRAND', op='!=', value='Acme'),)
        """
        return tuple(Clause(*part) for part in self.predicate or ())

    def split_by_column(self) -> dict[str, Conjunction]:
        """One conjunction for each restricted column, by first appearance.

        Examples
        --------
        >>> from kartothek_cube.core.expressions.conditions import C
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
        >>> from kartothek_cube.core.expressions.conditions import C
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


# --- the concrete classes -------------------------------------------------------------------------

# Filled by `register`: the concrete classes are in a module that imports this one. It is loaded by
# whoever writes a condition, and by the text and JSON forms.
_CONCRETE = "kartothek_cube.core.expressions.conditions"
_BY_NAME: dict[str, type[Condition]] = {}
_BY_OPERATOR: dict[str, type[SimpleCondition]] = {}


def register(*classes: type[Condition]) -> None:
    """Add concrete classes to the text and JSON forms."""
    for cls in classes:
        _BY_NAME[cls.__name__] = cls
        if issubclass(cls, SimpleCondition):
            _BY_OPERATOR[cls.OP] = cls


def condition_class(op: str) -> type[SimpleCondition]:
    """The condition class of an operator."""
    import_module(_CONCRETE)
    if op not in _BY_OPERATOR:
        raise InvalidInput(f"Unknown operator {op!r} in a condition, use one of {', '.join(_BY_OPERATOR)}")
    return _BY_OPERATOR[op]
