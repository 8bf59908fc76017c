"""Airflow: the cube is an asset.

Who writes the cube says so, and says the commit. Who reads it starts then, and reads that
state, whatever lands meanwhile.

Put the file into the folder of DAGs; the variable SALES_STORE of the environment names the store.
"""

from __future__ import annotations

import os
from typing import Any

import pandas as pd
from airflow.sdk import Asset, dag, task

import kartothek_cube
from kartothek_cube import C, Cube, append_to_cube, build_cube, cube_history, list_cubes

STORE = os.environ.get("SALES_STORE", "hfs://sales-store")
CUBE = Cube(["PRODUCT_ID", "DAY"], ["COUNTRY"], "sales")
SALES = Asset("sales_cube", uri="kartothek-cube://sales", extra={"store": STORE})


def delivered(day: str) -> pd.DataFrame:
    """What the shops have sent; yours comes from a queue or a folder."""
    return pd.DataFrame({"PRODUCT_ID": [1, 2, 1], "DAY": day, "COUNTRY": ["DE", "DE", "FR"], "UNITS": [5, 7, 2]})


def load_day(store: str, day: str) -> str:
    """Append a day, and return the commit. The newest row of a cell wins: a retry adds nothing."""
    write = append_to_cube if CUBE.uuid_prefix in list_cubes(store) else build_cube
    write(delivered(day), CUBE, store)
    return cube_history(CUBE, store)["commit"].iloc[0]


def units_by_country(store: str, day: str, commit: str) -> dict[str, int]:
    """A figure of the state that a commit left."""
    rows = kartothek_cube.open(CUBE, store).query(C("DAY") == day, as_of=commit)
    return rows.groupby("COUNTRY")["UNITS"].sum().to_dict()


@dag(schedule="@daily", catchup=False)
def load_sales() -> None:
    """Writes the asset, and says which commit and day it is."""

    @task(outlets=[SALES], retries=2)
    def load(*, ds: Any = None, outlet_events: Any = None) -> None:
        outlet_events[SALES].extra = {"commit": load_day(STORE, ds), "day": ds}

    load()


@dag(schedule=[SALES], catchup=False)
def report_sales() -> None:
    """Starts after each write."""

    @task(inlets=[SALES])
    def report(*, inlet_events: Any = None) -> dict[str, int]:
        written = inlet_events[SALES][-1].extra
        return units_by_country(STORE, written["day"], written["commit"])

    report()


load_sales()
report_sales()
