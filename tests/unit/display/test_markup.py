from __future__ import annotations

from xml.etree import ElementTree

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kartothek_cube.core.arguments import shortened
from kartothek_cube.core.display import (
    Markup,
    changed_rows,
    changes_table,
    code,
    counts_table,
    details,
    escape,
    in_notebook,
    show_bytes,
    show_count,
    table,
    table_cell,
)


@given(st.text() | st.text(st.characters(min_codepoint=0, max_codepoint=0x20)) | st.just("\ud800\uffff"))
def test_every_text_can_stand_in_html_and_xml(text):
    root = ElementTree.fromstring(f'<a b="{escape(text)}">{escape(text)}</a>'.encode())
    assert len(root) == 0
    if text.isprintable():
        assert (root.text or "", root.get("b")) == (text, text)


@pytest.mark.parametrize(
    ("size", "text"),
    [(None, ""), (999, "999 bytes"), (1000, "1.00 kB"), (9_994, "9.99 kB"), (9_999, "10.0 kB"), (99_960, "100 kB")],
)
def test_sizes_have_three_digits(size, text):
    assert show_bytes(size) == text


@given(st.integers(0, 10**21))
@example(10**21)
def test_no_size_is_longer_than_its_column(size):
    assert len(show_bytes(size)) <= 12


def test_marks_of_direction_and_controls_are_spelled():
    assert escape("a\u202eb\u2066\x85") == "a\\u202eb\\u2066\\x85"


def test_numbers_have_separators():
    assert (show_count(1_234_567), show_count(None)) == ("1,234,567", "")


@given(st.text(), st.integers(2, 30))
def test_a_shortened_text_keeps_both_ends(text, length):
    short = shortened(text, length)
    assert len(short) <= length
    assert short == text or (short[0] == text[0] and "…" in short)


def test_what_is_no_markup_is_escaped_in_tables():
    assert table(["<a>"], [["<b>"]], foot=["<c>"]).count("&lt;") == 3
    assert "<i></i>" in table(["a"], [[Markup("<i></i>")]])
    assert details("<a>", Markup("<i></i>")) == "<details><summary>&lt;a&gt;</summary><i></i></details>"


def test_what_a_notebook_shows_says_no_colour_of_text_or_ground():
    style = in_notebook(Markup("")).split("<style>")[1]
    assert "background" not in style
    assert style.count(";color:color-mix(in srgb,currentColor") == style.count("color:#") == 3, (
        "errors, warnings and what is new, mixed with the colour of the text"
    )


def test_a_long_name_may_break_and_a_word_may_not():
    assert table_cell("UNITS") == "<td>UNITS</td>"
    assert table_cell("a" * 28 + " " + "b" * 28) == f"<td>{'a' * 28} {'b' * 28}</td>"
    assert table_cell("a" * 29, "q") == f'<td class="q w">{"a" * 29}</td>'
    assert table_cell(Markup(f"<i class='{'c' * 40}'>a</i>")).startswith("<td><i"), "what is shown counts"
    assert table_cell(Markup(f"<i>{'a' * 29}</i>")).startswith('<td class="w"><i')


def test_calls_are_code_and_words_are_not():
    assert code("compact_cube(cube, '<store>')") == "<code>compact_cube(cube, &#x27;&lt;store&gt;&#x27;)</code>"
    assert code("go back with undo(...), or restore <it>") == "go back with undo(...), or restore &lt;it&gt;"
    assert code("") == ""


def test_values_of_changed_rows_are_texts_whatever_their_type():
    table = pa.table(
        {
            "_change_type": ["insert"],
            "null": pa.array([None], pa.int64()),
            "list": [[1, None]],
            "nan": [float("nan")],
            "day": pa.array([2**25], pa.int32()).cast(pa.date32()),
            "moment": pa.array([1], pa.timestamp("us", "UTC")),
            "bytes": [b"\x00"],
        }
    )
    assert changed_rows(table) == (
        (
            *("insert", None, "[1, None]", "nan", "<value out of range: 33554432>"),
            *("1970-01-01 00:00:00.000001+00:00", "b'\\x00'"),
        ),
    )


def test_no_change_has_no_table():
    assert changes_table({"x": "int64"}, (), ("x",)) == ""
    assert counts_table([("<seed>", 1_000, 0, 2)]).count("&lt;seed&gt;") == 1


def test_numbers_that_changed_stay_on_the_right():
    rows = (("update_preimage", "1", "5"), ("update_postimage", "1", None), ("delete", "2", ""))
    html = changes_table({"x": "int64", "v": "double"}, rows, ("x",))
    body = ElementTree.fromstring(f"<body>{html}</body>").find("table/tbody")
    assert [[(cell.get("class"), cell.get("rowspan")) for cell in row] for row in body] == [
        [("update", "2"), ("n", "2"), ("n before", None)],
        [("n", None)],
        [("delete", None), ("n", None), ("n", None)],
    ]
    assert ["".join(row.itertext()) for row in body] == ["update15", "null", "delete2''"]
