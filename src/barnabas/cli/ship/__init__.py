"""`barnabas ship`: send lines of files to a topic."""
