"""The pages' data, one file a page: functions of the cluster and the query that return JSON."""
