"""Parts of responses that several APIs have in common."""
