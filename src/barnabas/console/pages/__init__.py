"""The data of the pages: functions of the cluster and the query that return JSON."""
