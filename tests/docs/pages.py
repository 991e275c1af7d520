"""The pages that people read: every Markdown file of the repository."""

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
    """Where a page lies in the repository, such as `docs/use/cli.md`."""
    return page.relative_to(ROOT).as_posix()
