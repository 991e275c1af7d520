"""What docs/protocol.md says: the APIs served, made from the handlers' registry."""

from __future__ import annotations

import inspect
import sys

from barnabas.server.handlers import Api, load

_HEAD = """\
# The protocol

The requests this broker serves, by key. A version not listed is not advertised, and closes the connection
when it is sent all the same (ApiVersions excepted). The field-by-field definition is Apache Kafka's:
<https://kafka.apache.org/protocol>.

| Key | API | Versions |
|---:|---|---|
"""


def protocol_reference() -> str:
    """The document, in Markdown."""
    apis = load().values()
    rows = "".join(f"| {api.key} | [{api.name}](#{api.name.lower()}) | {_versions(api)} |\n" for api in apis)
    return _HEAD + rows + "".join(_section(api) for api in apis)


def _versions(api: Api) -> str:
    low, high = api.versions
    served = f"{low}-{high}" if low != high else f"{low}"
    if api.advertised_from < low:
        return f"{served} (advertised from {api.advertised_from})"
    return served


def _section(api: Api) -> str:
    """The handler's own words, with the heading that its first line begins with taken off."""
    text = inspect.cleandoc(sys.modules[api.handle.__module__].__doc__ or "")
    _, _, words = text.partition(":")
    words = words.strip()
    return f"\n## {api.name}\n\n{words[:1].upper()}{words[1:]}\n"
