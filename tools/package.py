"""Builds the wheel for a package index, with the URLs of the project and a README whose links work there.

    python tools/package.py https://example.org/barnabas [--folder dist]

The argument is the address of the repository, which no file of the repository contains. Links to files beside
the README do not work on a package index. So this program adds the URLs, and makes the links absolute, in a
copy of the project.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
_LINK = re.compile(r"(\[[^\]]*\])\((?![a-z]+:|#)([^)\s]+)\)")
_URLS = "# no URLs: the repository does not say where it is published\n"


def absolute_links(readme: str, repository: str) -> str:
    """Return the README, whose links to files of the repository are now URLs of these
    files on the main branch.
    """
    return _LINK.sub(rf"\1({repository}/blob/main/\2)", readme)


def with_urls(pyproject: str, repository: str) -> str:
    """Return pyproject.toml with the project's URLs. Raises ValueError when their place is not found."""
    urls = {
        "Documentation": "/blob/main/docs/index.md",
        "Source": "",
        "Issues": "/issues",
        "Changelog": "/blob/main/CHANGELOG.md",
    }
    if _URLS not in pyproject:
        raise ValueError(f"pyproject.toml lacks the line {_URLS.strip()!r}")
    inline = ", ".join(f'{name} = "{repository}{path}"' for name, path in urls.items())
    return pyproject.replace(_URLS, f"urls = {{ {inline} }}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the wheel for a package index.")
    parser.add_argument(
        "repository", help="where the repository is published, such as https://example.org/barnabas"
    )
    parser.add_argument(
        "--folder", type=Path, default=Path("dist"), help="the wheel's folder [default: dist]"
    )
    options = parser.parse_args()
    repository = options.repository.rstrip("/")
    with tempfile.TemporaryDirectory() as copy:
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, copy)
        shutil.copytree(
            ROOT / "src", Path(copy, "src"), ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
        )
        for name, change in (("README.md", absolute_links), ("pyproject.toml", with_urls)):
            path = Path(copy, name)
            path.write_text(change(path.read_text(encoding="utf-8"), repository), encoding="utf-8")
        wheel = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(options.folder), copy]
        sys.exit(subprocess.run(wheel).returncode)


if __name__ == "__main__":
    main()
