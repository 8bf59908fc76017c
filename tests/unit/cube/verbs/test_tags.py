"""Tags of a cube: one name for the states of all its datasets, seen whole or not at all."""

from __future__ import annotations

import datetime as dt
import itertools

import pandas as pd
import pytest
from msgspec.structs import replace

from kartothek_cube import options
from kartothek_cube.api.cube import (
    C,
    append_to_cube,
    build_cube,
    cleanup_cube,
    collect_stats,
    connect,
    count_cube,
    cube_report,
    delete_cube,
    describe_cube,
    drop_cube_tag,
    extend_cube,
    iter_cube,
    list_cube_tags,
    open_cube,
    plan_cube_query,
    query_cube,
    query_cube_arrow,
    query_cube_changes,
    remove_partitions,
    scan_cube,
    stream_cube,
    tag_cube,
    verify_cube,
)
from kartothek_cube.api.dataset import (
    drop_dataset_tag,
    garbage_collect_dataset,
    history,
    list_dataset_tags,
    read_table,
    tag_dataset,
)
from kartothek_cube.core.metadata.tag import decode_tag, encode_tag, is_tag_key, is_tag_object, tag_key
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.snapshots.time_travel import load_snapshot_as_of
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import (
    AlreadyExists,
    CorruptDocument,
    HistoryUnavailable,
    InvalidInput,
    InvalidRequest,
    InvalidType,
    KartothekCubeError,
)
from kartothek_cube.testing.stores import CountingStore, FaultyStore, SimulatedCrash
from tests.caches import forget
from tests.support.cubes import CUBE, ENRICH, SEED, table
from tests.support.turns import run_interleaved

SEED_UUID, E_UUID, F_UUID = "cube++seed", "cube++e", "cube++f"
NOW = options(grace=dt.timedelta(0), retain=dt.timedelta(0))
NEW = table(x=[5], y=["c"], p=[2], i1=[30], v1=[4.5])
NEW_E = table(x=[5, 0], i2=["five", "zero"], v2=[50, 0])


def rows(store, as_of=None, **more):
    found = query_cube_arrow(CUBE, store, as_of=as_of, **more)
    return sorted(map(tuple, (row.values() for row in found.to_pylist())), key=str)


def objects(store):
    return {key: store.get(key) for key in store.list(recursive=True).keys}


def tagged(store):
    return [key for key in store.list(recursive=True).keys if is_tag_object(key)]


@pytest.fixture
def store():
    return MemoryStore()


@pytest.fixture
def moments(store):
    """A seed; with an enrichment; with a write to both; with a partition less."""
    steps = [
        lambda: build_cube(SEED, CUBE, store),
        lambda: extend_cube({"e": ENRICH}, CUBE, store, partition_on={"e": []}),
        lambda: append_to_cube({"seed": NEW, "e": NEW_E}, CUBE, store),
        lambda: remove_partitions(CUBE, store, C("p") == 0, ["seed"]),
    ]
    found = []
    for step in steps:
        step()
        found.append((dt.datetime.now(dt.UTC), rows(store)))
    return found


@pytest.fixture
def names(store, moments):
    """Each state under a name; history is gone."""
    for number, (when, _) in enumerate(moments):
        tag_cube(CUBE, store, f"state {number}", as_of=when)
    cleanup_cube(CUBE, store, options=NOW)
    assert not [key for key in store.list(recursive=True).keys if "_history" in key]
    return {f"state {number}": expected for number, (_, expected) in enumerate(moments)}


READERS = {
    "query_cube_arrow": lambda s, a: query_cube_arrow(CUBE, s, as_of=a).num_rows,
    "query_cube": lambda s, a: sum(map(len, query_cube(CUBE, s, partition_by="i1", as_of=a))),
    "stream_cube": lambda s, a: stream_cube(CUBE, s, as_of=a).read_all().num_rows,
    "iter_cube": lambda s, a: sum(t.num_rows for _, t in iter_cube(CUBE, s, as_of=a)),
    "count_cube": lambda s, a: count_cube(CUBE, s, as_of=a),
    "scan_cube": lambda s, a: scan_cube(CUBE, s, as_of=a).collect().height,
    "scan a prefix": lambda s, a: scan_cube("cube", s, as_of=a).collect().height,
    "connect": lambda s, a: len(connect(s, as_of=a).sql("FROM cube").fetchall()),
    "collect_stats": lambda s, a: collect_stats(CUBE, s, as_of=a)["seed"]["rows"],
}


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_reads_the_state_of_a_tag(store, names, reader):
    for name, expected in names.items():
        assert READERS[reader](store, name) == len(expected)


def test_a_tag_has_exactly_the_datasets_of_its_state(store, names):
    for name, expected in names.items():
        assert rows(store, name) == expected
    assert [d.id for d in describe_cube("cube", store, as_of="state 0").datasets] == ["seed"]
    assert [d.id for d in describe_cube("cube", store, as_of="state 1").datasets] == ["e", "seed"]
    assert open_cube("cube", store, as_of="state 1") == CUBE
    with pytest.raises(InvalidInput, match="requested datasets as of state 0: e"):
        query_cube(CUBE, store, datasets=["seed", "e"], as_of="state 0")


def test_conditions_use_the_indices_of_then(store, names):
    assert query_cube_arrow(CUBE, store, C("v2") > 0, as_of="state 1").num_rows == 2
    assert len(rows(store, "state 2", conditions=C("i1") == 10)) == 2


def test_each_dataset_takes_the_tag_of_its_cube(store, names):
    assert len(read_table(SEED_UUID, store, as_of="state 2")) == 5
    assert len(read_table(E_UUID, store, as_of="state 1")) == 2
    assert list_dataset_tags(SEED_UUID, store)["name"].to_list() == [*names]
    assert list_dataset_tags(E_UUID, store)["name"].to_list() == [*names][1:]
    with pytest.raises(HistoryUnavailable, match=r"'state 0'.*its tags are state 1"):
        read_table(E_UUID, store, as_of="state 0")


def test_changes_between_tags(store, names, moments):
    changes = query_cube_changes(CUBE, store, "state 1", "state 2").read_all()
    kinds = changes["_change_type"].to_pylist()
    assert kinds.count("insert") == 1
    assert len(kinds) == 1 + 2 * kinds.count("update_preimage")
    assert query_cube_changes(CUBE, store, "state 2").read_all()["_change_type"].unique().to_pylist() == ["delete"]
    with pytest.raises(InvalidInput, match="comes before"):
        query_cube_changes(CUBE, store, "state 2", "state 1")


def test_changed_since_and_as_of_tags(store, names):
    plan = plan_cube_query(CUBE, store, datasets=["seed"], partition_by="p", changed_since="state 1", as_of="state 2")
    assert [group.key for group in plan.groups] == [{"p": 2}]


def test_the_list_has_the_last_commit(store, moments):
    chains = {uuid: load_snapshot(store, uuid).chain for uuid in (SEED_UUID, E_UUID)}
    tag_cube("cube", store, "now")
    tag_cube(CUBE, store, "before", as_of=moments[1][0])
    tag_dataset(SEED_UUID, store, "alone")
    listed = list_cube_tags("cube", store)
    assert list(listed.columns) == ["name", "commit", "time"]
    assert listed["name"].to_list() == ["before", "now"]
    assert listed["commit"].to_list() == [chains[E_UUID][0].id, chains[SEED_UUID][-1].id]
    assert listed["time"].to_list() == [pd.Timestamp(chains[E_UUID][0].time), pd.Timestamp(chains[SEED_UUID][-1].time)]
    pd.testing.assert_frame_equal(listed, list_cube_tags(CUBE, store))


def test_commits_of_a_plan_and_another_tag_can_be_tagged(store, moments):
    commits = plan_cube_query(CUBE, store, as_of=moments[2][0]).commits
    tag_cube(CUBE, store, "plan", as_of=commits)
    tag_cube(CUBE, store, "tag", as_of="plan")
    assert rows(store, "tag") == rows(store, "plan") == moments[2][1]
    listed = list_cube_tags(CUBE, store)
    assert listed["time"].nunique() == 1


def test_reading_a_tag_reads_one_object_and_one_state_for_each_dataset(store, names):
    plan_cube_query(CUBE, store)
    counting = CountingStore(store)
    plan_cube_query(CUBE, counting, as_of="state 2")
    read = counting.touched("get", "get_versioned")
    assert len([key for key in read if is_tag_key(key)]) == 1
    assert len([key for key in read if "_tags/states/" in key]) == 2
    assert not [key for key in read if "_history" in key]


# --- what bad input gets --------------------------------------------------------------------------


@pytest.mark.parametrize("taken", [SEED_UUID, E_UUID])
def test_a_name_that_a_dataset_has_is_refused(store, moments, taken):
    tag_dataset(taken, store, "mine")
    before = objects(store)
    with pytest.raises(AlreadyExists, match="'mine'"):
        tag_cube(CUBE, store, "mine")
    # Also if the state does not have that dataset.
    with pytest.raises(AlreadyExists, match="'mine'"):
        tag_cube(CUBE, store, "mine", as_of=moments[0][0])
    assert objects(store) == before


def test_a_cube_has_a_tag_once(store, moments):
    tag_cube(CUBE, store, "mine")
    before = objects(store)
    for tag in (lambda: tag_cube(CUBE, store, "mine"), lambda: tag_dataset(E_UUID, store, "mine")):
        with pytest.raises(AlreadyExists):
            tag()
    assert objects(store) == before


@pytest.mark.parametrize("name", ["2024-05-01", "0f1e2d", "0" * 32, "", "a/b"])
def test_a_name_that_means_something_else_is_refused(store, moments, name):
    before = objects(store)
    with pytest.raises(InvalidInput, match="name"):
        tag_cube(CUBE, store, name)
    assert objects(store) == before


def test_an_unknown_tag_names_those_that_were_meant(store, moments):
    with pytest.raises(HistoryUnavailable, match="Cube 'cube' has no tag 'model': it has no tags"):
        rows(store, "model")
    tag_cube(CUBE, store, "model-7")
    for read in (
        lambda: rows(store, "model-8"),
        lambda: drop_cube_tag(CUBE, store, "model-8"),
        lambda: tag_cube(CUBE, store, "new", as_of="model-8"),
        lambda: query_cube_changes(CUBE, store, "model-8"),
        lambda: describe_cube("cube", store, as_of="model-8"),
    ):
        with pytest.raises(HistoryUnavailable, match=r"its tags are model-7\. Did you mean 'model-7'\?"):
            read()
    with pytest.raises(InvalidType):
        rows(store, dt.date(2024, 1, 1))


def test_a_tag_of_the_seed_alone_is_none_of_the_cube(store, moments):
    tag_dataset(SEED_UUID, store, "mine")
    with pytest.raises(HistoryUnavailable, match="Only its seed 'cube\\+\\+seed' has a tag of this name"):
        rows(store, "mine")
    with pytest.raises(InvalidRequest, match="drop_dataset_tag"):
        drop_cube_tag(CUBE, store, "mine")
    drop_dataset_tag(SEED_UUID, store, "mine")


@pytest.mark.parametrize("uuid", [SEED_UUID, E_UUID])
def test_a_dataset_cannot_drop_the_tag_of_its_cube(store, moments, uuid):
    tag_cube(CUBE, store, "mine")
    before = objects(store)
    with pytest.raises(InvalidRequest, match="drop_cube_tag"):
        drop_dataset_tag(uuid, store, "mine")
    assert objects(store) == before


def test_a_dataset_that_was_deleted_since_is_named(store, moments):
    tag_cube(CUBE, store, "mine")
    delete_cube(CUBE, store, ["e"])
    with pytest.raises(HistoryUnavailable, match=r"'mine' has datasets that were deleted since: cube\+\+e"):
        rows(store, "mine")
    extend_cube({"e": ENRICH}, CUBE, store, partition_on={"e": []})
    with pytest.raises(HistoryUnavailable, match=r"cube\+\+e.*'mine' has lost its state"):
        rows(store, "mine")
    drop_cube_tag(CUBE, store, "mine")
    assert tagged(store) == []


def test_a_cube_must_exist():
    for call in (
        lambda: tag_cube(CUBE, MemoryStore(), "mine"),
        lambda: tag_cube("cube", MemoryStore(), "mine"),
        lambda: list_cube_tags(CUBE, MemoryStore()),
        lambda: drop_cube_tag("cube", MemoryStore(), "mine"),
    ):
        with pytest.raises(KartothekCubeError, match="cube"):
            call()


# --- garbage --------------------------------------------------------------------------------------


def test_dropping_frees_the_files(store, moments):
    tag_cube(CUBE, store, "mine", as_of=moments[0][0])
    cleanup_cube(CUBE, store, options=NOW)
    assert rows(store, "mine") == moments[0][1]
    drop_cube_tag(CUBE, store, "mine")
    assert tagged(store) == []
    assert cleanup_cube(CUBE, store, options=NOW).bytes > 0
    assert len(store.list("cube++seed/table/", recursive=True).keys) == 1 + len(load_snapshot(store, SEED_UUID).files)


def test_collecting_single_datasets_keeps_the_tag(store, moments):
    tag_cube(CUBE, store, "mine", as_of=moments[1][0])
    for uuid in (SEED_UUID, E_UUID):
        garbage_collect_dataset(uuid, store, options=NOW)
    assert rows(store, "mine") == moments[1][1]


def test_a_share_without_its_tag_is_none_and_goes_after_grace(store, moments):
    tag_cube(CUBE, store, "mine", as_of=moments[1][0])
    store.delete(tag_key(SEED_UUID, "mine"))
    assert list_dataset_tags(E_UUID, store).empty
    with pytest.raises(HistoryUnavailable):
        read_table(E_UUID, store, as_of="mine")
    cleanup_cube(CUBE, store, options=options(retain=dt.timedelta(0)))
    assert tag_key(E_UUID, "mine") in tagged(store)
    tag = decode_tag(store.get(tag_key(E_UUID, "mine")), tag_key(E_UUID, "mine"))
    store.put(tag_key(E_UUID, "mine"), encode_tag(replace(tag, made=tag.made - dt.timedelta(days=2))))
    removed = cleanup_cube(CUBE, store).keys
    assert tag_key(E_UUID, "mine") in removed
    cleanup_cube(CUBE, store, options=NOW)
    assert tagged(store) == []


def test_a_damaged_tag_of_the_cube_is_no_end_of_its_shares(store, moments):
    tag_cube(CUBE, store, "mine", as_of=moments[1][0])
    good = store.get(tag_key(SEED_UUID, "mine"))
    store.put(tag_key(SEED_UUID, "mine"), b"{")
    assert history(E_UUID, store)["tags"].iloc[-1] == ["mine"]
    assert len(read_table(E_UUID, store, as_of="mine")) == 2
    with pytest.raises(CorruptDocument, match="mine"):
        rows(store, "mine")
    assert list_cube_tags(CUBE, store).empty
    cleanup_cube(CUBE, store, options=NOW)
    store.put(tag_key(SEED_UUID, "mine"), good)
    assert rows(store, "mine") == moments[1][1]


@pytest.mark.parametrize("make", ["tag_cube", "tag_dataset"])
def test_a_share_in_vain_does_not_take_the_name(store, moments, make):
    tag_cube(CUBE, store, "mine", as_of=moments[1][0])
    store.delete(tag_key(SEED_UUID, "mine"))
    if make == "tag_cube":
        tag_cube(CUBE, store, "mine")
        assert rows(store, "mine") == moments[-1][1]
    else:
        tag_dataset(E_UUID, store, "mine")
        assert len(read_table(E_UUID, store, as_of="mine")) == len(read_table(E_UUID, store))


# --- crashes and races ----------------------------------------------------------------------------


def failing(store, point, fault):
    calls = itertools.count(1)
    return FaultyStore(store, lambda _: fault if next(calls) == point else None)


def crash_points(store, action):
    counting = CountingStore(store)
    action(counting)
    return len(counting.calls)


@pytest.mark.parametrize("fault", ["crash", "crash_after"])
@pytest.mark.parametrize("verb", ["tag", "drop"])
def test_a_crash_leaves_a_whole_tag_or_none(verb, fault):
    def prepared():
        store = MemoryStore()
        build_cube({"seed": SEED, "e": ENRICH}, CUBE, store, partition_on={"e": []})
        append_to_cube({"seed": NEW, "e": NEW_E}, CUBE, store)
        if verb == "drop":
            tag_cube(CUBE, store, "mine")
        return store

    def act(opened):
        tag_cube(CUBE, opened, "mine") if verb == "tag" else drop_cube_tag(CUBE, opened, "mine")

    outcomes = set()
    for point in range(1, crash_points(prepared(), act) + 1):
        store = prepared()
        faulty = failing(store, point, fault)
        with pytest.raises(SimulatedCrash):
            act(faulty)
        forget(store)
        exists = not list_cube_tags(CUBE, store).empty
        outcomes.add(exists)
        if exists:
            assert len(rows(store, "mine")) == 5
            drop_cube_tag(CUBE, store, "mine")
        for uuid in (SEED_UUID, E_UUID):
            assert list_dataset_tags(uuid, store).empty
        tag_cube(CUBE, store, "mine")  # whatever is left does not take the name
        cleanup_cube(CUBE, store, options=NOW)
        assert len(rows(store, "mine")) == 5
        drop_cube_tag(CUBE, store, "mine")
        cleanup_cube(CUBE, store, options=NOW)
        assert tagged(store) == []
    assert outcomes == {True, False}


@pytest.mark.parametrize("fault", ["before", "after"])
def test_an_answer_that_is_lost(fault):
    store = MemoryStore()
    build_cube({"seed": SEED, "e": ENRICH}, CUBE, store, partition_on={"e": []})
    points = crash_points(store, lambda opened: tag_cube(CUBE, opened, "mine"))
    drop_cube_tag(CUBE, store, "mine")
    for point in range(1, points + 1):
        faulty = failing(store, point, fault)
        failed = False
        try:
            tag_cube(CUBE, faulty, "mine")
        except OSError:
            failed = True
        assert list_cube_tags(CUBE, store).empty == failed
        if not failed:
            assert len(rows(store, "mine")) == 4
            drop_cube_tag(CUBE, store, "mine")
        cleanup_cube(CUBE, store, options=NOW)
        assert tagged(store) == []


@pytest.mark.slow
def test_two_tag_one_name_at_a_time():
    def prepared():
        store = MemoryStore()
        build_cube({"seed": SEED, "e": ENRICH}, CUBE, store, partition_on={"e": []})
        append_to_cube({"seed": NEW, "e": NEW_E}, CUBE, store)
        return store

    first = plan_cube_query(CUBE, prepared()).commits
    assert first
    length = crash_points(prepared(), lambda opened: tag_cube(CUBE, opened, "mine"))
    for before in range(length + 1):
        for between in (3, 6, 9, 12, 15, length):
            store = prepared()
            then = load_snapshot(store, SEED_UUID).chain[0].time
            later = load_snapshot(store, E_UUID).chain[0].time
            old = max(then, later)
            errors = run_interleaved(
                store,
                [(0, before)] * (before > 0) + [(1, between), (0, 10**6)],
                [lambda s: tag_cube(CUBE, s, "mine"), lambda s, old=old: tag_cube(CUBE, s, "mine", as_of=old)],
            )
            assert all(e is None or isinstance(e, (AlreadyExists, HistoryUnavailable)) for e in errors), errors
            listed = list_cube_tags(CUBE, store)
            assert len(listed) == errors.count(None) <= 1
            if len(listed):
                assert len(rows(store, "mine")) == (5 if errors[0] is None else 4)
            for uuid in (SEED_UUID, E_UUID):
                assert len(list_dataset_tags(uuid, store)) == len(listed)


# --- what shows tags ------------------------------------------------------------------------------


def test_the_description_and_the_report_show_tags(store, moments):
    assert "tags" not in repr(describe_cube("cube", store))
    tag_cube(CUBE, store, "model <7>")
    tag_cube(CUBE, store, "first", as_of=moments[0][0])
    tag_dataset(E_UUID, store, "alone")
    described = describe_cube("cube", store)
    assert described.tags == ("first", "model <7>")
    assert "  tags        first, model <7>\n" in repr(described)
    assert "model &lt;7&gt;" in described._repr_html_()
    assert '"tags": [' in described.to_json()
    report = cube_report(CUBE, store)
    assert [(tag.name, tag.datasets) for tag in report.facts.tags] == [("first", 1), ("model <7>", 2)]
    assert "<h2>Tags</h2>" in report
    assert "model &lt;7&gt;" in report


def test_verification_of_a_cube_knows_tags(store, moments):
    tag_cube(CUBE, store, "mine", as_of=moments[1][0])
    cleanup_cube(CUBE, store, options=NOW)
    assert verify_cube(CUBE, store).clean
    gone = load_snapshot_as_of(store, SEED_UUID, "mine").document.files - load_snapshot(store, SEED_UUID).document.files
    for key in gone:
        store.delete(key)
    (finding,) = verify_cube(CUBE, store).errors
    assert (finding.check, finding.dataset) == ("tag-file", SEED_UUID)
    assert "drop_cube_tag" in finding.mend
