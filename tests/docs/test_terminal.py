"""The directive `terminal`: what a command printed, in colours that can be read."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from tests.support.checklists import REPOSITORY

pytest.importorskip("sphinx", reason="not installed: sphinx (the extra docs)")
pytest.importorskip("click", reason="not installed: click (the extra cli)")

from sphinx.cmd.build import build_main
from sphinx.errors import ExtensionError

from docs._ext import terminal

STYLE = (REPOSITORY / "docs" / "_static" / "site.css").read_text(encoding="utf-8")
PAGE = """\
```python
x = 1
```

```{terminal}
:status: 2
export KARTOTHEK_CUBE_URL=cubes
kartothek_cube info
```

```python no-run: needs another machine
1 / 0
```
"""


def prints(monkeypatch, text, status=0):
    """Commands print that; what was called, in which directory and with which URL."""
    calls = []

    def main(prog_name):
        calls.append((sys.argv, Path.cwd(), os.environ.get("KARTOTHEK_CUBE_URL")))
        print(text, end="", file=sys.stderr if status else sys.stdout)
        sys.exit(status)

    monkeypatch.setattr(terminal, "cli", main)
    return calls


def test_blocks_of_a_page_are_steps_in_their_order():
    assert list(terminal.steps_of(PAGE)) == [
        terminal.Step("python", "x = 1"),
        terminal.Step("terminal", "export KARTOTHEK_CUBE_URL=cubes\nkartothek_cube info", 2),
    ]


def test_styles_become_spans_and_everything_else_is_escaped():
    text = "\x1b[33m\x1b[1mx < y\x1b[0m & <b>"
    assert terminal.coloured(text) == '<span class="t-bold t-yellow">x &lt; y</span> &amp; &lt;b&gt;'


def test_a_style_that_the_site_lacks_is_refused():
    with pytest.raises(ExtensionError, match="95"):
        terminal.coloured("\x1b[95mpink\x1b[0m")


def test_a_command_runs_with_colours_and_with_what_was_exported(monkeypatch, tmp_path):
    calls = prints(monkeypatch, "\x1b[1mx\x1b[0m\n", status=2)
    shown = terminal.session(PAGE, tmp_path)
    assert shown == [
        [
            terminal.Shown("export KARTOTHEK_CUBE_URL=cubes", ""),
            terminal.Shown("kartothek_cube info", "\x1b[1mx\x1b[0m\n"),
        ]
    ]
    assert calls == [(["kartothek_cube", "--color=always", "info"], tmp_path, "cubes")]


def test_a_command_leaves_nothing_behind(monkeypatch, tmp_path):
    before = list(sys.argv), dict(os.environ), Path.cwd(), sys.stdout
    prints(monkeypatch, "x", status=2)
    terminal.session(PAGE, tmp_path)
    assert (list(sys.argv), dict(os.environ), Path.cwd(), sys.stdout) == before


@pytest.mark.parametrize(
    ("text", "status"), [("an error\n", 1), (" \n", 0), ("fine\n", 2)], ids=["fails", "silent", "other status"]
)
def test_a_command_that_does_not_do_as_told_ends_the_build(monkeypatch, tmp_path, text, status):
    prints(monkeypatch, text, status)
    with pytest.raises(ExtensionError, match="kartothek_cube x stats"):
        terminal.session("```{terminal}\nkartothek_cube x stats\n```\n", tmp_path)


def test_only_the_last_line_may_end_with_the_status(monkeypatch, tmp_path):
    prints(monkeypatch, "Error\n", status=2)
    with pytest.raises(ExtensionError, match="kartothek_cube x stats"):
        terminal.session("```{terminal}\n:status: 2\nkartothek_cube x stats\nkartothek_cube x info\n```\n", tmp_path)


def test_no_other_program_is_run(tmp_path):
    with pytest.raises(ExtensionError, match="nothing else"):
        terminal.session("```{terminal}\nls\n```\n", tmp_path)


def test_the_python_of_a_page_runs_before_its_commands(monkeypatch, tmp_path):
    prints(monkeypatch, "x\n")
    terminal.session(
        "```python\nfrom pathlib import Path\nPath('made').touch()\n```\n"
        "```{terminal}\nkartothek_cube\n```\n```python\n1 / 0\n```\n",
        tmp_path,
    )
    assert (tmp_path / "made").exists()


def test_sphinx_fails_with_the_command(tmp_path):
    pytest.importorskip("myst_parser", reason="not installed: myst_parser (the extra docs)")
    extension = REPOSITORY / "docs" / "_ext"
    (tmp_path / "conf.py").write_text(
        f"import sys\nsys.path.insert(0, {str(extension)!r})\nextensions = ['myst_parser', 'terminal']\n",
        encoding="utf-8",
    )
    (tmp_path / "index.md").write_text("# x\n\n```{terminal}\nkartothek_cube --no-such-option\n```\n", encoding="utf-8")
    assert build_main(["-q", "-b", "html", str(tmp_path), str(tmp_path / "out")]) != 0


def test_every_terminal_of_the_documentation_is_shown(site):
    pages = [path for path in (REPOSITORY / "docs").rglob("*.md") if "_build" not in path.parts]
    there = {
        path.relative_to(REPOSITORY / "docs").with_suffix(".html"): path.read_text(encoding="utf-8").count(
            "\n```{terminal}\n"
        )
        for path in pages
    }
    shown = {page: (site / page).read_text(encoding="utf-8").count('<div class="terminal">') for page in there}
    assert shown == there
    assert sum(there.values()) > 5


def test_the_command_line_is_shown_in_colours(site):
    assert '<span class="t-bold t-underline t-yellow">' in (site / "command-line.html").read_text(encoding="utf-8")


def luminance(colour):
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


PALETTES = [
    dict(re.findall(r"--terminal-(\w+): (#\w{6})", rules))
    for rules in re.findall(r"\{([^{}]*--terminal-ground: #[^{}]*)\}", STYLE)
]


@pytest.mark.parametrize("palette", PALETTES, ids=["light", "dark", "dark by preference"])
def test_colours_can_be_read(palette):
    inks = {name: colour for name, colour in palette.items() if name not in {"ground", "line"}}
    assert {
        name: contrast(colour, palette["ground"])
        for name, colour in inks.items()
        if contrast(colour, palette["ground"]) < 4.5
    } == {}
    assert set(inks) >= {style for style in terminal.STYLES.values() if style not in {"bold", "faint", "underline"}}


def test_dark_is_the_same_whoever_asks_for_it():
    assert len(PALETTES) == 3
    assert PALETTES[1] == PALETTES[2] != PALETTES[0]
