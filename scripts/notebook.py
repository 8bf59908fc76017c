"""Runs a notebook and writes the notebook with its outputs and a self-contained page of HTML.

Run: ``python scripts/notebook.py examples/grocery.ipynb docs/_build/notebook``
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

import nbformat
from jinja2 import DictLoader
from nbclient import NotebookClient
from nbconvert import HTMLExporter

SECONDS = 600
"""What a cell may take."""

# Jupyter's own page without the scripts that it would load; long lines of code can be moved.
TEMPLATE = """{% extends "lab/index.html.j2" %}
{% block html_head_js_requirejs %}{% endblock %}
{% block html_head_js_mathjax %}{% endblock %}
{% block html_head_js_mermaidjs %}{% endblock %}
{% block html_head_css %}<style>.jp-InputArea-editor .highlight pre{overflow-x:auto}</style>{% endblock %}
"""


def executed(notebook: Path) -> nbformat.NotebookNode:
    """Run the cells of a notebook in its folder with this Python and return it with their outputs.

    A cell that fails is an error. The settings of the user stay out of it.
    """
    cells = nbformat.read(notebook, as_version=4)
    with tempfile.TemporaryDirectory(prefix="notebook-") as folder:
        os.environ |= dict.fromkeys(
            ["IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"], folder
        )
        NotebookClient(
            cells,
            timeout=SECONDS,
            kernel_name="python3",
            coalesce_streams=True,
            resources={"metadata": {"path": notebook.parent}},
        ).execute()
    return cells


def as_html(cells: nbformat.NotebookNode, title: str, theme: str) -> str:
    """The page, in the theme ``light`` or ``dark``."""
    exporter = HTMLExporter(extra_loaders=[DictLoader({"page": TEMPLATE})], template_file="page", theme=theme)
    page: str = exporter.from_notebook_node(cells, resources={"metadata": {"name": title}})[0]
    return page


def main() -> None:
    """Run the notebook that is named, and write into the folder that is named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("notebook", type=Path)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    notebook, folder = arguments.notebook.resolve(), arguments.folder
    cells = executed(notebook)
    folder.mkdir(parents=True, exist_ok=True)
    nbformat.write(cells, folder / notebook.name)
    for theme, ending in (("light", ""), ("dark", "-dark")):
        page = folder / f"{notebook.stem}{ending}.html"
        page.write_text(as_html(cells, notebook.stem, theme), encoding="utf-8")
        print(page)


if __name__ == "__main__":
    main()
