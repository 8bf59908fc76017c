"""`demo`: a cube from an installed package, where the user wants it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kartothek_cube import list_cubes, verify_cube
from kartothek_cube.cli.commands import start


def test_a_cube_a_query_and_a_report(run, folder):
    ran = run("demo", "shop")
    assert (ran.code, ran.err) == (0, "")
    assert list_cubes(folder / "shop" / "cubes") == ["grocery"]
    assert verify_cube("grocery", folder / "shop" / "cubes").ok
    assert (folder / "shop" / "grocery.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    lines = [line for line in ran.out.splitlines() if str(folder) not in line]
    assert [line for line in lines if len(line) > 80] == []
    assert "DEPARTMENT == DRINKS & MAILER == leaflet" in ran.out
    assert "files read: 3 of 13" in ran.out
    again = run("demo", "shop")  # nothing is replaced
    assert again.code == 2
    assert "already. Take another directory" in again.err
    assert run("--url", "shop/cubes", "grocery", "delete", "--yes").code == 0
    assert run("demo", "shop").code == 0


def test_an_index_leaves_out_files_of_the_seed(run, folder):
    run("demo", "shop")
    condition = ["--where", "MAILER == leaflet"]
    assert "1  secondary index: MAILER" in run("--url", "shop/cubes", "grocery", "explain", *condition).out
    files = run("--url", "shop/cubes", "grocery", "files", *condition, "--format", "json").json["datasets"]
    assert {file["key"].split("/")[2] for name in ("seed", "promotions") for file in files[name]} == {"PERIOD=2024-06"}


def test_the_store_of_the_environment_is_left_alone(run, folder, monkeypatch):
    monkeypatch.setenv("KARTOTHEK_CUBE_URL", str(folder / "two"))
    monkeypatch.setattr("tempfile.mkdtemp", lambda prefix: str(folder / prefix))
    ran = run("demo", "--format", "json")
    assert Path(ran.json["report"]).parent == folder / "kartothek-cube-demo-"
    assert list((folder / "two").iterdir()) == []


def test_a_store_and_a_name_of_ones_own(run, folder):
    ran = run("--url", "two", "mine", "demo")
    assert ran.code == 0
    assert list_cubes(folder / "two") == ["mine"]
    assert (folder / "mine.html").exists()
    assert "give" not in ran.err
    assert run("--url", "two", "demo", "elsewhere").code == 2


@pytest.mark.parametrize("make", [start.sales, start.products, start.promotions, start.late_sales])
def test_the_data_are_the_same_each_time(make):
    assert make().equals(make())
    assert make(1).num_rows > 0
    assert not make(1).equals(make())


def test_cells_occur_once_and_know_their_product():
    sales, products = start.sales(), start.products()
    assert sales.group_by(["PRODUCT_ID", "STORE_ID", "WEEK"]).aggregate([]).num_rows == sales.num_rows
    assert set(sales["PRODUCT_ID"].to_pylist()) <= set(products["PRODUCT_ID"].to_pylist())
    assert min(sales["UNITS"].to_pylist()) > 0
