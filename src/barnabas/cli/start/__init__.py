"""`barnabas start`: runs a broker, with a registry and a console if requested."""
