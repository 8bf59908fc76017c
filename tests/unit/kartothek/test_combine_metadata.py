"""`combine_metadata`: what nobody contradicts is kept."""

from __future__ import annotations

import copy

import pytest

from kartothek_cube.core.kartothek.dataset_metadata import combine_metadata
from kartothek_cube.errors import InvalidInput, InvalidType

# Those without lists are what kartothek 5.3 gives.
CASES = [
    ([{"a": 1}], {"a": 1}),
    ([{}, {}], {}),
    ([{"a": 1}, {"a": 1}], {"a": 1}),
    ([{"a": 1}, {"a": 2}], {}),
    ([{"a": 1}, {"a": 1}, {"a": 2}], {}),
    ([{"a": 1}, {"a": 2}, {"a": 1}], {}),
    ([{"a": 1}, {"a": 2}, {}], {}),
    ([{"a": 1}, {"b": 2}], {"a": 1, "b": 2}),
    ([{"a": None}, {"a": 1}], {"a": 1}),
    ([{"a": 0}, {"a": None}], {"a": 0}),
    ([{"a": None}, {"a": None}], {"a": None}),
    ([{"a": {"x": None}}, {"b": None}], {"a": {"x": None}, "b": None}),
    ([{"a": None}, {"a": {"x": 1}}], {"a": {"x": 1}}),
    ([{"a": {"x": 1}}, {"a": {"y": 2}}], {"a": {"x": 1, "y": 2}}),
    ([{"a": {"x": 1}}, {"a": {"x": 2}}], {}),
    ([{"a": {"x": 1, "y": 1}}, {"a": {"x": 2}}], {"a": {"y": 1}}),
    ([{"a": {"x": 1}}, {"b": 1}, {"a": {"x": 1}}], {"a": {"x": 1}, "b": 1}),
    ([{"a": {"x": 1}}, {"a": 3}], {}),
    ([{"a": {}}, {"a": {}}], {}),
    ([{"b": {}}], {}),
    ([{"b": {}}, {"c": 1}], {"c": 1}),
    ([{"a": ""}, {"a": "x"}], {}),
    ([{"a": 1}, {"a": [2]}], {}),
    ([{"a": [1]}, {"a": [1]}], {"a": [1]}),
    ([{"a": []}, {"a": [1]}], {"a": [1]}),
    ([{"a": [1, 2]}, {"a": [2, 3]}, {"a": [1, 4, 4]}], {"a": [1, 2, 3, 4]}),
    ([{"a": [{"x": 1}]}, {"a": [{"x": 1}, [2]]}], {"a": [{"x": 1}, [2]]}),
    ([{"a": {"l": [1]}}, {"a": {"l": [2]}}], {"a": {"l": [1, 2]}}),
    ([{"a": [1, 1]}, {"a": [2]}], {"a": [1, 1, 2]}),
]


@pytest.mark.parametrize(("parts", "expected"), CASES)
def test_metadata_are_merged(parts, expected):
    given = copy.deepcopy(parts)
    assert combine_metadata(given) == expected
    assert given == parts
    assert combine_metadata(iter(parts)) == expected


def test_without_appending_values_are_unique():
    assert combine_metadata([{"a": [1, 1]}, {"a": [2, 1]}], append_to_list=False) == {"a": [1, 2]}


def test_the_result_shares_no_list_with_the_arguments():
    given = {"a": [1]}
    combine_metadata([given, {"a": [1]}])["a"].append(2)
    combine_metadata([given])["a"].append(2)
    assert given == {"a": [1]}


def test_nothing_to_merge_is_refused():
    with pytest.raises(InvalidInput, match="at least one"):
        combine_metadata([])


def test_what_is_no_dict_is_refused():
    with pytest.raises(InvalidType, match="int"):
        combine_metadata([{}, 1])
