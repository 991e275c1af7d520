"""The lock files of `make setup`: the versions in constraints.txt, each with its hashes."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from tools.install import parts
from tools.lock import LOCKS, ROOT, canonical, pins

#: what only `barnabas[gssapi]` needs, which builds against the system's Kerberos: not of `make setup`
OPTIONAL = {"gssapi", "decorator"}
HASHED = re.compile(r"\S+==(?P<version>\S+?)(?: ; .+?)? \\\n(?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+")
LOCKED = {path.stem: pins(path.read_text()) for path in LOCKS.glob("*.lock")}
PINNED = {
    canonical(name): version.partition(";")[0].strip()
    for name, version in (
        line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line
    )
}


def test_each_entry_has_a_version_and_hashes_and_no_address() -> None:
    assert set(LOCKED) == {"build", "dev", "browser"}
    for entries in LOCKED.values():
        for name, entry in entries.items():
            found = HASHED.fullmatch(entry)
            assert found is not None, f"{name}: run `make lock`"
            assert PINNED.get(name, found["version"]) == found["version"], f"{name}: run `make lock`"
            assert "://" not in entry


def test_every_pin_is_locked() -> None:
    locked = {name for entries in LOCKED.values() for name in entries}
    missing = set(PINNED) - locked - OPTIONAL
    assert not missing, "run `make lock`"


@pytest.mark.parametrize(("lock", "extras"), [("dev", ["spark", "dev"]), ("browser", ["browser"])])
def test_every_dependency_is_locked(lock: str, extras: list[str]) -> None:
    project = tomllib.loads(Path(ROOT / "pyproject.toml").read_text())["project"]
    needed = [*project["dependencies"]] + [
        n for each in extras for n in project["optional-dependencies"][each]
    ]
    names = {canonical(re.split(r"[^A-Za-z0-9_.-]", each, maxsplit=1)[0]) for each in needed} - {"barnabas"}
    assert not names - set(LOCKED[lock]) - set(LOCKED["dev"]), "run `make lock`"


def test_setup_installs_nothing_that_has_no_hash() -> None:
    lines = (ROOT / "Makefile").read_text().splitlines()
    (install,) = [line for line in lines if "pip install" in line]
    assert install.startswith("INSTALL = ")
    uses = [line for line in lines if "$(INSTALL)" in line]
    assert [line.partition(" = ")[0] for line in uses] == ["HASHED", "OURS"]
    assert "--require-hashes --no-deps" in uses[0] and "--no-index" in uses[1]


def test_processes_that_install_at_once_have_each_package_once_with_all_its_hashes() -> None:
    text = (LOCKS / "dev.lock").read_text()
    divided = [pins(part) for part in parts(text)]
    assert sum(map(len, divided)) == len(LOCKED["dev"])
    assert {name: entry for part in divided for name, entry in part.items()} == LOCKED["dev"]
