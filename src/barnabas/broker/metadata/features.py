"""The features that a cluster uses, and their levels (KIP-584)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

TRANSACTION_VERSION = "transaction.version"
GROUP_VERSION = "group.version"
SHARE_VERSION = "share.version"
#: the level of `SHARE_VERSION` from which groups have dead-letter queues (KIP-1191)
DEAD_LETTERS_LEVEL = 2


class Feature(NamedTuple):
    """The levels of a feature that this software supports.

    The range includes `lowest` and `highest`. At level 0, the feature is not used.
    """

    lowest: int
    highest: int
    #: the level in a cluster whose metadata do not have a level of this feature. It is the same in all
    #: versions of this software, because brokers of two versions must agree. Only UpdateFeatures makes a
    #: cluster use a later level.
    default: int


SUPPORTED: Mapping[str, Feature] = MappingProxyType(
    {
        # 0 as KIP-98 has it, 1 with tagged fields in what is stored, 2 with an epoch a transaction (KIP-890)
        TRANSACTION_VERSION: Feature(0, 2, default=2),
        # 1 with groups of the consumer protocol (KIP-848)
        GROUP_VERSION: Feature(0, 1, default=1),
        # 1 with share groups (KIP-932), 2 with their dead-letter queues (KIP-1191)
        SHARE_VERSION: Feature(0, 2, default=1),
    }
)


#: the levels of a new cluster, as far as they differ from those of a cluster that has never decided
HIGHEST: Mapping[str, int] = MappingProxyType(
    {name: feature.highest for name, feature in SUPPORTED.items() if feature.highest > feature.default}
)

#: a feature that this software does not know
_NONE = Feature(0, 0, 0)


class FinalizedFeatures(NamedTuple):
    """The levels at which the cluster uses features. `epoch` grows with every change."""

    levels: Mapping[str, int] = MappingProxyType({})
    epoch: int = 0

    def level(self, name: str) -> int:
        """Return the level at which the cluster uses a feature.

        If the cluster has no level for the feature, return the feature's default level. Raises KeyError if
        this software does not support the feature.
        """
        return self.levels.get(name, SUPPORTED[name].default)

    def unsupported(self) -> str | None:
        """Describe the first feature whose level this software does not support; None if there is none."""
        for name, level in sorted(self.levels.items()):
            feature = SUPPORTED.get(name, _NONE)
            if not feature.lowest <= level <= feature.highest:
                return f"{name} at level {level} (this version has {feature.lowest} to {feature.highest})"
        return None

    def all(self) -> dict[str, int]:
        """Return the level at which the cluster uses each supported feature."""
        return {name: self.level(name) for name in SUPPORTED}
