"""The throttle time of a request when the client has no quota left."""

from __future__ import annotations

import math
from types import SimpleNamespace

from barnabas.broker.server.requests.usage import Usage
from barnabas.kafka.protocol.messages.fetch import FetchResponse


def test_a_stored_quota_of_zero_throttles_for_the_longest_time_that_a_response_can_say() -> None:
    muted: list[float] = []
    usage = Usage(
        quotas=SimpleNamespace(has=lambda kind: False, admit=lambda *_: math.inf),  # type: ignore[arg-type]
        clock=SimpleNamespace(monotonic=lambda: 5.0),  # type: ignore[arg-type]
        client=SimpleNamespace(mute=muted.append),  # type: ignore[arg-type]
        user="ana",
        client_id="reader",
        began=5.0,
    )
    assert not usage.admits_fetch(100)
    max_ms = 2**31 - 1
    assert usage.throttled(FetchResponse()).throttle_time_ms == max_ms
    assert muted == [max_ms / 1000]
