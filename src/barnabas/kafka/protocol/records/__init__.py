"""Keys and values that coordinators store in internal topics, in Apache Kafka's format."""
