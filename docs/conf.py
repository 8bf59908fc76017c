"""Settings of Sphinx."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "kartothek_cube"
author = "The kartothek_cube developers"
copyright = author
release = version = importlib.metadata.version("kartothek-cube")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "reference",
    "terminal",
    "cell",
]
exclude_patterns = ["_build", "_ext"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_typehints = "none"  # the docstrings say it in words
autodoc_member_order = "bysource"
autosummary_generate = False
default_role = "py:obj"  # single backticks in docstrings
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
toc_object_entries_show_parents = "hide"

# Our own names must resolve. The names of other libraries would need their inventories, and so a
# network.
nitpicky = True
nitpick_ignore_regex = [("py:.*", r"(?!kartothek_cube\.).*")]

html_theme = "furo"
html_title = "kartothek_cube"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
pygments_style = "friendly"
pygments_dark_style = "github-dark"
