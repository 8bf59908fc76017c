"""`write_single_partition` and `commit_dataset`: writing in one place and committing in another."""

from __future__ import annotations

import pickle

import pandas as pd
import pyarrow as pa
import pytest

from kartothek_cube.core.dataset.maintain import build_dataset_indices
from kartothek_cube.core.dataset.write import (
    StagedPartitions,
    commit_dataset,
    create_empty_dataset_header,
    store_dataframes_as_dataset,
    update_dataset_from_dataframes,
    write_single_partition,
)
from kartothek_cube.core.io.csv import CsvFormat
from kartothek_cube.core.kartothek.dataset_metadata import DatasetFactory
from kartothek_cube.core.metadata.naming import document_key
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import DatasetNotFound, InvalidInput, InvalidRequest, InvalidType, KeyNotFound, Unsupported
from kartothek_cube.testing.stores import CountingStore
from tests.support.datasets import (
    UUID,
    contents,
    document,
    exists,
    index,
    index_of_files,
    keys,
    labels,
    refused,
    rows,
    schema,
    snapshot,
    user_metadata,
)

ONE = pd.DataFrame({"p": ["a", "a"], "i1": [1, 2], "x": [1, 2]})
TWO = pd.DataFrame({"p": ["a", "b"], "i1": [2, 3], "x": [3, 4]})


@pytest.fixture
def empty():
    return MemoryStore()


@pytest.fixture
def store(empty):
    store_dataframes_as_dataset(empty, UUID, [ONE], partition_on="p", secondary_indices="i1", metadata={"owner": "me"})
    return empty


@pytest.fixture
def implicit(empty):
    create_empty_dataset_header(empty, UUID, {"table": ONE}, partition_on="p")
    return empty


def single(store, data=TWO, **arguments):
    return write_single_partition(store, UUID, data, **arguments)


def commit(store, *partitions, **arguments):
    return commit_dataset(store, UUID, list(partitions), **arguments)


# --- write_single_partition -----------------------------------------------------------------------


def test_only_data_files_are_written(store):
    before = contents(store)
    staged = single(store)
    assert {key: data for key, data in contents(store).items() if key in before} == before
    assert sorted(set(contents(store)) - set(before)) == sorted(receipt.key for receipt in staged.receipts)


def test_a_missing_dataset_is_named_by_both_keys(empty):  # E05 B05
    for key in (document_key(UUID), document_key(UUID, msgpack=True)):
        with refused(empty, KeyError, DatasetNotFound, key):
            single(empty)


@pytest.mark.parametrize(
    "wrong",
    [
        pd.DataFrame({"p": ["a"], "i1": [1], "x": ["text"]}),
        pd.DataFrame({"p": ["a"], "i1": [1]}),
        {"other": TWO},
        {"table": TWO, "other": TWO},
    ],
)
def test_rows_that_do_not_fit_are_refused(store, wrong):  # E06
    with refused(store, ValueError, InvalidInput):
        single(store, wrong)
    with refused(store, ValueError, InvalidInput):
        single(store, [TWO, wrong])


def test_several_partition_values_give_a_nested_result(store):  # E07
    staged = single(store)
    assert (len(staged), [label.partition("/")[0] for label in staged.labels]) == (2, ["p=a", "p=b"])
    assert [len(part) for part in staged] == [1, 1]
    assert [part.label for part in staged] == staged.labels
    assert [list(part.files) for part in staged] == [["table"], ["table"]]
    for name in ("label", "files"):
        with pytest.raises(AttributeError, match="2 partitions"):
            getattr(staged, name)


def test_the_result_shows_itself_and_travels(store):
    staged = single(store)
    assert repr(staged) == "StagedPartitions(uuid='uuid', partitions=2, rows=2)"
    commit(store, pickle.loads(pickle.dumps(staged)))
    assert index(store, "i1") == index_of_files(store, "i1")


def test_a_partition_is_invisible_until_it_is_committed(store):  # E08
    single(store)
    assert len(rows(store)) == 2


def test_a_partition_of_an_implicit_dataset_is_visible_at_once(implicit):  # E09
    single(implicit, ONE)
    assert rows(implicit) == [("a", 1, 1), ("a", 2, 2)]
    single(implicit, TWO)
    assert len(rows(implicit)) == 4
    assert "partitions" not in document(implicit)


def test_no_data_is_a_type_error(store):
    with refused(store, TypeError, InvalidType, "not optional"):
        write_single_partition(store, UUID)


@pytest.mark.parametrize("nothing", [[], [None], {}, TWO.iloc[:0]])
def test_no_rows_are_no_partitions(store, nothing):
    staged = single(store, nothing)
    assert (len(staged), list(staged), repr(staged)) == (0, [], "StagedPartitions(uuid='uuid', partitions=0, rows=0)")
    with pytest.raises(AttributeError):
        _ = staged.label
    commit(store, staged)
    assert len(rows(store)) == 2


@pytest.mark.parametrize("partition_on", [["x"], ["p", "x"], "i1"])
def test_partition_on_has_to_be_that_of_the_dataset(store, partition_on):
    with refused(store, ValueError, InvalidInput, "Incompatible set of partition keys"):
        single(store, partition_on=partition_on)


def test_arguments_without_effect_are_taken(store):
    commit(
        store,
        single(
            store, metadata={"x": object()}, overwrite=True, metadata_merger=5, secondary_indices="i1", partition_on="p"
        ),
    )
    assert len(rows(store)) == 4


def test_settings_are_checked(store):
    with refused(store, NotImplementedError, Unsupported):
        single(store, metadata_version=3)
    with refused(store, TypeError, InvalidType):
        single(store, df_serializer="csv")


def test_the_serializer_writes_the_file(store):
    commit(store, single(store, df_serializer=CsvFormat()))
    assert len(keys(store, ".csv")) == 2
    assert rows(store, "x") == [(1,), (2,), (3,), (4,)]


def test_a_factory_says_where_the_dataset_lies(store):
    factory = DatasetFactory(UUID, store)
    staged = write_single_partition(data=TWO, factory=factory)
    commit_dataset(new_partitions=staged, factory=factory)
    assert len(factory.partitions) == 3


# --- commit_dataset -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "form",
    [
        lambda s: s,
        lambda s: [s],
        lambda s: (s,),
        lambda s: iter([s]),
        lambda s: [[s]],
        list,
        lambda s: [list(s)],
        lambda s: [None, [], s],
    ],
)
def test_staged_partitions_are_committed(store, form):
    staged = single(store)
    before = contents(store)
    made = commit_dataset(store, UUID, form(staged))
    assert rows(store) == [("a", 1, 1), ("a", 2, 2), ("a", 2, 3), ("b", 3, 4)]
    assert (len(made.partitions), user_metadata(store)) == (3, {"owner": "me"})
    assert index(store, "i1") == index_of_files(store, "i1")
    assert {k for k in set(contents(store)) - set(before) if "/table/" in k} == set()


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"new_partitions": []},
        {"new_partitions": [None]},
        {"metadata": {}, "delete_scope": []},
        {"new_partitions": [[], [[]]]},
        {"new_partitions": iter([])},
    ],
)
def test_nothing_to_commit_is_refused(store, arguments):  # E10
    with refused(store, ValueError, InvalidInput, "Need to provide either new data, new metadata or a delete scope"):
        commit_dataset(store, UUID, **arguments)


@pytest.mark.parametrize(
    "arguments",
    [{"metadata": {"x": 1}}, {"metadata": lambda: {"x": 1}}, {"metadata_merger": lambda found: {**found[0], "x": 1}}],
)
def test_metadata_alone_is_committed(store, arguments):  # E11
    files = {k: v for k, v in contents(store).items() if "metadata.json" not in k}
    commit_dataset(store, UUID, **arguments)
    assert user_metadata(store) == {"owner": "me", "x": 1}
    assert {
        k: v for k, v in contents(store).items() if "metadata.json" not in k and (k in files or "/_history/" not in k)
    } == files


def test_an_implicit_dataset_becomes_explicit_with_all_that_is_there(implicit):
    first, second = single(implicit, ONE), single(implicit, TWO)
    commit(implicit, second)
    assert sorted(document(implicit)["partitions"]) == sorted([*first.labels, *second.labels])
    assert len(rows(implicit)) == 4
    single(implicit, ONE)
    assert len(rows(implicit)) == 4


def test_indices_that_a_partition_lacks_are_read_from_its_file(implicit):  # E12 E15
    early = single(implicit, ONE)
    commit(implicit, early)
    late = single(implicit, TWO)
    build_dataset_indices(implicit, UUID, "i1")
    assert all(not receipt.entries for receipt in late.receipts)
    commit(implicit, late, secondary_indices="i1")
    assert index(implicit, "i1") == index_of_files(implicit, "i1")
    assert rows(implicit, "x", predicates=[[("i1", "==", 3)]]) == [(4,)]


def element(label, rows=None):
    return {"label": label, "data": {"table": rows}}


def test_files_that_lie_where_their_labels_say_are_committed(store):  # E12
    staged = single(store)
    commit(store, *(element(label) for label in staged.labels))
    assert rows(store) == [("a", 1, 1), ("a", 2, 2), ("a", 2, 3), ("b", 3, 4)]
    assert index(store, "i1") == index_of_files(store, "i1")


def test_of_each_file_that_is_committed_the_footer_is_read_once_and_its_size_asked_for(implicit):
    staged = single(implicit, pd.DataFrame({"p": ["a", "b", "c"], "i1": [1, 2, 3], "x": [1, 2, 3]}))
    counting = CountingStore(implicit)
    commit(counting, *({"label": label, "data": {"table": None}} for label in staged.labels))
    data = [
        call
        for call in counting.calls
        if call.operation != "local_path" and call.key in {receipt.key for receipt in staged.receipts}
    ]
    assert len(data) == 2 * len(staged)
    assert rows(implicit, "x") == [(1,), (2,), (3,)]


def test_a_label_without_its_file_is_refused(store):  # E13
    for wrong in (element("p=a/nowhere", TWO), element("p=a/nowhere"), element("nowhere")):
        with refused(store, KeyError, KeyNotFound, "nowhere"):
            commit(store, wrong)


def test_a_label_without_partition_values_is_refused(store):
    store.put(f"{UUID}/table/flat.parquet", store.get(keys(store, "p=a/")[0]))
    with refused(store, ValueError):
        commit(store, element("flat"))


@pytest.mark.parametrize(
    "item", [TWO, {"table": TWO}, pa.table({"x": [1]}), {"data": {"table": TWO}}, [TWO], {"table": None}]
)
def test_rows_without_files_are_refused(store, item):
    with refused(store, ValueError, InvalidInput, "without files"):
        commit(store, item)


@pytest.mark.parametrize("item", [5, "p=a/x", object(), [5], {"label": "p=a/x"}])
def test_what_is_no_partition_is_refused(store, item):
    with refused(store, ValueError, InvalidInput):
        commit(store, item)


def test_a_partition_that_is_committed_twice_is_one(store):  # E14
    staged = single(store)
    commit(store, staged, staged, *staged)
    before = sorted(labels(store))
    commit(store, staged)
    assert (sorted(labels(store)), len(rows(store))) == (before, 4)
    assert index(store, "i1") == index_of_files(store, "i1")


def test_two_files_of_one_label_are_refused(store):
    first, second = (single(store, {"label": "new", "data": {"table": TWO.iloc[:1]}}) for _ in range(2))
    assert first.labels == second.labels
    assert first.files != second.files
    with refused(store, ValueError, InvalidInput, "duplicated"):
        commit(store, first, second)


@pytest.mark.parametrize("named", ["x", ["i1", "x"]])
def test_a_commit_cannot_add_an_index_for_new_partitions_only(store, named):  # E16 E17
    staged = single(store)
    with refused(store, ValueError, InvalidInput, "build_dataset_indices"):
        commit(store, staged, secondary_indices=named)


def test_the_first_index_of_an_unindexed_dataset_covers_everything_or_is_refused(implicit):  # E16
    commit(implicit, single(implicit, ONE))
    staged = single(implicit)
    with refused(implicit, ValueError, InvalidInput, "build_dataset_indices"):
        commit(implicit, staged, secondary_indices="i1")


def test_a_commit_makes_a_dataset(empty):
    store_dataframes_as_dataset(empty, UUID, [ONE, TWO], partition_on="p")
    names = labels(empty)
    empty.delete(document_key(UUID))
    with refused(empty, ValueError, InvalidInput, "partition columns"):
        commit_dataset(empty, UUID, [element(name) for name in names], partition_on="p")
    commit_dataset(
        empty,
        UUID,
        [element(name, ONE) for name in names],
        partition_on="p",
        secondary_indices="i1",
        metadata={"owner": "you"},
    )
    assert (schema(empty), len(rows(empty)), user_metadata(empty)) == (
        {"p": "string", "i1": "int64", "x": "int64"},
        4,
        {"owner": "you"},
    )
    assert index(empty, "i1") == index_of_files(empty, "i1")


def test_a_missing_dataset_is_not_made_of_nothing(empty):
    for arguments in ({"metadata": {"x": 1}}, {"delete_scope": [{"p": 1}]}):
        with refused(empty, ValueError, InvalidInput, "Cannot store empty datasets"):
            commit_dataset(empty, UUID, **arguments)
    assert not exists(empty)


def test_files_of_another_dataset_are_refused(store):
    store_dataframes_as_dataset(store, "other", [ONE], partition_on="p", secondary_indices="i1")
    staged = write_single_partition(store, "other", TWO)
    with refused(store, ValueError, InvalidInput, "belongs to dataset 'other'"):
        commit(store, staged)


def test_partitions_of_a_dataset_that_was_replaced_are_refused(store):
    staged = single(store)
    store_dataframes_as_dataset(store, UUID, [ONE], overwrite=True)
    with refused(store, ValueError, InvalidInput, "was replaced"):
        commit(store, staged)
    store_dataframes_as_dataset(store, UUID, [ONE.astype({"x": str})], overwrite=True, partition_on="p")
    with refused(store, ValueError, InvalidInput, "Schema violation"):
        commit(store, staged)


def test_partitions_replace_and_leave_in_one_commit(store):
    commits = len(snapshot(store).chain)
    commit(store, single(store), delete_scope=[{"p": "a"}], metadata={"owner": "you"})
    assert len(snapshot(store).chain) == commits + 1
    assert (rows(store), user_metadata(store)) == ([("a", 2, 3), ("b", 3, 4)], {"owner": "you"})


def test_arguments_of_commits_without_effect_are_taken(store):
    commit(store, single(store), output_dataset_uuid="other", df_serializer="any", partition_on="p")
    assert not exists(store, "other")


@pytest.mark.parametrize(
    ("arguments", "builtin", "error"),
    [
        ({"default_metadata_version": 3}, NotImplementedError, Unsupported),
        ({"metadata_merger": {"x": 1}}, TypeError, InvalidType),
        ({"metadata": {"x": object()}}, TypeError, InvalidType),
        ({"partition_on": "x"}, ValueError, InvalidInput),
        ({"secondary_indices": {"i1"}}, ValueError, InvalidInput),
        ({"delete_scope": {"p": "a"}}, ValueError, InvalidInput),
        ({"delete_scope": [{"x": 1}]}, RuntimeError, InvalidRequest),
    ],
)
def test_arguments_of_commits_are_checked(store, arguments, builtin, error):
    staged = single(store)
    with refused(store, builtin, error):
        commit(store, staged, **arguments)


def test_tables_of_a_partition_are_committed_together(empty):
    both = {"a": pd.DataFrame({"p": [1], "x": [1]}), "b": pd.DataFrame({"p": [1], "y": [2]})}
    update_dataset_from_dataframes([both], empty, UUID, partition_on="p")
    (staged,) = single(empty, both)
    assert sorted(staged.files) == ["a", "b"]
    half = StagedPartitions(staged.uuid, staged.receipts[:1])
    with refused(empty, ValueError, InvalidInput, "different tables"):
        commit(empty, half)
    commit(empty, staged)
    assert (rows(empty, table="a"), rows(empty, table="b")) == ([(1, 1), (1, 1)], [(1, 2), (1, 2)])
