"""How much hypothesis does: little by default, much with BARNABAS_THOROUGH=1; never by the clock."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "default", max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=2000)
settings.load_profile("thorough" if os.environ.get("BARNABAS_THOROUGH") else "default")
