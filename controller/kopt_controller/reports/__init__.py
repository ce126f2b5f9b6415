"""Reports: the views of the archive as HTML, Markdown, CSV and figures for papers.

Start reading at ``edition.py``: what is reported. ``contents.py`` makes the tables of a chapter and
``figures.py`` its figures, both without saying how they are written; ``page.py``, ``markdown.py``,
``csvs.py`` and ``paper.py`` write them. jinja2, plotly and matplotlib are loaded by those that use
them, when they do.
"""

from __future__ import annotations

from .csvs import CsvFile, csv_files
from .edition import Edition
from .imported import imported_tables
from .markdown import markdown
from .page import page
from .paper import write_figures

__all__ = [
    "CsvFile",
    "Edition",
    "csv_files",
    "imported_tables",
    "markdown",
    "page",
    "write_figures",
]
