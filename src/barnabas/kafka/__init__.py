"""Apache Kafka's protocol, record formats and permissions, without I/O."""
