"""The pages for movers: every heir in their tables exists, and examples come in pairs."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.support.doc_blocks import blocks_in
from tests.support.moving_pages import exists, pairs_of, rows_of, text_of

PAGES = {"moving-from-kartothek.md": "kartothek", "moving-from-plateau.md": "plateau"}


@pytest.mark.parametrize("page", PAGES)
def test_every_heir_exists(page):
    heirs = {dotted for row in rows_of(page) for dotted in row.here}
    assert len(heirs) > 40
    assert [dotted for dotted in sorted(heirs) if not exists(dotted)] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_row_says_where_its_names_are_or_that_they_are_gone(page):
    for row in rows_of(page):
        assert row.module.split(".")[0] == PAGES[page]
        assert all(name.isidentifier() for name in row.names)


@pytest.mark.parametrize(("page", "library"), PAGES.items())
def test_every_old_example_has_a_new_one(page, library):
    pairs = pairs_of(page, library)
    assert len(pairs) >= 4
    assert all(f"from {library}." not in pair.new for pair in pairs)
    assert f"from {library}." in pairs[0].old
    assert len(pairs) == sum(block.rest.startswith("no-run") for block in blocks_in(text_of(page)))


def test_the_page_says_how_imports_are_rewritten():
    script = re.findall(r"-e '(.*)'", text_of("moving-from-kartothek.md"))
    rows = [row for row in rows_of("moving-from-kartothek.md") if row.names and row.here and "io_components" not in row.module]
    same = {row.module: row.here[0].rpartition(".")[0] for row in rows if row.here[0].endswith(f".{row.names[0]}")}
    rewritten = subprocess.run(["sed", "-E", *(f"-e{rule}" for rule in script)], input="\n".join(same), capture_output=True, text=True, check=True).stdout
    assert len(same) > 15
    assert dict(zip(same, rewritten.splitlines(), strict=True)) == same


def test_what_does_not_exist_is_noticed():
    assert exists("kartothek_cube.api.dataset.read_table")
    assert exists("kartothek_cube.testing")
    assert not exists("kartothek_cube.api.dataset.read_tables")
    assert not exists("kartothek_cube.api.datasets.read_table")


def test_the_page_shows_what_check_migration_says(tmp_path):
    runner = pytest.importorskip("click.testing").CliRunner()
    import pyarrow as pa

    from kartothek_cube import Cube, build_cube
    from kartothek_cube.cli import cli

    url = str(tmp_path / "warehouse")
    build_cube(pa.table({"PRODUCT_ID": [1], "IS_ONLINE": [True]}), Cube(["PRODUCT_ID"], ["IS_ONLINE"], "sales"), url)
    shown = text_of("moving-from-kartothek.md").partition("check-migration\n")[2].partition("```")[0]
    assert runner.invoke(cli, ["--url", url, "check-migration"]).output == shown
