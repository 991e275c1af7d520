"""`python -m bench.avro FILE...`: compare the size and CPU time of log lines as Avro and as JSON.

The lines are read as `barnabas ship` reads them, and the Avro schema is registered. The benchmark measures
the encoding of Arrow columns as payloads, and the decoding. CPU times are microseconds for each record, the
best of several rounds in which both formats take turns. Sizes are those of the payloads, uncompressed and as
one zstd batch for each file. The output is a table in Markdown.
"""

from __future__ import annotations

import argparse
import datetime
import io
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.json

from barnabas.client.log_lines import parse_line
from barnabas.client.schemas.registered import AVRO, Registered
from barnabas.spark.avro_codec import AvroSchema, Decoder, Encoder

_ROUNDS = 7
_OPTIONAL = {"program": "string", "pid": "int", "thread": "string", "logger": "string", "client": "string"}
_SCHEMA = Registered(
    1,
    AVRO,
    json.dumps(
        {
            "type": "record",
            "name": "LogLine",
            "fields": [
                {"name": "source", "type": "string"},
                {
                    "name": "level",
                    "type": {
                        "type": "enum",
                        "name": "Level",
                        "symbols": ["TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"],
                    },
                },
                {"name": "timestamp", "type": {"type": "long", "logicalType": "local-timestamp-millis"}},
                {"name": "message", "type": "string"},
                *({"name": n, "type": ["null", t], "default": None} for n, t in _OPTIONAL.items()),
            ],
        }
    ),
)
_ARROW = AvroSchema.parse(_SCHEMA).arrow
#: the same with the timestamp as JSON has it
_TEXT = pa.struct([f.with_type(pa.string()) if f.name == "timestamp" else f for f in _ARROW])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.avro", description="Avro beside JSON on log lines."
    )
    parser.add_argument("files", nargs="+", type=Path, help="log files")
    files: list[Path] = parser.parse_args(arguments).files
    print("| log | records | bytes a record: JSON | Avro | zstd: JSON | Avro | write µs: JSON | Avro "
          "| read µs: JSON | JSON by pyarrow | Avro |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for file in files:
        print(_row(file))


def _row(file: Path) -> str:
    lines = file.read_text(errors="replace").splitlines()
    fields = [parse_line(line, file.stem) for line in lines]
    rows = [{**f, "timestamp": datetime.datetime.fromisoformat(f["timestamp"])} for f in fields]
    columns = pa.array(rows, _ARROW)
    encoder, decoder = Encoder(_SCHEMA), Decoder(_SCHEMA, lambda _: _SCHEMA)
    texts = [_json(f) for f in fields]
    payloads = encoder.encode(columns)
    json_column, lines_of_json = pa.array(texts, pa.binary()), b"\n".join(texts)
    read, reasons = decoder.decode(payloads)
    assert reasons.null_count == len(rows) and read.equals(columns)
    assert _read_json(json_column).equals(columns)
    count = len(rows)
    costs = _best(
        lambda: _write_json(columns),
        lambda: encoder.encode(columns),
        lambda: _read_json(json_column),
        lambda: pyarrow.json.read_json(io.BytesIO(lines_of_json)),
        lambda: decoder.decode(payloads),
    )
    avro = payloads.to_pylist()
    sizes = [sum(map(len, texts)), sum(map(len, avro)), _zstd(texts), _zstd(avro)]
    cells = [f"{size / count:.0f}" for size in sizes] + [f"{cost / count * 1e6:.1f}" for cost in costs]
    return f"| {file.name} | {count} | {' | '.join(cells)} |"


def _json(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, ensure_ascii=False).encode()


def _write_json(columns: pa.Array) -> list[bytes]:
    rows = columns.cast(_TEXT).to_pylist()
    return [_json({name: value for name, value in row.items() if value is not None}) for row in rows]


def _read_json(column: pa.Array) -> pa.Array:
    return pa.array([json.loads(text) for text in column.to_pylist()], _TEXT).cast(_ARROW)


def _zstd(payloads: list[bytes]) -> int:
    return len(pa.Codec("zstd", 3).compress(b"".join(payloads), asbytes=True))


def _best(*works: Callable[[], object]) -> list[float]:
    best = [float("inf")] * len(works)
    for _ in range(_ROUNDS):
        for index, work in enumerate(works):
            began = time.process_time()
            work()
            best[index] = min(best[index], time.process_time() - began)
    return best


if __name__ == "__main__":
    main()
