"""The directive ``cell``: runs a cell of a notebook and shows what Jupyter would show.

The Python blocks and the cells of a page run in order, in an empty directory, when the
documentation is built: what is shown is what this version of the library shows. A cell whose value
has no HTML ends the build.
"""

from __future__ import annotations

import ast
import contextlib
import io
import re
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

BLOCK = re.compile(r"^```(?P<kind>python|\{cell\}) *(?P<rest>[^\n]*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


def outputs(text: str, folder: Path) -> list[str]:
    """Run a page up to its last cell; the HTML of each cell."""
    blocks = [block for block in BLOCK.finditer(text) if not block["rest"].startswith("no-run")]
    last = max((place for place, block in enumerate(blocks) if block["kind"] == "{cell}"), default=-1)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    found = []
    for block in blocks[: last + 1]:
        with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
            value = _value(block["code"], namespace)
        if block["kind"] == "{cell}":
            if not hasattr(value, "_repr_html_"):
                raise ExtensionError(f"a notebook shows no HTML for the value of this cell:\n{block['code']}")
            found.append(str(value._repr_html_()))
    return found


def _value(code: str, namespace: dict[str, Any]) -> object:
    """Run a block; the value of its last line, if that is an expression."""
    *statements, last = ast.parse(code).body
    if not isinstance(last, ast.Expr):
        statements.append(last)
    exec(compile(ast.Module(statements, []), "cell", "exec"), namespace)  # noqa: S102 - the page's own blocks
    return eval(ast.unparse(last), namespace) if isinstance(last, ast.Expr) else None  # noqa: S307 - as above


@lru_cache(maxsize=8)
def _outputs_of(text: str) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        return outputs(text, Path(folder))


class Cell(SphinxDirective):
    """Shows a cell of the page's notebook, and below it the output."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Take the place of the block."""
        place = self.env.temp_data.setdefault("cells", 0)
        self.env.temp_data["cells"] = place + 1
        output = _outputs_of(Path(self.env.doc2path(self.env.docname)).read_text(encoding="utf-8"))[place]
        typed = "\n".join(self.content)
        return [
            nodes.literal_block(typed, typed, language="python"),
            nodes.raw("", f'<div class="cell-output" tabindex="0">{output}</div>', format="html"),
        ]


def setup(app: Sphinx) -> dict[str, Any]:
    """Make the directive known."""
    app.add_directive("cell", Cell)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
