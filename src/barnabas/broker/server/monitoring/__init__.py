"""What a broker tells of itself over HTTP: metrics for Prometheus, and whether it is alive and ready."""
