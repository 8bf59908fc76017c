"""The page for movers: every heir in its tables exists, and examples come in pairs."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.support.doc_blocks import blocks_in
from tests.support.moving_pages import LIBRARIES, exists, heirs_of, names_of, pairs_of, rows, section, text


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_name_has_an_heir_that_exists_or_is_told_to_be_gone(library):
    heirs = {(module, name): heirs_of(module, name) for module, names in names_of(library).items() for name in names}
    assert len(heirs) > 100
    assert [name for name, here in heirs.items() if here is None] == []
    assert [dotted for here in heirs.values() for dotted in here or () if not exists(dotted)] == []


def test_every_place_in_the_tables_exists():
    heirs = {dotted for row in rows() for dotted in row.here}
    assert len(heirs) > 20
    assert [dotted for dotted in sorted(heirs) if not exists(dotted)] == []


def test_every_row_is_about_modules_and_names_that_are_listed():
    listed = {library: names_of(library) for library in LIBRARIES}
    modules = {module for names in listed.values() for module in names}
    for row in rows():
        assert set(row.modules) <= modules
        assert all(
            any(name in names.get(module, []) for names in listed.values() for module in row.modules)
            for name in row.names
        )


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_old_example_has_a_new_one(library):
    pairs = pairs_of(library)
    assert len(pairs) >= 4
    assert all(f"from {library}." not in pair.new for pair in pairs)
    assert f"from {library}." in pairs[0].old
    # Of plateau's examples only imports differ.
    assert sum(pair.old != pair.new for pair in pairs) >= 3


def test_every_example_of_an_old_library_belongs_to_a_pair():
    old = [pair.old for library in LIBRARIES for pair in pairs_of(library)]
    assert [
        block.code for block in blocks_in(text()) if block.rest.startswith("no-run") and block.code not in old
    ] == []


def test_the_page_says_how_imports_are_rewritten():
    script = re.findall(r"-e '(.*)'", text())
    same = {f"kartothek.{module}": row.here[0] for row in rows() if row.is_same for module in row.modules}
    rewritten = subprocess.run(
        ["sed", "-E", *(f"-e{rule}" for rule in script)],
        input="\n".join(same),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert len(same) > 15
    assert dict(zip(same, rewritten.splitlines(), strict=True)) == same


def test_what_does_not_exist_is_noticed():
    assert exists("kartothek_cube.api.dataset.read_table")
    assert exists("kartothek_cube.testing")
    assert not exists("kartothek_cube.api.dataset.read_tables")
    assert not exists("kartothek_cube.api.datasets.read_table")
    assert heirs_of("api.cube", "Cube") == ("kartothek_cube.api.cube.Cube",)
    assert heirs_of("api.cubes", "Cube") is None


def test_the_page_shows_what_check_migration_says(tmp_path):
    runner = pytest.importorskip("click.testing").CliRunner()
    import pyarrow as pa

    from kartothek_cube import Cube, build_cube
    from kartothek_cube.cli import cli

    url = str(tmp_path / "warehouse")
    build_cube(pa.table({"PRODUCT_ID": [1], "IS_ONLINE": [True]}), Cube(["PRODUCT_ID"], ["IS_ONLINE"], "sales"), url)
    shown = section("Look first").partition("check-migration\n")[2].partition("```")[0]
    assert runner.invoke(cli, ["--url", url, "check-migration"]).output == shown
