"""Each recipe does what it says: the facts of its result, held against the data that it was made
from.
"""

from __future__ import annotations

import importlib.util
import random
import subprocess
import sys
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pandas as pd
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from kartothek_cube import (
    C,
    append_to_cube,
    cleanup_cube,
    collect_stats,
    compact_cube,
    count_cube,
    list_cubes,
    open_cube,
    open_store,
    options,
    plan_cube_query,
    query_cube,
    query_cube_arrow,
    remove_partitions,
    update_cube,
    verify_cube,
)
from kartothek_cube.api.dataset import DatasetMetadata, history, read_table, undo
from kartothek_cube.errors import CommitConflict, InvalidInput

REPOSITORY = Path(__file__).parents[3]
FOLDER = REPOSITORY / "examples" / "recipes"
RECIPES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "shop")
SALES = "recipe_shop++sales"


def load(name):
    """A recipe as a module that nobody else finds."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def shop(monkeypatch, tmp_path):
    """What the recipes share, as they find it; they run in an empty directory and without
    arguments.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["recipe.py"])
    module = load("shop")
    monkeypatch.setitem(sys.modules, "shop", module)
    return module


@pytest.fixture
def store(shop):
    return open_store("hfs://shop-data")


@pytest.fixture
def recipe(request, shop):
    """The recipe that a test is named after."""
    return load(request.node.name.removeprefix("test_"))


def frame(shop, store, **arguments):
    return query_cube(shop.CUBE, store, **arguments)[0]


def in_order(rows, like):
    """The same rows in the order and with the columns of a query."""
    return rows[like.columns].sort_values(
        ["COUNTRY_CODE", "MONTH", "PRODUCT_ID", "STORE_ID", "SALES_DATE"], ignore_index=True
    )


def assert_has_sales(shop, store, first, last):
    found = frame(shop, store, datasets=["sales"])
    expected = shop.sales(first, last)
    pd.testing.assert_frame_equal(in_order(found, found), in_order(expected, found), check_dtype=False)


def test_daily_append(recipe, shop, store, capsys):
    recipe.main()
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()[:3]] == [
        "2024-04-28:",
        "2024-04-29:",
        "2024-04-30:",
    ]
    assert_has_sales(shop, store, "2024-03-01", "2024-04-30")
    recipe.main()
    assert capsys.readouterr().out == "no day is lacking\n"
    assert len(history(SALES, store)) == 4


def test_backfill_scope(recipe, shop, store, capsys):
    recipe.main()
    printed = [line.split()[1] for line in capsys.readouterr().out.splitlines()]
    right = shop.sales("2024-03-01", "2024-04-30")["UNITS"].sum()
    assert printed[1:] == [f"{right:,}"] * 3 != printed[:1] * 3
    assert_has_sales(shop, store, "2024-03-01", "2024-04-30")
    assert read_table("recipe_tills", store)["UNITS"].sum() == right
    assert history(SALES, store)[["added", "removed"]].values.tolist() == [[1, 2], [1, 0], [4, 0]]


def test_forecast_per_group(recipe, shop, store, capsys):
    recipe.main()
    brands = shop.sales("2024-03-01", "2024-04-30").merge(shop.products(), on="PRODUCT_ID").groupby("BRAND").size()
    assert capsys.readouterr().out.splitlines()[:3] == [f"{brand}: {n:,} rows" for brand, n in brands.items()]
    rows = query_cube(
        open_cube("recipe_shop", store),
        store,
        (C("PRODUCT_ID") == 3) & (C("STORE_ID") == 12),
        payload_columns=["UNITS", "EXPECTED"],
    )[0]
    by_day = rows.set_index("SALES_DATE").sort_index()
    before = [by_day["UNITS"][f"2024-04-{day:02}"] for day in (1, 8, 15, 22)]
    assert by_day["EXPECTED"]["2024-04-29"] == sum(before) / 4
    assert by_day["EXPECTED"].isna().sum() == 7
    assert collect_stats(shop.CUBE, store)["forecast"]["rows"] == collect_stats(shop.CUBE, store)["sales"]["rows"]


def test_checks(recipe, shop, store):
    with pytest.raises(SystemExit) as ended:
        recipe.main()
    lines = str(ended.value).splitlines()
    assert [line.split(" ", 1)[0] for line in lines] == ["2", "2024-04:", "turnover"]
    new, april = (len(shop.sales(first, "2024-04-30")) for first in ("2024-04-29", "2024-04-01"))
    assert lines[1] == f"2024-04: {new} of {april} cells have no RAIN"
    assert "turnover of FR" in lines[2]
    key = next(key for key in store.list("recipe_shop++sales/table/", recursive=True).keys if "MONTH=2024-03" in key)
    store.delete(key)
    assert [key in finding for finding in recipe.broken(store)] == [True]


def test_checks_find_nothing_where_nothing_is_wrong(shop, store):
    checks = load("checks")
    shop.new_shop(store)
    day = shop.sales_of(pd.Timestamp("2024-05-01"))
    checks.append_to_cube({"sales": day}, shop.CUBE, store)
    assert [*checks.broken(store), *checks.repeated(day), *checks.lacking(store, "UNITS"), *checks.changed(store)] == []


def test_nightly_groups(recipe, shop, store, capsys):
    recipe.main()
    assert capsys.readouterr().out.splitlines() == [
        "computed 4 groups, removed 0",
        "computed 0 groups, removed 0",
        "computed 2 groups, removed 0",
        "computed 1 groups, removed 2",
    ]
    assert noted(recipe, store) == {"sales": history(SALES, store)["commit"][0]}
    assert_as_from_scratch(recipe, shop, store)
    files = history(recipe.RESULT, store)[["added", "removed"]].values.tolist()
    assert files == [[1, 3], [2, 0], [0, 0], [4, 0]]


def noted(recipe, store):
    return DatasetMetadata.load_from_store(recipe.RESULT, store).metadata["computed_from"]


def assert_as_from_scratch(recipe, shop, store):
    """The result is that of all groups in the state which its note names."""
    now = query_cube(shop.CUBE, store, payload_columns=["UNITS"], as_of=noted(recipe, store)["sales"])
    cells = pd.concat([pd.DataFrame(columns=["COUNTRY_CODE", "MONTH", "PRODUCT_ID", "STORE_ID", "UNITS"]), *now])
    by = ["COUNTRY_CODE", "MONTH", "PRODUCT_ID", "STORE_ID"]
    wanted = cells.groupby(by, as_index=False)["UNITS"].mean()
    found = read_table(recipe.RESULT, store).sort_values(by, ignore_index=True)
    found = found.rename(columns={"UNITS_mean": "UNITS"})[wanted.columns]
    pd.testing.assert_frame_equal(found, wanted, check_dtype=False)


class Shopkeeper:
    """Changes the sales between nights, in every way that there is."""

    def __init__(self, shop, store, seed):
        self.shop, self.store, self.random = shop, store, random.Random(seed)
        self.ways = (self.add, self.correct, self.replace, self.remove, self.compact, self.take_back)

    def __call__(self):
        """One change of any kind."""
        self.random.choice(self.ways)()

    def delivery(self):
        """The sales of a day of one country."""
        day = pd.Timestamp("2024-03-28") + pd.Timedelta(days=self.random.randrange(40))
        rows = self.shop.sales_of(day)
        return rows[rows["COUNTRY_CODE"] == self.random.choice(["DE", "FR"])]

    def add(self):
        append_to_cube({"sales": self.delivery()}, self.shop.CUBE, self.store)

    def correct(self):
        rows = self.delivery().assign(UNITS=self.random.randrange(9))
        append_to_cube({"sales": rows}, self.shop.CUBE, self.store)

    def replace(self):
        rows = self.delivery()
        update_cube({"sales": rows}, self.shop.CUBE, self.store, remove_conditions=self.scope(rows))

    def remove(self):
        remove_partitions(self.shop.CUBE, self.store, self.scope(self.delivery()))

    def scope(self, rows):
        country, month = rows[["COUNTRY_CODE", "MONTH"]].iloc[0]
        return (C("COUNTRY_CODE") == country) & (C("MONTH") == month)

    def compact(self):
        compact_cube(self.shop.CUBE, self.store)

    def take_back(self):
        with suppress(InvalidInput):  # the first commit, and one without history
            undo(SALES, self.store)


class Crash(Exception):
    pass


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_nights_that_fail_and_nights_with_other_writers_give_what_computing_everything_gives(
    shop, store, monkeypatch, capsys, seed
):
    recipe = load("nightly_groups")
    shop.new_shop(store, "2024-03-28", "2024-04-05")
    change, compute = Shopkeeper(shop, store, seed), recipe.expected

    def meanwhile(action):
        """A night during which something else happens, as soon as it has a plan and one result."""
        waiting = [action]

        def expected(sold):
            result = compute(sold)
            while waiting:
                waiting.pop()()
            return result

        monkeypatch.setattr(recipe, "expected", expected)
        recipe.night(store)

    def crash():
        raise Crash

    def another_night():
        monkeypatch.setattr(recipe, "expected", compute)
        recipe.night(store)

    kinds = 3 * ["crash", "writer", "two nights", "no history", "plain"]
    change.random.shuffle(kinds)
    recipe.night(store)
    for kind in kinds:
        for _ in range(change.random.randrange(3)):
            change()
        if kind != "plain":
            change.add()
        monkeypatch.setattr(recipe, "expected", compute)
        if kind == "crash":
            before = read_table(recipe.RESULT, store), noted(recipe, store)
            with pytest.raises(Crash):
                meanwhile(crash)
            pd.testing.assert_frame_equal(read_table(recipe.RESULT, store), before[0])
            assert noted(recipe, store) == before[1]
            continue
        if kind == "writer":
            meanwhile(change)
        elif kind == "two nights":
            with pytest.raises(CommitConflict):
                meanwhile(another_night)
        else:
            if kind == "no history":
                cleanup_cube(shop.CUBE, store, options=options(grace=timedelta(0), retain=timedelta(0)))
            recipe.night(store)
        assert_as_from_scratch(recipe, shop, store)
    another_night()
    assert_as_from_scratch(recipe, shop, store)
    assert noted(recipe, store)["sales"] == history(SALES, store)["commit"][0]
    assert capsys.readouterr().out.count("everything again") >= 3


def test_a_night_that_ends_after_a_later_one_leaves_its_own_note_and_the_next_one_mends_it(shop, store, monkeypatch):
    recipe = load("nightly_groups")
    shop.new_shop(store, "2024-04-28", "2024-04-30")
    recipe.night(store)
    change, commit = Shopkeeper(shop, store, 0), recipe.update_dataset_from_dataframes
    change.add()

    def late(rows, *arguments, **more):
        """Between the results of a night and its commit comes a write, and a whole other night."""
        rows = [*rows]
        monkeypatch.setattr(recipe, "update_dataset_from_dataframes", commit)
        change.replace()
        recipe.night(store)
        commit(rows, *arguments, **more)

    monkeypatch.setattr(recipe, "update_dataset_from_dataframes", late)
    recipe.night(store)
    assert noted(recipe, store)["sales"] == history(SALES, store)["commit"][1]
    recipe.night(store)
    assert_as_from_scratch(recipe, shop, store)
    assert noted(recipe, store)["sales"] == history(SALES, store)["commit"][0]


def test_streaming(recipe, shop, store):
    recipe.main()
    german = query_cube_arrow(shop.CUBE, store, C("COUNTRY_CODE") == "DE")
    order = [(column, "ascending") for column in german.column_names]
    assert pq.read_table("shop.parquet").sort_by(order) == german.sort_by(order)
    prices = read_table("recipe_prices", store)
    assert len(prices) == count_cube(shop.CUBE, store)
    assert prices.groupby("PRODUCT_ID")["PRICE"].agg(["min", "max"]).round(6).values.tolist() == [
        [price, price] for price in shop.PRICES.values()
    ]


def test_copy_to_another_store(recipe, shop, store):
    recipe.main()
    target = open_store(Path("shop-address.txt").read_text(encoding="utf-8"))
    assert_has_sales(shop, target, "2024-03-01", "2024-04-30")
    assert verify_cube(shop.CUBE, target, deep=True).clean
    assert list_cubes(store) == []


def test_a_copy_that_is_not_the_source_any_more_is_not_switched_to(shop, store, monkeypatch):
    recipe = load("copy_to_another_store")
    copy = recipe.copy_cube

    def while_somebody_writes(*arguments, **more):
        copy(*arguments, **more)
        shop.build_cube({"sales": shop.sales_of(pd.Timestamp("2024-05-01"))}, shop.CUBE, store, overwrite=True)

    monkeypatch.setattr(recipe, "copy_cube", while_somebody_writes)
    with pytest.raises(SystemExit, match="Copy again"):
        recipe.main()
    assert not Path("shop-address.txt").exists()
    assert list_cubes(store) == ["recipe_shop"]


def test_late_dimension_table(recipe, shop, store):
    recipe.main()
    rows = shop.sales("2024-03-01", "2024-04-30").merge(shop.products(), on="PRODUCT_ID")
    brands = rows.groupby("BRAND")["UNITS"].sum().to_dict()
    old = history("recipe_shop++products", store)["commit"][1]
    assert recipe.units_by_brand(store, as_of=old) == brands
    assert recipe.units_by_brand(store) == {"Acme": brands["Acme"] + brands["Bolt"], "Corda": brands["Corda"]}
    cube = recipe.WITH_BRANDS
    assert count_cube(cube, store) == len(rows) + 3
    assert collect_stats(cube, store)["sales"]["files"] == 5


def test_add_an_index(recipe, shop, store, capsys):
    recipe.main()
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "files that are read: 24 without the index, 4 with it"
    assert printed[3] == "files that are read when it is dropped: 24"
    assert open_cube("recipe_shop", store).index_columns == frozenset()
    easter = frame(shop, store, conditions=recipe.QUESTION)
    assert easter["MONTH"].unique().tolist() == ["2024-03"]
    assert f"rows: {len(easter)} without the index, {len(easter)} with it" == printed[1]
    assert set(plan_cube_query(shop.CUBE, store, recipe.QUESTION).files()) == {"sales", "campaigns"}


def test_undo_a_bad_load(recipe, shop, store):
    recipe.main()
    assert_has_sales(shop, store, "2024-03-01", "2024-04-30")
    assert history(SALES, store)[["added", "removed"]].values.tolist() == [[2, 2], [2, 0], [2, 2], [4, 0]]


def test_training_data_under_a_tag(recipe, shop, store, capsys):
    recipe.main()
    made = shop.sales("2024-03-01", "2024-04-30")
    seen = recipe.training_data(store, as_of=recipe.MODEL)
    assert seen["UNITS"].sum() == made["UNITS"].sum()
    assert recipe.training_data(store)["UNITS"].sum() != made["UNITS"].sum()
    mean = f"{seen['UNITS'].mean():.2f}"
    assert f"trained on {mean} units a day, now again on {mean};" in capsys.readouterr().out


def test_a_recipe_is_a_script_that_takes_a_store_and_leaves_nothing_beside_it(tmp_path):
    (tmp_path / "work").mkdir()
    command = [sys.executable, FOLDER / "undo_a_bad_load.py", f"hfs://{tmp_path / 'here'}"]
    done = subprocess.run(command, cwd=tmp_path / "work", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("turnover: ")
    assert list((tmp_path / "work").iterdir()) == []
    assert list_cubes(open_store(f"hfs://{tmp_path / 'here'}")) == ["recipe_shop"]


def test_recipes_can_follow_one_another_in_one_store(shop, store):
    for name in ("late_dimension_table", "undo_a_bad_load"):
        load(name).main()
    assert set(collect_stats(shop.CUBE, store)) == {"sales"}
    assert (
        pc.sum(query_cube_arrow(shop.CUBE, store)["UNITS"]).as_py()
        == shop.sales("2024-03-01", "2024-04-30")["UNITS"].sum()
    )


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_short_tested_and_in_the_documentation(name):
    text = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    assert len(text.splitlines()) < 80
    assert f"python {name}.py [store-url]" in text.partition('"""\n\nfrom')[0]
    assert f"def test_{name}(recipe" in Path(__file__).read_text(encoding="utf-8")
    assert f"examples/recipes/{name}.py" in (REPOSITORY / "docs" / "recipes.md").read_text(encoding="utf-8")
