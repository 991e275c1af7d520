"""Errors of a login."""

from barnabas.base.errors import BarnabasError


class SaslError(BarnabasError):
    """A SASL exchange has failed. The text is for the log; clients get the same message for all causes."""


class InvalidCredential(BarnabasError):
    """The stored credential of a user is not readable."""
