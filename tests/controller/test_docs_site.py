"""The documents as a site: built with every warning an error, and nothing loaded from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mkdocs", reason="the site is built where mkdocs is installed")
pytest.importorskip("material")

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    folder = tmp_path_factory.mktemp("site")
    argv = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    ran = subprocess.run(
        [*argv, "--config-file", CHECKOUT / "mkdocs.yml", "--site-dir", folder],
        capture_output=True,
        text=True,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return folder


def test_every_document_is_a_page(site: Path) -> None:
    """And stands in the navigation."""
    home = (site / "index.html").read_text()
    for document in (CHECKOUT / "docs").glob("*.md"):
        if document.stem != "index":
            assert (site / document.stem / "index.html").is_file(), document
            assert f'href="{document.stem}/"' in home, f"{document.stem} is not in the navigation"


def test_a_page_loads_nothing_from_elsewhere(site: Path) -> None:
    """Scripts, styles, fonts and images are the site's own."""
    for page in site.rglob("*.html"):
        loaded = re.findall(r'(?:src="|<link[^>]+href=")(https?://[^"]+)', page.read_text())
        assert loaded == [], page


def test_anchors_between_documents_exist(site: Path) -> None:
    """A link to a heading finds it."""
    for document in (CHECKOUT / "docs").glob("*.md"):
        for target, anchor in re.findall(
            r"\]\(([\w-]*?)(?:\.md)?#([\w-]+)\)", document.read_text()
        ):
            name = target or document.stem
            page = site / ("index.html" if name == "index" else f"{name}/index.html")
            assert f'id="{anchor}"' in page.read_text(), f"{document.name}: {target}#{anchor}"
