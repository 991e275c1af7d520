"""The thumbnails example: a pool of workers, some of which crash on a damaged picture."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from tests.examples.programs import Program
from tests.examples.topics import committed

from barnabas.testing import BarnabasBroker

FOLDER = Path(__file__).parents[2] / "examples" / "thumbnails"
WORKERS = 20 if os.environ.get("BARNABAS_THOROUGH") else 6
PICTURES = 60
PATIENCE = 240.0


def lags(broker: BarnabasBroker) -> list[int | None]:
    """Return the number of unfinished pictures in each partition."""
    return [each.lag for each in broker.admin().share_offsets("thumbnails").values()]


def test_each_picture_gets_a_thumbnail_though_one_of_them_crashes_its_workers(tmp_path):
    thumbnails, log = tmp_path / "thumbnails", tmp_path / "log"
    with BarnabasBroker() as broker, ExitStack() as exits:
        broker.create_topic("pictures", 3)
        broker.create_topic("dlq.pictures", configs={"errors.deadletterqueue.group.enable": "true"})
        settings = {
            "share.auto.offset.reset": "earliest",
            "errors.deadletterqueue.topic.name": "dlq.pictures",
            "errors.deadletterqueue.copy.record.enable": "true",
        }
        broker.admin().alter_configs("group", "thumbnails", set=settings)
        servers = ("--bootstrap-server", broker.bootstrap_servers)
        workers = [Program(FOLDER / "worker.py", thumbnails, *servers, log=log) for _ in range(WORKERS)]
        for worker in workers:
            exits.callback(worker.kill)
            worker.keep_up()
        upload = [sys.executable, str(FOLDER / "upload.py"), "--count", str(PICTURES), *servers]
        subprocess.run(upload, check=True, timeout=PATIENCE)
        deadline = time.monotonic() + PATIENCE
        while lags(broker) != [0, 0, 0]:
            assert time.monotonic() < deadline, (lags(broker), log.read_text())
            for worker in workers:
                worker.keep_up()
            time.sleep(0.2)
        # the last one that crashed has not been started again; one that has just started has no handler yet
        assert {worker.stop() for worker in workers} <= {0, -signal.SIGSEGV, -signal.SIGTERM}
        letters = {letter.key: letter for letter in committed(broker, "dlq.pictures")}
    assert {path.name for path in thumbnails.iterdir()} == {f"picture-{n}.ppm" for n in range(PICTURES)}
    assert all(path.read_bytes().startswith(b"P6 32 24 255\n") for path in thumbnails.iterdir())
    assert letters.keys() == {b"damaged.ppm", b"letter.txt"}
    damaged, letter = (dict(letters[key].headers) for key in sorted(letters))
    assert damaged["__dlq.errors.delivery.count"] == b"5"
    assert damaged["__dlq.errors.message"] == b"Offset delivery count exceeded the threshold."
    assert letter["__dlq.errors.message"] == b"Offset rejected by client."
