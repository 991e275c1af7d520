"""ListGroups over the wire: by state and by type."""

import pytest

from barnabas.kafka.protocol.messages.list_groups import ListGroupsRequest


@pytest.fixture
def listed(wire, group_id):
    """Return the entry of the test's group in the list, or None."""

    def ask(version=5, **filters):
        response = wire(ListGroupsRequest(**filters), version)
        assert response.error_code == 0
        return next((group for group in response.groups if group.group_id == group_id), None)

    return ask


@pytest.mark.parametrize("version", range(6))
def test_listed_group(listed, join, version):
    assert listed(version) is None
    join()
    group = listed(version)
    assert group.protocol_type == "consumer"
    assert group.group_state == ("Stable" if version >= 4 else "")
    assert group.group_type == ("classic" if version >= 5 else "")


def test_group_of_a_consumer_that_assigns_by_itself(wire, listed, topic, commit_request):
    wire(commit_request(topic, {0: 1}))
    assert (listed().protocol_type, listed().group_state) == ("", "Empty")


@pytest.mark.parametrize(
    ("states", "types", "found"),
    [
        (["Stable"], [], True),
        (["sTaBlE", "Empty"], ["CLASSIC"], True),
        (["Empty"], [], False),
        (["nonsense"], [], False),
        ([], ["consumer", "classic"], True),
        ([], ["consumer"], False),
        ([], ["share"], False),
        (["Stable"], ["consumer"], False),
    ],
)
def test_filters(listed, join, states, types, found):
    join()
    assert (listed(states_filter=states, types_filter=types) is not None) == found
