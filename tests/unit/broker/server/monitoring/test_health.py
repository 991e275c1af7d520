"""The conditions under which a broker is ready."""

import pytest
from tests.views import view_of

from barnabas.broker.metadata.image import Admission, BrokerImage, ClusterImage
from barnabas.broker.metadata.store import SessionState
from barnabas.broker.server.monitoring.health import SHUTTING_DOWN, Health
from barnabas.broker.server.monitoring.sources import SessionHistory

ADMITTED = ClusterImage(brokers={1: BrokerImage(1, (), epoch=7)}, admitted={1: Admission(7)})


@pytest.fixture
def session():
    return SessionHistory()


@pytest.fixture
def view():
    return view_of(ADMITTED)


@pytest.fixture
def health(view, session):
    made = Health(view, session)
    made.running()
    return made


def test_a_starting_broker_says_what_it_does(view, session):
    health = Health(view, session)
    health.step = "it opens its logs"
    assert health.reasons() == ["it starts: it opens its logs"]


def test_a_running_broker_that_is_admitted_is_ready(health):
    assert health.reasons() == []


def test_a_broker_with_another_epoch_is_not_admitted(view, health):
    view.image = ADMITTED._replace(admitted={1: Admission(6)})
    assert "admitted" in health.reasons()[0]


def test_a_stopping_broker_is_not_ready(health):
    health.state = SHUTTING_DOWN
    assert health.reasons() == ["it stops"]


def test_a_broker_that_has_to_stop_says_why(health):
    health.failure = "the disk is gone"
    assert health.reasons() == ["it has to stop: the disk is gone"]


@pytest.mark.parametrize("state", [SessionState.LOST, SessionState.FAILED])
def test_a_broker_without_a_session_is_fenced(health, session, state):
    session.note(state)
    assert "fenced" in health.reasons()[0]


@pytest.mark.parametrize("state", [SessionState.SUSPENDED, SessionState.OVERDUE])
def test_an_outage_of_the_store_is_not_the_brokers(health, session, state):
    session.note(state)
    assert health.reasons() == []
