"""The directive `cell`: what a notebook shows, made when the documentation is built."""

from __future__ import annotations

import pytest

from tests.support.checklists import REPOSITORY

pytest.importorskip("sphinx", reason="not installed: sphinx (the extra docs)")

from sphinx.errors import ExtensionError

from docs._ext import cell

PAGE = """\
```python
import pandas as pd
from pathlib import Path
frame = pd.DataFrame({"v1": [1]})
Path("made").touch()
```

```{cell}
frame = frame.assign(v2=2)
frame
```

```python no-run: needs another machine
1 / 0
```

```{cell}
frame.T
```

```python
1 / 0
```
"""


def test_cells_run_in_their_order_with_what_came_before(tmp_path):
    first, second = cell.outputs(PAGE, tmp_path)
    assert "<th>v2</th>" in first
    assert "<th>v2</th>" in second
    assert first != second
    assert (tmp_path / "made").exists()


@pytest.mark.parametrize("code", ["1 + 1", "x = 1", "import json"])
def test_a_cell_that_shows_nothing_ends_the_build(tmp_path, code):
    with pytest.raises(ExtensionError, match="no HTML"):
        cell.outputs(f"```{{cell}}\n{code}\n```\n", tmp_path)


def test_a_cell_that_fails_ends_the_build(tmp_path):
    with pytest.raises(ZeroDivisionError):
        cell.outputs("```{cell}\n1 / 0\n```\n", tmp_path)


def test_the_page_about_notebooks_shows_its_outputs(site):
    page = (site / "notebook.html").read_text(encoding="utf-8")
    source = (REPOSITORY / "docs" / "notebook.md").read_text(encoding="utf-8")
    assert page.count('<div class="cell-output"') == source.count("\n```{cell}\n") >= 4
    for shown in ("dataframe", "Cube sales", "kartothek-plan", "kartothek-report"):
        assert shown in page
