"""Settings of Sphinx."""

from __future__ import annotations

import importlib.metadata

project = "kartothek_cube"
author = "The kartothek_cube developers"
copyright = author
release = version = importlib.metadata.version("kartothek-cube")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
exclude_patterns = ["_build"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_typehints = "none"  # the docstrings say it in words
autodoc_member_order = "bysource"
napoleon_google_docstring = False
napoleon_use_rtype = False

html_theme = "alabaster"
html_theme_options = {"description": "Datasets and cubes in a key-value store", "page_width": "1100px", "fixed_sidebar": True}
