"""What docs/reference/protocol.md says: the APIs served, made from the handlers' registry."""

from __future__ import annotations

import inspect
import sys
from typing import Any

from barnabas.broker.metadata.features import SUPPORTED
from barnabas.broker.server.handlers import load
from barnabas.broker.server.kafka_apis import KAFKA_APIS, WHY_ABSENT
from barnabas.broker.server.requests.api import Api

_HEAD = """\
# The protocol

The requests this broker serves, by key. A version not listed is not advertised, and closes the connection
when it is sent all the same (ApiVersions excepted). Each section ends with what a client must be allowed
where there is an [authorizer](../use/security.md). The field-by-field definition is Apache Kafka's:
<https://kafka.apache.org/protocol>.

| Key | API | Versions |
|---:|---|---|
"""


_ORDER = """
## Order

The broker answers a connection's requests in the order in which they were sent. As in Apache Kafka, a request
begins when those before it on its connection have been answered, so it sees all their effects. Two rules make
this faster:

- Some requests may begin while earlier ones of the same API are unanswered, as their sections say:
  {apis}.
- A consumer's Fetch that waits for records (`max.wait.ms`) is answered at once, with what there is, when a
  request of another API comes behind it. In Apache Kafka that request waits as long as the Fetch.

Different connections do not wait for each other.
"""


def protocol_reference() -> str:
    """The document, in Markdown."""
    apis = load().values()
    rows = "".join(f"| {api.key} | [{api.name}](#{api.name.lower()}) | {_versions(api)} |\n" for api in apis)
    order = _ORDER.format(
        apis=", ".join(f"[{api.name}](#{api.name.lower()})" for api in apis if api.order.text)
    )
    return _HEAD + rows + order + _absent() + _features() + "".join(_section(api) for api in apis)


_ABSENT = """
## Not served

The requests and versions that a broker of Apache Kafka 4.2 serves and Barnabas does not. They are not
advertised.

| Key | API | Kafka's versions | Why |
|---:|---|---|---|
"""

_FEATURES = """
## Features

The features of ApiVersions and UpdateFeatures. Kafka 4.2 has `metadata.version`, `kraft.version`,
`eligible.leader.replicas.version`, `share.version` and `streams.version` besides; Barnabas answers
INVALID_UPDATE_VERSION for them.

| Feature | Levels | Level of a new cluster |
|---|---|---:|
"""


def _absent() -> str:
    """What Apache Kafka serves and this broker does not, by request and by version."""
    served = load()
    rows = []
    for key, api in KAFKA_APIS.items():
        if key not in served:
            why = WHY_ABSENT[key]
        elif served[key].versions[0] > api.oldest or served[key].versions[1] < api.latest:
            why = f"served: {_versions(served[key])}"
        else:
            continue
        rows.append(f"| {key} | {api.name} | {_range(api.oldest, api.latest)} | {why} |\n")
    return _ABSENT + "".join(rows)


def _features() -> str:
    """The features that UpdateFeatures can change, with the bounds of their levels."""
    return _FEATURES + "".join(
        f"| `{name}` | {_range(feature.lowest, feature.highest)} | {feature.default} |\n"
        for name, feature in SUPPORTED.items()
    )


def _versions(api: Api[Any, Any]) -> str:
    low, high = api.versions
    served = _range(low, high)
    if api.advertised_from < low:
        return f"{served} (advertised from {api.advertised_from})"
    return served


def _range(low: int, high: int) -> str:
    return f"{low}-{high}" if low != high else f"{low}"


def _section(api: Api[Any, Any]) -> str:
    """The handler's own words, with the heading that its first line begins with taken off."""
    text = inspect.cleandoc(sys.modules[api.handle.__module__].__doc__ or "")
    _, _, words = text.partition(":")
    words = words.strip()
    needs = "; ".join(need.text for need in api.needs)
    order = f"{api.order.text}\n\n" if api.order.text else ""
    return f"\n## {api.name}\n\n{words[:1].upper()}{words[1:]}\n\n{order}Needs: {needs}.\n"
