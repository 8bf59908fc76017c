"""The command `demo`: a small cube from invented sales, a query, and its report."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kartothek_cube.cli import completion
from kartothek_cube.cli.context import Session, open_source, working
from kartothek_cube.cli.errors import Failure
from kartothek_cube.cli.options import cube_command
from kartothek_cube.cli.output import bold, echo, show
from kartothek_cube.cli.query.export import place_of, write_page

if TYPE_CHECKING:
    from kartothek_cube.core.stores.contract import Store

__all__ = ["command", "steps"]


@cube_command("demo", "", "demo", front="")
@click.argument("directory", required=False, metavar="[DIRECTORY]", shell_complete=completion.directories)
@click.pass_context
def command(ctx: click.Context, directory: str | None) -> None:
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

    from kartothek_cube.cli import demo_data as data
    from kartothek_cube.cube.cube import Cube
    from kartothek_cube.handles import CubeHandle

    cube = Cube(["PRODUCT_ID", "STORE_ID", "WEEK"], ["PERIOD"], prefix, index_columns=["BRAND", "DEPARTMENT", "MAILER"])
    grocery, seed = CubeHandle(cube, store), data.sales()
    tables = {"seed": seed, "products": data.products(), "promotions": data.promotions()}
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

    grocery.append({"seed": data.late_sales()})
    yield "append", f"late rows of one store: now {pc.sum(grocery.query_arrow(conditions)['UNITS']).as_py():,} units"

    means = {key["MAILER"]: pc.mean(table["UNITS"]).as_py() for key, table in grocery.groups("MAILER")}
    yield "groups", "units by MAILER: " + ", ".join(f"{name} {mean:.1f}" for name, mean in means.items())

    mean = {key["DEPARTMENT"]: pc.mean(table["UNITS"]).as_py() for key, table in grocery.groups("DEPARTMENT")}
    products = data.products()
    usual = [mean[name] for name in products["DEPARTMENT"].to_pylist()]
    column = products.select(["PRODUCT_ID"]).append_column("USUAL_UNITS", [usual])
    grocery.extend({"usual": column}, partition_on={"usual": []})
    yield "extend", "a new column USUAL_UNITS; no other file is rewritten"

    write_page(page, grocery.report())
    yield "report", str(page)
