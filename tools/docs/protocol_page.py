"""Generates docs/reference/protocol.md: the supported APIs, from the registry of handlers."""

from __future__ import annotations

import inspect
import sys
from typing import Any

from tools.docs.kafka_apis import KAFKA_APIS, WHY_ABSENT

from barnabas.broker.metadata.features import HIGHEST, SUPPORTED
from barnabas.broker.server.handlers import load
from barnabas.broker.server.requests.api import Api

_HEAD = """\
# The protocol

The table has the requests that this broker serves, by key. The broker does not advertise other versions, and
closes the connection if a client sends one (except for ApiVersions). Each section ends with the operations
that a client needs with an [authorizer](../use/security.md). Apache Kafka defines the fields:
<https://kafka.apache.org/protocol>.

| Key | API | Versions |
|---:|---|---|
"""


_ORDER = """
## Order

The broker answers a connection's requests in the order in which the client sent them. As in Apache Kafka,
a request begins when all earlier requests on its connection are answered, so it sees all their effects. Two
rules make this faster:

- Some requests can begin while earlier ones of the same API are unanswered (see their sections):
  {apis}.
- A consumer's Fetch can wait for records (`max.wait.ms`). When a request of another API follows, the broker
  answers the Fetch at once, with the present records. In Apache Kafka that request waits for the Fetch.

Different connections do not wait for each other.
"""


def protocol_reference() -> str:
    """Return the page in Markdown."""
    apis = load().values()
    rows = "".join(f"| {api.key} | [{api.name}](#{api.name.lower()}) | {_versions(api)} |\n" for api in apis)
    order = _ORDER.format(
        apis=", ".join(f"[{api.name}](#{api.name.lower()})" for api in apis if _order_text(api))
    )
    return _HEAD + rows + order + _absent() + _features() + "".join(_section(api) for api in apis)


_ABSENT = """
## Not served

The table has the requests and versions that a broker of Apache Kafka 4.2 serves and Barnabas does not.
Barnabas does not advertise them.

| Key | API | Kafka's versions | Why |
|---:|---|---|---|
"""

_FEATURES = """
## Features

The table has the features of ApiVersions and UpdateFeatures. Kafka 4.2 also has `metadata.version`,
`kraft.version`, `eligible.leader.replicas.version` and `streams.version`. Barnabas answers
INVALID_UPDATE_VERSION for them.

| Feature | Levels | Level of a new cluster |
|---|---|---:|
"""


def _absent() -> str:
    """Return the APIs and versions that Apache Kafka supports and this broker does not."""
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
    """Return the features that UpdateFeatures can change, with their lowest and highest levels."""
    return _FEATURES + "".join(
        f"| `{name}` | {_range(feature.lowest, feature.highest)} | {HIGHEST.get(name, feature.default)} |\n"
        for name, feature in SUPPORTED.items()
    )


def _versions(api: Api[Any]) -> str:
    low, high = api.versions
    served = _range(low, high)
    if api.advertised_from < low:
        return f"{served} (advertised from {api.advertised_from})"
    return served


def _range(low: int, high: int) -> str:
    return f"{low}-{high}" if low != high else f"{low}"


#: of an API that `KAFKA_APIS` lacks
OF_BARNABAS = "Brokers of Apache Kafka 4.2 do not serve this API."
_SECOND_PHASE = (
    "The next request of this API begins as soon as this one is appended, before it is acknowledged."
)


def _order_text(api: Api[Any]) -> str:
    """Return a sentence about the requests that may begin while this one is unanswered; "" if none may."""
    return _SECOND_PHASE if api.has_second_phase else api.order.text


def _section(api: Api[Any]) -> str:
    """Return the handler's docstring without the heading at the beginning of its first line."""
    text = inspect.cleandoc(sys.modules[api.handle.__module__].__doc__ or "")
    _, _, words = text.partition(":")
    words = words.strip()
    if api.key not in KAFKA_APIS:
        words += f"\n\n{OF_BARNABAS}"
    if api.feature is not None:
        words += f"\n\nThe broker serves this API while the cluster uses the feature `{api.feature}`."
    needs = "; ".join(need.text for need in api.needs)
    order = f"{text}\n\n" if (text := _order_text(api)) else ""
    return f"\n## {api.name}\n\n{words[:1].upper()}{words[1:]}\n\n{order}Needs: {needs}.\n"
