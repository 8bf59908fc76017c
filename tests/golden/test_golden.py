"""Stores written by kartothek 5.3 give the answers that kartothek 5.3 gave."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from tests.golden import checker
from tests.support.thoroughness import some

HERE = Path(__file__).parent
ARCHIVE = HERE / "kartothek-5.3.tar.xz"
NOT_YET = frozenset((HERE / "not_yet.txt").read_text(encoding="utf-8").split())
# What kartothek refused is answered where a constant means one value without loss.
ANSWERED = frozenset((HERE / "answered.txt").read_text(encoding="utf-8").split())
N_CASES = 46
N_QUERIES = 1_539


def case_names() -> list[str]:
    with tarfile.open(ARCHIVE) as archive:
        return sorted(name.removesuffix("/case.json") for name in archive.getnames() if name.endswith("/case.json"))


CASES = case_names()


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("golden")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.mark.parametrize("name", CASES)
def test_every_query_is_answered_as_kartothek_did(corpus, name):
    listed = {entry.split("/")[1] for entry in NOT_YET if entry.split("/")[0] == name}
    answered = {entry.split("/")[1] for entry in ANSWERED if entry.split("/")[0] == name}
    asked = {query["id"] for query in some(checker.load_case(corpus / name)["queries"], 3)} | listed | answered
    before = checker.fingerprint(corpus / name / "store")
    failed = checker.check_case(corpus / name, asked)
    assert {query for query in answered if failed.pop(query, "").endswith("got an answer")} == answered
    surprises = [f"{name}/{query} {reason}" for query, reason in failed.items() if query not in listed]
    assert not surprises, "\n".join(surprises)
    assert listed <= failed.keys(), f"{sorted(listed - failed.keys())} of {name} pass: remove them from not_yet.txt"
    assert checker.fingerprint(corpus / name / "store") == before, "reading changed the store"


def test_the_archive_is_whole(corpus):
    assert len(CASES) == N_CASES
    assert sum(len(checker.load_case(corpus / name)["queries"]) for name in CASES) == N_QUERIES


def test_the_list_of_failing_queries_names_queries_that_exist(corpus):
    known = {f"{name}/{query['id']}" for name in CASES for query in checker.load_case(corpus / name)["queries"]}
    assert known >= NOT_YET | ANSWERED
