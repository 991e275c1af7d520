"""`barnabas start`: a broker, with the registry and the console beside it if asked."""
