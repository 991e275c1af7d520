"""Builds the web application of a registry, with all URLs."""

from __future__ import annotations

import asyncio

from aiohttp import web

import barnabas
from barnabas.registry.access import ClusterAccess
from barnabas.registry.log import SchemasLog
from barnabas.registry.rest import compatibility, schemas, settings, subjects
from barnabas.registry.rest.authorization import ACCESS, authorize
from barnabas.registry.rest.exchange import (
    LARGE_BODIES,
    LARGE_BODIES_AT_ONCE,
    LOG,
    STATE,
    answer,
    exchange,
)
from barnabas.registry.rest.origin import HOSTS, own_requests_only
from barnabas.registry.state import State

#: larger than any record of the topic, even with every character escaped, so that an error can say why
_MAX_BODY = 4 << 20

CLUSTER: web.AppKey[str] = web.AppKey("cluster", str)


def build(
    state: State,
    log: SchemasLog,
    cluster_id: str,
    access: ClusterAccess | None = None,
    hosts: frozenset[str] | None = None,
) -> web.Application:
    """Return the web application that reads from `state` and writes to `log`.

    Args:
        cluster_id: id of the Kafka cluster, which ``/v1/metadata/id`` returns.
        access: authenticates clients; None if no login is needed.
        hosts: the accepted values of the header ``Host``; None for any.
    """
    middlewares = [exchange, own_requests_only, authorize]
    app = web.Application(middlewares=middlewares, client_max_size=_MAX_BODY)
    if hosts is not None:
        app[HOSTS] = hosts
    if access is not None:
        app[ACCESS] = access
    app[STATE], app[LOG], app[CLUSTER] = state, log, cluster_id
    app[LARGE_BODIES] = asyncio.Semaphore(LARGE_BODIES_AT_ONCE)
    app.router.add_get("/", _root)
    app.router.add_get("/v1/metadata/id", _identity)
    app.router.add_get("/v1/metadata/version", _version)
    for group in (subjects, schemas, settings, compatibility):
        app.add_routes(group.routes)
    return app


async def _root(request: web.Request) -> web.Response:
    return answer({})


async def _identity(request: web.Request) -> web.Response:
    clusters = {"kafka-cluster": request.app[CLUSTER], "schema-registry-cluster": "schema-registry"}
    return answer({"scope": {"path": [], "clusters": clusters}, "id": ""})


async def _version(request: web.Request) -> web.Response:
    return answer({"version": barnabas.__version__, "commitId": ""})
