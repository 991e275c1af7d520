"""Known defects of clients, and the findings that they explain. Each excuse is as narrow as possible."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from soak.checker.findings import Finding


@dataclass(frozen=True)
class Excuse:
    """An excuse for findings of one kind by one client. `holds` tests the finding; `why` names the known
    defect.
    """

    kind: str
    client: str
    holds: Callable[[Finding], bool]
    why: str

    def covers(self, finding: Finding) -> bool:
        return (finding.kind, finding.client) == (self.kind, self.client) and self.holds(finding)


EXCUSES = [
    Excuse(
        "offset-jump",
        "kafka_python",
        lambda finding: bool(finding.evidence["goes on where it was"]),
        "a member that keeps a partition in a rebalance goes on at its own position, not at the committed "
        "offset (`SubscriptionState.assign_from_subscribed` preserves it)",
    ),
    Excuse(
        "stalled-client",
        "kafka_python",
        lambda finding: (
            bool(finding.evidence["broker answered others"]) and not finding.evidence["broker's turn"]
        ),
        "some of its calls have no timeout; the broker answered another connection meanwhile, and no end of "
        "the client's transaction was under way",
    ),
    Excuse(
        "stalled-client",
        "confluent",
        lambda finding: (
            bool(finding.evidence["broker answered others"])
            and bool(finding.evidence["keeps epochs of a deleted topic"])
        ),
        "librdkafka ignores metadata with a lower leader epoch than it knows, also if the topic was created "
        "again and begins at 0 (its issue 4898); the same with Apache Kafka",
    ),
    Excuse(
        "lost-write",
        "confluent",
        lambda finding: (
            bool(finding.evidence.get("sent while the topic was made anew"))
            and finding.evidence["acknowledged at"] == -1
        ),
        "a new log begins with any sequence of a producer it does not know, as with Apache Kafka; when the "
        "batch after this one was the first to come, librdkafka takes this one for delivered, at no offset",
    ),
    Excuse(
        "duplicate",
        "confluent",
        lambda finding: (
            -1 not in (epochs := finding.evidence.get("epochs", [-1])) and len({*epochs}) == len(epochs)
        ),
        "when records have timed out, librdkafka raises its epoch and also sends again what it has no answer "
        "for: no broker can tell that these are the same",
    ),
    Excuse(
        "reordered",
        "confluent",
        lambda finding: (
            -1 < (epochs := finding.evidence.get("epochs", [-1, -1]))[0] < epochs[1]
            and finding.evidence["removed before"] > 0
        ),
        "librdkafka sent the other record again in a later epoch, and compaction removed the first copy, "
        "which lay right before this record",
    ),
]


def sift(findings: Iterable[Finding]) -> tuple[list[Finding], list[tuple[Finding, Excuse]]]:
    """Divide findings into the unexcused ones and the excused ones."""
    unexcused: list[Finding] = []
    excused: list[tuple[Finding, Excuse]] = []
    for finding in findings:
        excuse = next((excuse for excuse in EXCUSES if excuse.covers(finding)), None)
        if excuse is None:
            unexcused.append(finding)
        else:
            excused.append((finding, excuse))
    return unexcused, excused
