"""Arguments that an `Admin` rejects before it asks a broker."""

from __future__ import annotations

import pytest

from barnabas.base.types import TopicPartition
from barnabas.client import Admin, ClientError


@pytest.fixture
def admin():
    admin = Admin("127.0.0.1:1")
    yield admin
    admin.close()


def test_a_text_that_is_no_offset_is_named(admin):
    with pytest.raises(ClientError, match="'newest' is no offset: use earliest or latest, or a time"):
        admin.offsets([TopicPartition("t", 0)], "newest")


def test_a_kind_of_resource_without_settings_is_named(admin):
    for call in (admin.configs, lambda kind, name: admin.alter_configs(kind, name, set={"a": "b"})):
        with pytest.raises(ClientError, match="'topics' is no kind of resource with settings: use topic, br"):
            call("topics", "t")
