"""Rebasing against a model: a dataset is a dict label → file in order, and the rules are those of
the page *Many writers*.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kartothek_cube.core.commit.change import Change, apply_change, rebase
from kartothek_cube.core.metadata.naming import document_key
from kartothek_cube.core.metadata.snapshot import make_snapshot
from kartothek_cube.core.write.stage import Receipt
from kartothek_cube.errors import CommitConflict, UnknownColumn
from tests.support.commits import UUID

SCHEMA = pa.schema([("p", pa.string()), ("x", pa.int64())])
LABELS = [f"p={p}/l{i}" for p in "ab" for i in range(4)]


def receipt(label, number):
    p = label[2]
    return Receipt(
        UUID, label, f"{UUID}/table/p={p}/{number}.parquet", {"p": p}, 1, 1, SCHEMA, {"x": pa.array([number])}
    )


def in_scope(*parts):
    return lambda state: state.partitions.labels.filter(
        pa.array([label[2] in parts for label in state.partitions.labels.to_pylist()], type=pa.bool_())
    )


def change(added=None, removed=(), index=("x",), **more):
    """``added``: label → number of its file."""
    receipts = tuple(receipt(label, number) for label, number in (added or {}).items())
    return Change(
        UUID,
        receipts,
        {"table": SCHEMA},
        ("p",),
        tuple(index),
        removed=pa.array(list(removed), type=pa.string()),
        **more,
    )


def after(made, base):
    state = apply_change(made, base)
    old = {} if base is None or made.replace else {c: i for c, i in base.indices.items() if c not in made.dropped}
    document = replace(state.document, indices=dict.fromkeys((*state.document.indices, *state.indices), "key"))
    return make_snapshot(document, document_key(UUID), object(), state.schemas).with_indices({**old, **state.indices})


def model_of(snapshot):
    """Label → number of the file, in order."""
    files = [int(key.rpartition("/")[2].removesuffix(".parquet")) for key in snapshot.files.to_pylist()]
    return dict(zip(snapshot.partitions.labels.to_pylist(), files, strict=True))


def index_of(snapshot):
    index = snapshot.indices["x"]
    return dict(zip(index.labels.to_pylist(), index.values.to_pylist(), strict=True))


def dataset(numbers):
    return after(change(numbers), None)


# --- the model ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Write:
    """A user's write: the rows it adds, and the partitions it removes by label, by scope or all."""

    added: dict
    removed: tuple = ()
    scope: str | None = None
    overwrite: bool = False

    def made_for(self, base, on_conflict="raise"):
        scope = None if self.scope is None else in_scope(*self.scope)
        removed = self.removed if scope is None else scope(base).to_pylist()
        return change(self.added, removed, scope=scope, replace=self.overwrite, on_conflict=on_conflict)

    def taken(self, state):
        if self.overwrite:
            return set(state)
        return set(self.removed) if self.scope is None else {label for label in state if label[2] in self.scope}

    def applied(self, state):
        gone = self.taken(state) | set(self.added)
        return {label: n for label, n in state.items() if label not in gone} | self.added

    def conflicts(self, base, newest, on_conflict):
        changed = {label for label in {*base, *newest} if base.get(label) != newest.get(label)}
        if on_conflict == "reapply":
            return self.scope is None and not self.overwrite and bool(changed & set(self.removed))
        concerned = self.taken(base) | self.taken(newest) | (set() if self.overwrite else set(self.added))
        return bool(changed & concerned)


@st.composite
def writes(draw, state, numbers):
    added = {label: next(numbers) for label in draw(st.lists(st.sampled_from(LABELS), max_size=2, unique=True))}
    kind = draw(st.sampled_from(["append", "labels", "scope", "overwrite"]))
    if kind == "labels":
        taken = draw(st.lists(st.sampled_from(sorted(state)), max_size=2, unique=True)) if state else []
        return Write(added, tuple(taken))
    return Write(
        added,
        scope=draw(st.sampled_from(["", "a", "b", "ab"])) if kind == "scope" else None,
        overwrite=kind == "overwrite",
    )


@given(st.data())
def test_a_rebased_change_is_the_serial_one_or_a_conflict_as_the_rules_say(data):
    numbers = iter(range(1000))
    base = dataset({label: next(numbers) for label in data.draw(st.lists(st.sampled_from(LABELS), unique=True))})
    mine = data.draw(writes(model_of(base), numbers))
    newest = base
    for _ in range(data.draw(st.integers(1, 3))):
        newest = after(data.draw(writes(model_of(newest), numbers)).made_for(newest), newest)
    mode = data.draw(st.sampled_from(["raise", "reapply"]))
    made = mine.made_for(base, mode)
    before, now = model_of(base), model_of(newest)
    if mine.conflicts(before, now, mode):
        with pytest.raises(CommitConflict, match=made.commit):
            rebase(made, base, newest)
        return
    landed = after(rebase(made, base, newest), newest)
    assert list(model_of(landed).items()) == list(mine.applied(now).items())
    assert index_of(landed) == model_of(landed)
    assert [c.id for c in landed.chain] == [*(c.id for c in newest.chain), made.commit]


@given(st.data())
def test_a_change_on_its_own_base_is_left_alone(data):
    base = dataset({label: i for i, label in enumerate(LABELS[:4])})
    made = data.draw(writes(model_of(base), iter(range(100, 200)))).made_for(base)
    assert rebase(made, base, base) is made


# --- places ---------------------------------------------------------------------------------------


def placed(state, gone, added, places):
    """The naive order: each new partition right after its place, those without one at the end."""
    order = [label for label in added if places.get(label) == ""]
    for label in state:
        order += [label] if label not in gone else []
        order += [new for new in added if places.get(new) == label]
    return order + [new for new in added if places.get(new) not in ("", *state)]


@given(st.data())
def test_new_partitions_come_after_their_places(data):
    numbers = iter(range(1000))
    base = dataset({label: next(numbers) for label in data.draw(st.permutations(LABELS[:6]))})
    gone = data.draw(st.lists(st.sampled_from(LABELS[:6]), unique=True))
    added = {f"p=a/new{i}": next(numbers) for i in range(data.draw(st.integers(1, 3)))}
    places = {
        new: data.draw(st.sampled_from(["", *LABELS[:6]]))
        for new in data.draw(st.lists(st.sampled_from(sorted(added)), unique=True))
    }
    compaction = change(added, gone, places=places)
    other = Write({f"p=b/other{i}": next(numbers) for i in range(data.draw(st.integers(0, 2)))})
    newest = after(other.made_for(base), base)
    landed = after(rebase(compaction, base, newest), newest)
    assert list(model_of(landed)) == placed(list(model_of(newest)), gone, list(added), places)


def test_the_place_of_a_partition_that_is_gone_is_the_end():
    base = dataset({"p=a/l0": 0, "p=a/l1": 1})
    newest = after(change({}, ["p=a/l0"]), base)
    landed = after(rebase(change({"p=a/new": 2}, places={"p=a/new": "p=a/l0"}), base, newest), newest)
    assert list(model_of(landed)) == ["p=a/l1", "p=a/new"]


# --- what is not about partitions -----------------------------------------------------------------

BASE = dataset({"p=a/l0": 0})


def test_an_index_that_is_gone_is_not_brought_back():
    newest = after(change(index=(), dropped=frozenset({"x"})), BASE)
    rebased = rebase(change({"p=a/new": 1}), BASE, newest)
    assert rebased.index_columns == ()
    assert after(rebased, newest).secondary_columns == frozenset()


def test_rows_without_values_for_a_new_index_conflict_and_metadata_do_not():
    base = dataset({"p=a/l0": 0})
    base = after(change(index=(), dropped=frozenset({"x"})), base)
    newest = after(change(built={"x": BASE.indices["x"]}), base)
    with pytest.raises(CommitConflict, match=r"new secondary indices on \['x'\]"):
        rebase(change({"p=a/new": 1}, index=()), base, newest)
    assert after(rebase(change(index=(), metadata={"a": 1}), base, newest), newest).secondary_columns == {"x"}


def test_an_index_is_of_the_partitions_that_it_was_built_on():
    building = change(built={"x": BASE.indices["x"]})
    metadata_only = after(change(metadata={"a": 1}), BASE)
    assert rebase(building, BASE, metadata_only).built
    with pytest.raises(CommitConflict, match="new index"):
        rebase(building, BASE, after(change({"p=a/new": 1}), BASE))


@pytest.mark.parametrize("mode", ["raise", "reapply"])
def test_a_scope_that_does_not_fit_any_more_is_a_conflict(mode):
    def scope(state):
        if state is not BASE:
            raise UnknownColumn("no index on x")
        return state.partitions.labels

    with pytest.raises(CommitConflict, match="no index on x"):
        rebase(change(scope=scope, on_conflict=mode), BASE, after(change(metadata={"a": 1}), BASE))


def test_metadata_are_merged_again():
    newest = after(change(metadata={"n": 1}), BASE)
    merge = lambda state: ({"n": state.document.metadata.get("n", 0) + 1}, frozenset())  # noqa: E731
    assert rebase(change(metadata={"n": 1}, merge=merge), BASE, newest).metadata == {"n": 2}


@pytest.mark.parametrize("mode", ["raise", "reapply"])
def test_nothing_is_added_to_a_dataset_that_was_deleted(mode):
    with pytest.raises(CommitConflict, match="deleted"):
        rebase(change({"p=a/new": 1}, on_conflict=mode), BASE, None)


# --- two first writers ----------------------------------------------------------------------------


def test_the_rows_of_a_second_first_writer_are_added():
    rebased = rebase(change({"p=b/new": 1}, creates=False), None, BASE)
    assert model_of(after(rebased, BASE)) == {"p=a/l0": 0, "p=b/new": 1}
    assert index_of(after(rebased, BASE)) == {"p=a/l0": 0, "p=b/new": 1}


@pytest.mark.parametrize(
    ("second", "text"),
    [
        (change({"p=b/new": 1}), "was created"),
        (change({"p=b/new": 1}, index=(), creates=False), r"secondary indices on \['x'\], not on \[\]"),
        (replace(change({"p=b/new": 1}, creates=False), partition_keys=()), r"partition keys \['p'\], not \[\]"),
        (change({"p=a/l0": 1}, creates=False), "p=a/l0"),
        (change(creates=False), "was created"),
    ],
)
def test_a_second_first_writer_of_another_kind_conflicts(second, text):
    with pytest.raises(CommitConflict, match=text):
        rebase(second, None, BASE)


def test_the_encoding_is_that_of_the_first():
    newest = replace(BASE, key=document_key(UUID, msgpack=True))
    assert rebase(change({"p=b/new": 1}, creates=False), None, newest).msgpack
