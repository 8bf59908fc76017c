"""What the report of a change of rows says, as text and in a notebook."""

from __future__ import annotations

import json

import pytest

from kartothek_cube.core.rows.edits import RowsReport
from kartothek_cube.errors import InvalidInput

DONE = RowsReport(
    "uuid",
    matched=1_234,
    deleted=1_234,
    files_rewritten=6,
    files_removed=1,
    files_untouched=993,
    bytes=56_789,
    commit="0f1e2d3c",
    files=tuple(f"uuid/table/p={n}/a.parquet" for n in range(7)),
)

TEXT = """\
Rows of dataset 'uuid'
commit: 0f1e2d3c

   rows matched      1,234
   rows deleted      1,234
   files rewritten       6  with the rows that stay
   files removed         1  no row stays
   files untouched     993  of 1,000
   bytes            56,789  of the new files

Files that were replaced or removed: 7
   uuid/table/p=0/a.parquet
   uuid/table/p=1/a.parquet
   uuid/table/p=2/a.parquet
   uuid/table/p=3/a.parquet
   uuid/table/p=4/a.parquet
   … and 2 more"""


def test_numbers_are_aligned_and_counts_of_nothing_are_left_out():
    assert DONE.explain() == TEXT


def test_a_notebook_shows_the_same():
    html = DONE._repr_html_()
    assert html == DONE.explain("html")
    assert '<td>rows deleted</td><td class="n">1,234</td>' in html
    assert "updated" not in html
    assert "<summary>Files that were replaced or removed: 7</summary>" in html
    assert "<b>" not in RowsReport("<b>")._repr_html_()


def test_a_program_gets_all_counts():
    steps = json.loads(DONE.explain("json"))["steps"]
    assert {row["name"]: row["after"] for row in steps[0]["rows"]} == {
        "matched": 1_234,
        "deleted": 1_234,
        "updated": 0,
        "inserted": 0,
    }


@pytest.mark.parametrize(
    ("report", "text", "words"),
    [
        (RowsReport("uuid", files_untouched=2), "commit: none, nothing to do", "0 rows matched; 2 files untouched;"),
        (RowsReport("uuid", 1, 1, files_removed=1, dry_run=True), "commit: none, a dry run", "1 file removed, 0 unto"),
    ],
    ids=["nothing", "dry run"],
)
def test_what_was_not_done_is_said(report, text, words):
    assert text in report.explain()
    assert "Files that" not in report.explain()
    assert words in repr(report)


def test_another_format_is_refused():
    with pytest.raises(InvalidInput, match="pdf"):
        DONE.explain("pdf")
