"""One request: finding its handler, dividing large ones, answering it."""
