"""What the responses of several APIs have in common."""
