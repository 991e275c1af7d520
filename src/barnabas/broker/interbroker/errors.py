"""Failures of a request to another broker without an answer."""

from __future__ import annotations

from barnabas.base.errors import BarnabasError


class ChannelError(BarnabasError):
    """A request has no answer.

    Attributes:
        may_have_been_carried_out: whether the request was sent, so that the peer may have acted on it. If
            not, it has had no effect.
    """

    may_have_been_carried_out = False

    def __init__(self, message: str, *, may_have_been_carried_out: bool | None = None) -> None:
        super().__init__(message)
        if may_have_been_carried_out is not None:
            self.may_have_been_carried_out = may_have_been_carried_out


class NotConnectedError(ChannelError):
    """The peer cannot be connected to; the request was never sent."""


class ChannelFullError(ChannelError):
    """Too many requests wait to be sent; this one was refused."""


class UnsupportedVersionError(ChannelError):
    """The peer and this broker have no version of the API in common; the request was not sent."""


class DisconnectedError(ChannelError):
    """The connection ended after the request was sent and before its answer."""

    may_have_been_carried_out = True


class RequestTimeoutError(ChannelError):
    """The time was up before the request was sent, or before its answer came."""


class ChannelClosedError(ChannelError):
    """This broker has closed the channel."""
