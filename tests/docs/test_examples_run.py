"""Everything in README, documentation and docstrings runs."""

from __future__ import annotations

import doctest
import importlib
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.doc_blocks import blocks_in, executed, is_run, run_example
from tests.support.source import MODULES, Module

REPOSITORY = Path(__file__).parents[2]
PAGES = {
    str(path.relative_to(REPOSITORY)): path
    for path in [REPOSITORY / "README.md", *sorted(REPOSITORY.glob("docs/**/*.md"))]
    if "_build" not in path.parts
}

NOT_RUN = re.compile(r"^no-run: +\S.{9,}$")
# What makes an example one for the suite with Spark.
NEEDS_SPARK = re.compile(r"\bpyspark\b|kartothek_cube\.spark|\bspark\.|\bjava_home\b|\bensure_java\b")


def naive_count(text: str) -> int:
    """Python blocks counted by their first line, with nothing of the machinery above."""
    fences = [line.strip() for line in text.splitlines() if line.strip()[:3] in ("```", "~~~", ":::")]
    return sum(fence.lstrip("`~: ").startswith(("py", "{code-block} py", "{code} py")) for fence in fences)


def examples_of(module: Module) -> list[str]:
    """The ``>>>`` statements of a module's docstrings."""
    return (
        [example.source for example in doctest.DocTestParser().get_examples(module.text)]
        if ">>> " in module.text
        else []
    )


def with_spark(name: str, code: str, *, always: bool = False) -> Any:
    """A parameter, marked if its code needs Spark."""
    return pytest.param(name, marks=pytest.mark.spark) if always or NEEDS_SPARK.search(code) else name


def page_parameter(name: str) -> Any:
    code = "\n".join(block.code for block in blocks_in(PAGES[name].read_text(encoding="utf-8")))
    if name == "docs/design/010-spark-push-down.md":  # Spark alone, without the package
        return pytest.param(name, marks=[pytest.mark.spark, pytest.mark.exhaustive])
    return with_spark(name, code)


def module_parameter(module: Module) -> Any:
    return with_spark(
        module.name, "\n".join(examples_of(module)), always=module.name.startswith("kartothek_cube.spark")
    )


@pytest.fixture
def namespace(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """An example starts in an empty working directory, with `spark` where the example needs it."""
    monkeypatch.chdir(tmp_path)
    with suppress(ImportError):
        # OpenTelemetry lets a process choose once, but the next test is another application.
        trace = importlib.import_module("opentelemetry.trace")
        monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
        monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", type(trace._TRACER_PROVIDER_SET_ONCE)())
    needs_spark = request.node.get_closest_marker("spark") is not None
    return {"__name__": "__main__"} | ({"spark": request.getfixturevalue("spark")} if needs_spark else {})


@pytest.mark.parametrize("page", [page_parameter(name) for name in PAGES])
def test_every_block_of_a_page_runs(page, namespace):
    if page == "docs/sql.md":
        pytest.importorskip("polars.lazyframe.resolver", reason="older releases of Polars explain no plan")
    if page == "docs/spark-without-java.md":
        pytest.importorskip("pysail", reason="tests/integration/sail/test_sail_page.py runs it where Sail is")
    text = PAGES[page].read_text(encoding="utf-8")
    not_run = [block for block in blocks_in(text) if not is_run(block)]
    assert executed(text, page, namespace) + len(not_run) == naive_count(text)


@pytest.mark.parametrize("page", PAGES)
def test_a_block_that_does_not_run_says_why(page):
    unreasoned = [
        block.line
        for block in blocks_in(PAGES[page].read_text(encoding="utf-8"))
        if not is_run(block) and not NOT_RUN.match(block.rest)
    ]
    assert unreasoned == [], "write ```python no-run: the reason"


def test_the_readme_shows_the_library_at_work():
    assert any("query_cube" in block.code for block in blocks_in(PAGES["README.md"].read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", [module_parameter(module) for module in MODULES.values() if examples_of(module)])
def test_the_examples_in_docstrings_run(name, namespace):
    module = importlib.import_module(name)
    found = doctest.DocTestFinder(exclude_empty=True).find(module, extraglobs=namespace | {"__name__": name})
    statements = sum(run_example(example) for example in found)
    assert statements == len(examples_of(MODULES[name])), "a docstring with examples is not reached"


PAGE = """\
```python
x = 1
```

1. in a list

   ```python
   x += 1
   ```

~~~py
assert x == 2
~~~

````md
```text
no Python
```
````

```pycon
>>> x
2
>>> print("a   b")
a b
```

```python no-run: needs a cluster of a hundred machines
1 / 0
```
"""


def test_blocks_share_one_namespace_and_are_counted(namespace):
    assert executed(PAGE, "page.md", namespace) == 4
    assert naive_count(PAGE) == 5
    assert namespace["x"] == 2


@pytest.mark.parametrize("code", ["1 / 0", ">>> 1 / 0", ">>> 1\n2"])
def test_a_block_that_fails_fails_the_page(namespace, code):
    with pytest.raises((ZeroDivisionError, AssertionError)):
        executed(f"```python\n{code}\n```\n", "page.md", namespace)


def test_an_unclosed_fence_that_swallows_a_block_is_noticed(namespace):
    page = "```\ntext\n\n```python\nx = 1\n```\n"
    assert executed(page, "page.md", namespace) != naive_count(page)
