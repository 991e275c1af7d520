"""Errors of a login."""

from barnabas.base.errors import BarnabasError


class SaslError(BarnabasError):
    """A SASL exchange has failed. The text is for the log: clients are told the same whatever it was."""


class InvalidCredential(BarnabasError):
    """The stored credential of a user is not readable."""
