"""The Python blocks of a documentation page, and functions that run them."""

from __future__ import annotations

import doctest
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

FENCE = re.compile(r"^(?P<indent> *)(?P<fence>`{3,}|~{3,}|:{3,}) *(?P<info>[^`]*)$")
PYTHON = re.compile(r"^(\{(code-block|code)\} +)?(python|python3|py|pycon)\b *(?P<rest>.*)$")
DOCTEST_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced Python block: the line of its code, the rest of its fence, and its code."""

    line: int
    rest: str
    code: str


def blocks_in(text: str) -> Iterator[Block]:
    """The Python blocks of a page; a fence inside another block is text."""
    lines = iter(enumerate(text.splitlines(), start=1))
    for number, line in lines:
        opening = FENCE.match(line)
        if opening is not None:
            inner = []
            for _, other in lines:
                closing = FENCE.match(other)
                if closing and not closing["info"].strip() and closing["fence"].startswith(opening["fence"]):
                    break
                inner.append(other.removeprefix(opening["indent"]))
            language = PYTHON.match(opening["info"].strip())
            if language is not None:
                yield Block(number + 1, language["rest"].strip(), "\n".join(inner) + "\n")


def is_run(block: Block) -> bool:
    return not block.rest.startswith("no-run")


def run_block(block: Block, page: str, namespace: dict[str, Any]) -> None:
    """Run a block of statements or ``>>>`` examples; line numbers are those of the page."""
    if not block.code.lstrip().startswith(">>>"):
        exec(compile("\n" * (block.line - 1) + block.code, page, "exec"), namespace)
        return
    example = doctest.DocTestParser().get_doctest(block.code, namespace, page, page, block.line - 1)
    example.globs = namespace
    run_example(example)


def run_example(example: doctest.DocTest) -> int:
    """Run a doctest and return the number of its statements."""
    report: list[str] = []
    result = doctest.DocTestRunner(optionflags=DOCTEST_FLAGS).run(example, out=report.append, clear_globs=False)
    assert result.failed == 0, "".join(report)
    return result.attempted


def executed(text: str, page: str, namespace: dict[str, Any]) -> int:
    """Run the blocks of a page in order and return their number."""
    blocks = [block for block in blocks_in(text) if is_run(block)]
    for block in blocks:
        run_block(block, page, namespace)
    return len(blocks)


def number_of_words(text: str) -> int:
    """Words with a letter or digit: the lines of a table are none."""
    return sum(any(map(str.isalnum, word)) for word in text.split())
