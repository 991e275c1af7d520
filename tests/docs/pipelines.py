"""Runs the pipelines of a page one after another in one process: Spark's JVM starts and warms up once.

    python pipelines.py FOLDER       serves on a socket in the folder until it is told to end

A request is a line of JSON: the folder to run in and the words of the command. The answer is JSON, too: the
exit code and what was printed.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

_SOCKET = "pipelines.socket"


def run_pipeline(folder: Path, words: list[str]) -> int:
    """Let the process that serves in `folder` run `barnabas pipeline run`. Start this
    process if necessary.
    """
    if not (folder / _SOCKET).exists():
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", __file__, str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        (folder / "pipelines.pid").write_text(str(process.pid))
    with socket.socket(socket.AF_UNIX) as connection:
        while connection.connect_ex(str(folder / _SOCKET)):
            time.sleep(0.02)
        connection.sendall(json.dumps([str(Path.cwd()), words]).encode() + b"\n")
        with connection.makefile() as answer:
            code, said = json.load(answer)
    print(said, end="", file=sys.stderr)
    return int(code)


def main() -> None:
    folder = Path(sys.argv[1])
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / _SOCKET))
        listener.listen()
        while True:
            connection, _ = listener.accept()
            with connection, connection.makefile("rw") as stream:
                place, words = json.loads(stream.readline())
                os.chdir(place)
                json.dump(_outcome(words, folder / "pipelines.log"), stream)


def _outcome(words: list[str], log: Path) -> tuple[int, str]:
    from barnabas.cli import main as barnabas

    sys.argv = ["barnabas", *words]
    with log.open("w+") as output:
        for descriptor in (1, 2):
            os.dup2(output.fileno(), descriptor)
        try:
            barnabas()
            code: object = 0
        except SystemExit as ended:
            code = ended.code or 0
        sys.stdout.flush()
        sys.stderr.flush()
        output.seek(0)
        return code if isinstance(code, int) else 1, output.read()


if __name__ == "__main__":
    main()
