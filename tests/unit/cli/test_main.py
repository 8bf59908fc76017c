from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from kartothek_cube.cli import cli
from kartothek_cube.cli.app import COMMANDS
from kartothek_cube.cli.context import Session, working
from kartothek_cube.core.runtime.options import current_options

pytestmark = pytest.mark.usefixtures("folder")

ARGUMENTS = {
    "index": ["enrich", "v2"],
    "copy": ["--tgt_store", "two"],
    "rename": ["new"],
    "undo": ["seed"],
    "query": ["--where", "x > 1"],
    "changes": ["--since", "2024-01-01"],
    "delete-rows": ["--where", "x > 1", "--dry-run"],
    "forget": ["--where", "x > 1", "--dry-run"],
    "merge": ["rows.parquet", "--dry-run"],
    "append": ["rows.parquet", "--dry-run"],
    "extend": ["new", "rows.parquet", "--dry-run"],
}
# What takes no cube, or makes one.
ALONE = {"build", "demo", "doctor", "sql"}
CALLS = [[name, *ARGUMENTS.get(name, [])] for name in COMMANDS if name not in ALONE]
NEEDS_CUBE = [call for call in CALLS if call[0] != "check-migration"]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call[0])
def test_every_command_says_what_it_did_not_find(run, folder, call):  # cube 247
    what = "dataset" if call[0] == "merge" else "cube"
    (folder / "broken.yml").write_text("dataset: [", encoding="utf-8")
    (folder / "types.yml").write_text("dataset: {type: nope}", encoding="utf-8")
    for options, message in {
        ("--skv", "missing.yml"): "Error: Could not open load store YAML: ",
        ("--skv", "broken.yml"): "Error: Could not parse provided YAML file: ",
        ("--store", "nope"): "Error: Could not find store nope in skv.yml",
        ("--skv", "types.yml"): f"Error: Could not load {what}: " if call in NEEDS_CUBE else "Error: ",
    }.items():
        ran = run(*options, "my_cube", *call)
        assert (ran.code, ran.out) == (2, "")
        assert message in ran.err
    ran = run("nope", *call)
    assert (ran.code, ran.out) == (2, "")
    assert f"Error: Could not load {what}: " in ran.err


def test_where_a_cube_is_not_there_those_that_are_there_are_named(run):
    for command in ("info", "check-migration"):
        err = run("my_cub", command).err
        assert err.startswith(
            'Error: Could not load cube: Could not find seed dataset for cube "my_cub". '
            "Cubes of this store: my_cube, other. "
        )
    for command in ("info", "check-migration", "verify", "report"):
        assert run("my_cub", command).err.endswith(" Cubes of this store: my_cube, other. Did you mean 'my_cube'?\n")
    assert run("--store", "two", "my_cube", "info").err.endswith("Cubes of this store: none.\n")


@pytest.mark.parametrize(
    "call",
    [["info"], ["stats"], ["verify"], ["delete"], ["stats", "--include", "nope"], ["index", "seed", "v1"]],
    ids=" ".join,
)
def test_nothing_stays_registered_after_a_command(run, call):  # cube 258
    run("my_cube", *call)
    assert current_options().progress is False
    assert current_options().threads is None


@pytest.mark.parametrize(("asked", "threads"), [(0, None), (3, 3)])
def test_the_library_chooses_the_threads_unless_they_are_asked_for(asked, threads):
    with working(Session(threads=asked)):
        assert current_options().threads == threads


def test_the_help_begins_as_it_did(run):
    for option in ("-h", "--help"):
        ran = run(option)
        assert ran.code == 0
        assert ran.out.startswith("Usage: cli [OPTIONS] CUBE COMMAND [ARGS]...")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_needs_no_cube(run, name):
    ran = run("--skv", "missing.yml", "nope", name, "--help")
    assert ran.code == 0
    assert "--format" in ran.out


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_says_what_each_says_itself(name):
    command = cli.get_command(None, name)
    assert command.name == name
    assert (command.help or "").splitlines()[0] == COMMANDS[name]


def test_errors_of_usage(run):
    for arguments, message in [
        (["my_cube"], "Error: Missing command."),
        (["my_cube", "nope"], "Error: No such command 'nope'.\n"),
        (["my_cube", "statz", "--include", "seed"], "Error: No such command 'statz'. Did you mean 'stats'?\n"),
        (["check-migraton"], "Error: Missing command. Did you mean 'check-migration'?\n"),
        (["my_cube", "--nope"], "No such option '--nope'"),
        (["stats"], "Error: stats is a command: the cube stands in front of it, as in cli CUBE stats."),
        (["stats", "my_cube"], "Error: stats is a command: "),
        (["stats", "--include", "seed"], "Error: stats is a command: "),
        (["check-migration", "my_cube"], "Error: check-migration is a command: "),
        (["stats", "nope"], "Error: stats is a command: "),
        (["stats", "stats"], 'Error: Could not load cube: Could not find seed dataset for cube "stats".'),
        (["-j", "many", "my_cube", "info"], "'many' is not a valid integer"),
        (["-j", "-1", "my_cube", "info"], "-1 is not in the range x>=0"),
        (["--color", "pink", "my_cube", "info"], "'pink' is not one of"),
        (["--url", "store", "--store", "two", "my_cube", "info"], "Give --store or --url, not both."),
        (["", "info"], "Missing argument 'CUBE'."),
    ]:
        ran = run(*arguments)
        assert (ran.code, ran.out) == (2, ""), arguments
        assert message in ran.err


def test_without_any_argument_and_any_store_it_says_how_it_is_used(run, folder):
    assert run().out == "my_cube\nother\n"
    (folder / "skv.yml").unlink()
    ran = run()
    assert ran.code == 0
    assert ran.out.startswith("Usage: cli")


def test_without_a_cube_the_cubes_are_listed(run):
    assert run("--store", "dataset").out == "my_cube\nother\n"
    assert run("--format", "json").json == {"cubes": ["my_cube", "other"]}
    empty = run("--store", "two")
    assert (empty.code, empty.out, empty.err) == (0, "", "There is no cube in this store.\n")


def test_a_store_may_be_given_by_its_url(run, folder, monkeypatch):
    expected = run("my_cube", "info").out
    assert run("--url", f"hfs://{folder}/store", "my_cube", "info").out == expected
    assert run("--url", "store", "my_cube", "info").out == expected
    monkeypatch.setenv("KARTOTHEK_CUBE_URL", str(folder / "two"))
    assert run("--format", "json").json == {"cubes": []}
    assert run("--store", "dataset", "my_cube", "info").out == expected


def test_colours_come_when_they_are_wanted(run, monkeypatch):
    plain = run("my_cube", "info").out
    assert "\x1b" not in plain
    for options in ([], ["--color=auto"], ["--color=off"]):
        assert run(*options, "my_cube", "info").out == plain
    coloured = run("--color=always", "my_cube", "info").out
    assert coloured.startswith("\x1b[33m\x1b[1m\x1b[4mInfos\x1b[0m\n\x1b[1mUUID Prefix:\x1b[0m        my_cube\n")
    assert re.sub(r"\x1b\[\d+m", "", coloured) == plain
    monkeypatch.setenv("NO_COLOR", "1")
    assert run("--color=always", "my_cube", "info").out == coloured


def test_the_format_may_stand_before_or_behind_the_command(run):
    before, behind = run("--format", "json", "my_cube", "stats"), run("my_cube", "stats", "--format", "json")
    assert before.json == behind.json
    assert run("--format", "json", "my_cube", "stats", "--format", "text").out.startswith("enrich\n")


def test_an_error_of_the_library_is_one_line(run, folder):
    (folder / "store" / "my_cube++seed.by-dataset-metadata.json").write_text("{", encoding="utf-8")
    ran = run("my_cube", "info")
    assert ran.code == 2
    assert ran.err.startswith("Error: Could not load cube: ")
    assert len(ran.err.splitlines()) == 1


def test_an_error_of_the_store_is_one_line_too(run, monkeypatch):
    from kartothek_cube.core.stores.local import LocalStore

    def refuse(*_, **__):
        raise PermissionError("no entry")

    monkeypatch.setattr(LocalStore, "list", refuse)
    ran = run("my_cube", "info")
    assert (ran.code, ran.err) == (1, "Error: no entry\n")


def fresh(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_a_condition_is_parsed_in_a_new_process():
    code = """
import pyarrow as pa
from kartothek_cube.core.expressions.conditions import conditions_in
print(conditions_in("WEEK > 3", {"WEEK": pa.int64()}))
"""
    assert fresh(code).stdout == "(WEEK > 3)\n"


def test_help_loads_nothing_but_click():
    code = """
import sys, json
import kartothek_cube  # how little this loads is tested in tests/test_layers.py
from click.testing import CliRunner
before = set(sys.modules)
from kartothek_cube.cli import cli
assert CliRunner().invoke(cli, ["--help"]).exit_code == 0
print(json.dumps(sorted(set(sys.modules) - before)))
"""
    loaded = set(json.loads(fresh(code).stdout))
    own = {name for name in loaded if name.startswith("kartothek_cube")}
    assert not {name.partition(".")[0] for name in loaded} & {
        "pandas",
        "numpy",
        "pyarrow",
        "yaml",
        "storefact",
        "simplekv",
        "IPython",
        "prompt_toolkit",
    }
    assert not {
        name for name in own if name.startswith(("kartothek_cube.core", "kartothek_cube.cube", "kartothek_cube.api"))
    }
    assert not {name for name in own if name.startswith("kartothek_cube.cli.commands.")}
    assert len(own) <= 12


def test_a_stream_that_is_closed_is_nowhere(monkeypatch):
    from kartothek_cube.cli import _fill_streams

    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    _fill_streams()
    assert (sys.stdin.read(), sys.stdin.isatty()) == ("", False)
    for stream in (sys.stdout, sys.stderr):
        print("nobody reads it", file=stream, flush=True)
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        stream.close()


def test_without_the_extra_it_ends_with_one_line_that_names_it():
    block = "import sys; sys.modules['click'] = None\n"
    ran = fresh(block + "from kartothek_cube.cli import main; main()")
    assert ran.returncode == 1
    assert (
        ran.stderr == "Error: The command kartothek_cube needs the package click, which is not installed: "
        "pip install 'kartothek-cube[cli]'\n"
    )
    ran = fresh(block + "from kartothek_cube.cli import cli")
    assert "MissingExtra: The command kartothek_cube needs the package click" in ran.stderr
    ran = fresh("import kartothek_cube.cli as c; c.nope")
    assert "has no attribute 'nope'" in ran.stderr
