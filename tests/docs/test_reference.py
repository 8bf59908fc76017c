"""The reference has every public name once, and each has an example that runs."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
from collections import Counter

import pytest

from tests.support.checklists import REPOSITORY
from tests.support.doc_blocks import blocks_in

_DASK = ("dataframe", "bag", "delayed", "bag_cube", "dataframe_cube")
# The quick environment has no PySpark, and so none of the names that need it.
SPARK = ["kartothek_cube.spark"] if importlib.util.find_spec("pyspark") else []
DASK = (
    ["kartothek_cube.dask", *(f"kartothek_cube.dask.{name}" for name in _DASK)]
    if importlib.util.find_spec("dask") and importlib.util.find_spec("distributed")
    else []
)
PAGES = {
    path.stem: path.read_text(encoding="utf-8")
    for path in sorted((REPOSITORY / "docs" / "api").glob("*.md"))
    if path.stem not in {"spark", "dask"} or {"spark": SPARK, "dask": DASK}[path.stem]
}
MODULES = [
    "kartothek_cube",
    *(f"kartothek_cube.api.{name}" for name in ("cube", "dataset", "discover", "consistency", "serialization")),
    *SPARK,
    *DASK,
    "kartothek_cube.errors",
    "kartothek_cube.typing",
]
DIRECTIVE = re.compile(r"^\.\. reference:: (?P<module>\S+)\n\n(?P<names>(?: +\w+\n)+)", re.MULTILINE)
CURRENT = re.compile(r"^\.\. py:currentmodule:: (\S+)$", re.MULTILINE)
DATA = re.compile(r"^\.\. py:data:: (\S+)$", re.MULTILINE)
# A module, and not a name of its own.
ROOMS = {"kartothek_cube.errors"}
# Public, but not part of a star import: the builtin stays.
STARLESS = {"kartothek_cube.open"}


def described(text):
    """The full names that a page of the reference describes."""
    yield from (f"{block['module']}.{name}" for block in DIRECTIVE.finditer(text) for name in block["names"].split())
    module = CURRENT.search(text)
    yield from (name if "." in name else f"{module[1]}.{name}" for name in DATA.findall(text))


def value_of(full):
    module, _, name = full.rpartition(".")
    return getattr(importlib.import_module(module), name)


def identity(full):
    """The same for a name that can be imported from several places."""
    value = value_of(full)
    return (
        (value.__module__, value.__qualname__)
        if inspect.isroutine(value) or inspect.isclass(value)
        else (full.rpartition(".")[2],)
    )


DESCRIBED = [(page, full) for page, text in PAGES.items() for full in described(text)]
# What has no docstring of its own, as a number or an alias of a type, has its example on the page.
WITHOUT = [(page, full) for page, full in DESCRIBED if ">>>" not in (inspect.getdoc(value_of(full)) or "")]


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_is_described(module):
    public = {f"{module}.{name}" for name in importlib.import_module(module).__all__} - ROOMS
    found = {identity(full) for _, full in DESCRIBED}
    assert {full for full in public if identity(full) not in found} == set()


def test_no_name_is_described_twice():
    # `C` is another name of `VirtualColumn`, and both are public.
    counts = Counter(identity(full) for _, full in DESCRIBED if full != "kartothek_cube.C")
    assert {name: count for name, count in counts.items() if count > 1} == {}


def test_what_is_described_is_public():
    lacking = [
        full
        for _, full in DESCRIBED
        if full not in STARLESS
        and full.rpartition(".")[2] not in importlib.import_module(full.rpartition(".")[0]).__all__
    ]
    assert lacking == []


@pytest.mark.parametrize(("page", "full"), [pytest.param(page, full, id=full) for page, full in WITHOUT])
def test_a_name_without_an_example_in_its_docstring_has_one_on_its_page(page, full):
    code = "\n".join(block.code for block in blocks_in(PAGES[page]))
    assert re.search(rf"\b{full.rpartition('.')[2]}\b", code), "give its docstring an example, or the page a block"


@pytest.mark.parametrize("module", MODULES)
def test_every_function_and_class_has_a_docstring_with_an_example(module):
    values = {name: getattr(importlib.import_module(module), name) for name in importlib.import_module(module).__all__}
    own = {
        name: value
        for name, value in values.items()
        if inspect.isfunction(value) or (inspect.isclass(value) and value.__module__.startswith("kartothek_cube"))
    }
    assert [name for name, value in own.items() if ">>>" not in (value.__doc__ or "")] == []


def test_names_in_the_guides_lead_to_the_reference(site):
    start = (site / "start.html").read_text(encoding="utf-8")
    assert re.search(r'href="api/queries\.html#kartothek_cube\.iter_cube"[^>]*><code', start)
    assert 'id="kartothek_cube.iter_cube"' in (site / "api" / "queries.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("build_cube", "build_cube"),
        ("build_cube(data, cube, store)", "build_cube"),
        ("Cube", "Cube"),
        ("history", ""),
        ("history()", "history"),
        ("C", ""),
        ("x == 1", ""),
    ],
)
def test_inline_code_mentions_a_name_if_it_cannot_be_a_plain_word(code, name):
    pytest.importorskip("sphinx", reason="not installed: sphinx (the extra docs)")
    assert importlib.import_module("docs._ext.reference").mentioned(code) == name


def test_a_name_is_described_where_its_path_is_shortest():
    pytest.importorskip("sphinx", reason="not installed: sphinx (the extra docs)")
    pytest.importorskip("pyspark", reason="not installed: pyspark (the extra spark)")
    pytest.importorskip("hypothesis", reason="not installed: hypothesis")
    targets = importlib.import_module("docs._ext.reference").targets()
    assert targets["build_cube"] == "kartothek_cube.build_cube"
    assert targets["QueryPlan"] == "kartothek_cube.api.cube.QueryPlan"
