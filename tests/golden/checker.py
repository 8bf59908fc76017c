"""Asks the queries of a golden case and compares the answers with those of the library that wrote
it.
"""

from __future__ import annotations

import functools
import hashlib
import json
import traceback
import warnings
from typing import TYPE_CHECKING, Any

from storefact import get_store_from_url

from kartothek_cube.api.cube import C, Cube, query_cube
from kartothek_cube.api.dataset import read_table
from tests.golden.frames import actual_columns, difference, expected_columns
from tests.golden.values import build_conditions, build_predicates, decode_names

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ("datasets", "dimension_columns", "partition_by", "payload_columns")
PLAIN = ("dataset_uuid", "table", "columns", "categoricals", "dates_as_object")


def load_case(folder: Path) -> dict[str, Any]:
    """What ``case.json`` says."""
    return json.loads((folder / "case.json").read_text(encoding="utf-8"))


def fingerprint(folder: Path) -> dict[str, str]:
    """Path → hash of the content, for every file."""
    return {
        str(path.relative_to(folder)): hashlib.sha1(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def store_forms(folder: Path) -> dict[str, Any]:
    """The ways in which a store is handed over."""
    url = f"hfs://{folder.resolve()}"
    return {"url": url, "factory": functools.partial(get_store_from_url, url)}


def build_cube(case: dict[str, Any], query: dict[str, Any]) -> Cube:
    """The cube of a query, which names one of the case's or spells its own."""
    named = query.get("cube", "main")
    spec = named if isinstance(named, dict) else case["cubes"][named]
    return Cube(**{key: decode_names(value) for key, value in spec.items()})


def run_query(case: dict[str, Any], query: dict[str, Any], store: Any) -> list[Any]:
    """The frames that the library answers."""
    args = query["args"]
    if query["api"] == "query_cube":
        kwargs = {key: decode_names(args[key]) for key in NAMES if key in args}
        if "conditions" in args:
            kwargs["conditions"] = build_conditions(C, args["conditions"])
        return query_cube(build_cube(case, query), store, **kwargs)
    kwargs = {key: args[key] for key in PLAIN if key in args}
    if "predicates" in args:
        kwargs["predicates"] = build_predicates(args["predicates"])
    return [read_table(store=store, **kwargs)]


def check_query(folder: Path, case: dict[str, Any], query: dict[str, Any], store: Any) -> str | None:
    """What is wrong with the answer, None if nothing is."""
    wanted_errors = query["expect"].get("error", {}).get("types", [])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            frames = run_query(case, query, store)
    except Exception as error:
        return wrong_error(error, wanted_errors)
    if wanted_errors:
        return f"expected {' or '.join(wanted_errors)}, got an answer"
    return wrong_frames(folder, query["expect"], frames)


def wrong_error(error: Exception, wanted: list[str]) -> str | None:
    """What is wrong with an exception: it must be one of the named classes or inherit from one."""
    if {parent.__name__ for parent in type(error).__mro__} & set(wanted):
        return None
    place = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(str(error).split())
    right, origin = " or ".join(wanted) or "an answer", f"{place.filename}:{place.lineno}"
    return f"expected {right}, got {type(error).__name__}: {text:.160} ({origin})"


def wrong_frames(folder: Path, expect: dict[str, Any], frames: Any) -> str | None:
    """What is wrong with the frames."""
    if not isinstance(frames, list) or len(frames) != len(expect["frames"]):
        got = f"{len(frames)} frames" if isinstance(frames, list) else type(frames).__name__
        return f"expected a list of {len(expect['frames'])} frames, got {got}"
    ordered, ignore = expect.get("order", "strict") == "strict", expect.get("ignore_columns", ())
    for number, (wanted, frame) in enumerate(zip(expect["frames"], frames, strict=True)):
        try:
            reason = difference(expected_columns(folder, wanted), actual_columns(frame), ordered=ordered, ignore=ignore)
        except AssertionError as error:
            reason = str(error)
        if reason is not None:
            return f"frame {number}: {reason}"
    return None


def check_case(folder: Path, asked: set[str]) -> dict[str, str]:
    """Id → what is wrong, for every query of these that counts and fails with one of the forms of
    its store.
    """
    case = load_case(folder)
    failed: dict[str, str] = {}
    for form, store in store_forms(folder / "store").items():
        for query in case["queries"]:
            if query.get("scored", True) and query["id"] in asked - failed.keys():
                reason = check_query(folder, case, query, store)
                if reason is not None:
                    failed[query["id"]] = f"{query['api']} ({query['title']}) [{form}]: {reason}"
    return failed
