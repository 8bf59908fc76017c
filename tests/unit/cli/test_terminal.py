"""The command in a real terminal: questions, progress, colours, Ctrl-C."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import signal
import sys
import termios
import time

import pyarrow as pa
import pytest

from kartothek_cube import build_cube, options
from tests.support.cli_cubes import OTHER, keys, write_cubes

_PATIENCE = 60


class Terminal:
    """A child process behind a pseudo terminal."""

    def __init__(self, *arguments, **environment):
        self.seen = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:  # pragma: no cover - this is the child
            variables = {
                **os.environ,
                "TERM": "xterm-256color",
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                **environment,
            }
            termios.tcsetwinsize(0, (24, 100))  # a terminal without a size shows no bar
            signal.signal(
                signal.SIGINT, signal.SIG_DFL
            )  # whoever runs the tests in the background may have switched it off
            os.execve(sys.executable, [sys.executable, *arguments], variables)

    def _read(self, seconds):
        if not select.select([self.fd], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self.fd, 65536)
        except OSError:  # the child has closed its end
            return False
        if b"\x1b[6n" in data:
            os.write(self.fd, b"\x1b[1;1R")  # where the cursor is: prompt_toolkit asks
        self.seen += data.decode(errors="replace")
        return bool(data)

    def expect(self, text):
        """Wait for a text, and forget it and what came before it, which is returned."""
        end = time.monotonic() + _PATIENCE
        while text not in self.seen:
            assert self._read(max(0, end - time.monotonic())), self.seen
        before, _, self.seen = self.seen.partition(text)
        return before

    def type(self, text):
        os.write(self.fd, text.encode())

    def interrupt(self, heard="Aborted!"):
        """Press Ctrl-C, and again where it is not heard: one that comes while readline sets up its
        line waits for the next key.
        """
        for _ in range(_PATIENCE // 5):
            self.type("\x03")
            while heard not in self.seen and self._read(5):
                pass
            if heard in self.seen:
                return

    def end(self):
        """What else was printed, and the exit status."""
        end = time.monotonic() + _PATIENCE
        while self._read(max(0, end - time.monotonic())):
            pass
        if time.monotonic() >= end:
            os.kill(self.pid, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self.fd)
        return self.seen, status


COMMANDS = """
import sys, threading
from kartothek_cube.cli import cli
from kartothek_cube.core.stores.local import LocalStore


def run(*arguments):
    try:
        cli.main(arguments, prog_name="kartothek_cube")
    except SystemExit as error:
        print("EXIT", error.code)


def stuck(*_, **__):
    print("listing", flush=True)
    threading.Event().wait(60)


run("my_cube", "delete", "--include", "un")
run("my_cube", "stats")
run("my_cube", "history", "seed")
run("my_cube", "rename", "new")
run("other", "query", "--limit", "1", "--columns", "")
run("my_cube", "delete", "--yes")
LocalStore.list = stuck
run("other", "stats")
"""


@pytest.mark.slow
def test_questions_progress_colours_and_ctrl_c(folder):
    shutil.rmtree(folder / "store")
    with options(statistics=False):  # so that there are footers to read
        write_cubes(f"hfs://{folder / 'store'}")
    before = keys(str(folder / "store"))
    build_cube(pa.table({"x": ["\x1b[31m"], "p": [0]}), OTHER, folder / "store", overwrite=True)
    terminal = Terminal("-c", COMMANDS)

    terminal.expect("Delete un of cube my_cube (")
    terminal.expect("[y/N]: ")
    terminal.type("n\n")
    assert "Aborted!" in terminal.expect("EXIT 1")
    assert set(keys(str(folder / "store"), "my_cube")) == {key for key in before if key.startswith("my_cube")}

    text = terminal.expect("EXIT 0")
    assert "\rcollect_stats my_cube: read:" in text
    assert "\x1b[33m\x1b[1m\x1b[4m__total__\x1b[0m" in text

    assert re.search(r"Z  seed     [0-9a-f]{8} .* [0-9a-f]{8}  yes\r\n", terminal.expect("EXIT 0"))

    terminal.expect("[y/N]: ")
    terminal.interrupt()
    assert terminal.expect("EXIT 1").endswith("\r\nAborted!\r\n")
    assert not keys(str(folder / "store"), "new")

    assert '"\\x1b[31m"' in terminal.expect("EXIT 0")

    assert "[y/N]" not in terminal.expect("EXIT 0")
    assert keys(str(folder / "store"), "my_cube") == []

    terminal.expect("listing")
    os.kill(terminal.pid, signal.SIGINT)
    text, status = terminal.end()
    assert "\r\nAborted!\r\nEXIT 1" in text
    assert status == 0


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_the_interactive_query(tmp_path):
    pytest.importorskip("prompt_toolkit")
    (tmp_path / "IPython.py").write_text(
        "import sys\ndef embed(**_):\n    print('SHELL', len(sys._getframe(1).f_locals['df']))\n", encoding="utf-8"
    )
    terminal = Terminal(
        "-m",
        "kartothek_cube.cli",
        "my_cube",
        "query",
        PYTHONPATH=os.pathsep.join([str(tmp_path), *filter(None, sys.path)]),
    )
    terminal.expect("Conditions:")
    terminal.type("x >= 2\r")
    terminal.expect("Payload Columns:")
    terminal.type("v9\r")
    terminal.expect("Unknown:")
    terminal.type("\x7f\x7fv1\r")
    terminal.expect("SHELL 2")
    terminal.expect("Conditions:")
    terminal.interrupt()
    text, status = terminal.end()
    assert status == 1
    assert "Aborted!" in text


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_the_prompt_of_sql(tmp_path):
    pytest.importorskip("prompt_toolkit")
    pytest.importorskip("duckdb", minversion="1.2")
    terminal = Terminal(
        "-m", "kartothek_cube.cli", "--skv", "skv.yml", "sql", HOME=str(tmp_path), XDG_CONFIG_HOME=str(tmp_path)
    )

    def ask(text):
        terminal.expect("sql>")
        terminal.type(f"{text}\r")

    terminal.expect("Statements end with a semicolon.")
    ask("SELECT count(*) AS cells\rFROM my_cube;")
    terminal.expect("│     4 │")
    ask(".tables")
    terminal.expect("│ my_cube++enrich │")
    ask(".schema other")
    terminal.expect("│ v1          │ DOUBLE      │")
    ask("FROM othr;")
    terminal.expect("Did you mean 'other'?")
    ask(".tabels")
    terminal.expect("Did you mean '.tables'?")
    terminal.expect("sql>")
    terminal.type("SELECT never")
    terminal.expect("never")
    terminal.type("\x03")
    ask("SELECT 1; SELECT 'se' || 'cond';")
    terminal.expect("│ second ")
    ask("EXPLAIN FROM other;")
    terminal.expect("Query of cube 'other'")
    ask("SELECT count(*) FROM range(10000000) a, range(1000000) b WHERE a.range + b.range = 7;")
    terminal.expect("= 7;")
    terminal.interrupt("Interrupted.")
    terminal.expect("Interrupted.")
    terminal.expect("sql>")
    terminal.type("\x04")
    _, status = terminal.end()
    assert status == 0
    assert "+FROM othr;" in next(tmp_path.rglob("sql_history")).read_text(encoding="utf-8")
