"""Cubes in dask beyond what all drivers show."""

from __future__ import annotations

from functools import partial

import cloudpickle
import dask
import dask.bag as db
import dask.dataframe as dd
import pandas as pd
import pytest

from kartothek_cube import C, Cube, build_cube, collect_stats, query_cube
from kartothek_cube.api.dataset import DatasetFactory
from kartothek_cube.dask.bag_cube import (
    append_to_cube_from_bag,
    build_cube_from_bag,
    copy_cube_bag,
    delete_cube_bag,
    extend_cube_from_bag,
    query_cube_bag,
    update_cube_from_bag,
)
from kartothek_cube.dask.dataframe_cube import build_cube_from_dataframe, query_cube_dataframe
from kartothek_cube.errors import AlreadyExists, InvalidInput, InvalidType, MultiTableCommitAborted

CUBE = Cube(["x"], ["p"], "cube", index_columns=["i1"])
ROWS = pd.DataFrame({"x": range(12), "p": [0, 1, 2] * 4, "i1": [1, 2] * 6, "v1": [i / 2 for i in range(12)]})
MORE = pd.DataFrame({"x": range(6), "v2": list("abcdef")})


@pytest.fixture
def store(tmp_path):
    return f"hfs://{tmp_path / 'store'}"


@pytest.fixture
def filled(store):
    build_cube({"seed": ROWS, "e": MORE}, CUBE, store, partition_on={"e": []})
    return store


def bag(*elements):
    return db.from_sequence(list(elements), npartitions=len(elements))


def no_elements():
    return []


def done(lazy):
    return lazy.compute(scheduler="threads")


def test_frames_dicts_and_none_are_elements(store):
    built = build_cube_from_bag(
        bag({"seed": ROWS[:6], "e": MORE}, {"seed": ROWS[6:], "e": None}, None),
        CUBE,
        store,
        ["seed", "e", "never"],
        metadata={"e": {"owner": "us"}},
        partition_on={"e": []},
    )
    (result,) = done(built)
    assert (sorted(result), result["e"].metadata["owner"]) == (["e", "seed"], "us")
    assert query_cube(CUBE, store)[0]["v1"].tolist() == ROWS["v1"].tolist()


def test_cells_of_two_elements_and_unknown_datasets_are_refused(store):
    with pytest.raises(InvalidInput, match="duplicate cells"):
        done(build_cube_from_bag(bag(ROWS, ROWS[:1]), CUBE, store))
    with pytest.raises(InvalidInput, match=r'ID "e" is present during pipeline .* \(seed\)'):
        done(build_cube_from_bag(bag({"seed": ROWS, "e": MORE}), CUBE, store))
    with pytest.raises(MultiTableCommitAborted, match="Cannot write empty datasets: seed"):
        done(build_cube_from_bag(bag(ROWS[:0]), CUBE, store))
    assert query_cube_is_absent(store)


def query_cube_is_absent(store):
    with pytest.raises(InvalidInput):
        query_cube(CUBE, store)
    return True


def test_the_call_refuses_wrong_arguments(filled):
    rows = bag(ROWS)
    for call, error, text in [
        (partial(build_cube_from_bag, rows, CUBE, filled, ["e"]), InvalidInput, "Seed data"),
        (partial(build_cube_from_bag, rows, CUBE, filled), InvalidInput, "partial overwrite"),
        (partial(build_cube_from_bag, rows, CUBE, filled, ["seed", "e"]), AlreadyExists, "already exists"),
        (partial(extend_cube_from_bag, rows, CUBE, filled, ["seed"]), InvalidInput, "during extension"),
        (partial(extend_cube_from_bag, rows, CUBE, filled, None), InvalidType, "not optional"),
        (partial(append_to_cube_from_bag, rows, CUBE, filled, ["nope"]), InvalidInput, "Unknown / non-existing"),
        (partial(update_cube_from_bag, rows, CUBE, filled, C("v1") == 1, ["seed"]), InvalidInput, "v1"),
        (partial(build_cube_from_bag, [ROWS], CUBE, filled, ["seed", "e"], overwrite=True), InvalidType, "bag of dask"),
        (partial(query_cube_bag, CUBE, filled, blocksize=0), InvalidInput, "blocksize must be > 0 but is 0"),
        (partial(query_cube_bag, CUBE, filled, blocksize="1"), InvalidType, "blocksize must be an integer"),
        (partial(delete_cube_bag, CUBE, filled, 1.5), InvalidType, "blocksize must be an integer"),
        (partial(copy_cube_bag, CUBE, filled, filled), InvalidInput, "identical"),
        (partial(build_cube_from_dataframe, [ROWS], CUBE, filled), InvalidType, "lists are not supported"),
    ]:
        with pytest.raises(error, match=text):
            call()


def test_an_append_merges_metadata_of_datasets_without_rows(filled):
    (result,) = done(
        append_to_cube_from_bag(bag({"seed": ROWS[:1].assign(x=99)}), CUBE, filled, ["seed", "e"], {"e": {"k": 1}})
    )
    assert sorted(result) == ["e", "seed"]
    assert DatasetFactory("cube++e", filled).metadata["k"] == 1
    assert collect_stats(CUBE, filled)["seed"]["rows"] == 13


def test_an_update_with_one_empty_element_removes_and_with_none_does_nothing(filled):
    update = partial(update_cube_from_bag, cube=CUBE, store=filled, remove_conditions=C("p") == 0)
    assert done(update(db.from_delayed([dask.delayed(no_elements)()]), ktk_cube_dataset_ids=["seed"])) == [{}]
    assert collect_stats(CUBE, filled)["seed"]["rows"] == 12
    assert list(done(update(bag({}), ktk_cube_dataset_ids=["seed"]))[0]) == ["seed"]
    assert collect_stats(CUBE, filled)["seed"]["rows"] == 8
    assert done(update_cube_from_bag(bag({}), CUBE, filled, None, [])) == [{}]


def test_the_same_lazy_write_writes_once(filled):
    lazy = append_to_cube_from_bag(bag({"seed": ROWS[:1], "e": MORE[:1]}), CUBE, filled, ["seed", "e"])
    first, again = done(lazy)[0], done(lazy)[0]
    assert {i: d.commit.id for i, d in first.items()} == {i: d.commit.id for i, d in again.items()}
    assert {i: s["files"] for i, s in collect_stats(CUBE, filled).items()} == {"seed": 4, "e": 2}


def test_graphs_hold_labels_and_no_rows(filled):
    lazy = query_cube_bag(CUBE, filled, partition_by=["i1"])
    assert len(cloudpickle.dumps(lazy)) < 100_000
    build_cube({"seed": ROWS.assign(v1=0.0), "e": MORE}, CUBE, filled, partition_on={"e": []}, overwrite=True)
    assert sum(frame["v1"].sum() for frame in done(lazy)) == ROWS["v1"].sum()


@pytest.mark.parametrize("blocksize", [1, 3])
def test_queries_give_the_frames_of_the_eager_query(filled, blocksize):
    for arguments in ({}, {"partition_by": ["i1"]}, {"conditions": C("v2") == "c"}, {"conditions": C("p") == 9}):
        frames = done(query_cube_bag(CUBE, filled, **arguments, blocksize=blocksize))
        eager = query_cube(CUBE, filled, **arguments)
        assert len(frames) == len(eager)
        assert all(mine.equals(theirs) for mine, theirs in zip(frames, eager, strict=True))
        ddf = query_cube_dataframe(CUBE, filled, **arguments)
        assert ddf.npartitions == (2 if "partition_by" in arguments else 1)
        whole = pd.concat(eager, ignore_index=True) if eager else ddf._meta
        assert done(ddf).reset_index(drop=True).equals(whole.reset_index(drop=True))


def test_a_shuffle_makes_one_file_for_each_value_and_bucket(store):
    frames = {"seed": dd.from_pandas(ROWS, npartitions=4), "e": dd.from_pandas(MORE, npartitions=3)}
    build = partial(build_cube_from_dataframe, frames, CUBE, store, partition_on={"e": []}, shuffle=True)
    done(build())
    assert {i: s["files"] for i, s in collect_stats(CUBE, store).items()} == {"seed": 3, "e": 1}
    done(build(num_buckets=2, overwrite=True))
    stats = collect_stats(CUBE, store)
    assert 3 < stats["seed"]["files"] <= 6
    assert stats["seed"]["rows"] == 12
    with pytest.raises(InvalidInput, match="must not be None"):
        build(num_buckets=None, overwrite=True)
