"""Plants small bugs in a package, and tells which of them the unit tests beside it do not find.

    python tests/mutation/mutants.py storage --count 60 --seed 1

The bugs are cosmic-ray's mutations, drawn at random. `forks.py` plants them: no file is changed. Changes of
log calls and annotations are left out, since no unit test can find them. So are the handlers of requests: the
integration tests cover those.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

ROOT = Path(__file__).parents[2]
PACKAGES = ROOT / "src/barnabas"

#: package: the tests beside it
TESTS = {
    "storage": ["tests/unit/storage"],
    "logs": ["tests/unit/logs"],
    "replication": ["tests/unit/replication"],
    "coordinator": ["tests/unit/coordinator"],
    "controller": ["tests/unit/controller", "tests/unit/server/handlers"],
    "server": ["tests/unit/server", "tests/unit/server/handlers"],
    "records": ["tests/unit/records", "tests/unit/storage"],
}
_ARITHMETIC = ("Add_Sub", "Sub_Add", "Mul_FloorDiv", "FloorDiv_Mul", "Mod_Add", "BitAnd_BitOr",
               "BitOr_BitAnd", "LShift_RShift", "RShift_LShift")  # fmt: skip
_OTHERS = ("AddNot", "ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ReplaceAndWithOr", "ReplaceOrWithAnd",
           "ReplaceBreakWithContinue", "ReplaceContinueWithBreak", "NumberReplacer", "ZeroIterationForLoop",
           "ReplaceUnaryOperator_USub_UAdd", "ReplaceUnaryOperator_Delete_Not")  # fmt: skip


def operators() -> list[str]:
    """The names of the mutations that are planted."""
    wanted = {f"core/{name}" for name in _OTHERS}
    wanted |= {f"core/ReplaceBinaryOperator_{name}" for name in _ARITHMETIC}
    return sorted(
        n for n in operator_names() if n in wanted or n.startswith("core/ReplaceComparisonOperator_")
    )


def places(module: Path) -> list[list[tuple[str, int]]]:
    """For each place of a module that can be changed the mutations: operator and number of its occurrence."""
    nodes = list(ast_nodes(get_ast(module.read_text())))
    found: dict[tuple[str, int], list[tuple[str, int]]] = {}
    for name in operators():
        operator = get_operator(name)()
        kind = (
            name.rpartition("_")[0] if "Comparison" in name else name
        )  # each comparison becomes many others
        for number in range(sum(len(list(operator.mutation_positions(node))) for node in nodes)):
            found.setdefault((kind, number), []).append((name, number))
    return list(found.values())


def draw(package: str, count: int, seed: int) -> list[dict[str, Any]]:
    """So many mutants, from large modules more than from small ones."""
    rng = random.Random(seed)
    modules = [m for m in sorted((PACKAGES / package).rglob("*.py")) if "handlers" not in m.parts]
    sizes = [module.read_text().count("\n") for module in modules]
    by_module: dict[Path, list[list[tuple[str, int]]]] = {}
    drawn: dict[tuple[Path, str, int], dict[str, Any]] = {}
    for _ in range(20 * count):
        module = rng.choices(modules, sizes)[0]
        choices = by_module.get(module)
        if choices is None:
            choices = by_module[module] = places(module)
        if not choices or len(drawn) == count:
            continue
        operator, number = rng.choice(rng.choice(choices))
        code = module.read_text()
        mutated = mutate_code(code, get_operator(operator)(), number)
        if mutated is not None and makes_a_difference(code, mutated):
            drawn[module, operator, number] = {
                "path": str(module),
                "source": mutated,
                **difference(code, mutated),
            }
    return list(drawn.values())


def difference(before: str, after: str) -> dict[str, Any]:
    """The first line that differs."""
    pairs = zip(before.splitlines(), after.splitlines(), strict=False)
    number, (old, new) = next((n, pair) for n, pair in enumerate(pairs, 1) if pair[0] != pair[1])
    return {"line": number, "before": old.strip(), "after": new.strip()}


def makes_a_difference(before: str, after: str) -> bool:
    """Whether a test could find it; a `*` between arguments is no operator, and its change no Python."""
    try:
        return essence(before) != essence(after)
    except SyntaxError:
        return False


def essence(code: str) -> str:
    """A module without log calls, docstrings and annotations."""
    return ast.dump(_Essence().visit(ast.parse(code)))


class _Essence(ast.NodeTransformer):
    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        call = node.value
        is_log_call = (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and isinstance(call.func.value, ast.Name)
            and call.func.value.id in ("log", "logger")
        )
        return None if is_log_call or isinstance(call, ast.Constant) else self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)


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
