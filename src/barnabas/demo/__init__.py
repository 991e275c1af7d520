"""``make demo``: the whole of Barnabas on the logs of this machine, in a minute and a half.

    python -m barnabas.demo [FILE...]

Log files become JSON records in three topics; a Spark stream reads them by ``format("barnabas")``, stores
all records as Parquet and counts them by topic, level and time window into a fourth topic; a consumer group
reads the counts back; the summary reconciles every total. What is where: `logs` (which files), `broker` (runs
one), `shipping` (files to topics), `windows` (how long), `pipeline` (Spark), `bursts` (which windows stand
out), `report` (reads the counts back, reconciles), `summary` and `plot` (what is printed), `progress`,
`folder`; `__main__` puts them in order.
"""

APP, INGRESS, DB = "appLogs", "ingressLogs", "dbLogs"

#: the topics that logs go to
LOG_TOPICS = (APP, INGRESS, DB)

#: the topic that the counts go to
STATS_TOPIC = "logStats"
