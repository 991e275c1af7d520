"""The broker's view for tests of its parts."""

from __future__ import annotations

from simulation.clocks import ManualClock

from barnabas.base.environment.clock import Clock
from barnabas.broker.config import BrokerConfig
from barnabas.broker.metadata import ClusterImage
from barnabas.broker.view import MutableView


def view_of(
    image: ClusterImage | None = None, *, config: BrokerConfig | None = None, clock: Clock | None = None
) -> MutableView:
    """Return a view of this image. A test changes the state by setting the view's attributes."""
    view = MutableView(config or BrokerConfig(node_id=1), clock or ManualClock())
    if image is not None:
        view.image = image
    return view
