"""The directive ``terminal``: runs commands of ``kartothek_cube`` and shows their coloured output.

A page is a session. Its Python blocks and its commands run in order when the documentation is
built. They run in an empty directory of the page's own, so a command sees what the page built.
A command that fails, or prints nothing, ends the build.
"""

from __future__ import annotations

import contextlib
import html
import io
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

from kartothek_cube.cli.app import cli

WIDTH = "100"
OPENING = re.compile(r"^(?P<fence>`{3,}) *(?P<kind>python|\{terminal\}) *(?P<rest>.*)$")
OPTION = re.compile(r"^:status: *(?P<status>\d+)$")
EXPORT = re.compile(r"^export (?P<name>[A-Z_]+)=(?P<value>\S+)$")
ESCAPE = re.compile(r"\x1b\[(?P<codes>[0-9;]*)m")
STYLES = {"1": "bold", "2": "faint", "4": "underline", "31": "red", "32": "green", "33": "yellow", "36": "cyan"}


@dataclass(frozen=True, slots=True)
class Step:
    """A block of a page: Python, or lines for the shell whose last one ends with ``status``."""

    kind: str
    code: str
    status: int = 0


@dataclass(frozen=True, slots=True)
class Shown:
    """A line that somebody types, and what it prints."""

    typed: str
    printed: str


def steps_of(text: str) -> Iterator[Step]:
    """The blocks of a page that run, in their order."""
    lines = iter(text.splitlines())
    for line in lines:
        opening = OPENING.match(line)
        if opening is not None:
            inner = []
            for other in lines:
                if other.strip() == opening["fence"]:
                    break
                inner.append(other)
            if not opening["rest"].startswith("no-run"):
                yield _step(opening["kind"].strip("{}"), inner)


def _step(kind: str, lines: list[str]) -> Step:
    option = OPTION.match(lines[0]) if lines else None
    return (
        Step(kind, "\n".join(lines), 0) if option is None else Step(kind, "\n".join(lines[1:]), int(option["status"]))
    )


def session(text: str, folder: Path) -> list[list[Shown]]:
    """Run a page up to its last command; what each of its terminals shows."""
    steps = list(steps_of(text))
    last = max((place for place, step in enumerate(steps) if step.kind == "terminal"), default=-1)
    found: list[list[Shown]] = []
    namespace: dict[str, Any] = {"__name__": "__main__"}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KARTOTHEK_CUBE_")} | {
        "COLUMNS": WIDTH
    }
    for step in steps[: last + 1]:
        if step.kind == "terminal":
            found.append(list(shown_by(step, folder, environment)))
        else:
            with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
                exec(step.code, namespace)  # noqa: S102 - the page's own blocks, as its reader runs them
    return found


def shown_by(step: Step, folder: Path, environment: dict[str, str]) -> Iterator[Shown]:
    """Run the lines of a terminal in order; an ``export`` holds for the rest of the page."""
    lines = step.code.strip().splitlines()
    for number, line in enumerate(lines, start=1):
        export = EXPORT.match(line)
        if export is None:
            yield Shown(line, run(line, folder, environment, step.status if number == len(lines) else 0))
        else:
            environment[export["name"]] = export["value"]
            yield Shown(line, "")


def run(line: str, folder: Path, environment: dict[str, str], status: int) -> str:
    """The output of a command with ``--color=always``, stdout and stderr together.

    The command runs in this process, through the entry point of the installed script.
    """
    program, *arguments = shlex.split(line)
    if program != "kartothek_cube":
        raise ExtensionError(f"a terminal runs kartothek_cube and nothing else: {line}")
    screen = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with (
        _called(["kartothek_cube", "--color=always", *arguments], environment),
        contextlib.chdir(folder),
        contextlib.redirect_stdout(screen),
        contextlib.redirect_stderr(screen),
    ):
        ended = _ended()
    printed = screen.buffer.getvalue().decode()
    if ended != status or not printed.strip():
        raise ExtensionError(f"{line}\nended with {ended} instead of {status}, and printed:\n{printed}")
    return printed


def _ended() -> Any:
    try:
        cli(prog_name="kartothek_cube")
    except SystemExit as end:
        return end.code or 0
    return 0


@contextlib.contextmanager
def _called(arguments: list[str], environment: dict[str, str]) -> Iterator[None]:
    before = sys.argv, dict(os.environ)
    sys.argv = arguments
    os.environ.clear()
    os.environ.update(environment)
    try:
        yield
    finally:
        sys.argv = before[0]
        os.environ.clear()
        os.environ.update(before[1])


def coloured(text: str) -> str:
    """Escape sequences of a terminal as spans of HTML; everything else is escaped."""
    spans, styles, place = [], set[str](), 0
    for sequence in ESCAPE.finditer(text):
        spans.append(_span(text[place : sequence.start()], styles))
        for code in sequence["codes"].split(";"):
            if code.strip("0") and code not in STYLES:
                raise ExtensionError(f"a terminal has a style that the site does not know: {code}")
            styles = styles | {STYLES[code]} if code.strip("0") else set()
        place = sequence.end()
    return "".join([*spans, _span(text[place:], styles)])


def _span(text: str, styles: set[str]) -> str:
    escaped = html.escape(text, quote=False)
    return (
        f'<span class="{" ".join(f"t-{style}" for style in sorted(styles))}">{escaped}</span>'
        if text and styles
        else escaped
    )


def drawn(terminal: list[Shown]) -> str:
    """A terminal as HTML."""
    lines = [
        f'<span class="t-prompt">$ </span><span class="t-typed">{html.escape(shown.typed, quote=False)}</span>\n'
        f"{coloured(shown.printed)}"
        for shown in terminal
    ]
    return f'<div class="terminal"><pre tabindex="0">{"".join(lines)}</pre></div>\n'


@lru_cache(maxsize=8)
def _session_of(text: str) -> list[list[Shown]]:
    with tempfile.TemporaryDirectory() as folder:
        return session(text, Path(folder))


class Terminal(SphinxDirective):
    """Shows the next terminal of the page's session."""

    has_content = True
    option_spec = {"status": directives.nonnegative_int}  # noqa: RUF012 - Sphinx reads it from the class

    def run(self) -> list[nodes.Node]:
        """Take the place of the block."""
        place = self.env.temp_data.setdefault("terminals", 0)
        self.env.temp_data["terminals"] = place + 1
        terminal = _session_of(Path(self.env.doc2path(self.env.docname)).read_text(encoding="utf-8"))[place]
        return [nodes.raw("", drawn(terminal), format="html")]


def setup(app: Sphinx) -> dict[str, Any]:
    """Make the directive known."""
    app.add_directive("terminal", Terminal)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
