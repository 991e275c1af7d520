"""The page on a package index: addresses of the project, and a README whose links work there."""

from __future__ import annotations

import re
import tomllib

import pytest
from tests.docs.pages import ROOT
from tools.package import absolute_links, with_urls

REPOSITORY = "https://example.org/barnabas"


def test_every_link_of_the_packaged_readme_is_absolute_and_leads_to_a_file() -> None:
    readme = absolute_links((ROOT / "README.md").read_text(encoding="utf-8"), REPOSITORY)
    targets = re.findall(r"\]\(([^)]+)\)", readme)
    assert len(targets) > 20
    for target in targets:
        assert target.startswith("https://")
        if target.startswith(f"{REPOSITORY}/blob/main/"):
            assert (ROOT / target.removeprefix(f"{REPOSITORY}/blob/main/").partition("#")[0]).exists(), target


def test_the_packaged_metadata_has_the_addresses_of_the_project() -> None:
    project = tomllib.loads(with_urls((ROOT / "pyproject.toml").read_text(encoding="utf-8"), REPOSITORY))[
        "project"
    ]
    assert project["urls"]["Source"] == REPOSITORY
    assert {"Documentation", "Issues", "Changelog"} < project["urls"].keys()


def test_addresses_that_have_no_place_are_an_error() -> None:
    with pytest.raises(ValueError, match="lacks the line"):
        with_urls("[project]\n", REPOSITORY)
