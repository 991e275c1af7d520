"""The table of the tests that `make test` leaves to `make test-all`.

A path is a folder, a file or a test, with or without its parameters. The longest path that matches a test
decides. A test of a matrix uses the fixture `is_whole`: `make test` tries a sample with each value at least
once, and `make test-all` every combination.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

Value = TypeVar("Value")

_ROOT = Path(__file__).parents[1]

#: Places whose tests take seconds each, or minutes together.
SLOW = (
    "tests/compat",
    "tests/docs/test_blocks.py::test_every_block_of_a_page_runs_in_order",
    "tests/docs/test_links.py::test_the_site_has_every_page_of_the_docs_and_a_search",
    "tests/docs/test_links.py::test_the_site_loads_nothing_from_elsewhere",
    "tests/examples",
    "tests/hostile",
    "tests/integration/cli",
    "tests/integration/cluster",
    "tests/integration/console/test_sending.py::test_pages_are_answered_while_a_value_takes_its_time",
    "tests/integration/registry/test_hostile.py",
    "tests/integration/registry/test_protobuf.py::test_others_are_answered_while_protoc_runs",
    "tests/integration/registry/test_secured.py",
    "tests/integration/registry/test_several.py",
    "tests/integration/test_bench.py",
    "tests/integration/test_children.py",
    "tests/integration/test_cold_reads.py",
    "tests/integration/test_compaction.py",
    "tests/integration/test_corruption.py",
    "tests/integration/test_crash.py",
    "tests/integration/test_delete_records.py::test_an_answered_deletion_survives_kill_9",
    "tests/integration/test_disk_failure.py",
    "tests/integration/test_failed_start.py",
    "tests/integration/test_group_scenarios.py",
    "tests/integration/test_hostile.py",
    "tests/integration/test_long_listings.py",
    "tests/integration/test_many_members.py",
    "tests/integration/test_oauthbearer.py",
    "tests/integration/test_share_group_clients.py",
    "tests/integration/test_ship.py::test_a_broker_killed_under_a_shipper_loses_and_repeats_nothing",
    "tests/integration/test_ship.py::test_a_shipper_killed_again_and_again_loses_and_repeats_nothing",
    "tests/integration/test_share_consumer.py",
    "tests/integration/test_slow_consumer.py",
    "tests/integration/test_testing_plugin.py"
    "::test_a_run_in_processes_has_its_clusters_in_processes_without_zookeeper",
    "tests/integration/test_testing_plugin.py::test_the_same_tests_run_against_another_cluster",
    "tests/integration/test_tls_connections.py",
    "tests/integration/test_tls_rotation.py",
    "tests/integration/test_topic_deletion.py"
    "::test_a_partition_that_moved_away_and_came_back_before_a_crash_is_empty_and_not_damaged",
    "tests/integration/test_topic_deletion.py"
    "::test_what_is_written_down_of_a_deleted_topic_does_not_hold_for_a_new_one_of_its_name",
    "tests/integration/test_transactions.py::test_transactions_through_kills_of_the_broker_are_all_or_nothing",
    "tests/integration/test_zookeeper.py",
    "tests/integration/test_zookeeper_folders.py",
    "tests/integration/test_zookeeper_security.py",
    "tests/property/test_share_in_flight.py::test_every_sequence_of_seven_events_on_four_offsets",
    "tests/property/test_metadata_store.py::test_zookeeper_is_what_the_memory_store_imitates",
    "tests/simulation",
    "tests/spark",
    "tests/unit/broker/coordinator/consumer/test_large_groups.py"
    "::test_two_thousand_members_that_join_at_once_share_few_rounds_of_short_turns",
    "tests/unit/soak/test_night.py::test_a_night_runs_the_commit_that_is_checked_out_and_can_be_stopped",
    "tests/unit/test_slow.py::test_pytest_finds_each_fast_test_with_its_parameters",
)

#: Places inside those that `make test` runs all the same: a sample of each kind.
FAST = (
    "tests/integration/cli/test_cli_groups.py",
    "tests/integration/cli/test_cli_log.py",
    "tests/integration/cli/test_cli_records.py",
    "tests/integration/cli/test_cli_topics.py",
    "tests/integration/cluster/test_failover.py"
    "::test_nothing_acknowledged_is_lost_doubled_or_out_of_order[confluent-kafka-kill-leader]",
    "tests/integration/cluster/test_fixture.py::test_another_broker_takes_over_from_a_killed_controller",
    "tests/simulation/test_simulation.py::test_broker_keeps_its_promises_to_all_clients[1]",
    "tests/simulation/test_simulation.py::test_cluster_keeps_its_promises_to_all_clients[3-2]",
    "tests/spark/test_pipelines.py::test_a_pipeline_of_static_sources_is_a_batch_that_can_be_run_again",
    "tests/spark/test_spark_jobs.py::test_a_stream_goes_on_from_its_checkpoint_with_nothing_lost_or_repeated",
)

_IS_SLOW = dict.fromkeys(SLOW, True) | dict.fromkeys(FAST, False)
#: where a path of the table may end inside a node id, before its parameters
_ENDS = re.compile(r"/|::")


def in_turn(values: Sequence[Value], start: int, count: int) -> list[Value]:
    """Return `count` of the values, beginning at `start`, and continuing at the first after the last."""
    return [values[number % len(values)] for number in range(start, start + count)]


def is_slow(test: str) -> bool:
    """Return whether `make test` skips the test with this node id, because it is slow."""
    without_parameters = test.partition("[")[0]  # some parameters are long, and full of slashes
    places = (match.start() for match in _ENDS.finditer(without_parameters))
    ends = [*places, len(without_parameters), len(test)]
    return next((_IS_SLOW[test[:end]] for end in reversed(ends) if test[:end] in _IS_SLOW), False)


def is_left_out(path: Path, marks: str = "not slow") -> bool:
    """Return whether an expression of marks selects no test of a file or folder, so that it need not be
    imported.
    """
    if not path.is_relative_to(_ROOT):
        return False
    if "not compat" in marks and path == _ROOT / "tests" / "compat":
        return True
    if "not slow" not in marks:
        return False
    place = path.relative_to(_ROOT).as_posix()
    return is_slow(place) and not any(_within(fast, place) for fast in FAST)


def _within(test: str, path: str) -> bool:
    return test == path or test.startswith((f"{path}/", f"{path}::", f"{path}["))
