"""What the pages show, one file a page: functions of the cluster and the address that return JSON."""
