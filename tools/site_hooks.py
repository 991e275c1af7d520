"""Hooks of MkDocs: they add pages from outside docs/ to the site, and rewrite the links that leave docs/.

The READMEs of the examples and the project's own pages (changelog, contributing, security) are in the usual
places of a repository, and their links are relative to it. In the site, such a link leads to the copy of the
page. If the target is not in the site, such as a program, only the text of the link remains.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]

#: Pages outside docs/ by their place in the repository, with their place in the site.
OUTSIDE = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "development/contributing.md",
    "SECURITY.md": "use/security.md",
    **{
        f"examples/{readme.relative_to(ROOT / 'examples').as_posix()}": (
            f"examples/{readme.relative_to(ROOT / 'examples').parent.as_posix()}/index.md".replace("/./", "/")
        )
        for readme in sorted((ROOT / "examples").rglob("README.md"))
    },
}

_PLACE_IN_REPOSITORY = {site: repository for repository, site in OUTSIDE.items()}
_LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")
_ELSEWHERE = re.compile(r"[a-z]+:|#|/")


def on_files(files: Files, config: Any) -> Files:
    for repository, site in OUTSIDE.items():
        files.append(File.generated(config, site, content=(ROOT / repository).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: Any, files: Files) -> str:
    return site_links(markdown, page.file.src_uri, {file.src_uri for file in files})


def site_links(markdown: str, page: str, pages: set[str]) -> str:
    """Return `markdown` with links that work in the site; `page` and `pages` are paths in the site."""
    here = _PLACE_IN_REPOSITORY.get(page, f"docs/{page}")

    def link(match: re.Match[str]) -> str:
        if _ELSEWHERE.match(match["target"]):
            return match[0]
        path, hash_sign, anchor = match["target"].partition("#")
        there = posixpath.normpath(posixpath.join(posixpath.dirname(here), path))
        site = OUTSIDE.get(there) or there.removeprefix("docs/")
        if site in pages or there.startswith("docs/"):  # MkDocs complains where there is no such page
            way = posixpath.relpath(site, posixpath.dirname(page) or ".")
            return f"[{match['text']}]({way}{hash_sign}{anchor})"
        return match["text"]

    return _LINK.sub(link, markdown)
