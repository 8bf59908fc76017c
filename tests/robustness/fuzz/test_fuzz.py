from __future__ import annotations

import pytest

from tests.robustness.fuzz.mutators import KINDS, make_case
from tests.robustness.fuzz.runner import Settings, replay, run

pytestmark = pytest.mark.slow

SHORT = 500


def test_damaged_stores_give_answers_or_errors_of_ours(tmp_path):
    """The short form of ``python -m tests.robustness.fuzz``, with the same cases in every run."""
    report = run(Settings(SHORT, seed=7, seconds=60, failures=tmp_path))
    assert "\n\n".join(report.failures.values()) == ""
    assert report.outcomes.total() == SHORT
    assert {"answer", "corrupt_document", "corrupt_data", "key_not_found"} <= set(report.outcomes)


def test_a_case_is_decided_by_its_seed_and_number():
    assert [make_case(1, n) for n in range(30)] == [make_case(1, n) for n in range(30)]
    assert len({make_case(1, n).story for n in range(300)}) > len(KINDS) - 4


@pytest.mark.parametrize(("seed", "kind"), [("hang", "hung"), ("abort", "died"), ("raise", "failed")])
def test_what_goes_wrong_is_kept_and_can_be_run_again(seed, kind, tmp_path, monkeypatch):
    # The process that runs the cases reads this, and does at case 2 what it says.
    monkeypatch.setenv("FUZZ_SABOTAGE", seed)
    report = run(Settings(4, seed=5, seconds=2, failures=tmp_path))
    assert report.outcomes.total() == 4
    assert report.outcomes[kind] == 1
    assert list(report.failures) == [2]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["5-2.json", "5-2.txt"]
    assert "seed 5, case 2" in (tmp_path / "5-2.txt").read_text()
    monkeypatch.delenv("FUZZ_SABOTAGE")
    assert isinstance(replay(tmp_path / "5-2.json"), str)
