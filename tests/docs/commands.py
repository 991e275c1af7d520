"""The commands of a shell block, so that it ends and changes nothing but its folder.

- `barnabas` is the command itself. Servers are started in the background, on the reader's ports. What would
  run until Ctrl-C gets the option that ends it. Pipelines share one Spark (`pipelines.py`).
  `barnabas log check` and `repair` stop the broker first, as their page says.
- `pip install` checks that what it names is installed or is an extra of Barnabas.
- `make` checks that there is such a target.
- `python3 -m venv` makes a folder with an empty script to activate.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
import warnings
from pathlib import Path

ROOT = Path(__file__).parents[2]
STATE = Path(os.environ["DOCS_STATE"])
#: for `cluster start`: its brokers' sessions of six seconds end while a busy machine stands still
PATIENT = ["--set", "zookeeper.session.timeout.ms=15000"]


def barnabas(words: list[str]) -> None:
    match words:
        case ["start", "--config", _]:
            serve("broker", words)
            return
        case ["start", *options]:
            serve("broker", ["start", *without(options, "--listen", "--advertise"), "--listen", broker()])
            return
        case ["cluster", "start", *options]:
            options = [*without(options, "--listen"), *PATIENT]
            serve("cluster", ["cluster", "start", *options, "--listen", broker()])
            return
        case ["registry", *options]:
            serve("registry", ["registry", "--listen", registry(), *without(options, "--bootstrap-server")])
            return
        case ["log", "check" | "repair", *_]:
            stop("broker")
        case ["consume", *options] if not {"--until-end", "--max-messages", "--timeout"} & {*options}:
            words += ["--until-end"]
        case ["pipeline", "run", *options]:
            from pipelines import run_pipeline  # beside this file, which is run as a program

            sys.exit(run_pipeline(STATE, [*words, *([] if "--once" in options else ["--once"])]))
        case ["ship", *options] if "--once" not in options:
            words += ["--once"]
        case _:
            pass
    call(words)


def serve(name: str, words: list[str]) -> None:
    """Start a server in the background and wait until it is ready. Stop a previous one first."""
    stop(name)
    if "--registry" in words:
        words[words.index("--registry") + 1] = registry()
        stop("registry")
    log, pid = STATE / f"{name}.log", STATE / f"{name}.pid"
    log.write_text("")  # of the server that ran before, too
    keeper = os.fork()  # the command has no threads
    if not keeper:
        os.setsid()
        keep(name, words)
        sys.exit()
    while not (re.search(r"^ready ", log.read_text(), re.MULTILINE) and pid.exists()):
        if os.waitpid(keeper, os.WNOHANG) != (0, 0):
            sys.exit(log.read_text())
        time.sleep(0.02)


def keep(name: str, words: list[str]) -> None:
    """Run a server. The file with its process id exists while it runs."""
    pid = STATE / f"{name}.pid"
    with (STATE / f"{name}.log").open("w") as output, Path(os.devnull).open() as nothing:
        for number, file in enumerate((nothing, output, output)):
            os.dup2(file.fileno(), number)
    server = os.fork()
    if not server:
        call(words)
        sys.exit()
    pid.write_text(str(server))
    os.waitpid(server, 0)
    pid.unlink()


def call(words: list[str]) -> None:
    """Run the command `barnabas` in this process."""
    from barnabas.cli import main

    sys.argv = ["barnabas", *words]
    main()


def stop(name: str) -> None:
    pid = STATE / f"{name}.pid"
    if pid.exists():
        os.kill(int(pid.read_text()), signal.SIGTERM)
    while pid.exists():
        time.sleep(0.02)


def pip(words: list[str]) -> None:
    import tomllib
    from importlib import metadata

    if words[0] != "install":
        return
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for word in words[1:]:
        name, _, rest = word.partition("[")
        if name in ("barnabas", "."):
            for extra in filter(None, rest.rstrip("]").split(",")):
                assert extra in extras, f"there is no extra {extra}"
        elif not word.startswith("-"):
            metadata.distribution(name)


def make(words: list[str]) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for word in words:
        assert "=" in word or word in targets, f"make has no target {word}"


def python(words: list[str]) -> None:
    if words[:2] == ["-m", "venv"]:
        (Path(words[2]) / "bin").mkdir(parents=True)
        (Path(words[2]) / "bin" / "activate").touch()
    else:
        os.execv(sys.executable, [sys.executable, *words])


def without(words: list[str], *options: str) -> list[str]:
    """Return the words without some options and their values."""
    kept = list(words)
    for option in options:
        while option in kept:
            del kept[kept.index(option) : kept.index(option) + 2]
    return kept


def broker() -> str:
    return os.environ["DOCS_BROKER"]


def registry() -> str:
    return os.environ["DOCS_REGISTRY"]


COMMANDS = {
    "barnabas": barnabas,
    "pip": pip,
    "make": make,
    "python": python,
    "python3": python,
}

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    COMMANDS[sys.argv[1]](sys.argv[2:])
