"""The layout on record: given once, obeyed by later writes, shown, changed, carried along."""

from __future__ import annotations

import json
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kartothek_cube import (
    Cube,
    append_to_cube,
    build_cube,
    compact_cube,
    describe_cube,
    extend_cube,
    options,
    query_cube,
    update_cube,
)
from kartothek_cube.api.dataset import (
    DatasetFactory,
    DatasetLayout,
    commit_dataset,
    compact_dataset,
    copy_dataset,
    delete_rows,
    merge_dataset,
    rename_dataset,
    set_layout,
    store_dataframes_as_dataset,
    store_dataframes_as_dataset__iter,
    tag_dataset,
    undo,
    update_dataset_from_dataframes,
    update_rows,
    verify_dataset,
    write_single_partition,
)
from kartothek_cube.api.serialization import CsvSerializer, ParquetSerializer
from kartothek_cube.core.dataset import maintain as module
from kartothek_cube.core.metadata.document import LAYOUT_KEY
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.snapshots.time_travel import check_as_of, load_snapshot_as_of
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.core.write.layout import layout_of
from kartothek_cube.errors import (
    CorruptDocument,
    InvalidInput,
    InvalidRequest,
    InvalidType,
    UnknownColumn,
    Unsupported,
)

UUID = "uuid"
ROWS = pa.table({"x": [3, 1, 2], "p": [1, 1, 1], "v1": [0.5, 1.5, 2.5]})


@pytest.fixture
def store():
    return MemoryStore()


def files(store, uuid=UUID):
    """The data files that the document names, opened, in its order."""
    return [pq.ParquetFile(pa.BufferReader(store.get(key))) for key in load_snapshot(store, uuid).files.to_pylist()]


def codecs(store, uuid=UUID):
    return [file.metadata.row_group(0).column(0).compression for file in files(store, uuid)]


def values(store, column="x", uuid=UUID):
    return [file.read().column(column).to_pylist() for file in files(store, uuid)]


def layout(store, uuid=UUID):
    return DatasetFactory(uuid, store).layout


# --- given once ---------------------------------------------------------------------------------


def test_what_the_first_write_says_is_kept_and_obeyed(store):
    update_dataset_from_dataframes(
        [ROWS], store, UUID, sort_partitions_by="x", df_serializer=ParquetSerializer("gzip", chunk_size=2)
    )
    assert layout(store) == DatasetLayout(("x",), compression="GZIP", row_group_rows=2)
    update_dataset_from_dataframes([ROWS], store, UUID)
    assert values(store) == [[1, 2, 3]] * 2
    assert codecs(store) == ["GZIP"] * 2
    assert [file.num_row_groups for file in files(store)] == [2, 2]


def test_a_write_that_says_nothing_keeps_nothing(store):
    store_dataframes_as_dataset(store, UUID, [ROWS])
    assert not layout(store)
    assert LAYOUT_KEY not in load_snapshot(store, UUID).document.metadata


def test_a_later_call_says_otherwise_for_itself(store):
    store_dataframes_as_dataset(store, UUID, [ROWS], df_serializer=ParquetSerializer("ZSTD"))
    update_dataset_from_dataframes(
        [ROWS], store, UUID, df_serializer=ParquetSerializer("GZIP"), sort_partitions_by=["v1"]
    )
    update_dataset_from_dataframes([ROWS], store, UUID, df_serializer=CsvSerializer())
    update_dataset_from_dataframes([ROWS], store, UUID)
    assert layout(store) == DatasetLayout(compression="ZSTD")
    keys = load_snapshot(store, UUID).files.to_pylist()
    assert [key.rpartition(".")[2] for key in keys] == ["parquet", "parquet", "gz", "parquet"]
    read = [pq.read_metadata(pa.BufferReader(store.get(key))) for key in keys if key.endswith("parquet")]
    assert [metadata.row_group(0).column(0).compression for metadata in read] == ["ZSTD", "GZIP", "ZSTD"]


def test_a_dataset_that_is_replaced_keeps_what_still_fits(store):
    store_dataframes_as_dataset(store, UUID, [ROWS], df_serializer=ParquetSerializer("ZSTD"))
    set_layout(UUID, store, sort_by="x")
    store_dataframes_as_dataset(store, UUID, [ROWS], overwrite=True)
    assert (codecs(store), values(store)) == (["ZSTD"], [[1, 2, 3]])
    store_dataframes_as_dataset(store, UUID, [ROWS.drop_columns("x")], overwrite=True)
    assert (codecs(store), layout(store)) == (["ZSTD"], DatasetLayout(compression="ZSTD"))
    set_layout(UUID, store, sort_by="v1")
    store_dataframes_as_dataset(store, UUID, [ROWS], overwrite=True, partition_on="v1")
    assert layout(store) == DatasetLayout(compression="ZSTD")


def test_several_tables_have_no_order(store):
    both = {"a": ROWS, "b": pa.table({"v2": [2, 1]})}
    store_dataframes_as_dataset(store, UUID, [both])
    with pytest.raises(Unsupported, match="has the tables"):
        set_layout(UUID, store, sort_by="x")
    set_layout(UUID, store, compression="ZSTD", target_file_bytes=1)
    assert len(update_dataset_from_dataframes([both], store, UUID).partitions) == 2


# --- changed ------------------------------------------------------------------------------------


def test_settings_are_changed_one_by_one_and_removed(store):
    store_dataframes_as_dataset(store, UUID, [ROWS], partition_on="p")
    set_layout(UUID, store, sort_by=["x", "v1"], bucket_by="x", num_buckets=4, target_file_bytes=10**6)
    changed = set_layout(UUID, store, sort_by="v1", compression="zstd", row_group_rows=1000).layout
    assert changed == layout(store) == DatasetLayout(("v1",), ("x",), 4, 10**6, "ZSTD", 1000)
    assert str(changed) == ("sorted by v1; 4 buckets by x; files of 1,000,000 bytes; ZSTD; row groups of 1,000 rows")
    empty = set_layout(
        UUID, store, sort_by=[], num_buckets=0, target_file_bytes=0, compression="", row_group_rows=0
    ).layout
    assert (empty, str(empty)) == (DatasetLayout(), "(none)")
    assert LAYOUT_KEY not in load_snapshot(store, UUID).document.metadata
    set_layout(UUID, store, sort_by="v1", bucket_by="x", num_buckets=4)
    assert set_layout(UUID, store, sort_by="", bucket_by="", num_buckets=0).layout == DatasetLayout()


@pytest.mark.parametrize(
    ("settings", "error", "text"),
    [
        ({"sort_by": "y"}, UnknownColumn, "has no column 'y'"),
        ({"sort_by": "p"}, InvalidRequest, r"partitioned by \['p'\]"),
        ({"sort_by": ["x", "x"]}, InvalidInput, "twice"),
        ({"sort_by": [1]}, InvalidType, "column names"),
        ({"bucket_by": "x"}, InvalidInput, "needs num_buckets"),
        ({"bucket_by": "y", "num_buckets": 2}, UnknownColumn, "has no column 'y'"),
        ({"bucket_by": "l", "num_buckets": 2}, InvalidType, "cannot be hashed"),
        ({"num_buckets": -1}, InvalidInput, "num_buckets is a positive number"),
        ({"target_file_bytes": 1.5}, InvalidType, "target_file_bytes is a number"),
        ({"row_group_rows": True}, InvalidType, "row_group_rows is a number"),
        ({"compression": "rar"}, InvalidInput, "unknown compression 'rar'"),
    ],
)
def test_unusable_settings_are_refused(store, settings, error, text):
    rows = ROWS.append_column("l", pa.array([[1], [2], [3]]))
    before = store_dataframes_as_dataset(store, UUID, [rows], partition_on="p").commit
    with pytest.raises(error, match=text):
        set_layout(UUID, store, **settings)
    assert load_snapshot(store, UUID).commit == before.id


def test_changes_of_two_writers_are_both_kept(store, monkeypatch):
    store_dataframes_as_dataset(store, UUID, [ROWS])
    commit, others = module.commit_change, iter([{"sort_by": "x"}])

    def second(*arguments):
        for settings in others:
            set_layout(UUID, store, **settings)
        return commit(*arguments)

    monkeypatch.setattr(module, "commit_change", second)
    set_layout(UUID, store, compression="ZSTD")
    assert layout(store) == DatasetLayout(("x",), compression="ZSTD")


def test_a_damaged_record_is_named(store):
    with pytest.raises(CorruptDocument, match=r"kartothek_cube\.layout.*of dataset 'uuid'"):
        layout_of({LAYOUT_KEY: '{"num_buckets": "four"}'}, UUID)
    for text in ("[]", "nonsense", '{"sort_by": [1]}', '{"target_file_bytes": -1}', None):
        metadata = {} if text is None else {LAYOUT_KEY: text}
        if text is None:
            assert not layout_of(metadata, UUID)
        else:
            with pytest.raises(CorruptDocument):
                layout_of(metadata, UUID)
    assert layout_of({LAYOUT_KEY: json.dumps({"zones": 3, "compression": "ZSTD"})}, UUID).compression == "ZSTD"


# --- obeyed -------------------------------------------------------------------------------------


def test_changes_of_rows_keep_order_and_codec(store):
    store_dataframes_as_dataset(store, UUID, [ROWS])
    set_layout(UUID, store, sort_by="x", compression="ZSTD", row_group_rows=2)
    update_rows(UUID, store, [[("x", "==", 1)]], {"x": 9})
    assert (values(store), codecs(store)) == ([[2, 3, 9]], ["ZSTD"])
    delete_rows(UUID, store, [[("x", "==", 3)]])
    assert values(store) == [[2, 9]]
    merge_dataset(pa.table({"x": [7, 5], "p": [1, 1], "v1": [0.0, 0.0]}), store, UUID, on=["x"])
    assert sorted(values(store)) == [[2, 9], [5, 7]]
    assert set(codecs(store)) == {"ZSTD"}


def test_a_compaction_sorts_and_cuts_as_is_on_record(store):
    random = np.random.default_rng(0)
    rows = pa.table({"x": random.permutation(60_000), "v1": np.round(random.random(60_000) * 1e6)})
    store_dataframes_as_dataset(store, UUID, [rows.slice(0, 30_000), rows.slice(30_000)])
    set_layout(UUID, store, sort_by="x", compression="ZSTD", target_file_bytes=50_000)
    assert ("info", "layout-order", "compact_dataset('uuid', store)") in [
        (f.severity, f.check, f.mend) for f in verify_dataset(UUID, store, deep=True).findings
    ]
    report = compact_dataset(UUID, store)
    sizes = [len(store.get(key)) for key in load_snapshot(store, UUID).files.to_pylist()]
    assert report.files_after == len(sizes) > 3
    assert max(sizes) <= 1.5 * 50_000
    assert list(chain.from_iterable(values(store))) == list(range(60_000))
    assert set(codecs(store)) == {"ZSTD"}
    assert "layout-order" not in [f.check for f in verify_dataset(UUID, store, deep=True).findings]
    assert compact_dataset(UUID, store).commit is None


def test_a_compaction_may_say_otherwise(store):
    store_dataframes_as_dataset(store, UUID, [ROWS, ROWS])
    set_layout(UUID, store, sort_by="x", compression="ZSTD", target_file_bytes=1)
    compact_dataset(UUID, store, target_rows=10, sort_by="v1", df_serializer=ParquetSerializer("GZIP"))
    assert (values(store, "v1"), codecs(store)) == ([[0.5, 0.5, 1.5, 1.5, 2.5, 2.5]], ["GZIP"])


def test_a_compaction_with_rewrite_writes_single_files_anew(store):
    store_dataframes_as_dataset(store, UUID, [ROWS], partition_on="p")
    set_layout(UUID, store, compression="ZSTD")
    assert compact_dataset(UUID, store).commit is None
    assert compact_dataset(UUID, store, rewrite=True).files_after == 1
    assert codecs(store) == ["ZSTD"]
    with pytest.raises(InvalidType, match="rewrite"):
        compact_dataset(UUID, store, rewrite="yes")


def test_a_recorded_order_is_in_the_way_of_no_other_call(store):
    tables = {"a": ROWS, "b": ROWS.drop_columns("v1")}
    update_dataset_from_dataframes([tables], store, "of_two_tables", sort_partitions_by="x")
    set_layout("of_two_tables", store, compression="ZSTD")
    assert layout(store, "of_two_tables").compression == "ZSTD"
    store_dataframes_as_dataset(store, UUID, [ROWS])
    set_layout(UUID, store, sort_by="x")
    lists = pa.table({"x": [[3], [1]], "p": [1, 1]})
    store_dataframes_as_dataset(store, UUID, [lists], overwrite=True)
    assert values(store, "x") == [[[3], [1]]]


def test_datasets_of_a_cube_have_a_layout_of_their_own(store):
    cube = Cube(["x"], ["p"], "cube")
    build_cube({"seed": ROWS, "other": pa.table({"x": [1], "p": [1], "v2": [1]})}, cube, store)
    set_layout("cube++seed", store, sort_by="v1", compression="GZIP")
    append_to_cube(ROWS, cube, store)
    assert codecs(store, "cube++seed")[1] == "GZIP"
    assert values(store, uuid="cube++seed") == [[1, 2, 3]] * 2  # in the order of cells until a compaction
    compact_cube(cube, store)
    assert values(store, "v1", uuid="cube++seed") == [[0.5, 1.5, 2.5]]
    assert query_cube(cube, store)[0]["x"].tolist() == [1, 2, 3]
    build_cube({"seed": ROWS, "other": pa.table({"x": [1], "p": [1], "v2": [1]})}, cube, store, overwrite=True)
    assert layout(store, "cube++seed") == DatasetLayout(("v1",), compression="GZIP")
    description = describe_cube("cube", store)
    assert [str(d.layout) for d in description.datasets] == ["(none)", "sorted by v1; GZIP"]
    assert "layout: sorted by v1; GZIP" in repr(description)
    assert "sorted by v1; GZIP" in description._repr_html_()


def test_a_cube_keeps_what_its_build_says(store):
    cube = Cube(["x"], ["p"], "cube")
    with options(target_file_bytes=10**6):
        build_cube(ROWS, cube, store, df_serializer=ParquetSerializer("ZSTD", chunk_size=2))
    append_to_cube(ROWS, cube, store)
    assert layout(store, "cube++seed") == DatasetLayout((), (), None, 10**6, "ZSTD", 2)
    assert [file.num_row_groups for file in files(store, "cube++seed")] == [2, 2]
    assert codecs(store, "cube++seed") == ["ZSTD", "ZSTD"]  # even if the file is small


CUBE = Cube(["x"], ["p"], "cube")
WRITES_OF_DATASETS = {
    "store": lambda store, **how: store_dataframes_as_dataset(store, UUID, [ROWS], overwrite=True, **how),
    "store iter": lambda store, **how: store_dataframes_as_dataset__iter([ROWS], store, UUID, overwrite=True, **how),
    "compact": lambda store, **how: compact_dataset(UUID, store, rewrite=True, **how),
    "update": lambda store, **how: update_dataset_from_dataframes([ROWS], store, UUID, **how),
    "stage": lambda store, **how: commit_dataset(
        store, UUID, new_partitions=[write_single_partition(store, UUID, ROWS, **how)]
    ),
}
WRITES_OF_CUBES = {
    "build": lambda store, **how: build_cube({"seed": ROWS, "other": OTHER}, CUBE, store, overwrite=True, **how),
    "extend": lambda store, **how: extend_cube({"other": OTHER}, CUBE, store, overwrite=True, **how),
    "compact": lambda store, **how: compact_cube(CUBE, store, rewrite=True, **how),
    "append": lambda store, **how: append_to_cube({"seed": ROWS}, CUBE, store, **how),
    "update": lambda store, **how: update_cube({"seed": ROWS}, CUBE, store, [], **how),
}
OTHER = ROWS.rename_columns(["x", "p", "v2"])


def newest(store, uuid):
    """The codec and the rows of the row groups of the newest file."""
    metadata = files(store, uuid)[-1].metadata
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    return groups[0].column(0).compression, [group.num_rows for group in groups]


@pytest.fixture(params=["first write", "set_layout"])
def recorded(request, store):
    """A dataset and a cube with GZIP and row groups of two rows on record."""
    is_first = request.param == "first write"
    how = {"df_serializer": ParquetSerializer("GZIP", chunk_size=2)} if is_first else {}
    store_dataframes_as_dataset(store, UUID, [ROWS], **how)
    build_cube({"seed": ROWS, "other": OTHER}, CUBE, store, **how)
    for uuid in () if is_first else (UUID, "cube++seed", "cube++other"):
        set_layout(uuid, store, compression="GZIP", row_group_rows=2)
    return store


@pytest.mark.parametrize(
    ("serializer", "expected"),
    [
        (None, ("GZIP", [2, 1])),
        (ParquetSerializer(), ("SNAPPY", [3])),
        (ParquetSerializer("ZSTD", chunk_size=None), ("ZSTD", [3])),
        (ParquetSerializer("gzip"), ("GZIP", [3])),
        (ParquetSerializer(chunk_size=1), ("SNAPPY", [1, 1, 1])),
    ],
    ids=str,
)
@pytest.mark.parametrize("is_cube", [False, True])
def test_a_serializer_that_a_call_names_wins_over_the_record_also_in_what_it_leaves_open(
    recorded, is_cube, serializer, expected
):
    for name, write in (WRITES_OF_CUBES if is_cube else WRITES_OF_DATASETS).items():
        write(recorded, df_serializer=serializer)
        uuid = "cube++other" if name == "extend" else "cube++seed" if is_cube else UUID
        assert newest(recorded, uuid) == expected, name
        set_layout(uuid, recorded, compression="GZIP", row_group_rows=2)


@pytest.mark.parametrize("is_cube", [False, True])
def test_what_replaces_a_dataset_puts_its_serializer_on_record_and_other_writes_do_not(recorded, is_cube):
    uuid, writes = ("cube++seed", WRITES_OF_CUBES) if is_cube else (UUID, WRITES_OF_DATASETS)
    for name in ("update", "compact"):
        writes[name](recorded, df_serializer=ParquetSerializer("ZSTD"))
        assert layout(recorded, uuid) == DatasetLayout(compression="GZIP", row_group_rows=2)
    writes["build" if is_cube else "store"](recorded, df_serializer=ParquetSerializer("ZSTD"))
    assert layout(recorded, uuid) == DatasetLayout(compression="ZSTD")
    writes["update"](recorded)
    assert newest(recorded, uuid) == ("ZSTD", [3])


# --- carried along ------------------------------------------------------------------------------


def test_undo_takes_a_change_of_the_layout_back(store):
    store_dataframes_as_dataset(store, UUID, [ROWS])
    first = set_layout(UUID, store, sort_by="x").commit.id
    set_layout(UUID, store, compression="ZSTD")
    undo(UUID, store)
    assert layout(store) == DatasetLayout(("x",))
    undo(UUID, store, first)
    assert not layout(store)


def test_undo_of_an_older_change_leaves_a_later_one(store):
    store_dataframes_as_dataset(store, UUID, [ROWS])
    commit = set_layout(UUID, store, sort_by="x").commit.id
    set_layout(UUID, store, compression="ZSTD")
    undo(UUID, store, commit)
    assert layout(store) == DatasetLayout(("x",), compression="ZSTD")


def test_copies_names_tags_and_encodings_carry_the_layout(store):
    store_dataframes_as_dataset(store, UUID, [ROWS], metadata_storage_format="msgpack")
    set_layout(UUID, store, sort_by="x")
    tag_dataset(UUID, store, "first")
    set_layout(UUID, store, sort_by="v1")
    copy_dataset(UUID, store, "copy")
    rename_dataset(UUID, store, "renamed")
    assert layout(store, "copy") == layout(store, "renamed") == DatasetLayout(("v1",))
    then = load_snapshot_as_of(store, "renamed", check_as_of("first"))
    assert layout_of(then.document.metadata, "renamed") == DatasetLayout(("x",))
