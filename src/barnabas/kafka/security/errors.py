"""How a login can fail."""

from barnabas.base.errors import BarnabasError


class SaslError(BarnabasError):
    """A SASL exchange has failed. The text is for the log: clients are told the same whatever it was."""


class InvalidCredential(BarnabasError):
    """What is stored of a user cannot be read."""
