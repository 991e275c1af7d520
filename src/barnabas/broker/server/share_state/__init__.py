"""The way of this broker to the share coordinators of the cluster, and the upkeep of their log."""
