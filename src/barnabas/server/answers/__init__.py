"""What the answers of several APIs have in common."""
