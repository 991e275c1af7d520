"""Every link has a target, in the repository and in the documentation site."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.docs.pages import PAGES, ROOT, place

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```|`[^`]*`", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=place)
def test_links_of_a_page_lead_to_files_of_the_repository(page: Path) -> None:
    for target in LINK.findall(CODE.sub("", page.read_text(encoding="utf-8"))):
        if not re.match(r"[a-z]+:|#", target):
            assert (page.parent / target.partition("#")[0]).exists(), target


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site as `make site` does, and return its folder. MkDocs fails on a
    missing page or heading.
    """
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "mkdocs", "build", "-q", "--site-dir", str(folder)]
    outcome = subprocess.run(
        build,
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert outcome.returncode == 0, outcome.stderr
    return folder


def test_the_site_has_every_page_of_the_docs_and_a_search(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        assert (site / page.relative_to(ROOT / "docs").with_suffix(".html")).exists(), page
    assert (site / "search" / "search_index.json").exists()


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = Loaded()
        loaded.feed(page.read_text(encoding="utf-8"))
        assert not [address for address in loaded.addresses if address.startswith(("http", "//"))], page


class Loaded(HTMLParser):
    """The addresses that a browser loads by itself to show a page."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "img", "link", "iframe"):
            self.addresses += [value for name, value in attributes if name in ("src", "href") and value]
