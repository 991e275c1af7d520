"""A cluster to connect to: its addresses, and settings for its security."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Self

from barnabas.base.errors import ConfigError
from barnabas.client.errors import SettingError

if TYPE_CHECKING:
    from barnabas.client.security import ConnectionSecurity


class Servers(str):
    """The text ``host:port,...`` with settings. The text may be shown, because it contains no secret.

    Clients of the cluster use its settings: `Admin`, `Producer`, `Consumer`, and connections without
    librdkafka.

    Attributes:
        settings: settings of librdkafka for TLS, SASL and connections.
    """

    settings: Mapping[str, str]

    def __new__(cls, text: str, settings: Mapping[str, str] | None = None) -> Self:
        made = super().__new__(cls, text)
        made.settings = dict(settings or {})
        return made

    @cached_property
    def security(self) -> ConnectionSecurity | None:
        """Return TLS and SASL for connections without librdkafka; None if neither is configured.

        Raises:
            SettingError: a setting is not supported, or a file has the wrong content.
        """
        if self.settings.get("security.protocol", "plaintext").lower() == "plaintext":
            return None
        from barnabas.client.security_settings import security_of  # most clusters need none of it

        try:
            return security_of(self.settings)
        except ConfigError as error:
            raise SettingError(str(error)) from None

    def __reduce__(self) -> tuple[type[Self], tuple[str, dict[str, str]]]:
        return type(self), (str(self), dict(self.settings))


def servers_of(text: str, settings: Mapping[str, object]) -> Servers:
    """Return the addresses `text` (``host:port,...``) with settings of librdkafka.

    If `text` is a `Servers`, the result also has its settings, which `settings` override. Only settings whose
    value is a str or an int are added: a callback, for example, is left out.
    """
    own = text.settings if isinstance(text, Servers) else {}
    given = {name: str(value) for name, value in settings.items() if isinstance(value, str | int)}
    return Servers(text, {**own, **given})


def security_for(text: str) -> ConnectionSecurity | None:
    """Return TLS and SASL for a connection to a broker of the cluster at `text` (``host:port,...``).

    Return None if neither is configured, and for a plain str, which has no settings.

    Raises:
        SettingError: a setting is not supported, or a file has the wrong content.
    """
    return text.security if isinstance(text, Servers) else None
