"""One test for all versions of a message, because 3,000 separate tests would take seconds to collect."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import pytest


def each_version(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test with each `version` of the message in its first argument. A failure names the version.

    The test is skipped if it skips every version.
    """
    signature = inspect.signature(test)
    message, *others = (one for one in signature.parameters.values() if one.name != "version")

    @functools.wraps(test)
    def run(**arguments: Any) -> None:
        lowest, highest = arguments[message.name].versions
        skipped: list[pytest.skip.Exception] = []
        for version in range(lowest, highest + 1):
            try:
                test(version=version, **arguments)
            except pytest.skip.Exception as skip:
                skipped.append(skip)
            except BaseException as error:
                error.add_note(f"in version {version}")
                raise
        if len(skipped) == highest + 1 - lowest:
            raise skipped[-1]

    run.__signature__ = signature.replace(parameters=[message, *others])  # type: ignore[attr-defined]
    return run
