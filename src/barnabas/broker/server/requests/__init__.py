"""The path of one request: finds its handler, divides a large request, and sends the response."""
