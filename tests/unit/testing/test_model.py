"""The naive model gives the answers that are worked out by hand here."""

from __future__ import annotations

import datetime
import itertools
import subprocess
import sys

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from kartothek_cube.core.expressions.conditions import C, Conjunction
from kartothek_cube.cube.cube import Cube
from kartothek_cube.errors import InvalidInput, MultiTableCommitAborted
from kartothek_cube.testing.model import NaiveCube, matches
from kartothek_cube.testing.strategies import Removal, cubes_with_data, queries


def rows(columns, *values):
    return [dict(zip(columns.split(), value, strict=True)) for value in values]


def cells(model, columns, **query):
    """The only group of a query, each row as a tuple of these columns."""
    groups = model.query(**query)
    assert len(groups) <= 1
    return [tuple(row[column] for column in columns.split()) for row in itertools.chain(*groups)]


def model_of(data, partition_on=None, *, dimensions="x", partitions="p", **cube):
    model = NaiveCube(Cube(dimensions.split(), partitions.split(), "cube", **cube))
    model.build(data, partition_on)
    return model


@pytest.fixture
def production():
    """Products x, as in the documentation of the left join: x=4 has no seed row, x=6 no schedule,
    x=2 and x=3 fail a condition, x=5 has no prediction.
    """
    return model_of(
        {
            "seed": rows("x p", *((x, 0) for x in (1, 2, 3, 5, 6))),
            "data_checks": rows("x p ok", *((x, 0, x != 2) for x in (1, 2, 3, 4, 5, 6))),
            "schedule": rows("x p sched", *((x, 0, x != 3) for x in (1, 2, 3, 4, 5))),
            "predictions": rows("x p pred", *((x, 0, x / 10) for x in (1, 2, 3, 4, 6))),
        }
    )


def test_conditions_on_enrichments_join_inner_and_payload_joins_left(production):
    conditions = [C("ok") == True, C("sched") == True]  # noqa: E712
    assert cells(production, "x pred", conditions=conditions, payload_columns=["pred"]) == [(1, 0.1), (5, None)]


def test_without_conditions_the_seed_decides(production):
    assert cells(production, "x ok sched pred") == [
        (1, True, True, 0.1), (2, False, True, 0.2), (3, True, False, 0.3), (5, True, True, None), (6, True, None, 0.6),
    ]  # fmt: skip


def test_an_enrichment_with_fewer_dimensions_restricts_all_its_cells():
    model = model_of(
        {
            "seed": rows("x y p v1", (1, 1, 0, 10), (1, 2, 0, 20), (2, 1, 0, 30), (2, 2, 0, 40)),
            "schedule": rows("x p sched", (1, 0, True), (2, 0, False)),
        },
        dimensions="x y",
    )
    assert cells(model, "x y v1", conditions=C("sched") == True) == [(1, 1, 10), (1, 2, 20)]  # noqa: E712


def test_projection_works_with_payload_and_conditions_of_the_same_dimensions():
    model = model_of(
        {
            "seed": rows("x y p v1", (1, 1, 0, 10), (1, 2, 0, 20), (2, 1, 0, 30), (2, 2, 1, 40)),
            "names": rows("x p v2", (1, 0, "a"), (2, 0, "b"), (2, 1, "c")),
            "schedule": rows("x p sched", (1, 0, True), (2, 0, False), (2, 1, True)),
        },
        dimensions="x y",
    )
    query = {"dimension_columns": ["x"], "payload_columns": ["v2"]}
    assert model.query(**query, conditions=C("sched") == True) == [rows("p v2 x", (0, "a", 1), (1, "c", 2))]  # noqa: E712


class TestProjection:
    @pytest.fixture
    def model(self):
        return model_of(
            {
                "seed": rows("x y p v1", (1, 1, 0, 10), (1, 2, 0, 20), (2, 1, 1, 30)),
                "e": rows("x y p v2", (1, 2, 0, "a")),
            },
            dimensions="x y",
        )

    def test_gives_distinct_rows_in_order(self, model):
        assert cells(model, "x p", dimension_columns=["x"], payload_columns=[]) == [(1, 0), (2, 1)]
        assert cells(model, "y p", dimension_columns=["y"], payload_columns=[]) == [(1, 0), (1, 1), (2, 0)]

    def test_filters_by_a_dropped_dimension_first(self, model):
        assert cells(model, "x p", dimension_columns=["x"], payload_columns=[], conditions=C("y") == 2) == [(1, 0)]

    @pytest.mark.parametrize(
        "query",
        [
            {"payload_columns": ["v1"]},
            {"payload_columns": ["v2"]},
            {"payload_columns": [], "conditions": C("v1") > 0},
            {"payload_columns": ["y"]},
            {},
        ],
    )
    def test_refuses_payload_of_more_dimensions(self, model, query):
        with pytest.raises(InvalidInput, match=r"v1|v2|dropped"):
            model.query(dimension_columns=["x"], **query)

    def test_without_payload_columns_keeps_all_payload_that_can_be_kept(self):
        model = model_of(
            {"seed": rows("x y p", (1, 1, 0), (1, 2, 0)), "e": rows("x p v2", (1, 0, "a"))}, dimensions="x y"
        )
        assert model.query(dimension_columns=["x"]) == [rows("p v2 x", (0, "a", 1))]

    def test_a_dataset_that_is_not_asked_for_does_not_matter(self, model):
        assert cells(model, "x", dimension_columns=["x"], payload_columns=[], datasets=["seed", "e"]) == [(1,), (2,)]

    def test_groups_by_a_dropped_dimension_keep_it(self, model):
        assert model.query(dimension_columns=["x"], partition_by=["y"], payload_columns=[]) == [
            rows("p x y", (0, 1, 1), (1, 2, 1)), rows("p x y", (0, 1, 2)),
        ]  # fmt: skip


class TestNewestRowWins:
    @pytest.fixture
    def model(self):
        model = model_of({"seed": rows("x p v1", (1, 0, 1), (2, 0, 2), (1, 1, 3))})
        model.append({"seed": rows("x p v1", (1, 0, 9), (3, 0, 4))})
        return model

    def test_per_cell_of_a_partition(self, model):
        assert cells(model, "x p v1") == [(1, 0, 9), (1, 1, 3), (2, 0, 2), (3, 0, 4)]

    def test_and_conditions_do_not_resurrect_the_old_one(self, model):
        assert cells(model, "x p v1", conditions=C("v1") < 4) == [(1, 1, 3), (2, 0, 2)]

    def test_across_the_extra_partition_keys_of_an_enrichment(self):
        model = model_of({"seed": rows("x p", (1, 0)), "e": rows("x k v2", (1, "b", 1))}, {"e": ["k"]})
        model.append({"e": rows("x k v2", (1, "a", 2))})
        assert cells(model, "k v2") == [("a", 2)]
        assert model.query(conditions=C("k") == "b") == []

    def test_in_groups_too(self):
        model = model_of({"seed": rows("x p i1", (1, 0, 1), (2, 0, 1))}, index_columns=["i1"])
        model.append({"seed": rows("x p i1", (1, 0, 2))})
        assert model.query(partition_by=["i1"]) == [rows("i1 p x", (1, 0, 2)), rows("i1 p x", (2, 0, 1))]


class TestPartitionsOfEnrichments:
    SEED = rows("x p q", (1, 0, 0), (1, 0, 1), (1, 1, 0))

    @pytest.mark.parametrize(
        ("partition_on", "rows_of_e", "expected"),
        [
            (["p", "q"], rows("x p q v2", (1, 0, 1, "a"), (2, 0, 0, "b")), [None, "a", None]),
            (["q", "p"], rows("x p q v2", (1, 0, 1, "a")), [None, "a", None]),
            (["p"], rows("x p v2", (1, 0, "a"), (1, 7, "b")), ["a", "a", None]),
            ([], rows("x v2", (1, "a")), ["a", "a", "a"]),
            (["p", "v2"], rows("x p v2", (1, 0, "a"), (1, 1, "b")), ["a", "a", "b"]),
            (["x"], rows("x v2", (1, "a"), (2, "b")), ["a", "a", "a"]),
        ],
    )
    def test_match_on_the_cubes_partition_columns_that_they_have(self, partition_on, rows_of_e, expected):
        model = model_of({"seed": self.SEED, "e": rows_of_e}, {"e": partition_on}, partitions="p q")
        assert [v2 for (v2,) in cells(model, "v2")] == expected


class TestGroups:
    @pytest.fixture
    def model(self):
        return model_of(
            {
                "seed": rows("x y p i1", (2, 1, 0, "b"), (1, 2, 0, "a"), (1, 1, 1, "b")),
                "e": rows("x p i2", (1, 0, 7), (2, 0, 8)),
            },
            dimensions="x y", index_columns=["i1", "i2"], suppress_index_on=["y"],
        )  # fmt: skip

    def test_come_in_order_and_are_sorted_by_dimensions(self, model):
        assert model.query(partition_by=["i1"], payload_columns=[]) == [
            rows("i1 p x y", ("a", 0, 1, 2)),
            rows("i1 p x y", ("b", 1, 1, 1), ("b", 0, 2, 1)),
        ]

    def test_of_an_enrichments_column_hold_only_rows_that_have_it(self, model):
        assert model.query(partition_by=["i2"], payload_columns=[]) == [
            rows("i2 p x y", (7, 0, 1, 2)),
            rows("i2 p x y", (8, 0, 2, 1)),
        ]

    def test_of_two_columns_and_of_partition_and_dimension_columns(self, model):
        assert [[row["x"] for row in group] for group in model.query(partition_by=["p", "x"])] == [[1], [2], [1]]

    @pytest.mark.parametrize("partition_by", [["y"], ["nope"], ["x", "x"]])
    def test_need_an_index(self, model, partition_by):
        with pytest.raises(InvalidInput, match="olumns"):
            model.query(partition_by=partition_by)

    def test_of_a_dimension_need_the_seeds_index(self):
        model = model_of(
            {"seed": rows("x y p", (1, 1, 0)), "e": rows("x y p v1", (1, 1, 0, 2))},
            {"e": ["p", "y"]},
            dimensions="x y",
            suppress_index_on="y",
        )
        with pytest.raises(InvalidInput, match="index"):
            model.query(partition_by=["y"])

    def test_empty_partition_by_is_none(self, model):
        assert model.query(partition_by=[]) == model.query()


class TestQuery:
    @pytest.fixture
    def model(self):
        return model_of(
            {
                "seed": rows("x y p v1", (1, 2, 0, None), (2, 1, 0, "a"), (3, 3, 1, "b")),
                "e": rows("x y p v2", (1, 2, 0, 1), (9, 9, 0, 2)),
            },
            dimensions="x y",
        )

    def test_round_trip_sorts_columns_and_rows(self, model):
        assert list(model.query()[0][0]) == ["p", "v1", "v2", "x", "y"]
        assert cells(model, "x y p v1 v2") == [(1, 2, 0, None, 1), (2, 1, 0, "a", None), (3, 3, 1, "b", None)]

    def test_order_of_dimensions_is_the_order_of_rows(self, model):
        assert cells(model, "x", dimension_columns=["y", "x"]) == [(2,), (1,), (3,)]

    def test_payload_columns_keep_dimension_and_partition_columns(self, model):
        assert list(model.query(payload_columns=[])[0][0]) == ["p", "x", "y"]
        assert list(model.query(payload_columns=["v2", "x"])[0][0]) == ["p", "v2", "x", "y"]

    def test_unequal_matches_a_stored_null(self, model):
        assert cells(model, "x", conditions=C("v1") != "a") == [(1,), (3,)]

    @pytest.mark.parametrize(
        "condition", [C("v1").in_interval("b", None), C("v1").isin(["b", "z"]), C("x") >= 3, C("p") == 1, C("y") > 2]
    )
    def test_null_matches_no_other_condition(self, model, condition):
        assert cells(model, "x", conditions=condition) == [(3,)]

    @pytest.mark.parametrize("condition", [C("v1").isin([]), C("x").in_interval(3, 1), C("v2") == 2, C("v2") != 1])
    def test_nothing_is_no_group(self, model, condition):
        assert model.query(conditions=condition) == []

    def test_inactive_conditions_are_ignored_also_on_unknown_columns(self, model):
        assert (
            model.query(conditions=[C("nope").in_interval()])
            == model.query(conditions=Conjunction(None))
            == model.query()
        )

    def test_conditions_of_a_conjunction_must_all_hold(self, model):
        assert cells(model, "x", conditions=(C("x") > 1) & (C("v1") < "b")) == [(2,)]

    def test_a_choice_of_datasets_hides_the_others(self, model):
        assert list(model.query(datasets=["seed"])[0][0]) == ["p", "v1", "x", "y"]

    @pytest.mark.parametrize(
        "query",
        [
            {"datasets": ["e"]}, {"datasets": ["seed", "nope"]},
            {"datasets": ["seed"], "payload_columns": ["v2"]}, {"conditions": C("nope") == 1},
            {"dimension_columns": []}, {"dimension_columns": ["p"]}, {"dimension_columns": ["x", "x"]},
        ],
    )  # fmt: skip
    def test_refusals(self, model, query):
        with pytest.raises(InvalidInput):
            model.query(**query)


class TestRemoval:
    @pytest.fixture
    def model(self):
        return model_of({"seed": rows("x p", (1, 0), (1, 1)), "e": rows("x p v2", (1, 0, "a"), (1, 1, "b"))})

    def test_of_an_enrichments_partition_gives_missing_values(self, model):
        model.remove_partitions(C("p") == 0, ["e"])
        assert cells(model, "p v2") == [(0, None), (1, "b")]
        assert cells(model, "p", conditions=C("v2") != "x") == [(1,)]

    def test_of_everything_leaves_nothing_and_can_be_filled_again(self, model):
        model.remove_partitions()
        assert model.query() == []
        model.append({"seed": rows("x p", (1, 1)), "e": rows("x p v2", (1, 1, "c"))})
        assert cells(model, "p v2") == [(1, "c")]

    def test_that_would_empty_a_dataset_is_refused_unless_it_is_named(self, model):
        model.extend({"f": rows("x v3", (1, 7))}, {"f": []})
        with pytest.raises(InvalidInput, match="'f'"):
            model.remove_partitions(C("p") == 0)
        assert cells(model, "p v2 v3") == [(0, "a", 7), (1, "b", 7)]
        model.remove_partitions(C("p") == 77, ["f"])
        assert cells(model, "p v2 v3") == [(0, "a", None), (1, "b", None)]


class TestUpdate:
    @pytest.fixture
    def model(self):
        return model_of({"seed": rows("x p v1", (1, 0, 1), (2, 1, 2)), "e": rows("x v2", (1, "a"))}, {"e": []})

    def test_removes_old_rows_and_keeps_new_ones(self, model):
        model.update({"seed": rows("x p v1", (3, 0, 3), (2, 1, 9))}, C("p") == 0)
        assert cells(model, "x p v1") == [(2, 1, 9), (3, 0, 3)]

    @pytest.mark.parametrize(
        ("conditions", "left"), [(None, [1, 2, 3]), ([], [3]), (C("p").in_interval(), [3]), (C("p") == 1, [1, 3])]
    )
    def test_removes_what_the_conditions_say(self, model, conditions, left):
        model.update({"seed": rows("x p v1", (3, 0, 3))}, conditions)
        assert [x for (x,) in cells(model, "x")] == left

    def test_concerns_the_named_datasets(self, model):
        model.update({}, C("p") == 1, ["seed"])
        assert cells(model, "x v2") == [(1, "a")]
        model.update({"e": rows("x v2", (2, "b"))}, C("p") == 0, ["e"])
        assert cells(model, "x v2") == [(1, None)]

    @pytest.mark.parametrize(
        ("arguments", "error"),
        [
            (({}, C("p") >= 0, ["seed"]), MultiTableCommitAborted),
            (({"seed": rows("x p v1", (3, 0, 3))}, [], ["seed", "e"]), MultiTableCommitAborted),
            (({"e": rows("x v2", (2, "b"))}, C("p") == 0), InvalidInput),
        ],
    )
    def test_is_refused_as_a_whole(self, model, arguments, error):
        before = dict(model.datasets)
        with pytest.raises(error):
            model.update(*arguments)
        assert model.datasets == before


def test_an_index_makes_groups_possible_where_values_are_those_of_the_seed():
    model = model_of(
        {"seed": rows("x y p v1", (1, 1, 0, 5), (2, 1, 0, None)), "e": rows("x y v2", (1, 1, 6))},
        {"e": []},
        dimensions="x y",
        suppress_index_on="y",
    )
    model.build_index("v1")
    model.build_index("v2", ["e"])
    model.build_index("y", ["e"])
    assert [[row["x"] for row in group] for by in (["v1"], ["v2"]) for group in model.query(partition_by=by)] == [
        [1],
        [1],
    ]
    with pytest.raises(InvalidInput, match="index"):
        model.query(partition_by=["y"])
    model.build_index("y")
    assert [[row["x"] for row in group] for group in model.query(partition_by=["y"])] == [[1, 2]]


def test_dates_compare_as_dates():
    assert matches(
        {"x": datetime.date(2020, 2, 28)}, C("x").in_interval(datetime.date(2020, 2, 28), datetime.date(2020, 2, 29))
    )


def flat(groups):
    return list(itertools.chain(*groups))


@given(st.data())
def test_conditions_only_remove_rows_and_groups_only_split_them(data):
    case = data.draw(cubes_with_data())
    query = data.draw(queries(case))
    model, by = case.model(), query.partition_by or ()
    payload = None if query.payload_columns is None else (*query.payload_columns, *by)
    arguments = {"datasets": query.datasets, "dimension_columns": query.dimension_columns, "payload_columns": payload}
    try:
        groups = model.query(query.conditions, partition_by=by, **arguments)
        filtered = flat(model.query(query.conditions, **arguments))
    except InvalidInput:
        reject()
    everything = flat(model.query(**arguments))
    assert all(row in everything for row in filtered)
    assert all(len({tuple(row[column] for column in by) for row in group}) == 1 for group in groups)
    grouped = [row for row in filtered if all(row[column] is not None for column in by)]
    assert len(flat(groups)) == len(grouped)
    assert all(row in grouped for row in flat(groups))


@given(cubes_with_data())
def test_drawn_writes_keep_the_rules_of_the_verbs(case):
    assert case.steps[0].verb == "build"
    assert case.cube.seed_dataset in case.steps[0].data
    for step in case.steps:
        for name, written in {} if isinstance(step, Removal) else step.data.items():
            layout = case.layouts[name]
            keys = [tuple(row[column] for column in layout.key(case.cube)) for row in written]
            assert 1 <= len(set(keys)) == len(keys) <= 12
            assert all(set(row) == set(layout.columns(case.cube)) for row in written)
            assert all(row[column] is not None for row in written for column in layout.required)
            assert set(layout.partition_on) < set(layout.columns(case.cube))


def test_importing_the_model_needs_no_hypothesis():
    heavy = "{'hypothesis', 'numpy', 'pandas', 'pyarrow'}"
    code = f"import kartothek_cube.testing.model, sys; assert not {heavy} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
