"""Writes batches to a partitioned Iceberg table. In the last batch it kills itself and its JVM with SIGKILL.

Arguments: the folder, the last batch's number, and the place of the kill: a function of the sink, and
``before`` or ``after``. Without a place, it prints the table at the end.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from tests.spark.processes import children, kill
from tests.spark.session import local_session

from barnabas.pipelines import iceberg
from barnabas.pipelines.sink_options import SinkOptions


def main(folder: Path, last: int, step: str, moment: str) -> None:
    spark = local_session("victim", folder / "spark", cores=1)
    (folder / "warehouse").mkdir(exist_ok=True)
    sink = SinkOptions.parse(
        {
            "iceberg": "lake.shop.people",
            "partition_by": "name",
            "options": {
                "type": "sql",
                "uri": f"sqlite:///{folder}/catalog.db",
                "warehouse": (folder / "warehouse").as_uri(),
            },
        }
    )
    for number in range(last + 1):
        if number == last and step:
            _die_at(step, moment)
        batch = spark.createDataFrame([(number, "a"), (number, "b")], "id BIGINT, name STRING")
        iceberg.write_batch(sink, batch, "query-1", number)
    table = iceberg._table(sink, batch)
    print(json.dumps(sorted([row["id"], row["name"]] for row in table.scan().to_arrow().to_pylist())))
    spark.stop()


def _die_at(step: str, moment: str) -> None:
    acts = getattr(iceberg, step)

    def die(*arguments: Any) -> None:
        if moment == "after":
            acts(*arguments)
        for each in children(os.getpid()):
            kill(each)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(iceberg, step, die)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), *(sys.argv[3:5] or ("", "")))
