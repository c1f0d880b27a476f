"""Sphinx settings; the reference pages are generated from the code at each build."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import generate
from sphinx.application import Sphinx

project = "gradatim"
copyright = "the gradatim contributors"
release = generate.VERSION

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_google_docstring = False
napoleon_use_ivar = True

html_theme = "furo"
html_title = f"gradatim {release}"


def setup(app: Sphinx) -> None:
    """Write the generated pages before Sphinx looks for its sources."""
    app.connect("builder-inited", lambda app: generate.write(Path(app.srcdir) / "reference"))
