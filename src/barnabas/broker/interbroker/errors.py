"""Reasons why a request to another broker has no response."""

from __future__ import annotations

from barnabas.base.errors import BarnabasError


class ChannelError(BarnabasError):
    """A request has no response.

    Attributes:
        may_have_been_carried_out: whether the request was sent, so that the peer may have executed it. If
            False, the request has had no effect.
    """

    may_have_been_carried_out = False

    def __init__(self, message: str, *, may_have_been_carried_out: bool | None = None) -> None:
        super().__init__(message)
        if may_have_been_carried_out is not None:
            self.may_have_been_carried_out = may_have_been_carried_out


class NotConnectedError(ChannelError):
    """The attempt to connect to the peer failed, so the request was never sent."""


class ChannelFullError(ChannelError):
    """Too many requests wait to be sent, so this one was rejected."""


class UnsupportedVersionError(ChannelError):
    """The peer and this broker support no common version of the API, so the request was not sent."""


class DisconnectedError(ChannelError):
    """The connection ended after the request was sent and before its answer arrived."""

    may_have_been_carried_out = True


class RequestTimeoutError(ChannelError):
    """The time limit ended before the request was sent, or before its response arrived.

    `may_have_been_carried_out` tells these two cases apart.
    """


class ChannelClosedError(ChannelError):
    """This broker has closed the channel: before the request was sent, or before its response arrived.

    `may_have_been_carried_out` tells these two cases apart.
    """
