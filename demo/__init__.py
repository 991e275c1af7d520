"""``make demo``: all parts of Barnabas, with the log files of this machine, in half a minute.

    python -m demo [FILE...]

It converts log files to JSON records in three topics. A pipeline stores all of them as Parquet. It also
counts them by topic, level and time window, and writes the counts to a fourth topic. A consumer group reads
the counts back. A summary compares all totals.

- logs: finds the files.
- broker: runs a broker or a cluster.
- shipping: sends the files to topics.
- windows: chooses the length of a time window.
- pipeline: the pipeline file.
- report: reads the counts back and compares totals.
- bursts: finds windows with many errors.
- summary, plot, progress: print the results.
- folder: prepares the demo's folder.
- __main__: runs all steps.
"""

from pathlib import Path

APP, INGRESS, DB = "appLogs", "ingressLogs", "dbLogs"

#: the topics that logs go to
LOG_TOPICS = (APP, INGRESS, DB)

#: the topic that the counts go to
STATS_TOPIC = "logStats"

#: what reads the one and writes the other
PIPELINE = Path(__file__).with_name("pipeline.py")
