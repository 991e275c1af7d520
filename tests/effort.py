"""The number of examples that hypothesis tries: a third in `make test`, many with BARNABAS_THOROUGH=1."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

THOROUGH = bool(os.environ.get("BARNABAS_THOROUGH"))

#: in tests that do not ask for a number of their own
_USUAL = 60
#: the fast tests try one example in this number
_SAMPLED = 3


def choose(is_sample: bool) -> None:
    """Load the settings of hypothesis, before any test is imported."""
    usual = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
    # Each run has the same examples: a change is judged by itself. `make properties` looks for others.
    settings.register_profile("sample", max_examples=_USUAL // _SAMPLED, derandomize=True, **usual)
    settings.register_profile("whole", max_examples=_USUAL, derandomize=True, **usual)
    settings.register_profile("thorough", max_examples=2000, **usual)
    settings.load_profile("thorough" if THOROUGH else "sample" if is_sample else "whole")


def examples(usual: int, thorough: int) -> int:
    """Return the number of examples for a test with numbers of its own."""
    if THOROUGH:
        return thorough
    return max(1, usual * settings.default.max_examples // _USUAL)
