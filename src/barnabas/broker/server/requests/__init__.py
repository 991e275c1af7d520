"""The path of one request: the broker finds its handler, divides a large request, and sends the response."""
