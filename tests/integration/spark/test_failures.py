"""Failed and repeated tasks leave the right rows once; receipts of others are refused."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from kartothek_cube import query_cube_arrow
from kartothek_cube.errors import CorruptData, DatasetNotFound, InvalidInput, KartothekCubeError
from kartothek_cube.spark import append_to_cube_from_spark, build_cube_from_spark
from kartothek_cube.spark.stage import accepted
from kartothek_cube.spark.tasks import decode_error, encode_error, error_in


def failing_once(marker, after):
    """A stage that fails the first time it ends, before or after it has sent its rows."""

    def task(batches):
        for batch in batches:
            if not after:
                fail()
            yield batch
        fail()

    def fail():
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        raise ConnectionError("a failure of the first attempt")

    return task


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("after", [False, True])
def test_a_task_that_is_tried_again_stores_its_rows_once(cube, frame, seed, store_url, tmp_path, after, shuffle):
    flaky = frame.mapInArrow(failing_once(str(tmp_path / "failed"), after), frame.schema)
    build_cube_from_spark(flaky, cube, store_url, shuffle=shuffle)
    assert (tmp_path / "failed").exists()
    found = query_cube_arrow(cube, store_url)
    assert found.num_rows == len({(r["x"], r["y"], r["p"]) for r in found.to_pylist()}) == seed.num_rows


def test_files_of_failed_attempts_are_not_named(cube, frame, store_url, files, tmp_path, monkeypatch):
    from kartothek_cube.spark import stage

    marker, receipt_rows = str(tmp_path / "failed"), stage.receipt_rows

    def staged_then_lost(*args):
        batch = receipt_rows(*args)
        for _ in failing_once(marker, after=False)([]):
            pass
        return batch

    monkeypatch.setattr(stage, "receipt_rows", staged_then_lost)
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(stage)
    try:
        result = build_cube_from_spark(frame.coalesce(1), cube, store_url)
    finally:
        cloudpickle.unregister_pickle_by_value(stage)
    named = {f for p in result["seed"].partitions.values() for f in p["files"].values()}
    assert len(named) == 4
    assert len(set(files()) - named) == 4
    assert query_cube_arrow(cube, store_url).num_rows == 200


def test_a_task_that_fails_for_good_changes_nothing(cube, built, frame):  # L12
    def failing(batches):
        raise ConnectionError("for good")
        yield from batches

    before = query_cube_arrow(cube, built)
    with pytest.raises(Exception, match="for good"):
        append_to_cube_from_spark(frame.mapInArrow(failing, frame.schema), cube, built)
    assert query_cube_arrow(cube, built).equals(before)


def test_our_errors_in_the_input_arrive_as_their_own_type(cube, built, frame):
    from kartothek_cube.spark.tasks import task_errors

    def failing(batches):
        with task_errors():
            raise DatasetNotFound('a "text"\nof two lines')
        yield from batches

    with pytest.raises(DatasetNotFound, match=r'^a "text"\nof two lines$'):
        append_to_cube_from_spark(frame.mapInArrow(failing, frame.schema), cube, built)


def test_wrong_rows_fail_at_once_and_not_four_times(cube, frame, spark, store_url, tmp_path):
    def counted(batches):
        with (tmp_path / "attempts").open("a") as log:
            log.write("x")
        yield from batches

    twice = frame.unionAll(frame).coalesce(1).mapInArrow(counted, frame.schema)
    with pytest.raises(InvalidInput, match="duplicate cells"):
        build_cube_from_spark(twice, cube, store_url)
    assert (tmp_path / "attempts").read_text() == "x"


def classes(base):
    return {base}.union(*(classes(child) for child in base.__subclasses__()))


@pytest.mark.parametrize(
    "cls", sorted((c for c in classes(KartothekCubeError) if "kind" in vars(c)), key=lambda c: c.kind)
)
def test_every_error_survives_as_text(cls):
    error = decode_error(encode_error(cls("Column 'ä' of \"x\"\n{}")))
    assert type(error) is cls
    assert str(error) == "Column 'ä' of \"x\"\n{}"


def test_other_text_holds_no_error():
    assert error_in('ValueError: {"kind": "invalid_input"}') is None


def receipt(**changes):
    return {
        "dataset": "seed",
        "task": 0,
        "attempt": 0,
        "commit": "mine",
        "key": "k",
        "receipt": None,
        "error": None,
    } | changes


@pytest.mark.parametrize(
    "rows",
    [
        [receipt(commit="other")],
        [receipt(), receipt()],
        [receipt(), receipt(key="l", attempt=1)],
        [receipt(), receipt(key="k", task=1)],
    ],
    ids=["of another write", "the same row twice", "two attempts", "one key from two tasks"],
)
def test_receipts_that_are_not_of_one_winning_attempt_are_refused(rows):
    with pytest.raises(CorruptData, match="Nothing was published"):
        accepted(rows, "mine", ["seed"])


def test_no_receipts_are_no_files():
    assert accepted([], "mine", ["seed"]) == {"seed": []}


def test_key_ranges_decide_which_files_are_looked_into(cube):
    from kartothek_cube.cube.write.plan import overlapping

    write = SimpleNamespace(request=SimpleNamespace(partition_on=("p", "q")), sort_columns=("p", "x"))
    file = lambda p, q, low, high: SimpleNamespace(values={"p": p, "q": q}, low=(low,), high=(high,))  # noqa: E731
    a, b, c, d = file(1, 1, 0, 5), file(1, 2, 5, 9), file(1, 1, 10, 12), file(2, 1, 0, 5)
    assert list(overlapping(write, [d, c, b, a])) == [[a, b]]
    assert list(overlapping(write, [])) == []
