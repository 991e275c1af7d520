"""Makes thumbnails of the pictures in the topic `pictures`, as a worker of the share group `thumbnails`.

    python worker.py FOLDER

Any number of workers can run at a time. SIGTERM ends one when it has finished its picture.
"""

from __future__ import annotations

import argparse
import os
import signal
import threading
from pathlib import Path

from barnabas.client import work
from pictures import NotAPicture, thumbnail


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="folder for the thumbnails")
    parser.add_argument("--bootstrap-server", default="127.0.0.1:9092", metavar="HOST:PORT")
    options = parser.parse_args()
    options.folder.mkdir(exist_ok=True)
    ends = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ends.set())
    # With few pictures at a time the other workers get theirs, and a crash costs few pictures an attempt.
    with work(options.bootstrap_server, "pictures", group="thumbnails", max_poll_records=2) as jobs:
        while not ends.is_set():
            job = jobs.poll(1.0)  # the job before this one is done
            if job is None:
                continue
            try:
                small = thumbnail(job.value or b"")
            except NotAPicture:
                print(f"{job.key_text} is not a picture", flush=True)
                job.reject()  # another attempt would fail, too
                continue
            # The same picture can come twice. So the thumbnail has one name, and appears there whole.
            part = options.folder / f".{os.getpid()}"
            part.write_bytes(small)
            part.rename(options.folder / (job.key_text or "unnamed"))
            if job.attempt > 1:
                print(f"{job.key_text} is done at attempt {job.attempt}", flush=True)


if __name__ == "__main__":
    main()
