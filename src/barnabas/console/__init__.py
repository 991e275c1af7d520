"""The console: web pages that show a Kafka cluster live. It is a plain Kafka client."""
