"""Single datasets, written and updated by turns: by us and by the real kartothek 5.3.

Both read the same rows after every turn.
"""

from __future__ import annotations

import datetime as dt
import warnings
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kartothek_cube.api.dataset import (
    build_dataset_indices,
    commit_dataset,
    create_empty_dataset_header,
    garbage_collect_dataset,
    read_table_arrow,
    store_dataframes_as_dataset,
    update_dataset_from_dataframes,
    write_single_partition,
)
from kartothek_cube.core.arrow.types import stored_schema
from kartothek_cube.core.runtime.options import options
from kartothek_cube.core.snapshots.loader import load_index, load_snapshot
from kartothek_cube.core.stores.open import open_store
from tests.integration.interop.datasets import KINDS, Other, expected, numbers, plain, plain_value

# kartothek cannot update a column of times with a zone, whoever wrote it; and pandas has no maps.
NOT_UPDATED = {"timestamp_with_zone"}
UPDATED = [name for name in KINDS if name not in NOT_UPDATED]
INDEXED = [name for name in KINDS if KINDS[name].index]
NO_GRACE = options(grace=dt.timedelta(0), retain=dt.timedelta(0))


def rows(start, p, q=(), i1=()):
    """A few rows: numbers, partition columns p and q, an indexed text, a payload."""
    return pa.table(
        {
            "n": pa.array(range(start, start + len(p)), pa.int64()),
            "p": pa.array(p, pa.int64()),
            "q": pa.array(q or ["a/b"] * len(p), pa.string()),
            "i1": pa.array(i1 or [f"L{value}" for value in p], pa.string()),
            "v1": pa.array([value / 2 for value in p], pa.float64()),
        }
    )


ONE, TWO, THREE = rows(0, [1, 1, 2], i1=["a", "b", "a"]), rows(10, [3], i1=["c"]), rows(20, [2, 4], i1=["b", "ä"])
LAYOUT = {"partition_on": ["p"], "secondary_indices": ["i1"]}
TABLES = {"facts": ONE.select(["n", "p", "i1"]), "names": ONE.select(["n", "p", "v1"])}
MORE_TABLES = {"facts": TWO.select(["n", "p", "i1"]), "names": TWO.select(["n", "p", "v1"])}
BY = ("ours", "theirs")


def read(store, uuid, table="table"):
    return plain(read_table_arrow(uuid, store, table=table))


def update(store, uuid, delivery, **arguments):
    return update_dataset_from_dataframes([delivery], store, uuid, **arguments)


# --- the turns ------------------------------------------------------------------------------------


def first_turn_here(store):
    """Datasets of ours, for kartothek to read and update."""
    for name, kind in KINDS.items():
        store_dataframes_as_dataset(store, f"ours_{name}", [kind.rows(0)], **kind.layout)
    store_dataframes_as_dataset(store, "ours_json", [ONE], metadata={"owner": "we"}, **LAYOUT)
    store_dataframes_as_dataset(
        store, "ours_msgpack", [ONE], metadata={"owner": "we"}, metadata_storage_format="msgpack", **LAYOUT
    )
    store_dataframes_as_dataset(store, "ours_two_keys", [ONE], partition_on=["q", "p"], secondary_indices=["i1"])
    store_dataframes_as_dataset(store, "ours_tables", [TABLES], **LAYOUT)
    store_dataframes_as_dataset(store, "ours_built", [ONE], metadata={"owner": "we"}, partition_on=["p"])
    build_dataset_indices(store, "ours_built", ["i1"])
    store_dataframes_as_dataset(store, "ours_grown", [ONE.drop_columns(["v1"])], **LAYOUT)
    update(store, "ours_grown", TWO, add_columns=True)
    store_dataframes_as_dataset(store, "ours_plain", [ONE, THREE])
    store_dataframes_as_dataset(
        store, "ours_map", [pa.table({"n": [0], "v1": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))})]
    )
    create_empty_dataset_header(
        store, "ours_header", {"table": ONE.schema}, partition_on=["p"], metadata={"owner": "we"}
    )
    write_single_partition(store, "ours_header", ONE)
    create_empty_dataset_header(store, "ours_mixed", {"table": ONE.schema}, partition_on=["p"])


def first_turn_there(other):
    """kartothek reads and updates ours, and writes datasets of its own."""
    for name, kind in KINDS.items():
        first, second = (other.give(f"{name} {i}", kind.rows(i, stored=True)) for i in range(2))
        plan_reading(other, name, "ours", first, 1)
        other.plan(f"ours {name} update", "update", f"ours_{name}", rows=second)
        plan_reading(other, name, "ours", first, 2)
        other.plan(f"theirs {name} store", "store", f"theirs_{name}", rows=first, **kind.layout)
    one, two, three = (other.give(name, table) for name, table in {"one": ONE, "two": TWO, "three": THREE}.items())
    for uuid in ("json", "msgpack", "two_keys", "built"):
        other.plan(f"ours {uuid} read", "read", f"ours_{uuid}")
        other.plan(f"ours {uuid} ask", "ask", f"ours_{uuid}", rows=one, column="i1")
        other.plan(f"ours {uuid} update", "update", f"ours_{uuid}", rows=two, metadata={"rev": 2})
        other.plan(f"ours {uuid} labels", "labels", f"ours_{uuid}", rows=two, column="i1")
    for table in TABLES:
        other.plan(f"ours tables read {table}", "read", "ours_tables", table=table)
    both = {name: other.give(f"tables {name}", rows) for name, rows in TABLES.items()}
    more = {name: other.give(f"more {name}", rows) for name, rows in MORE_TABLES.items()}
    other.plan("ours tables update", "update", "ours_tables", tables=more)
    other.plan("theirs tables store", "store", "theirs_tables", tables=both, **LAYOUT)
    other.plan("ours grown read", "read", "ours_grown")
    other.plan("ours grown update", "update", "ours_grown", rows=three)
    for column, op in (("n", ">"), ("i1", ">="), ("v1", "<=")):
        other.plan(f"ours plain ask {column}", "ask", "ours_plain", rows=three, column=column, op=op)
    other.plan("ours map show", "show", "ours_map", column="v1")
    other.plan("ours header read", "read", "ours_header")
    other.plan("ours header single", "single", "ours_header", rows=two)
    other.plan("ours header commit", "commit", "ours_header", metadata={"rev": 2})
    other.plan("ours header describe", "describe", "ours_header")
    other.plan("ours mixed single", "single", "ours_mixed", rows=two)
    own_of_kartothek(other, one, two)
    for uuid in ("json", "two_keys", "grown", "header"):
        other.plan(f"ours {uuid} collect", "collect", f"ours_{uuid}")


def own_of_kartothek(other, one, two):
    other.plan("theirs json store", "store", "theirs_json", rows=one, metadata={"owner": "they"}, **LAYOUT)
    other.plan(
        "theirs msgpack store",
        "store",
        "theirs_msgpack",
        rows=one,
        metadata={"owner": "they"},
        metadata_storage_format="msgpack",
        **LAYOUT,
    )
    other.plan("theirs twin store", "store", "theirs_twin", rows=one, metadata_storage_format="msgpack", **LAYOUT)
    other.plan("theirs twin update", "update", "theirs_twin", rows=two)
    other.plan(
        "theirs two_keys store", "store", "theirs_two_keys", rows=one, partition_on=["q", "p"], secondary_indices=["i1"]
    )
    other.plan("theirs built store", "store", "theirs_built", rows=one, partition_on=["p"], metadata={"owner": "they"})
    other.plan("theirs built build", "build", "theirs_built", column="i1")
    other.plan("theirs indexed store", "store", "theirs_indexed", rows=one, partition_on=["p"])
    other.plan("theirs scope store", "store", "theirs_scope", rows=one, **LAYOUT)
    other.plan(
        "theirs scope update", "update", "theirs_scope", rows=two, delete_scope=[{"p": 1}, {"p": 2, "i1": "nothing"}]
    )
    other.plan(
        "theirs header header", "header", "theirs_header", rows=one, partition_on=["p"], metadata={"owner": "they"}
    )
    other.plan("theirs header single", "single", "theirs_header", rows=one)
    for compress in (True, False):
        other.plan(f"theirs csv {compress}", "csv", f"theirs_csv_{compress}", rows=one, compress=compress)


def plan_reading(other, name, whose, probe, turn):
    """Read a dataset of a kind, and look for a value by index and by path."""
    uuid, kind = f"{whose}_{name}", KINDS[name]
    other.plan(f"{whose} {name} read {turn}", "read", uuid)
    if kind.index:
        other.plan(f"{whose} {name} ask {turn}", "ask", uuid, rows=probe, column="i1")
    if kind.index and name != "timestamp_with_zone":
        other.plan(f"{whose} {name} labels {turn}", "labels", uuid, rows=probe, column="i1")
    if kind.key and not name.startswith("bytes"):
        other.plan(f"{whose} {name} ask p {turn}", "ask", uuid, rows=probe, column="p")


def second_turn_here(store, seen):
    """We read everything, and go on with it."""
    for name, kind in KINDS.items():
        for uuid in (f"ours_{name}", f"theirs_{name}"):
            seen[uuid] = read(store, uuid)
            seen[uuid, "index"] = load_index(store, load_snapshot(store, uuid), "i1")[0] if kind.index else None
            seen[uuid, "asked"] = asked_here(store, uuid, kind)
            update(store, uuid, kind.rows(2))
    for whose in BY:
        for name in ("json", "msgpack", "two_keys", "built"):
            seen[f"{whose}_{name}"] = read(store, f"{whose}_{name}")
        for table in TABLES:
            seen[f"{whose}_tables", table] = read(store, f"{whose}_tables", table)
    seen["ours_msgpack", "keys"] = [
        key for key in store.list("", recursive=True).keys if key.startswith("ours_msgpack.")
    ]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for whose in BY:
            update(store, f"{whose}_msgpack", THREE, metadata={"rev": 3})
    seen["warned"] = [str(warning.message) for warning in caught]
    for name in ("ours_grown", "ours_header", "theirs_scope", "theirs_twin", "theirs_csv_True", "theirs_csv_False"):
        seen[name] = read(store, name)
    go_on_here(store, seen)


def asked_here(store, uuid, kind):
    column = "i1" if kind.index else "p"
    if not kind.index:
        return None
    value = kind.rows(0, stored=True).column(column)[0].as_py()
    return sorted(
        read_table_arrow(uuid, store, columns=["n"], predicates=[[(column, "==", value)]]).column("n").to_pylist()
    )


def go_on_here(store, seen):
    for whose in BY:
        update(store, f"{whose}_json", THREE, delete_scope=[{"p": 1}], metadata={"rev": 3})
        update(store, f"{whose}_two_keys", THREE, delete_scope=[{"q": "a/b", "i1": "b"}])
        update(store, f"{whose}_tables", {name: THREE.select(rows.column_names) for name, rows in TABLES.items()})
    update(store, "theirs_built", THREE)
    build_dataset_indices(store, "theirs_indexed", ["i1"])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        update(store, "theirs_twin", THREE)
    seen["twin warned"] = [str(warning.message) for warning in caught]
    update(store, "theirs_csv_True", TWO)
    label = seen["theirs header label"]
    single = write_single_partition(store, "theirs_header", TWO)
    commit_dataset(
        store,
        "theirs_header",
        [single, *({"label": name, "data": {"table": None}} for name in label)],
        metadata={"rev": 2},
    )
    commit_dataset(store, "ours_mixed", metadata={"rev": 2})
    with NO_GRACE:
        seen["collected"] = {
            uuid: garbage_collect_dataset(uuid, store)
            for uuid in ("theirs_scope", "theirs_json", "theirs_two_keys", "theirs_header")
        }


def second_turn_there(other):
    """kartothek reads everything again, and can still update all of it."""
    for name, kind in KINDS.items():
        third = other.give(f"{name} 2", kind.rows(2, stored=True))
        for whose in BY:
            plan_reading(other, name, whose, third, 3)
            other.plan(f"{whose} {name} update 2", "update", f"{whose}_{name}", rows=third)
    for whose in BY:
        for name in ("json", "msgpack", "two_keys", "built"):
            other.plan(f"{whose} {name} read 2", "read", f"{whose}_{name}")
            other.plan(f"{whose} {name} ask 2", "ask", f"{whose}_{name}", rows="three", column="i1")
            other.plan(f"{whose} {name} describe", "describe", f"{whose}_{name}")
        for table in TABLES:
            other.plan(f"{whose} tables read 2 {table}", "read", f"{whose}_tables", table=table)
    for name in (
        "ours_grown",
        "ours_header",
        "ours_mixed",
        "theirs_header",
        "theirs_scope",
        "theirs_indexed",
        "theirs_twin",
        "theirs_csv_True",
    ):
        other.plan(f"{name} read 3", "read", name)
        other.plan(f"{name} describe 3", "describe", name)
    other.plan("theirs_indexed labels", "labels", "theirs_indexed", rows="one", column="i1")
    other.plan("theirs_indexed update", "update", "theirs_indexed", rows="two")


@pytest.fixture(scope="module")
def played(run_kartothek, tmp_path_factory):
    """The whole game: two turns each."""
    folder = tmp_path_factory.mktemp("datasets")
    url = f"hfs://{folder / 'store'}"
    store, other, seen = open_store(url), Other("kartothek", run_kartothek, url, folder), {}
    first_turn_here(store)
    first_turn_there(other)
    other.go()
    seen["theirs header label"] = theirs_header_labels(store)
    second_turn_here(store, seen)
    second_turn_there(other)
    other.go()
    return SimpleNamespace(store=store, other=other, seen=seen)


def theirs_header_labels(store):
    return load_snapshot(store, "theirs_header").partitions.labels.to_pylist()


# --- types ----------------------------------------------------------------------------------------


def as_kartothek_has_them(name, rows):
    """Its known weaknesses: boolean partition columns read true, those of bytes read text."""
    if name == "bool":
        return [{**row, "p": True} for row in rows]
    if name.startswith("bytes"):
        return [{**row, "p": row["p"].decode()} for row in rows]
    return rows


def deliveries(name, *more):
    return [0, *(i for i in more if i != 1 or name in UPDATED)]


@pytest.mark.parametrize("name", KINDS)
def test_kartothek_reads_what_we_wrote(played, name):
    assert played.other.rows(f"ours {name} read 1") == as_kartothek_has_them(name, expected(name, [0]))


@pytest.mark.parametrize("name", UPDATED)
def test_kartothek_updates_what_we_wrote_and_we_read_that(played, name):
    played.other.said(f"ours {name} update")
    assert played.other.rows(f"ours {name} read 2") == as_kartothek_has_them(name, expected(name, [0, 1]))
    assert played.seen[f"ours_{name}"] == expected(name, [0, 1])


@pytest.mark.parametrize("name", NOT_UPDATED)
def test_a_column_that_kartothek_cannot_update_even_if_it_is_its_own(played, name):
    for answer in (f"ours {name} update", f"ours {name} update 2", f"theirs {name} update 2"):
        assert "Schema violation" in played.other.refused(answer)


@pytest.mark.parametrize("name", KINDS)
def test_we_read_and_update_what_kartothek_wrote_and_it_reads_that(played, name):
    assert played.seen[f"theirs_{name}"] == expected(name, [0])
    assert played.other.rows(f"theirs {name} read 3") == as_kartothek_has_them(name, expected(name, [0, 2]))


@pytest.mark.parametrize("name", KINDS)
def test_kartothek_reads_what_both_wrote(played, name):
    assert played.other.rows(f"ours {name} read 3") == as_kartothek_has_them(
        name, expected(name, deliveries(name, 1, 2))
    )


def test_kartothek_reads_our_maps(played):
    assert played.other.said("ours map show") == ["[('a', 1)]"]


@pytest.mark.parametrize("whose", BY)
@pytest.mark.parametrize("name", UPDATED)
def test_kartothek_can_still_update_after_us(played, name, whose):
    played.other.said(f"{whose} {name} update 2")
    again = KINDS[name].rows(2).to_pylist()
    assert len(read(played.store, f"{whose}_{name}")) == len(
        expected(name, deliveries(name, *([1] if whose == "ours" else []), 2))
    ) + len(again)


@pytest.mark.parametrize("name", INDEXED)
def test_values_are_found_by_index_there_and_here(played, name):
    first, third = (KINDS[name].rows(i, stored=True).column("i1")[0].as_py() for i in (0, 2))
    first, third = plain_value(first), plain_value(third)
    for answer, held, value in [
        (f"ours {name} ask 1", [0], first),
        (f"ours {name} ask 2", deliveries(name, 1), first),
        (f"ours {name} ask 3", deliveries(name, 1, 2), third),
        (f"theirs {name} ask 3", [0, 2], third),
    ]:
        assert played.other.said(answer) == numbers(name, held, "i1", value), answer
    assert played.seen[f"ours_{name}", "asked"] == numbers(name, deliveries(name, 1), "i1", first)
    assert played.seen[f"theirs_{name}", "asked"] == numbers(name, [0], "i1", first)


@pytest.mark.parametrize("name", [name for name in INDEXED if name in UPDATED])
def test_an_index_names_the_same_labels_there_and_here(played, name):
    value = KINDS[name].rows(0, stored=True).column("i1")[0]
    index = played.seen[f"ours_{name}", "index"]
    here = {
        label
        for found, label in zip(index.values.to_pylist(), index.labels.to_pylist(), strict=True)
        if found == value.as_py()
    }
    assert played.other.said(f"ours {name} labels 2") == sorted(here)
    assert here


@pytest.mark.parametrize("name", [name for name in INDEXED if KINDS[name].key and not name.startswith("bytes")])
def test_values_are_found_by_path_there(played, name):
    first, third = (KINDS[name].rows(i, stored=True).column("p")[0].as_py() for i in (0, 2))
    assert played.other.said(f"ours {name} ask p 2") == numbers(name, [0, 1], "p", first)
    assert played.other.said(f"ours {name} ask p 3") == numbers(name, [0, 1, 2], "p", third)
    assert played.other.said(f"theirs {name} ask p 3") == numbers(name, [0, 2], "p", third)


# --- documents, layouts, verbs --------------------------------------------------------------------


def several(*tables):
    return [row for table in tables for row in plain(table)]


def without(table, removed):
    return [row for row in plain(table) if not removed(row)]


@pytest.mark.parametrize("name", ["json", "msgpack", "two_keys", "built"])
def test_a_dataset_of_ours_is_read_and_updated_there(played, name):
    assert played.other.rows(f"ours {name} read") == plain(ONE)
    assert played.other.said(f"ours {name} ask") == [0, 2]
    assert played.other.said(f"ours {name} update") == 3
    assert len(played.other.said(f"ours {name} labels")) == 1
    assert played.seen[f"ours_{name}"] == several(ONE, TWO)


@pytest.mark.parametrize("name", ["json", "msgpack", "two_keys", "built"])
def test_a_dataset_of_theirs_is_read_here(played, name):
    assert played.seen[f"theirs_{name}"] == plain(ONE)


def test_kartothek_sees_only_the_metadata_that_users_gave(played):
    described = {
        name: played.other.said(f"{name} describe")
        for name in ("ours json", "theirs json", "theirs msgpack", "ours built")
    }
    assert described["ours json"] == {
        "metadata": {"owner": "we", "rev": 3},
        "partitions": 4,
        "explicit": True,
        "indices": ["i1", "p"],
    }
    assert described["theirs json"]["metadata"] == {"owner": "they", "rev": 3}
    assert described["theirs msgpack"]["metadata"] == {"owner": "they", "rev": 3}
    assert described["ours built"]["metadata"] == {"owner": "we", "rev": 2}


def test_a_second_document_of_kartothek_counts_and_our_next_commit_removes_the_first(played):
    assert played.seen["ours_msgpack", "keys"] == [
        "ours_msgpack.by-dataset-metadata.json",
        "ours_msgpack.by-dataset-metadata.msgpack.zstd",
    ]
    assert played.seen["ours_msgpack"] == several(ONE, TWO)
    by_kartothek, two_documents = played.seen["warned"]
    assert "changed by a library without commit ids" in by_kartothek
    assert "'ours_msgpack' had two documents" in two_documents
    assert len(played.seen["twin warned"]) == 1
    assert played.seen["theirs_twin"] == several(ONE, TWO)
    for uuid in ("ours_msgpack", "theirs_twin"):
        assert [key for key in played.store.list("", recursive=True).keys if key.startswith(f"{uuid}.")] == [
            f"{uuid}.by-dataset-metadata.json"
        ]
    assert played.other.rows("ours msgpack read 2") == several(ONE, TWO, THREE)
    assert played.other.rows("theirs_twin read 3") == several(ONE, TWO, THREE)


def test_a_msgpack_dataset_of_theirs_stays_one_when_we_update_it(played):
    assert [key for key in played.store.list("", recursive=True).keys if key.startswith("theirs_msgpack.")] == [
        "theirs_msgpack.by-dataset-metadata.msgpack.zstd"
    ]
    assert played.other.rows("theirs msgpack read 2") == several(ONE, THREE)


def test_our_delete_scope_leaves_what_kartothek_reads(played):
    assert played.other.rows("ours json read 2") == without(several_table(ONE, TWO, THREE), lambda row: row["p"] == 1)
    assert played.other.rows("theirs json read 2") == without(several_table(ONE, THREE), lambda row: row["p"] == 1)
    # The partition p=1 holds a row with i1 = "b"; whole partitions go.
    assert played.other.rows("ours two_keys read 2") == without(
        several_table(ONE, cut(TWO), THREE), lambda row: row["n"] < 2
    )
    assert played.other.rows("theirs two_keys read 2") == without(
        several_table(cut(ONE), THREE), lambda row: row["n"] < 2
    )
    assert played.other.said("ours json ask 2") == [20]
    assert played.other.said("theirs two_keys ask 2") == [20]


def several_table(*tables):
    return pa.concat_tables(tables)


def cut(table):
    """Rows as kartothek reads them if it wrote them itself: of a partition value with a slash only
    what is before it.
    """
    return table.set_column(
        table.column_names.index("q"), "q", pa.array([q.partition("/")[0] for q in table.column("q").to_pylist()])
    )


def test_their_delete_scope_leaves_what_we_read(played):
    assert played.seen["theirs_scope"] == without(several_table(ONE, TWO), lambda row: row["p"] == 1)
    assert played.other.rows("theirs_scope read 3") == played.seen["theirs_scope"]


@pytest.mark.parametrize("table", TABLES)
def test_datasets_of_several_tables_go_both_ways(played, table):
    first, second, third = TABLES[table], MORE_TABLES[table], THREE.select(TABLES[table].column_names)
    assert played.other.rows(f"ours tables read {table}") == plain(first)
    assert played.seen["ours_tables", table] == several(first, second)
    assert played.seen["theirs_tables", table] == plain(first)
    assert played.other.rows(f"ours tables read 2 {table}") == several(first, second, third)
    assert played.other.rows(f"theirs tables read 2 {table}") == several(first, third)


def test_an_index_that_was_built_here_is_used_and_kept_there(played):
    assert played.other.said("ours built describe")["indices"] == ["i1", "p"]
    assert played.other.said("ours built ask 2") == [1]
    assert played.other.said("theirs_indexed describe 3")["indices"] == ["i1", "p"]
    assert len(played.other.said("theirs_indexed labels")) == 2
    assert played.other.said("theirs_indexed update") == 3
    index, _ = load_index(played.store, load_snapshot(played.store, "theirs_indexed"), "i1")
    assert sorted(index.values.to_pylist()) == ["a", "a", "b", "c"]


def test_an_index_that_was_built_there_is_used_and_kept_here(played):
    assert played.other.said("theirs built describe") == {
        "metadata": {"owner": "they"},
        "partitions": 4,
        "explicit": True,
        "indices": ["i1", "p"],
    }
    assert played.other.said("theirs built ask 2") == [1, 20]
    index, _ = load_index(played.store, load_snapshot(played.store, "theirs_built"), "i1")
    assert sorted(index.values.to_pylist()) == ["a", "a", "b", "b", "ä"]


def test_columns_that_were_added_here_are_null_in_old_rows_there(played):
    filled = [{**row, "v1": None} for row in plain(ONE)]
    assert played.other.rows("ours grown read") == [*filled, *plain(TWO)]
    assert played.seen["ours_grown"] == [*filled, *several(TWO, THREE)]
    assert played.other.rows("ours_grown read 3") == played.seen["ours_grown"]


@pytest.mark.parametrize(("column", "matching"), [("n", [21]), ("i1", [1, 20, 21]), ("v1", [0, 1, 2, 20])])
def test_statistics_of_our_files_exclude_no_row_there(played, column, matching):
    assert played.other.said(f"ours plain ask {column}") == matching


def test_partitions_written_here_under_a_header_are_committed_there(played):
    assert played.other.rows("ours header read") == plain(ONE)
    assert played.other.said("ours header commit") == 3
    assert played.other.said("ours header describe") == {
        "metadata": {"owner": "we", "rev": 2},
        "partitions": 3,
        "explicit": True,
        "indices": ["p"],
    }
    assert played.seen["ours_header"] == several(ONE, TWO)


def test_partitions_written_there_under_a_header_are_committed_here(played):
    assert len(played.seen["theirs header label"]) == 2
    assert played.other.rows("theirs_header read 3") == several(ONE, TWO)
    assert played.other.said("theirs_header describe 3")["metadata"] == {"owner": "they", "rev": 2}
    assert played.other.said("theirs_header describe 3")["explicit"]
    assert played.other.rows("ours_mixed read 3") == plain(TWO)
    assert played.other.said("ours_mixed describe 3")["explicit"]


def test_csv_files_of_kartothek_are_read_here_and_get_parquet_beside_them(played):
    for compress in (True, False):
        assert played.seen[f"theirs_csv_{compress}"] == plain(ONE)
    files = load_snapshot(played.store, "theirs_csv_True").files.to_pylist()
    assert sorted(file.partition(".")[2] for file in files) == ["csv.gz", "parquet"]
    assert played.other.rows("theirs_csv_True read 3") == several(ONE, TWO)


def test_their_garbage_collection_leaves_our_dataset_whole(played):
    removed = {name: played.other.said(f"ours {name} collect") for name in ("json", "two_keys", "grown", "header")}
    assert all("/indices/" in key for keys in removed.values() for key in keys)
    assert removed["header"] == []
    assert played.other.rows("ours_grown read 3") == played.seen["ours_grown"]


def test_our_garbage_collection_leaves_their_dataset_whole(played):
    for uuid, report in played.seen["collected"].items():
        assert len(read(played.store, uuid)) > 0
        assert bool([key for key in report.keys if "/_history/" not in key]) == (uuid != "theirs_header"), uuid
    assert played.other.rows("theirs json read 2")


def test_schema_files_are_those_that_kartothek_writes(played):
    """Whoever wrote them last: the same fields in the same order."""
    for name in UPDATED:
        kind = KINDS[name]
        ours, theirs = (
            pq.read_schema(pa.BufferReader(played.store.get(f"{whose}_{name}/table/_common_metadata"))) for whose in BY
        )
        assert ours.remove_metadata().equals(theirs.remove_metadata()), name
        assert stored_schema(kind.rows(0).schema).names == [
            "n",
            *(["p"] if kind.key else []),
            *(["i1"] if kind.index else []),
            "v1",
        ]
