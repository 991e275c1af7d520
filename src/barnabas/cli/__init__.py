"""The command line."""


def main() -> None:
    """Placeholder until the command groups land."""
    raise SystemExit("not built yet")
