"""A write to several datasets between two of its swaps: readers see all of it or nothing."""

from __future__ import annotations

import datetime as dt
import re
import warnings

import pytest

from kartothek_cube import options
from kartothek_cube.api.cube import (
    C,
    append_to_cube,
    build_cube,
    cleanup_cube,
    copy_cube,
    delete_cube,
    extend_cube,
    forget_cells,
    query_cube_arrow,
    verify_cube,
)
from kartothek_cube.api.dataset import (
    history,
    read_table_arrow,
    rename_dataset,
    store_dataframes_as_dataset,
    update_dataset_from_dataframes,
)
from kartothek_cube.core.commit import commit as core_commit
from kartothek_cube.core.commit.commit import PendingCommit, commit_change
from kartothek_cube.core.kartothek.dataset_metadata import DatasetFactory, DatasetMetadata
from kartothek_cube.core.metadata.commit_log import COMMITS_KEY, LEDGER_KEY, MARK_KEY, Txn, ledger_of, pending_mark
from kartothek_cube.core.metadata.document import render_document
from kartothek_cube.core.snapshots.documents import read_document
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.core.stores.open import open_instrumented
from kartothek_cube.cube.members import load_cube
from kartothek_cube.cube.write import commit as cube_commit
from kartothek_cube.cube.write.plan import plan_append
from kartothek_cube.errors import (
    CommitConflict,
    CommitOutcomeUnknown,
    DatasetNotFound,
    IncompleteCubeWarning,
    InvalidRequest,
    StagedFilesLost,
)
from kartothek_cube.testing.stores import CountingStore, FaultyStore, InjectedFault, SimulatedCrash
from tests.caches import forget
from tests.support.cubes import CUBE, ENRICH, SEED, ColdStore, refused, table, write_tables

SEED_UUID, E_UUID = "cube++seed", "cube++e"
SEED_DOCUMENT, E_DOCUMENT = f"{SEED_UUID}.by-dataset-metadata.json", f"{E_UUID}.by-dataset-metadata.json"
NEW = table(x=[5], y=["c"], p=[2], i1=[30], v1=[4.5])
NEW_E = table(x=[5, 0], i2=["five", "zero"], v2=[50, 0])
NOTHING_KEPT = options(grace=dt.timedelta(0), retain=dt.timedelta(0))

pytestmark = pytest.mark.usefixtures("no_pauses")


def rows(table):
    return sorted(map(tuple, (row.values() for row in table.to_pylist())), key=str)


def cube_rows(store):
    return rows(query_cube_arrow(CUBE, ColdStore(store)))


def build_both(store):
    build_cube({"seed": SEED, "e": ENRICH}, CUBE, store, partition_on={"e": []})


def write_both(store):
    append_to_cube({"seed": NEW, "e": NEW_E}, CUBE, store)


def swap(key, nth=0, fault="crash"):
    """A fault at the n-th swap of a document."""
    calls = iter(range(100))
    return lambda call: fault if (call.operation, call.key) == ("put_if", key) and next(calls) == nth else None


@pytest.fixture
def store():
    store = MemoryStore()
    build_both(store)
    return store


@pytest.fixture
def prepared(store):
    """A write to both datasets that died before the swap of the seed; the rows of before."""
    before = cube_rows(store)
    with pytest.raises(SimulatedCrash):
        write_both(ColdStore(FaultyStore(store, swap(SEED_DOCUMENT))))
    forget(store)
    return before


def test_a_prepared_dataset_is_shown_as_before(store, prepared):
    names = read_document(store, E_UUID).document.partitions
    assert cube_rows(store) == prepared
    assert query_cube_arrow(CUBE, store, datasets=["seed"]).num_rows == 4
    assert cube_rows(store) == rows(query_cube_arrow(CUBE, store, as_of=dt.datetime.now(dt.UTC)))
    assert read_table_arrow(E_UUID, store).num_rows == ENRICH.num_rows
    assert len(history(E_UUID, store)) == 1
    assert len(names) == 2  # kartothek sees the document as it is


@pytest.mark.parametrize("load_all_indices", [False, True])
def test_a_prepared_dataset_is_shown_as_before_without_its_schemas(store, prepared, load_all_indices):
    loaded = [DatasetMetadata.load_from_store(E_UUID, store, each, load_all_indices) for each in (True, False)]
    assert [len(dataset.partitions) for dataset in loaded] == [1, 1]
    assert len(DatasetFactory(E_UUID, store, load_schema=False, load_all_indices=load_all_indices).partitions) == 1


def test_a_write_whose_seed_was_swapped_is_shown_whole(store):
    with pytest.raises(SimulatedCrash):
        write_both(ColdStore(FaultyStore(store, swap(SEED_DOCUMENT, fault="crash_after"))))
    forget(store)
    assert query_cube_arrow(CUBE, store).num_rows == 5
    assert read_table_arrow(E_UUID, store).num_rows == ENRICH.num_rows + 2
    assert len(history(E_UUID, store)) == 2
    # Nobody has to settle it: the next commit to the dataset does.
    extend_cube({"e": table(x=[0], v3=[1])}, CUBE, store, overwrite=True, partition_on={"e": []})
    assert query_cube_arrow(CUBE, store).column("v3").to_pylist().count(1) == 2


def test_a_complete_cube_costs_no_further_call(store):
    write_both(store)
    cold = ColdStore(store)
    query_cube_arrow(CUBE, cold, payload_columns=[])
    assert len([call for call in cold.calls if call.key.endswith(".json")]) == 2


def test_a_single_dataset_that_is_not_pending_costs_no_look_at_the_seed(store):
    write_both(store)
    cold = ColdStore(store)
    read_table_arrow(E_UUID, cold)
    assert not [call for call in cold.calls if call.key == SEED_DOCUMENT]


@pytest.mark.parametrize("at", ["seed first", "enrichment first"])
def test_a_write_between_two_reads_of_documents_is_seen_whole_or_not(store, at):
    """The reader has one document from before the write, the other from after it."""
    before, hit = cube_rows(store), []
    first = SEED_DOCUMENT if at == "seed first" else E_DOCUMENT

    class Between(ColdStore):
        def get_versioned(self, key):
            answer = super().get_versioned(key)
            if key == first and not hit:
                hit.append(key)
                write_both(store)
            return answer

    found = rows(query_cube_arrow(CUBE, Between(store), options=options(threads=1)))
    assert hit
    assert found in (before, cube_rows(store))


def test_a_dataset_that_a_write_has_made_since_the_listing_is_seen(store):
    hit = []

    class Between(ColdStore):
        def list(self, *arguments, **keywords):
            answer = super().list(*arguments, **keywords)
            if not hit:
                hit.append(True)
                new = {"f": table(x=[0], v3=[1]), "seed": NEW}
                append = {"seed": NEW, "e": NEW_E}
                extend_cube({"f": new["f"], "g": table(x=[0], v4=[1])}, CUBE, store, partition_on={"f": [], "g": []})
                append_to_cube(append, CUBE, store)
            return answer

    assert {"v3", "v4"} <= {*query_cube_arrow(CUBE, Between(store)).column_names}


def test_a_deleted_dataset_is_asked_for_once(store):
    write_both(store)
    delete_cube(CUBE, store, datasets=["e"])
    assert query_cube_arrow(CUBE, store).num_rows == 5
    counting = CountingStore(store)
    query_cube_arrow(CUBE, counting)
    assert not [call for call in counting.calls if call.key.startswith(E_UUID)]
    extend_cube({"e": ENRICH}, CUBE, store, partition_on={"e": []})
    assert "v2" in query_cube_arrow(CUBE, store).column_names


# --- the next writer ------------------------------------------------------------------------------


def test_the_next_write_to_the_dataset_aborts_the_one_that_stopped(store, prepared):
    update_dataset_from_dataframes([table(x=[9], i2=["nine"], v2=[90])], store, E_UUID)
    assert max(read_table_arrow(E_UUID, store).column("x").to_pylist()) == 9
    assert 5 not in read_table_arrow(E_UUID, store).column("x").to_pylist()
    assert cube_rows(store) == prepared
    assert verify_cube(CUBE, store, deep=True).ok


def test_a_live_writer_that_was_aborted_begins_again(store):
    hit = []

    def meanwhile(call):
        if (call.operation, call.key) == ("put_if", SEED_DOCUMENT) and not hit:
            hit.append(call)
            update_dataset_from_dataframes([table(x=[9], i2=["nine"], v2=[90])], ColdStore(store), E_UUID)

    write_both(ColdStore(FaultyStore(store, meanwhile)))
    assert hit
    assert {5, 9} <= {*read_table_arrow(E_UUID, store).column("x").to_pylist()}
    assert query_cube_arrow(CUBE, store).num_rows == 5


def test_a_live_writer_that_may_not_try_again_says_that_nothing_is_visible(store):
    def meanwhile(call):
        if (call.operation, call.key) == ("put_if", SEED_DOCUMENT):
            update_dataset_from_dataframes([table(x=[9], i2=["nine"], v2=[90])], ColdStore(store), E_UUID)

    with pytest.raises(CommitConflict, match="Nothing of it is visible"):
        append_to_cube(
            {"seed": NEW, "e": NEW_E}, CUBE, ColdStore(FaultyStore(store, meanwhile)), options=options(commit_retries=0)
        )
    assert query_cube_arrow(CUBE, store).num_rows == 4
    assert 5 not in read_table_arrow(E_UUID, store).column("x").to_pylist()


def test_a_dataset_that_a_stopped_write_was_to_make_does_not_exist(store):
    new = {"f": table(x=[0], v3=[1]), "g": table(x=[0], v4=[1])}
    with pytest.raises(SimulatedCrash):
        extend_cube(new, CUBE, ColdStore(FaultyStore(store, swap(SEED_DOCUMENT))), partition_on={"f": [], "g": []})
    forget(store)
    with pytest.raises(DatasetNotFound, match="has not committed"):
        read_table_arrow("cube++f", store)
    assert "v3" not in query_cube_arrow(CUBE, store).column_names
    extend_cube(new, CUBE, store, partition_on={"f": [], "g": []})
    assert {"v3", "v4"} <= {*query_cube_arrow(CUBE, store).column_names}


@pytest.fixture(params=["never made", "vacancy"])
def unmade(request):
    """What a build leaves that died before the swap of the seed, and what its removal leaves."""
    store = MemoryStore()
    with pytest.raises(SimulatedCrash):
        build_both(ColdStore(FaultyStore(store, swap(SEED_DOCUMENT))))
    forget(store)
    if request.param == "vacancy":
        cleanup_cube(CUBE, store, options=NOTHING_KEPT)
    assert store.list().keys == [E_DOCUMENT if request.param == "never made" else SEED_DOCUMENT]
    return store


def test_what_nobody_sees_does_not_exist(unmade):
    assert not any(DatasetMetadata.exists(uuid, unmade) for uuid in (SEED_UUID, E_UUID))
    for uuid in (SEED_UUID, E_UUID):
        with pytest.raises(DatasetNotFound):
            DatasetMetadata.load_from_store(uuid, unmade, load_schema=False)


@pytest.mark.parametrize("cube", [CUBE, "cube"])
@pytest.mark.parametrize("mend", [build_both, lambda store: delete_cube(CUBE, store)])
def test_a_cube_that_nobody_sees_is_verified_by_what_mends_it(unmade, cube, mend):
    report = verify_cube(cube, unmade, deep=True)
    assert [finding.check for finding in report.findings] == ["cube-commit"]
    assert report.ok
    assert report.counts.datasets == 0
    assert re.findall(r"\w+_cube", report.findings[0].mend) == ["build_cube", "delete_cube"]
    mend(unmade)
    assert not unmade.list().keys or verify_cube(cube, unmade).clean


def test_a_cube_that_nobody_sees_has_damage_all_the_same(unmade):
    unmade.put("cube++f.by-dataset-metadata.json", b"damaged")
    assert [f.check for f in verify_cube(CUBE, unmade).errors] == ["cube-seed", "document-unreadable"]


def test_a_cube_whose_build_stopped_can_be_built_again():
    store = MemoryStore()
    with pytest.raises(SimulatedCrash):
        build_cube(
            {"seed": SEED, "e": ENRICH},
            CUBE,
            ColdStore(FaultyStore(store, swap(SEED_DOCUMENT))),
            partition_on={"e": []},
        )
    forget(store)
    assert store.contains(E_DOCUMENT)
    build_both(store)
    assert query_cube_arrow(CUBE, store).num_rows == 4


def test_a_cube_that_is_built_over_a_vacancy_goes_on_with_its_ledger(unmade):
    """With a ledger of its own it would commit what was aborted."""
    build_both(unmade)
    ledger = ledger_of(read_document(unmade, SEED_UUID).document.metadata)
    assert not ledger.is_vacant
    assert ledger.epoch
    assert ledger.aborted


def test_a_single_dataset_of_a_build_that_stopped_can_be_made(store):
    store = MemoryStore()
    with pytest.raises(SimulatedCrash):
        build_cube(
            {"seed": SEED, "e": ENRICH},
            CUBE,
            ColdStore(FaultyStore(store, swap(SEED_DOCUMENT))),
            partition_on={"e": []},
        )
    forget(store)
    store_dataframes_as_dataset(store, E_UUID, [table(x=[1])])
    assert read_table_arrow(E_UUID, store).num_rows == 1
    # What records the abort is no dataset.
    with pytest.raises(DatasetNotFound, match="only records"):
        read_table_arrow(SEED_UUID, store)
    store_dataframes_as_dataset(store, SEED_UUID, [table(x=[2])])
    assert read_table_arrow(SEED_UUID, store).num_rows == 1


# --- cleaning up ----------------------------------------------------------------------------------


def test_cleaning_up_takes_a_write_back_that_stopped(store, prepared):
    (finding,) = [f for f in verify_cube(CUBE, store).findings if f.check == "cube-commit"]
    assert finding.dataset == E_UUID
    assert "Readers see the state before it" in finding.message
    cleanup_cube(CUBE, store)  # young: it may be under way
    assert MARK_KEY in read_document(store, E_UUID).document.metadata
    files = set(store.list(f"{E_UUID}/", recursive=True).keys)
    cleanup_cube(CUBE, store, options=NOTHING_KEPT)
    assert cube_rows(store) == prepared
    assert set(store.list(f"{E_UUID}/", recursive=True).keys) < files
    assert not [f for f in verify_cube(CUBE, store).findings if f.check == "cube-commit"]
    assert len(history(E_UUID, store)) >= 1


def test_cleaning_up_keeps_what_a_live_writer_needs(store):
    hit = []

    def meanwhile(call):
        if (call.operation, call.key) == ("put_if", SEED_DOCUMENT) and not hit:
            hit.append(call)
            retain = options(retain=dt.timedelta(0))
            cleanup_cube(CUBE, ColdStore(store), options=retain)

    write_both(ColdStore(FaultyStore(store, meanwhile)))
    assert hit
    assert query_cube_arrow(CUBE, store).num_rows == 5
    assert verify_cube(CUBE, store, deep=True).ok


def test_cleaning_up_removes_a_dataset_that_was_never_made(store):
    new = {"f": table(x=[0], v3=[1]), "g": table(x=[0], v4=[1])}
    with pytest.raises(SimulatedCrash):
        extend_cube(new, CUBE, ColdStore(FaultyStore(store, swap(SEED_DOCUMENT))), partition_on={"f": [], "g": []})
    forget(store)
    cleanup_cube(CUBE, store)
    assert [key for key in store.list("cube++f").keys if "metadata" in key]
    cleanup_cube(CUBE, store, options=NOTHING_KEPT)
    cleanup_cube(CUBE, store, options=NOTHING_KEPT)
    assert not store.list("cube++f", recursive=True).keys


def test_who_makes_a_dataset_that_is_being_removed_never_loses_it(store):
    """The cleanup stops between the document that says so and the removal."""
    new = {"f": table(x=[0], v3=[1]), "g": table(x=[0], v4=[1])}
    with pytest.raises(SimulatedCrash):
        extend_cube(new, CUBE, ColdStore(FaultyStore(store, swap(SEED_DOCUMENT))), partition_on={"f": [], "g": []})
    forget(store)
    document, refused = "cube++f.by-dataset-metadata.json", []

    def meanwhile(call):
        if (call.operation, call.key) == ("delete", document) and not refused:
            with pytest.raises(CommitConflict, match="cleanup_cube is removing"):
                extend_cube(new, CUBE, ColdStore(store), partition_on={"f": [], "g": []})
            refused.append(call)

    cleanup_cube(CUBE, ColdStore(FaultyStore(store, meanwhile)), options=NOTHING_KEPT)
    assert refused
    extend_cube(new, CUBE, store, partition_on={"f": [], "g": []})
    assert {"v3", "v4"} <= {*query_cube_arrow(CUBE, store).column_names}


def test_a_write_that_somebody_aborted_and_replaced_is_not_reported_as_landed(store):
    hit = []

    def fail(call):
        if (call.operation, call.key) != ("put_if", SEED_DOCUMENT) or len(hit) >= 3:
            return None
        if not hit:
            update_dataset_from_dataframes([table(x=[9], i2=["nine"], v2=[90])], ColdStore(store), E_UUID)
        hit.append(call)
        return "before"

    faulty = ColdStore(FaultyStore(store, fail))
    try:
        append_to_cube({"seed": NEW, "e": NEW_E}, CUBE, faulty, options=options(commit_retries=0))
    except (InjectedFault, CommitConflict):
        assert query_cube_arrow(CUBE, store).num_rows == 4
    else:
        assert query_cube_arrow(CUBE, store).num_rows == 5
    assert 9 in read_table_arrow(E_UUID, store).column("x").to_pylist()


# --- answers of the store -------------------------------------------------------------------------


@pytest.mark.parametrize("key", [SEED_DOCUMENT, E_DOCUMENT])
def test_a_lost_answer_changes_nothing(store, key):
    write_both(ColdStore(FaultyStore(store, swap(key, fault="after"))))
    assert query_cube_arrow(CUBE, store).num_rows == 5


def test_a_put_that_arrives_late_finds_the_write_aborted(store):
    """The last swap fails, the write is given up, and then the put arrives."""
    held = []

    class Late(ColdStore):
        def put_if(self, key, data, version):
            if key == SEED_DOCUMENT and len(held) < 3:
                held.append((key, bytes(data), version))
                raise ConnectionError("no answer")
            return super().put_if(key, data, version)

    before = cube_rows(store)
    with pytest.raises(ConnectionError):
        write_both(Late(store))
    for put in held:
        with pytest.raises(Exception, match="was changed or removed"):
            store.put_if(*put)
    assert cube_rows(store) == before


def test_a_store_that_cannot_be_asked_any_more_is_in_doubt(store):
    hit = []

    def fail(call):
        hit.extend([call] if (call.operation, call.key) == ("put_if", SEED_DOCUMENT) else [])
        return "before" if hit else None

    with pytest.raises(CommitOutcomeUnknown):
        write_both(ColdStore(FaultyStore(store, fail)))
    assert query_cube_arrow(CUBE, store).num_rows == 4


def test_a_failure_before_the_seed_leaves_nothing_pending(store):
    new = {"f": table(x=[0], v3=[1]), "e": table(x=[0], v4=[1])}
    tries = iter(range(100))

    def fail(call):
        is_swap = (call.operation, call.key) == ("put_if", "cube++f.by-dataset-metadata.json")
        return "before" if is_swap and next(tries) < 3 else None

    before = cube_rows(store)
    with pytest.raises(InjectedFault):
        extend_cube(new, CUBE, ColdStore(FaultyStore(store, fail)), overwrite=True, partition_on={"e": [], "f": []})
    assert pending_mark(read_document(store, E_UUID).document) is None
    assert cube_rows(store) == before


# --- writers that keep no records -----------------------------------------------------------------


def without(store, uuid, *keys):
    """What a writer leaves that does not know these records."""
    stored = read_document(store, uuid)
    kept = {k: v for k, v in stored.document.metadata.items() if k not in keys}
    document = type(stored.document)(
        uuid, kept, stored.document.partition_keys, stored.document.indices, stored.document.partitions
    )
    store.put(stored.key, render_document(document, msgpack=False))
    forget(store)


def test_a_ledger_that_somebody_dropped_is_warned_of_once(store):
    write_both(store)
    with pytest.raises(SimulatedCrash):
        append_to_cube({"seed": NEW, "e": NEW_E}, CUBE, ColdStore(FaultyStore(store, swap(SEED_DOCUMENT))))
    without(store, SEED_UUID, LEDGER_KEY, COMMITS_KEY)
    with pytest.warns(IncompleteCubeWarning, match=re.escape(E_UUID)):
        read_table_arrow(E_UUID, store)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert query_cube_arrow(CUBE, store).num_rows == 5
    # Its document counts, and writing goes on.
    write_both(store)
    assert query_cube_arrow(CUBE, store).num_rows == 5


def test_a_mark_that_somebody_dropped_delays_nobody(store):
    write_both(store)
    without(store, E_UUID, MARK_KEY)
    assert query_cube_arrow(CUBE, store).num_rows == 5
    write_both(store)
    assert MARK_KEY in read_document(store, E_UUID).document.metadata


def test_deleting_the_seed_leaves_the_other_datasets_as_they_were():
    store = MemoryStore()
    with pytest.raises(SimulatedCrash):
        build_both(ColdStore(FaultyStore(store, swap(SEED_DOCUMENT, fault="crash_after"))))
    forget(store)
    assert query_cube_arrow(CUBE, store).num_rows == 4
    delete_cube(CUBE, store, datasets=["seed"])
    assert read_table_arrow(E_UUID, ColdStore(store)).num_rows == ENRICH.num_rows


# --- the past, and what goes away meanwhile -------------------------------------------------------


def test_a_moment_read_beside_a_write_that_lands_is_whole(store):
    before, hit = cube_rows(store), []

    class Between(ColdStore):
        def get_versioned(self, key):
            answer = super().get_versioned(key)
            if key == E_DOCUMENT and not hit:
                hit.append(key)
                write_both(store)
            return answer

    later = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
    found = rows(query_cube_arrow(CUBE, Between(store), as_of=later, options=options(threads=1)))
    assert hit
    assert found in (before, cube_rows(store))


def meanwhile(store, act):
    """A store whose first swap of the seed comes after something else."""
    hit = []

    def look(call):
        if (call.operation, call.key) == ("put_if", SEED_DOCUMENT) and not hit:
            hit.append(call)
            act(ColdStore(store))

    return ColdStore(FaultyStore(store, look))


def test_a_dataset_that_is_renamed_meanwhile_takes_no_half_along(store):
    with pytest.raises((CommitConflict, StagedFilesLost)):
        write_both(meanwhile(store, lambda other: rename_dataset(E_UUID, other, "cube++f")))
    assert 5 not in read_table_arrow("cube++f", store).column("x").to_pylist()
    assert query_cube_arrow(CUBE, store).num_rows == 4


def rebuild(store):
    delete_cube(CUBE, store)
    build_both(store)


@pytest.mark.parametrize("act", [lambda store: delete_cube(CUBE, store, datasets=["e"]), rebuild])
def test_a_write_whose_dataset_was_deleted_meanwhile_is_nowhere(store, act):
    with pytest.raises((CommitConflict, StagedFilesLost)):
        write_both(meanwhile(store, act))
    assert query_cube_arrow(CUBE, store).num_rows == 4


def test_a_copy_onto_a_stopped_write_takes_its_time_and_aborts_it(store, prepared):
    source = MemoryStore()
    build_cube({"seed": SEED[:2], "e": ENRICH}, CUBE, source, partition_on={"e": []})
    copy_cube(CUBE, source, store, overwrite=True)
    assert query_cube_arrow(CUBE, store).num_rows == 2
    assert pending_mark(read_document(store, E_UUID).document) is None


def test_a_copy_onto_what_a_stopped_build_left_needs_no_overwrite(store):
    target = MemoryStore()
    with pytest.raises(SimulatedCrash):
        build_both(ColdStore(FaultyStore(target, swap(SEED_DOCUMENT))))
    forget(target)
    copy_cube(CUBE, store, target)
    assert cube_rows(target) == cube_rows(store)


def test_of_two_writes_with_one_number_the_second_is_skipped(store):
    txn = Txn("stream", 4)

    def write(opened):
        plan = plan_append(CUBE, {"seed": NEW.schema, "e": NEW_E.schema}, load_cube(CUBE, opened), txn=txn)
        return write_tables(opened, plan, {"seed": NEW, "e": NEW_E})

    landed = write(meanwhile(store, write))
    assert {name: d.result.skipped for name, d in landed.items()} == {"seed": True, "e": True}
    assert query_cube_arrow(CUBE, store).num_rows == 5


def test_a_seed_without_ledger_still_tells_by_its_commits_what_has_landed(store):
    """An older version of this library removes the ledger at its next commit."""
    with pytest.raises(SimulatedCrash):
        write_both(ColdStore(FaultyStore(store, swap(SEED_DOCUMENT, fault="crash_after"))))
    without(store, SEED_UUID, LEDGER_KEY)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert query_cube_arrow(CUBE, store).num_rows == 5
    append_to_cube({"e": table(x=[1], i2=["one"], v2=[11])}, CUBE, store)
    assert {5, 1} <= {*read_table_arrow(E_UUID, store).column("x").to_pylist()}


def test_a_dropped_mark_moves_no_state_of_the_past(store):
    write_both(store)
    without(store, E_UUID, MARK_KEY)
    before = cube_rows(store)
    assert rows(query_cube_arrow(CUBE, store, as_of=dt.datetime.now(dt.UTC))) == before


def test_a_seed_that_an_interrupted_leader_has_swapped_is_not_taken_for_aborted(store, monkeypatch):
    """The ledger names the write then, and no longer what each dataset had before."""
    seen = []

    def recorded(store, change, base, prepared=None):
        seen.append((change, base))
        return commit_change(store, change, base, prepared)

    monkeypatch.setattr(cube_commit, "commit_change", recorded)
    write_both(store)
    change, base = seen[-1]
    assert change.is_coordinator
    again = PendingCommit(change, base, 5)
    again.outcome.set_running_or_notify_cancel()
    core_commit._commit_all(open_instrumented(store), [again])
    assert again.outcome.result().result.id == change.commit


def test_cells_are_not_forgotten_while_nothing_tells_whether_a_write_has_committed(store):
    write_both(store)
    with pytest.raises(SimulatedCrash):
        append_to_cube({"seed": NEW, "e": NEW_E}, CUBE, ColdStore(FaultyStore(store, swap(SEED_DOCUMENT))))
    without(store, SEED_UUID, LEDGER_KEY, COMMITS_KEY)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IncompleteCubeWarning)
        with refused(store, InvalidRequest, E_UUID, "nothing tells whether", "Nothing was deleted"):
            forget_cells(CUBE, store, C("x") == 0)
