"""The metrics that clients have pushed, as samples of the broker's own page."""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.base.metrics.declaration import Sample
from barnabas.broker.server.telemetry.clients import TelemetryClients

#: the attributes with a label of their own; all others share one
_OWN = ("topic", "partition", "node_id")
#: so that no two series look the same, whatever a client has pushed: Prometheus would refuse the page
_ESCAPES = str.maketrans({"\\": r"\\", ",": r"\,"})


def telemetry_samples(clients: TelemetryClients, *, is_sum: bool) -> Iterator[Sample]:
    """All series of one kind: the metric's name, the client's three labels, the attributes' four."""
    for client in clients.shown():
        about = client.about
        who = tuple(
            about.get(name, "") for name in ("client_id", "client_instance_id", "client_software_name")
        )
        for (metric, attributes, is_counter), value in list(client.series.items()):
            if is_counter is is_sum:
                named = dict(attributes)
                own = tuple(named.pop(name, "") for name in _OWN)
                rest = ",".join(f"{name}={text.translate(_ESCAPES)}" for name, text in named.items())
                yield (metric, *who, *own, rest), value
