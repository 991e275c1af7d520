"""Plants small bugs in a package, and tells which of them the unit tests beside it do not find.

    python tests/mutation/mutants.py storage --count 60 --seed 1

The bugs are those of `mutations.py`, drawn at random. `forks.py` plants them: no file is changed. Changes of
log calls, texts and annotations are left out, since no unit test can find them. So are the handlers of
requests: the integration tests cover those.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.mutation.mutations import mutated, places

ROOT = Path(__file__).parents[2]
PACKAGES = ROOT / "src/barnabas"

#: package: the tests beside it
TESTS = {
    "storage": ["tests/unit/broker/storage"],
    "logs": ["tests/unit/broker/logs"],
    "replication": ["tests/unit/broker/replication"],
    "coordinator": ["tests/unit/broker/coordinator"],
    "controller": ["tests/unit/broker/controller", "tests/unit/broker/server/handlers"],
    "server": ["tests/unit/broker/server", "tests/unit/broker/server/handlers"],
    "records": ["tests/unit/kafka/records", "tests/unit/broker/storage"],
}


def draw(package: str, count: int, seed: int) -> list[dict[str, Any]]:
    """Return `count` random mutants. Large modules get more of them."""
    rng = random.Random(seed)
    (folder,) = PACKAGES.glob(f"*/{package}")
    modules = [m for m in sorted(folder.rglob("*.py")) if "handlers" not in m.parts]
    sizes = [module.read_text().count("\n") for module in modules]
    drawn: dict[str, dict[str, Any]] = {}
    for _ in range(20 * count):
        module = rng.choices(modules, sizes)[0]
        code = module.read_text()
        choices = places(code)
        if not choices or len(drawn) == count:
            continue
        new = mutated(code, rng.choice(rng.choice(choices)))
        drawn[new] = {"path": str(module), "source": new, **difference(code, new)}
    return list(drawn.values())


def difference(before: str, after: str) -> dict[str, Any]:
    """Return the first line that differs."""
    pairs = zip(before.splitlines(), after.splitlines(), strict=False)
    number, (old, new) = next((n, pair) for n, pair in enumerate(pairs, 1) if pair[0] != pair[1])
    return {"line": number, "before": old.strip(), "after": new.strip()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("package", choices=TESTS)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "mutants.json"
        file.write_text(json.dumps(draw(options.package, options.count, options.seed)))
        env = {**os.environ, "BARNABAS_MUTANTS": str(file)}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.mutation.forks", "-p", "no:xdist"]
        subprocess.run([*command, *TESTS[options.package]], cwd=ROOT, env=env, stdout=subprocess.DEVNULL)
        results = json.loads(file.read_text())
    outcomes = [mutant.get("outcome", "not tried") for mutant in results]
    for mutant, outcome in zip(results, outcomes, strict=True):
        if outcome != "caught":
            path = Path(mutant["path"]).relative_to(PACKAGES)
            print(f"{outcome}: {path}:{mutant['line']}\n  - {mutant['before']}\n  + {mutant['after']}")
    print(", ".join(f"{outcomes.count(outcome)} {outcome}" for outcome in sorted(set(outcomes))))


if __name__ == "__main__":
    main()
