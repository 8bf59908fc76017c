"""After any steps in any order (build, update, remove, maintain) queries answer as a naive model.

``HYPOTHESIS_PROFILE=fuzz`` makes it long.
"""

from __future__ import annotations

import datetime
import itertools
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from kartothek_cube import options
from kartothek_cube.api.cube import (
    append_to_cube,
    build_cube,
    build_cube_index,
    cleanup_cube,
    copy_cube,
    count_cube,
    extend_cube,
    remove_partitions,
    stream_cube,
    update_cube,
)
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import InvalidInput, MultiTableCommitAborted
from kartothek_cube.testing.model import NaiveCube
from kartothek_cube.testing.strategies import (
    Query,
    Removal,
    Update,
    apply_step,
    empty_cubes,
    queries,
    removals,
    updates,
    writes,
)
from tests.support.cube_model import (
    answer,
    arguments_of,
    assert_same_rows,
    check_frames,
    check_plan,
    check_refused,
    check_table,
    in_order,
    to_arrow,
)
from tests.support.cubes import refused

FUZZ = settings().max_examples > 100
VERBS = {"build": build_cube, "extend": extend_cube}


def run_step(case, step, store, data):
    """Make the call on the library, with rows in one frame or in several elements."""
    if isinstance(step, Removal):
        remove_partitions(case.cube, store, step.conditions, step.datasets)
        return
    frames = {name: to_arrow(rows, case.kinds) for name, rows in step.data.items()}
    elements = data.draw(st.sampled_from([frames, [frames], list(pieces(frames))]), label="form") if frames else {}
    if isinstance(step, Update):
        update_cube(elements, case.cube, store, step.conditions, step.datasets)
    elif step.verb == "append":
        append_to_cube(elements, case.cube, store)
    else:
        VERBS[step.verb](elements, case.cube, store, overwrite=True, partition_on=step.partition_on)


def pieces(frames):
    """The same rows in dicts that hold two rows of a dataset each."""
    for start in itertools.count(0, 2):
        found = {name: rows.slice(start, 2) for name, rows in frames.items() if rows.num_rows > start}
        if not found:
            return
        yield found


class Cubes(RuleBasedStateMachine):
    """One cube in a store and in the model. Each rule makes a call on both, then asks both."""

    @initialize(data=st.data())
    def build(self, data):
        self.case = data.draw(empty_cubes(), label="cube")
        self.all_layouts = self.case.layouts
        self.store, self.model = MemoryStore(), NaiveCube(self.case.cube)
        others = [name for name in self.all_layouts if name != self.case.cube.seed_dataset]
        names = [
            self.case.cube.seed_dataset,
            *(data.draw(st.lists(st.sampled_from(others), unique=True)) if others else ()),
        ]
        self.write("build", names, data)

    def write(self, verb, names, data):
        self.call(data.draw(writes(replace(self.case, layouts=self.all_layouts), verb, names), label="step"), data)

    def call(self, step, data):
        """Make a call, and look whether the library and the model refuse the same ones."""
        before = dict(self.model.datasets)
        try:
            apply_step(self.model, step)
        except (InvalidInput, MultiTableCommitAborted) as error:
            note(f"to be refused: {error}")
            self.model.datasets = before
            with refused(self.store, type(error)):
                run_step(self.case, step, self.store, data)
        else:
            run_step(self.case, step, self.store, data)
            self.case = replace(self.case, steps=(*self.case.steps, step))
        self.case = replace(
            self.case,
            layouts={name: layout for name, layout in self.all_layouts.items() if name in self.model.datasets},
        )
        self.ask(data)

    def ask(self, data):
        """Every way to ask gives the model's answer."""
        for query in (Query(), *data.draw(st.lists(queries(self.case), min_size=1, max_size=2), label="queries")):
            self.ask_one(query)

    def ask_one(self, query):
        arguments = arguments_of(query)
        expected = answer(self.model, arguments)
        if expected is None:
            check_refused(self.case, query, self.store)
        else:
            check_frames(self.case, arguments, self.store, expected)
            check_plan(self.case, query, self.store, expected)
        del arguments["partition_by"]
        whole = answer(self.model, arguments)
        if whole is not None:
            check_table(self.case, arguments, self.store, whole)
            self.check_stream(query, arguments, list(itertools.chain(*whole)))

    def check_stream(self, query, arguments, expected):
        rows = stream_cube(self.case.cube, self.store, **arguments).read_all().to_pylist()
        assert_same_rows(expected, in_order(rows, self.case, query))
        if arguments["payload_columns"] == ():
            del arguments["payload_columns"]
            assert count_cube(self.case.cube, self.store, **arguments) == len(expected)

    @rule(data=st.data())
    def append(self, data):
        self.write(
            "append", data.draw(st.lists(st.sampled_from(list(self.case.layouts)), min_size=1, unique=True)), data
        )

    @precondition(lambda self: len(self.all_layouts) > 1)
    @rule(data=st.data())
    def extend(self, data):
        """Add datasets, or replace some, or both."""
        others = [name for name in self.all_layouts if name != self.case.cube.seed_dataset]
        self.write("extend", data.draw(st.lists(st.sampled_from(others), min_size=1, unique=True)), data)

    @rule(data=st.data())
    def update(self, data):
        self.call(data.draw(updates(self.case), label="step"), data)

    @rule(data=st.data())
    def remove(self, data):
        self.call(data.draw(removals(self.case), label="step"), data)

    @rule(data=st.data())
    def build_again(self, data):
        new = [name for name in self.all_layouts if name not in self.case.layouts]
        more = data.draw(st.lists(st.sampled_from(new), unique=True)) if new else []
        self.write("build", [*self.case.layouts, *more], data)

    @rule(data=st.data())
    def build_index(self, data):
        name = data.draw(st.sampled_from(list(self.case.layouts)))
        layout = self.case.layouts[name]
        columns = [column for column in (*layout.dimensions, *layout.payload) if column not in layout.partition_on]
        column = data.draw(st.sampled_from(columns))
        build_cube_index(self.case.cube, self.store, column, name)
        self.model.build_index(column, [name])
        self.case = replace(self.case, indexed=self.case.indexed | {column})
        self.ask(data)

    @rule(data=st.data())
    def clean_up(self, data):
        cleanup_cube(
            self.case.cube, self.store, options=options(grace=datetime.timedelta(0), retain=datetime.timedelta(0))
        )
        self.ask(data)

    @rule(data=st.data())
    def move(self, data):
        """Go on with a copy; the original is lost."""
        target = MemoryStore()
        copy_cube(self.case.cube, self.store, target)
        self.store = target
        self.ask(data)


SETTINGS = settings(
    max_examples=settings().max_examples if FUZZ else 10,
    stateful_step_count=30 if FUZZ else 8,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


@pytest.mark.slow
@pytest.mark.hypothesis
def test_a_cube_answers_as_the_model_does_after_every_call():  # cube 158, 193
    run_state_machine_as_test(Cubes, settings=SETTINGS)
