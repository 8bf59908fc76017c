"""`combine_metadata`: several user metadata as one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kartothek_cube.errors import InvalidInput, InvalidType

__all__ = ["combine_metadata"]

_CONFLICT = object()


def combine_metadata(dataset_metadata: Iterable[Mapping[str, object]], append_to_list: bool = True) -> dict[str, object]:
    """Merge metadata: what nobody contradicts is kept.

    Equal values stay, None gives way to any other value, dicts are merged member by member, lists are joined; a key that has otherwise unequal values is
    dropped, and so are dicts without members. The arguments are left as they are.

    Parameters
    ----------
    dataset_metadata : iterable of dict
        At least one.
    append_to_list : bool, default True
        Whether the first of several lists is kept as it is and only what it lacks is appended. With False the values inside one list become unique, too.

    Raises
    ------
    InvalidInput
        If there is nothing to merge.
    InvalidType
        If something is no dict.

    Examples
    --------
    >>> combine_metadata([{"owner": "sales", "years": [2023]}, {"owner": "sales", "years": [2023, 2024], "run": 1}])
    {'owner': 'sales', 'years': [2023, 2024], 'run': 1}
    >>> combine_metadata([{"run": 1}, {"run": 2}])
    {}
    """
    parts: list[Any] = list(dataset_metadata)
    if not parts:
        raise InvalidInput("There are no metadata to combine; give at least one dict.")
    wrong = sorted({type(part).__name__ for part in parts if not isinstance(part, Mapping)})
    if wrong:
        raise InvalidType(f"Metadata to combine should be dicts, but there are {', '.join(wrong)}.")
    return _merged(parts, append_to_list)


def _merged(parts: list[Mapping[str, Any]], append: bool) -> dict[str, Any]:
    keys = dict.fromkeys(key for part in parts for key in part)
    combined = {key: _combined([part[key] for part in parts if key in part], append) for key in keys}
    return {key: value for key, value in combined.items() if value is not _CONFLICT and value != {}}


def _combined(values: list[Any], append: bool) -> Any:
    """One value for a key, or `_CONFLICT`."""
    given = [v for v in values if v is not None]
    if given and all(isinstance(v, Mapping) for v in given):
        return _merged(given, append)
    if not given or all(v == given[0] for v in given):
        return list(given[0]) if given and isinstance(given[0], list) else (given or values)[0]
    if all(isinstance(v, list) for v in given):
        return _joined(given, append)
    return _CONFLICT


def _joined(lists: list[list[Any]], append: bool) -> list[Any]:
    # Values may be lists or dicts, which no set takes.
    first, *others = lists
    result = list(first) if append else []
    for value in (v for values in (others if append else lists) for v in values):
        if value not in result:
            result.append(value)
    return result
