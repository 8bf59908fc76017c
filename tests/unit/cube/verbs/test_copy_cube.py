"""`copy_cube`: the same cube elsewhere, under the same or other names, whole or not at all."""

from __future__ import annotations

import json
import threading

import pyarrow as pa
import pytest

from kartothek_cube import options
from kartothek_cube.api.cube import (
    Cube,
    append_to_cube,
    build_cube,
    copy_cube,
    delete_cube,
    extend_cube,
    open_cube,
    query_cube_arrow,
    remove_partitions,
)
from kartothek_cube.api.dataset import convert_metadata_format
from kartothek_cube.api.discover import discover_cube, discover_datasets
from kartothek_cube.core.maintenance.garbage import tracked_keys
from kartothek_cube.core.metadata.naming import document_key, schema_key
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.stores.contract import ReadOnlyView
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import (
    AlreadyExists,
    CommitOutcomeUnknown,
    CubeCommitIncomplete,
    InvalidInput,
    InvalidType,
    KeyNotFound,
    MultiTableCommitAborted,
    ReadOnlyStore,
)
from kartothek_cube.testing.stores import CountingStore, FaultyStore, InjectedFault, SimulatedCrash
from tests.support.cubes import CUBE, ENRICH, SEED, ColdStore, answers, build_two, contents, refused, table
from tests.support.far import FarStore
from tests.support.thoroughness import crash_points

OTHER = table(x=[1], y=["z"], p=[5], i1=[1], v1=[1.0])


@pytest.fixture
def source():
    store = MemoryStore()
    build_two(store)
    return store


@pytest.fixture
def target():
    return MemoryStore()


def keys(store, prefix=""):
    return set(store.list(prefix, recursive=True).keys)


def tracked(store, cube=CUBE):
    return {
        key for d in discover_datasets(cube, store).values() for key in tracked_keys(d.snapshot) if store.contains(key)
    }


# --- what a copy is -------------------------------------------------------------------------------


def test_the_copy_has_the_tracked_keys_and_no_garbage(source, target):  # cube 201
    build_cube({"seed": SEED, "e": ENRICH}, CUBE, source, overwrite=True, partition_on={"e": []})
    source.put("cube++seed/table/p=0/left.parquet", b"x")
    copy_cube(CUBE, source, target)
    assert keys(target) == tracked(source)
    data = {key for key in keys(target) if not key.endswith(".json")}
    assert all(target.get(key) == source.get(key) for key in data)


def test_the_copy_answers_as_the_original(source, target):
    append_to_cube(
        table(x=[0, 5], y=["a", "c"], p=[0, 2], i1=[10, 30], v1=[9.5, 4.5]),
        CUBE,
        source,
        metadata={"seed": {"owner": "me"}},
    )
    copy_cube(CUBE, source, target)
    assert answers(target) == answers(source)
    ours, theirs = discover_datasets(CUBE, target), discover_datasets(CUBE, source)
    assert {i: d.metadata for i, d in ours.items()} == {i: d.metadata for i, d in theirs.items()}
    assert open_cube("cube", target) == open_cube("cube", source)


def test_a_copy_lives_on_its_own(source, target):
    copy_cube(CUBE, source, target)
    delete_cube(CUBE, source)
    append_to_cube(OTHER, CUBE, target)
    assert len(answers(target)) == 5


def test_a_read_only_source_is_enough(source, target):  # cube 202
    copy_cube(CUBE, ReadOnlyView(source), target)
    assert answers(target) == answers(source)


def test_other_cubes_stay_as_they_are(source, target):  # cube 208
    for prefix in ("cube+", "cubes", "cub"):
        for store in (source, target):
            build_cube(SEED, CUBE.copy(uuid_prefix=prefix), store)
    before, others = contents(source), contents(target)
    copy_cube(CUBE, source, target)
    assert contents(source) == before
    assert {key: data for key, data in contents(target).items() if key in others} == others
    assert {key for key in keys(target) if key not in others} == tracked(source)


def test_an_emptied_cube_is_copied(source, target):
    remove_partitions(CUBE, source)
    copy_cube(CUBE, source, target)
    assert answers(target) == []
    append_to_cube(OTHER, CUBE, target)
    assert len(answers(target)) == 1


def test_documents_keep_their_encoding(source, target):
    convert_metadata_format("cube++e", source, "msgpack")
    copy_cube(CUBE, source, target)
    assert target.contains(document_key("cube++e", msgpack=True))
    assert not target.contains(document_key("cube++e"))
    assert answers(target) == answers(source)


def test_the_cube_of_another_writer_is_copied_byte_by_byte(source, target):
    for name in ("seed", "e"):
        content = json.loads(source.get(document_key(f"cube++{name}")))
        content["metadata"] = {k: v for k, v in content["metadata"].items() if not k.startswith("kartothek_cube.")}
        source.put(document_key(f"cube++{name}"), json.dumps(content).encode())
    copy_cube(CUBE, source, target)
    assert contents(target) == {key: source.get(key) for key in tracked(source)}


# --- which datasets -------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["seed", ["seed"], {"seed"}, "dict"], ids=str)
def test_only_the_datasets_that_are_named_are_copied(source, target, given):
    copy_cube(
        CUBE, source, target, datasets={"seed": discover_datasets(CUBE, source)["seed"]} if given == "dict" else given
    )
    assert {key.partition("/")[0].partition(".")[0] for key in keys(target)} == {"cube++seed"}


def test_an_enrichment_can_follow_the_seed(source, target):
    copy_cube(CUBE, source, target, datasets=["seed"])
    copy_cube(CUBE, source, target, datasets=["e"])
    assert answers(target) == answers(source)
    copy_cube(CUBE, source, target, datasets=[])


def test_a_dataset_is_copied_in_the_state_that_was_given(source, target):
    given, old = discover_datasets(CUBE, source), answers(source)
    append_to_cube(OTHER, CUBE, source)
    copy_cube(CUBE, source, target, datasets=given)
    assert answers(target) == old


def test_an_absent_cube_is_not_found(source, target):  # cube 207
    with refused(target, RuntimeError, "nope", "not found in source store"):
        copy_cube(CUBE.copy(uuid_prefix="nope"), source, target)


def test_absent_datasets_are_named(source, target):  # cube 207
    with refused(target, RuntimeError, "{'no', 'none'}", "do not exist"):
        copy_cube(CUBE, source, target, datasets=["seed", "no", "none"])


def test_an_incomplete_dataset_is_an_error_and_not_left_out(source, target):
    data = source.get(document_key("cube++e")).replace(b"kartothek_cube.schema", b"kartothek_cube.nothing")
    source.put(document_key("cube++e"), data)
    source.delete(schema_key("cube++e"))
    with refused(target, KeyNotFound, "cube++e"):
        copy_cube(CUBE, source, target)


def test_bad_arguments_are_refused(source, target):
    datasets = discover_datasets(CUBE, source)
    with refused(target, InvalidType, "open_cube"):
        copy_cube(7, source, target)
    with refused(target, InvalidType, "'e': str"):
        copy_cube(CUBE, source, target, datasets={"e": "cube++e"})
    with refused(target, InvalidInput, "cube++seed"):
        copy_cube(CUBE, source, target, datasets={"e": datasets["seed"]})
    with refused(target, InvalidType, "renamed_datasets"):
        copy_cube(CUBE, source, target, renamed_datasets=["e"])
    with refused(target, ReadOnlyStore, "cannot be written to"):
        copy_cube(CUBE, source, ReadOnlyView(target))


# --- stores and what is there ---------------------------------------------------------------------


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(
    "more", [{}, {"renamed_cube_prefix": "new", "renamed_datasets": {"e": "f"}}], ids=["same names", "renamed"]
)
@pytest.mark.parametrize(
    "view", [lambda store: store, ReadOnlyView, ColdStore], ids=["itself", "equal", "under another name"]
)
def test_a_store_cannot_be_copied_onto_itself(source, overwrite, more, view):  # cube 203, 210
    with refused(source, ValueError, "Stores are identical but should not be"):
        copy_cube(CUBE, view(source), source, overwrite=overwrite, **more)


def test_an_existing_dataset_is_not_replaced_without_overwrite(source, target):  # cube 204
    copy_cube(CUBE, source, target, datasets="seed")
    with refused(target, AlreadyExists, 'Dataset "cube++seed" exists in target store but overwrite was set to False'):
        copy_cube(CUBE, source, target)


def test_a_dataset_in_the_other_encoding_exists_too(source, target):
    copy_cube(CUBE, source, target)
    convert_metadata_format("cube++e", target, "msgpack")
    with refused(target, AlreadyExists, "cube++e"):
        copy_cube(CUBE, source, target, datasets="e")


@pytest.mark.parametrize("copied_before", [True, False])
def test_overwriting_replaces_datasets_by_swaps(source, target, copied_before):  # cube 205
    if copied_before:
        copy_cube(CUBE, source, target)
    else:
        build_cube({"seed": OTHER, "e": table(x=[1], i2=["k"], v2=[5])}, CUBE, target, partition_on={"e": []})
    append_to_cube(table(x=[5], y=["c"], p=[2], i1=[30], v1=[4.5]), CUBE, source)
    before = contents(target)
    copy_cube(CUBE, source, target, overwrite=True)
    assert answers(target) == answers(source)
    after = contents(target)
    assert {key for key in before if key in after and after[key] != before[key]} <= {
        document_key("cube++seed"),
        document_key("cube++e"),
        schema_key("cube++e"),
    }
    append_to_cube(OTHER, CUBE, target)
    assert len(answers(target)) == len(answers(source)) + 1


def test_a_replaced_dataset_keeps_its_encoding(source, target):
    copy_cube(CUBE, source, target)
    convert_metadata_format("cube++e", target, "msgpack")
    copy_cube(CUBE, source, target, overwrite=True)
    assert target.contains(document_key("cube++e", msgpack=True))
    assert not target.contains(document_key("cube++e"))
    assert answers(target) == answers(source)


def test_a_dataset_that_is_replaced_need_not_be_whole(source, target):
    copy_cube(CUBE, source, target)
    for key in [key for key in keys(target) if "cube++e/" in key]:
        target.delete(key)
    copy_cube(CUBE, source, target, overwrite=True)
    assert answers(target) == answers(source)


# --- the cube that would result -------------------------------------------------------------------


@pytest.mark.parametrize("overwrite", [False, True])
def test_an_enrichment_alone_makes_no_cube(source, target, overwrite):  # cube 206
    with refused(target, ValueError, "Seed data", "missing"):
        copy_cube(CUBE, source, target, overwrite=overwrite, datasets=["e"])
    with refused(target, ValueError, "Seed data", "missing"):
        copy_cube(CUBE, source, target, overwrite=overwrite, datasets=[])


@pytest.mark.parametrize(
    "other",
    [table(x=["a"], y=["b"], p=[1], i1=[1]), table(x=[1], y=["b"], p=[1], i1=[1], v2=[1])],
    ids=["types", "payload"],
)
def test_what_does_not_fit_the_target_is_refused(source, target, other):  # cube 206
    build_cube(other, CUBE, target)
    with refused(target, ValueError, "x" if "v2" not in other.column_names else "v2"):
        copy_cube(CUBE, source, target, datasets=["e"])


def test_what_stays_in_the_target_has_to_fit_too(source, target):  # cube 206
    build_cube({"seed": SEED, "f": table(x=[1], v2=[1])}, CUBE, target, partition_on={"f": []})
    with refused(target, ValueError, "v2", "e, f"):
        copy_cube(CUBE, source, target, overwrite=True)


def test_a_cube_has_one_seed(source, target):
    build_cube(table(x=[1], y=["b"], p=[1], i3=[1]), CUBE, target)
    with refused(target, InvalidInput, "several seed datasets", "main, seed"):
        copy_cube(CUBE, source, target, renamed_datasets={"seed": "main"})


# --- other names ----------------------------------------------------------------------------------

RENAMINGS = {
    "prefix": ("new", {}),
    "longer prefix": ("cube2", {}),
    "enrichment": (None, {"e": "new"}),
    "seed": (None, {"seed": "main"}),
    "prefix and datasets": ("new", {"seed": "main", "e": "f", "unknown": "g"}),
    "exchanged": (None, {"seed": "e", "e": "seed"}),
    "same name": (None, {"e": "e"}),
}


@pytest.mark.parametrize("name", RENAMINGS)
def test_a_renamed_cube_is_whole_under_its_new_names(source, target, name):  # cube 209
    prefix, renamed = RENAMINGS[name]
    append_to_cube(SEED.slice(0, 1), CUBE, source, metadata={"seed": {"comes from": "cube++seed", "cube++e": 1}})
    copy_cube(CUBE, source, target, renamed_cube_prefix=prefix, renamed_datasets=renamed)
    cube = CUBE.copy(uuid_prefix=prefix or "cube", seed_dataset=renamed.get("seed", "seed"))
    found, datasets = discover_cube(cube.uuid_prefix, target)
    assert found == cube
    assert sorted(datasets) == sorted(renamed.get(i, i) for i in ("seed", "e"))
    assert query_cube_arrow(cube, target) == query_cube_arrow(CUBE, source)
    assert keys(target) == tracked(target, cube)
    for old, dataset in discover_datasets(CUBE, source).items():
        assert datasets[renamed.get(old, old)].metadata == dataset.metadata
    append_to_cube(OTHER, cube, target)
    assert len(answers(target, cube)) == 5


def test_a_name_that_begins_like_another_is_another(target):  # cube 209
    source, cube = MemoryStore(), Cube(["x"], ["p"], "cube")
    data = {
        name: table(x=[1], p=[1], **{f"v_{name}": [i]})
        for i, name in enumerate(("seed", "enrich", "enrich2", "table", "p"))
    }
    build_cube(data, cube, source)
    renamed = {"enrich": "enrich2", "enrich2": "a", "table": "cube", "p": "table"}
    copy_cube(cube, source, target, renamed_datasets=renamed)
    assert answers(target, cube) == answers(source, cube)
    for old in data:
        new = load_snapshot(target, f"cube++{renamed.get(old, old)}")
        assert new.schema.equals(load_snapshot(source, f"cube++{old}").schema)
        assert all(key.startswith(f"cube++{renamed.get(old, old)}/table/p=1/") for key in new.files.to_pylist())


@pytest.mark.parametrize("renamed", [{"e": "seed"}, {"e": "x", "seed": "x"}, {"seed": "e"}], ids=str)
@pytest.mark.parametrize("datasets", [None, ["e"]], ids=str)
def test_two_datasets_cannot_have_one_name(source, target, renamed, datasets):
    with refused(target, InvalidInput, "renamed_datasets", "e, seed would all be"):
        copy_cube(CUBE, source, target, datasets=datasets, renamed_datasets=renamed)


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("a++b", {"renamed_cube_prefix": "a++b"}),
        ("a.b", {"renamed_cube_prefix": "a.b"}),
        ("a/b", {"renamed_datasets": {"seed": "a/b"}}),
        ("+a", {"renamed_datasets": {"e": "+a"}}),
    ],
)
def test_an_illegal_name_is_refused(source, target, name, more):
    with refused(target, ValueError, name):
        copy_cube(CUBE, source, target, **more)


def test_a_dataset_of_the_new_name_is_not_replaced_silently(source, target):  # cube 204
    build_cube({"seed": OTHER, "f": table(x=[1], v3=[1])}, CUBE.copy(uuid_prefix="new"), target, partition_on={"f": []})
    for more in (
        {"renamed_cube_prefix": "new"},
        {"renamed_cube_prefix": "new", "datasets": ["e"], "renamed_datasets": {"e": "f"}},
    ):
        with refused(target, AlreadyExists, "new++seed" if "datasets" not in more else "new++f"):
            copy_cube(CUBE, source, target, **more)
    copy_cube(CUBE, source, target, renamed_cube_prefix="new", renamed_datasets={"e": "f"}, overwrite=True)
    assert answers(target, CUBE.copy(uuid_prefix="new")) == answers(source)


def test_a_dataset_of_the_old_name_is_not_in_the_way_of_a_new_one(source, target):
    build_cube({"seed": OTHER, "e": table(x=[1], i3=[1])}, CUBE, target, partition_on={"e": []})
    before = contents(target)
    copy_cube(CUBE, source, target, renamed_cube_prefix="new")
    assert before.items() <= contents(target).items()
    assert answers(target, CUBE.copy(uuid_prefix="new")) == answers(source)


# --- failures -------------------------------------------------------------------------------------


def state(store):
    """What a reader that starts afresh sees; None where there is no cube."""
    try:
        return answers(ColdStore(store))
    except InvalidInput:
        return None


def documents(store):
    return {key for key in keys(store) if "/" not in key}


def without_file(source):
    """A source one of whose data files has vanished."""
    key = next(key for key in sorted(keys(source)) if "/p=1/" in key)
    source.delete(key)
    return key


def failing_document(dataset, target, kind="before"):
    return ColdStore(
        FaultyStore(
            target,
            lambda call: kind if call.operation == "put_if" and call.key == document_key(f"cube++{dataset}") else None,
        )
    )


def test_a_file_that_has_vanished_stops_the_copy_before_anything_is_visible(source, target):
    key = without_file(source)
    with pytest.raises(MultiTableCommitAborted, match="nothing of the copy is visible") as caught:
        copy_cube(CUBE, source, target)
    assert key in str(caught.value)
    assert isinstance(caught.value.__cause__, KeyNotFound)
    assert documents(target) == set()


def test_a_file_that_has_vanished_leaves_what_would_be_replaced(source, target):
    copy_cube(CUBE, source, target)
    before = answers(target)
    append_to_cube(OTHER, CUBE, source)
    without_file(source)
    with pytest.raises(RuntimeError):
        copy_cube(CUBE, source, target, overwrite=True)
    assert state(target) == before


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("dataset", ["seed", "e"])
def test_a_document_that_cannot_be_written_takes_the_others_back(source, target, dataset, overwrite):  # cube 211
    with pytest.raises(MultiTableCommitAborted, match="nothing of the copy is visible") as caught:
        copy_cube(CUBE, source, failing_document(dataset, target), overwrite=overwrite)
    assert not isinstance(caught.value, CubeCommitIncomplete)
    assert isinstance(caught.value.__cause__, InjectedFault)
    assert documents(target) == set()
    copy_cube(CUBE, source, target)
    assert state(target) == answers(source)


def test_an_error_is_told_also_where_the_target_has_a_seed(source, target):
    copy_cube(CUBE, source, target, datasets=["seed"])
    before = state(target)
    with pytest.raises(MultiTableCommitAborted):
        copy_cube(CUBE, source, failing_document("e", target), datasets=["e"])
    assert state(target) == before


@pytest.mark.usefixtures("no_pauses")
def test_a_copy_onto_a_cube_is_seen_whole_or_not_at_all(source, target):  # cube 211
    copy_cube(CUBE, source, target)
    before = state(target)
    extend_cube({"e": table(x=[1], i2=["k"], v2=[99])}, CUBE, source, overwrite=True, partition_on={"e": []})
    append_to_cube(table(x=[8], y=["a"], p=[0], i1=[10], v1=[9.5]), CUBE, source)
    # The store fails at the last swap, and for good: whether it landed cannot be known.
    with pytest.raises(CommitOutcomeUnknown):
        copy_cube(CUBE, source, failing_document("seed", target), overwrite=True)
    assert state(ColdStore(target)) == before
    copy_cube(CUBE, source, target, overwrite=True)
    assert state(target) == answers(source)


@pytest.mark.slow
@pytest.mark.usefixtures("no_pauses")
@pytest.mark.parametrize("datasets", [None, ["e", "f"]])
def test_a_copy_onto_a_cube_that_dies_leaves_the_old_state_or_the_new_one(source, datasets):
    extend_cube({"f": table(x=[0], v3=[1])}, CUBE, source, partition_on={"f": []})

    def made():
        target = MemoryStore()
        copy_cube(CUBE, old, target)
        return target

    old = MemoryStore()
    copy_cube(CUBE, source, old)
    extend_cube(
        {"e": table(x=[1], i2=["k"], v2=[99]), "f": table(x=[1], v3=[7])},
        CUBE,
        source,
        overwrite=True,
        partition_on={"e": [], "f": []},
    )
    new = made()
    copy_cube(CUBE, source, new, overwrite=True, datasets=datasets)
    counting, found = CountingStore(made()), []
    copy_cube(CUBE, source, counting, overwrite=True, datasets=datasets)
    for n in range(len(counting.calls)):
        target, calls = made(), iter(range(10**6))

        def fail(call, n=n, calls=calls):
            return "crash_after" if next(calls) == n else None

        with pytest.raises(SimulatedCrash):
            copy_cube(CUBE, source, ColdStore(FaultyStore(target, fail)), overwrite=True, datasets=datasets)
        found.append(state(ColdStore(target)))
        assert found[-1] in (state(old), state(new))
        append_to_cube({"e": table(x=[0], i2=["m"], v2=[5])}, CUBE, ColdStore(target))
    assert state(old) in found
    assert state(new) in found


def test_what_cannot_be_taken_back_is_listed(source, target):
    def fail(call):
        is_seed = call.operation == "put_if" and call.key == document_key("cube++seed")
        return "before" if is_seed or (call.operation == "delete" and call.key == document_key("cube++e")) else None

    with pytest.raises(CubeCommitIncomplete, match=r"Landed: e\. Not landed: seed\."):
        copy_cube(CUBE, source, ColdStore(FaultyStore(target, fail)))
    assert documents(target) == {document_key("cube++e")}


def test_an_unknown_outcome_deletes_nothing(source, target):
    def fail(call):
        lost.extend([call] if call.operation == "put_if" and call.key == document_key("cube++seed") else [])
        return (
            ("after" if call.operation == "put_if" else "before")
            if lost and call.key == document_key("cube++seed")
            else None
        )

    lost = []
    with pytest.raises(CommitOutcomeUnknown, match="Landed: e"):
        copy_cube(CUBE, source, ColdStore(FaultyStore(target, fail)))
    assert state(target) == answers(source)


def test_a_lost_answer_is_found_out(source, target):
    copy_cube(CUBE, source, failing_document("seed", target, "after"))
    assert state(target) == answers(source)


def test_who_creates_the_cube_at_the_same_time_keeps_it(source, target):
    other = MemoryStore()
    build_cube(OTHER, CUBE, other)

    def fail(call):
        if call.operation == "put_if" and call.key == document_key("cube++seed") and not target.contains(call.key):
            for key, data in contents(other).items():
                target.put(key, data)

    with pytest.raises(MultiTableCommitAborted) as caught:
        copy_cube(CUBE, source, ColdStore(FaultyStore(target, fail)))
    assert isinstance(caught.value.__cause__, AlreadyExists)
    assert documents(target) == {document_key("cube++seed")}
    assert answers(target) == answers(other)


def test_an_interrupted_call_takes_back_what_landed(source, target):
    class Interrupted(ColdStore):
        def put_if(self, key, data, version):
            if key == document_key("cube++seed"):
                raise KeyboardInterrupt
            return super().put_if(key, data, version)

    with pytest.raises(KeyboardInterrupt):
        copy_cube(CUBE, source, Interrupted(target))
    assert documents(target) == set()


@pytest.mark.slow
@pytest.mark.parametrize("overwrite", [False, True])
def test_after_a_crash_the_copy_is_there_or_not_and_can_be_repeated(source, overwrite):
    def made():
        target = MemoryStore()
        if overwrite:
            build_cube({"seed": OTHER, "e": table(x=[1], i2=["k"], v2=[5])}, CUBE, target, partition_on={"e": []})
        return target

    whole, old = answers(source), state(made())
    steps = [old, whole]
    if overwrite:  # the enrichment is replaced before the seed
        between = made()
        copy_cube(CUBE, source, between, overwrite=True, datasets=["e"])
        steps.append(state(between))
    counting, found = ColdStore(made()), []
    copy_cube(CUBE, source, counting, overwrite=overwrite, options=options(threads=1))
    for n, kind in crash_points(len(counting.calls)):
        target, seen = made(), iter(range(10**6))
        faulty = FaultyStore(target, lambda _, n=n, kind=kind, seen=seen: kind if next(seen) == n else None)
        dying = ColdStore(faulty)
        with pytest.raises(SimulatedCrash):
            copy_cube(CUBE, source, dying, overwrite=overwrite, options=options(threads=1))
        found.append(state(target))
        copy_cube(CUBE, source, target, overwrite=True)
        assert state(target) == whole
    assert all(rows in steps for rows in found)
    assert (found[0], found[-1]) == (old, whole)


def test_of_two_failures_the_unknown_outcome_is_told():
    unanswered = threading.Event()

    class Silent(FarStore):
        """One document has been created meanwhile; the put of another one has no answer."""

        def put_if(self, key, data, version):
            if key == "cube++a.by-dataset-metadata.json":
                unanswered.wait(10)
                raise self.mismatch(key, version)
            if key == "cube++b.by-dataset-metadata.json":
                unanswered.set()
                raise OSError("no answer")
            return super().put_if(key, data, version)

        def get_versioned(self, key):
            if key == "cube++b.by-dataset-metadata.json" and unanswered.is_set():
                raise OSError("no answer")
            return super().get_versioned(key)

    cube, source, rows = Cube(["x"], ["p"], "cube"), MemoryStore(), pa.table({"x": [1], "p": [1]})
    others = {name: rows.append_column(name, pa.array([1])) for name in ("a", "b")}
    build_cube({"seed": rows, **others}, cube, source)
    with pytest.raises(CommitOutcomeUnknown, match="stopped at dataset 'b'"):
        copy_cube(cube, source, Silent(MemoryStore()))
