"""The broker. Applications never import it: the command line, `barnabas.testing` and tools start it."""
