"""``make demo``: the whole of Barnabas on the logs of this machine, in half a minute.

    python -m demo [FILE...]

Log files become JSON records in three topics; a pipeline stores all of them as Parquet and counts them by
topic, level and time window into a fourth topic; a consumer group reads the counts back; the summary
reconciles every total. What is where: `logs` (which files), `broker` (runs one), `shipping` (files to
topics), `windows` (how long), `pipeline` (the file that `barnabas.pipelines` runs), `report` (reads the
counts back, reconciles), `bursts` (which windows stand out), `summary` and `plot` (what is printed),
`progress`, `folder`; `__main__` puts them in order.
"""

from pathlib import Path

APP, INGRESS, DB = "appLogs", "ingressLogs", "dbLogs"

#: the topics that logs go to
LOG_TOPICS = (APP, INGRESS, DB)

#: the topic that the counts go to
STATS_TOPIC = "logStats"

#: what reads the one and writes the other
PIPELINE = Path(__file__).with_name("pipeline.py")
