"""A broker's pages over HTTP: metrics for Prometheus, and whether the broker is alive and ready."""
