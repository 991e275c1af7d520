"""A broker's HTTP pages: metrics for Prometheus, and the broker's health."""
