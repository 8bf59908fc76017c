from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

from kartothek_cube import Cube, build_cube
from kartothek_cube.cli.output import TerminalStream, document, size, table


def test_json_holds_every_value():
    value = {
        "float": [1.5, float("nan"), float("inf")],
        "time": datetime(2024, 1, 2, tzinfo=UTC),
        "span": timedelta(minutes=1),
        "bytes": b"ab",
        "set": {"b", "a"},
        "text": "ü",
        "decimal": Decimal("1.50"),
        3: None,
    }
    assert json.loads(document(value)) == {
        "float": [1.5, None, None],
        "time": "2024-01-02T00:00:00+00:00",
        "span": 60.0,
        "bytes": "YWI=",
        "set": ["a", "b"],
        "text": "ü",
        "decimal": "1.50",
        "3": None,
    }


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (5 * 2**30, "5.0 GiB"), (2**70, "1048576.0 PiB")],
)
def test_bytes_for_people(count, text):
    assert size(count) == text


def test_a_table_is_as_wide_as_it_has_to_be():
    assert list(table(["name", "n"], [["a", "1,000"], ["long name", "2"]], right=("n",)))[1:] == [
        "a          1,000",
        "long name      2",
    ]


def test_labels_do_nothing_to_a_terminal(run, folder):
    evil = "\x1b[31m\x07\x9b2J\n\u202e\ufdd0"
    table = pa.table({"x": [0], "p": [evil], evil: [1]})
    build_cube(table, Cube(["x"], ["p"], "evil"), folder / "store", metadata={"seed": {evil: evil}})
    commands = [
        "info",
        "files",
        "explain",
        "verify",
        "delete --dry-run",
        "cleanup --dry-run --grace 0",
        "query --format json",
        "info --format json",
        "index seed nope",
    ]
    for command in commands:
        ran = run("--color", "always", "evil", *command.split())
        text = ran.out + ran.err
        for style in ("\x1b[33m\x1b[1m\x1b[4m", "\x1b[0m", "\x1b[1m"):
            text = text.replace(style, "")
        assert not [
            character
            for character in text
            if character != "\n" and not character.isprintable() and character != "\ufdd0"
        ], command
    assert run("evil", "undo", evil).err.startswith("Error: Could not find dataset \\x1b[31m\\x07\\x9b2J")


def test_a_terminal_gets_rows_without_control_characters():
    stream = io.BytesIO()
    terminal = TerminalStream(stream)
    assert [terminal.write("ü\x1b\n".encode()[:1]), terminal.write("ü\x1b\n".encode()[1:])] == [1, 3]
    assert stream.getvalue().decode() == "ü\\x1b\n"
