"""Uploads pictures: each is a record of the topic `pictures`, with its name as the key.

    python upload.py --count 200

One of them is damaged, and one is not a picture.
"""

from __future__ import annotations

import argparse

from barnabas.client import Producer
from pictures import draw


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="good pictures")
    parser.add_argument("--bootstrap-server", default="127.0.0.1:9092", metavar="HOST:PORT")
    options = parser.parse_args()
    pictures = {f"picture-{number}.ppm": draw(number) for number in range(options.count)}
    pictures["damaged.ppm"] = draw(0)[:-1]
    pictures["letter.txt"] = b"Dear photographer, ..."
    # A worker gets whole batches of records. So each picture is a batch of its own.
    with Producer(options.bootstrap_server, batch_num_messages=1) as producer:
        for name, picture in pictures.items():
            producer.send("pictures", picture, key=name)
    print(f"uploaded {len(pictures)} pictures")


if __name__ == "__main__":
    main()
