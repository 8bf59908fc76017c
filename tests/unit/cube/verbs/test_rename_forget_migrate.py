"""`rename_cube`, `forget_cells` and `check_migration`."""

from __future__ import annotations

import pytest

from kartothek_cube import check_migration, forget_cells, rename_cube
from kartothek_cube.api.cube import (
    C,
    Cube,
    append_to_cube,
    build_cube,
    cube_history,
    extend_cube,
    list_cube_tags,
    list_cubes,
    query_cube_arrow,
    tag_cube,
    verify_cube,
)
from kartothek_cube.api.dataset import delete_dataset, store_dataframes_as_dataset, tag_dataset
from kartothek_cube.core.commit.change import Change
from kartothek_cube.core.commit.commit import commit_change
from kartothek_cube.core.metadata.commit_log import CubeCommit
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import (
    AlreadyExists,
    DatasetNotFound,
    HistoryUnavailable,
    InvalidInput,
    InvalidRequest,
    InvalidType,
)
from kartothek_cube.testing.stores import FaultyStore, SimulatedCrash
from tests.support.cubes import answers, contents, refused, table

CUBE = Cube(["x"], ["p"], "cube", index_columns=["i1"])
NEW = CUBE.copy(uuid_prefix="new")
SEED = table(x=[0, 1, 2], p=[0, 0, 1], i1=[1, 2, 1], v1=["kept", "secret", "kept too"])
E = table(x=[0, 1], v2=[10, 20])


@pytest.fixture
def store():
    store = MemoryStore()
    build_cube({"seed": SEED, "e": E}, CUBE, store, partition_on={"e": []})
    return store


# --- rename_cube ----------------------------------------------------------------------------------


def test_a_renamed_cube_answers_as_before(store):
    tag_cube(CUBE, store, "t")
    before = answers(store, CUBE)
    assert list(rename_cube("cube", store, "new").items()) == [("cube++e", "new++e"), ("cube++seed", "new++seed")]
    assert answers(store, NEW) == before
    assert list_cubes(store) == ["new"]
    assert list_cube_tags("new", store)["name"].tolist() == ["t"]
    assert verify_cube("new", store, deep=True).ok


def test_datasets_are_renamed_inside_the_cube(store):
    before = answers(store, CUBE)
    assert rename_cube(CUBE, store, renamed_datasets={"e": "f"}) == {"cube++e": "cube++f"}
    assert answers(store, CUBE) == before
    assert sorted(uuids(store)) == ["cube++f", "cube++seed"]


def uuids(store):
    return {
        key.partition(".")[0]
        for key in store.list("", recursive=True).keys
        if key.endswith(".by-dataset-metadata.json")
    }


def test_a_dry_run_only_checks_the_names(store):
    before = contents(store)
    assert rename_cube(CUBE, store, "new", dry_run=True)["cube++seed"] == "new++seed"
    assert contents(store) == before


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "renamed_cube_prefix, or renamed_datasets"),
        (("new", {"e": "f"}), "renamed_cube_prefix, or renamed_datasets"),
        (("cube",), "is called cube already"),
        ((None, {"e": "e"}), "is called e already"),
        ((None, {"k": "f"}), "has no dataset k; it has e, seed"),
        ((None, {"e": "f", "seed": "f"}), "cannot have one new name"),
        (("a b",), "a b"),
    ],
)
def test_names_that_cannot_be_given(store, arguments, text):
    with refused(store, InvalidInput, text):
        rename_cube(CUBE, store, *arguments)


@pytest.mark.parametrize("seed", ["seed", "other"])
def test_a_name_that_is_taken(store, seed):
    other = Cube(["x"], ["p"], "new", seed_dataset=seed)
    build_cube({seed: SEED}, other, store)
    with refused(store, AlreadyExists, "Nothing was renamed"):
        rename_cube(CUBE, store, "new")
    with refused(store, AlreadyExists, "already a dataset cube++seed"):
        rename_cube(CUBE, store, renamed_datasets={"e": "seed"})


@pytest.mark.parametrize("left", range(0, 40, 3))
def test_an_interrupted_call_is_repeated(store, left):
    before, calls = answers(store, CUBE), []

    def after_some(call):
        calls.append(call)
        return "crash" if len(calls) > left else None

    try:
        rename_cube(CUBE, FaultyStore(store, after_some), "new")
    except SimulatedCrash:
        if "cube" in list_cubes(store):
            try:
                rename_cube(CUBE, store, "new")
            except AlreadyExists as error:
                # Copied, but not locked: both datasets are whole, and the copy has to be deleted.
                delete_dataset(str(error).split()[5].rstrip("."), store)
                rename_cube(CUBE, store, "new")
    assert answers(store, NEW) == before


def test_an_interrupted_renaming_of_datasets_goes_on(store):
    extend_cube({"f": table(x=[0], v3=[7])}, CUBE, store, partition_on={"f": []})
    before, renamed = answers(store, CUBE), {"e": "g", "f": "h"}

    def at_the_second(call):
        return "crash" if call.key.startswith("cube++h") and call.operation.startswith("put") else None

    with pytest.raises(SimulatedCrash):
        rename_cube(CUBE, FaultyStore(store, at_the_second), renamed_datasets=renamed)
    assert rename_cube("cube", store, renamed_datasets=renamed) == {"cube++f": "cube++h"}
    assert answers(store, CUBE) == before
    with refused(store, InvalidType, "renamed_datasets is a dict"):
        rename_cube("cube", store, renamed_datasets=["f"])


# --- forget_cells ---------------------------------------------------------------------------------


def has_secret(store):
    return any(b"secret" in bytes(store.get(key)) for key in store.list("", recursive=True).keys)


def test_no_state_has_forgotten_cells(store):
    append_to_cube(table(x=[3], p=[1], i1=[1], v1=["more"]), CUBE, store)
    assert has_secret(store)
    report = forget_cells("cube", store, C("v1") == "secret")
    assert (report.rows["seed"].deleted, report.rows["e"].deleted, report.dropped_tags) == (1, 1, ())
    assert report.cleanup.removed
    assert not has_secret(store)
    assert query_cube_arrow(CUBE, store)["x"].to_pylist() == [0, 2, 3]
    with pytest.raises(HistoryUnavailable):
        query_cube_arrow(CUBE, store, as_of=cube_history(CUBE, store)["commit"].iloc[-1])
    assert verify_cube(CUBE, store, deep=True).ok


def test_a_dry_run_forgets_nothing(store):
    before = contents(store)
    report = forget_cells(CUBE, store, "v1 == secret", dry_run=True)
    assert report.rows["seed"].deleted == 1
    assert report.dry_run
    assert contents(store) == before


def test_what_an_interrupted_call_left_is_removed_later(store):
    forget_cells(CUBE, store, C("x") == 1)
    assert forget_cells(CUBE, store, C("x") == 1).rows["seed"].deleted == 0


def test_tags_keep_cells(store):
    tag_cube(CUBE, store, "t")
    tag_dataset("cube++e", store, "u")
    with refused(store, InvalidRequest, "t, u of cube++e. Give drop_tags=True"):
        forget_cells(CUBE, store, C("v1") == "secret")
    report = forget_cells(CUBE, store, C("v1") == "secret", drop_tags=True)
    assert report.dropped_tags == ("t", "u of cube++e")
    assert list_cube_tags(CUBE, store).empty
    assert not has_secret(store)


@pytest.mark.filterwarnings("ignore::kartothek_cube.errors.IncompleteCubeWarning")
def test_cells_are_not_forgotten_while_a_dataset_lacks_a_write(store):
    """As an older version leaves it, whose commits of a write come one by one."""
    base = load_snapshot(store, "cube++e")
    write = CubeCommit("w", ("cube++e", "cube++seed"))
    commit_change(store, Change(base.uuid, (), base.schemas, (), (), metadata={"n": 1}, cube=write), base)
    with refused(
        store, InvalidRequest, "the write w of an older version is in e but not in seed", "Nothing was deleted"
    ):
        forget_cells(CUBE, store, C("x") == 1)


@pytest.mark.parametrize("conditions", [None, [], " "])
def test_all_cells_cannot_be_forgotten(store, conditions):
    tag_cube(CUBE, store, "t")
    with refused(store, InvalidInput, "To delete everything, call delete_cube"):
        forget_cells(CUBE, store, conditions, drop_tags=True)


# --- check_migration ------------------------------------------------------------------------------


def test_the_verdicts_on_a_store_and_on_one_cube(store):
    store_dataframes_as_dataset(store, "single", [table(x=[1])])
    before = contents(store)
    report = check_migration(store)
    assert [(v.kind, v.name, v.outcome) for v in report.verdicts] == [
        ("dataset", "cube++e", "equal"),
        ("dataset", "cube++seed", "equal"),
        ("dataset", "single", "equal"),
        ("cube", "cube", "equal"),
    ]
    assert report.ok
    assert report.to_dict()["counts"] == {"equal": 4, "different": 0, "unreadable": 0}
    assert repr(report) == "MigrationReport(4 equal, 0 different, 0 unreadable)"
    for cube in (CUBE, "cube"):
        assert [v.name for v in check_migration(store, cube).verdicts] == ["cube++e", "cube++seed", "cube"]
    assert contents(store) == before


def test_what_cannot_be_read_has_a_reason(store):
    store.put("other++seed.by-dataset-metadata.json", b"{")
    report = check_migration(store)
    assert not report.ok
    assert report.counts["unreadable"] == 2
    (verdict,) = (v for v in report.verdicts if v.name == "other++seed")
    assert verdict.remarks[0].weight == "error"


def test_a_cube_that_is_not_there(store):
    with pytest.raises(DatasetNotFound, match='Could not find seed dataset for cube "none"'):
        check_migration(store, "none")
    with pytest.raises(InvalidType):
        check_migration(store, deep="yes")
