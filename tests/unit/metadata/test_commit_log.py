from __future__ import annotations

import pyarrow as pa
import pytest

from kartothek_cube.core.metadata import commit_log
from kartothek_cube.core.metadata.commit_log import COMMITS_KEY, LENGTH, Commit, chain_of, extend_chain, fingerprint
from kartothek_cube.core.metadata.document import (
    PartitionColumns,
    decode_partitions,
    empty_partitions,
    encoded_pieces,
    from_mapping,
)


def columns(**files):
    return from_mapping({label: {"files": {"table": key}} for label, key in files.items()}, "w")


def test_chain_grows_and_names_parents():
    first = extend_chain((), Commit("c1", None, "f1"), foreign=False)
    chain = chain_of(
        {COMMITS_KEY: extend_chain(chain_of({COMMITS_KEY: first}), Commit("c2", None, "f2"), foreign=False)}
    )
    assert chain == (Commit("c1", None, "f1"), Commit("c2", "c1", "f2"))


def test_chain_keeps_its_length():
    chain: tuple[Commit, ...] = ()
    for i in range(LENGTH + 5):
        chain = chain_of({COMMITS_KEY: extend_chain(chain, Commit(f"c{i}", None, "f"), foreign=False)})
    assert [c.id for c in chain] == [f"c{i}" for i in range(5, LENGTH + 5)]
    assert chain[0].parent == "c4"


def test_chain_begins_anew_after_a_foreign_writer():
    assert chain_of({COMMITS_KEY: extend_chain((Commit("c1", None, "f"),), Commit("c2", None, "f"), foreign=True)}) == (
        Commit("c2", None, "f"),
    )


@pytest.mark.parametrize(
    "value",
    [
        None,
        1,
        "",
        "x",
        "[1]",
        "[[1]]",
        "{}",
        "null",
        [["c", None]],
        '[["c", null]]',
        '[["c", null, "f", null, []]]',
        '[["c", null, "f", "no time"]]',
    ],
)
def test_unreadable_chain_is_none(value):
    assert chain_of({COMMITS_KEY: value}) == ()
    assert chain_of({}) == ()


def test_fingerprint_tells_labels_files_and_order():
    base = columns(a="1", b="2")
    assert fingerprint(base) == fingerprint(columns(a="1", b="2"))
    others = [
        columns(b="2", a="1"),
        columns(a="1"),
        columns(a="1", b="3"),
        columns(a="1", c="2"),
        columns(a="1\x002", b=""),
        None,
        empty_partitions(),
    ]
    assert fingerprint(base) not in [fingerprint(o) for o in others]


def test_fingerprint_survives_the_document():
    for partitions in (
        columns(a="1", b="ä"),
        columns(),
        columns(a="1").take([]),
        PartitionColumns(pa.array(["x", "a"])[1:], {"table": pa.array(["x", "1"])[1:]}),
    ):
        assert fingerprint(decode_partitions(b"".join(encoded_pieces(partitions)), "w")) == fingerprint(partitions)


@pytest.mark.parametrize("texts", [["a", "ä", ""], [], ["x", None, "1"], ["\x01"]])
def test_fingerprint_of_few_partitions_is_that_of_many(texts, monkeypatch):
    labels = pa.array([f"label {i}" for i in range(len(texts))], pa.string())

    def found():
        return fingerprint(PartitionColumns(labels, {"t": pa.array(["no", *texts], pa.string())[1:], "u": labels}))

    few = found()
    monkeypatch.setattr(commit_log, "_MANY", 0)
    assert found() == few
