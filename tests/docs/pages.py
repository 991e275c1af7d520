"""The pages for people: every Markdown file of the repository."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
    *sorted((ROOT / ".github").rglob("*.md")),
]


def place(page: Path) -> str:
    """Return the path of a page in the repository, such as `docs/use/cli.md`."""
    return page.relative_to(ROOT).as_posix()
