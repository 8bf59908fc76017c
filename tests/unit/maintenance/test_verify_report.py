from __future__ import annotations

import json
import pickle

from kartothek_cube.core.maintenance.inspection import Counts, Finding, VerifyReport, report_of

ERROR = Finding(
    "error", "missing-file", "uuid", "It is gone.", key="uuid/table/<b>.parquet", label="<b>", mend="restore('it')"
)
WARNING = Finding("warning", "two-documents", "uuid", "There are two.")
INFO = Finding("info", "garbage", "uuid", "2 files.", count=2)
REPORT = report_of("dataset 'uuid'", [INFO, ERROR, WARNING], Counts(1, 2, 3, 4000), deep=False)


def test_errors_come_first():
    assert REPORT.findings == (ERROR, WARNING, INFO)


def test_ok_and_clean():
    assert [
        (r.ok, r.clean)
        for r in (REPORT, report_of("", [WARNING], Counts(), deep=True), report_of("", [INFO], Counts(), deep=True))
    ] == [
        (False, False),
        (True, False),
        (True, True),
    ]


def test_it_prints_as_text():
    assert repr(REPORT) == (
        "Verified dataset 'uuid' without reading data: 1 dataset, 2 partitions, 3 files, 4,000 bytes.\n"
        "1 error, 1 warning, 1 remark:\n"
        "✗ error missing-file [uuid, uuid/table/<b>.parquet]: It is gone.\n"
        "    mend: restore('it')\n"
        "! warning two-documents [uuid]: There are two.\n"
        "· info garbage [uuid]: 2 files."
    )


def test_html_is_escaped():
    html = REPORT._repr_html_()
    assert "&lt;b&gt;" in html
    assert "<b>" not in html
    assert html.count("<tr>") == 4
    assert "<table" not in VerifyReport("dataset 'uuid'", (), Counts())._repr_html_()


def test_it_turns_into_json_arrow_and_pandas():
    plain = json.loads(REPORT.to_json())
    assert (plain["ok"], plain["counts"]["bytes"], plain["findings"][0]["check"]) == (False, 4000, "missing-file")
    table = REPORT.to_arrow()
    assert table.column_names == ["severity", "check", "dataset", "message", "key", "label", "column", "mend", "count"]
    assert REPORT.to_pandas()["check"].tolist() == ["missing-file", "two-documents", "garbage"]
    assert VerifyReport("", (), Counts()).to_arrow().schema == table.schema


def test_half_a_surrogate_pair_can_be_shown():
    report = report_of("", [Finding("error", "invalid-key", "uuid", "Odd.", key="\ud800")], Counts(), deep=False)
    assert report.to_arrow().column("key").to_pylist() == ["\\ud800"]
    assert report.to_json().encode()
    assert report._repr_html_().encode()


def test_it_can_be_pickled():
    assert pickle.loads(pickle.dumps(REPORT)) == REPORT


def test_many_of_a_kind_are_condensed():
    report = report_of(
        "", [Finding("error", "missing-file", "uuid", f"{i}.") for i in range(100)] + [INFO] * 3, Counts(), deep=False
    )
    assert len(report.of("missing-file")) == 20
    assert report.findings[19].message == "19. And 80 more of this kind."
    assert report.findings[20].count == 6


def test_kinds_are_told_apart_by_column():
    report = report_of(
        "", [Finding("info", "narrower-column", "uuid", "x", column=c) for c in "aab"], Counts(), deep=True
    )
    assert [(f.column, f.count) for f in report.findings] == [("a", 2), ("b", 1)]


def test_counts_add_up():
    assert Counts(1, 2, 3, 4) + Counts(1, 1, 1, 1, rows=5) == Counts(2, 3, 4, 5, 5)
    assert (Counts() + Counts()).rows is None
