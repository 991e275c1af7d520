"""The broker changes the credentials of many users in steps, those of each user as a whole."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.server.handlers import alter_user_scram_credentials as handler
from barnabas.kafka.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)


class Users:
    """Notes the requests of each step. It rejects one user, and the step that contains another."""

    def __init__(self, refused="", no_controller_for=""):
        self.steps = []
        self.refused, self.no_controller_for = refused, no_controller_for

    async def alter(self, changes):
        self.steps.append([change.user for change in changes])
        if self.no_controller_for in self.steps[-1]:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        return {
            change.user: KafkaError(ErrorCode.RESOURCE_NOT_FOUND, "no such user")
            for change in changes
            if change.user == self.refused
        }


async def slices(items):
    for item in items:
        yield item


def answered(users, request):
    """Return the error code of each user, in the order of the answer."""
    long_work = SimpleNamespace(slices=slices)
    response = asyncio.run(handler.alter_user_scram_credentials.handle(users, long_work, None, request))
    return {result.user: result.error_code for result in response.results}


def request_of(deleted, upserted):
    return AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name=name, mechanism=1) for name in deleted],
        upsertions=[ScramCredentialUpsertion(name=name, mechanism=2) for name in upserted],
    )


def test_all_changes_of_a_user_are_decided_in_one_step_and_answered_once():
    names = [f"user {number}" for number in range(150)]
    users = Users(refused="user 3")
    answers = answered(users, request_of(names, names[::-1]))
    assert list(answers) == names
    assert {name for name, code in answers.items() if code} == {"user 3"}
    assert len(users.steps) == 3
    for step in users.steps:
        assert all(step.count(user) == 2 for user in step)


def test_a_step_that_no_controller_decides_leaves_what_the_others_have_changed():
    names = [f"user {number}" for number in range(150)]
    answers = answered(Users(no_controller_for="user 149"), request_of(names, []))
    failed = [name for name, code in answers.items() if code == ErrorCode.NOT_CONTROLLER]
    assert failed == names[128:]
    assert not any(answers[name] for name in names[:128])
