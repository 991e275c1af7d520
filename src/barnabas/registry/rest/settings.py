"""/config and /mode: returns and changes compatibility levels and modes, of the registry or of subjects."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from barnabas.base.types import JsonObject
from barnabas.registry import policy
from barnabas.registry.decision import Decision
from barnabas.registry.rest.exchange import LOG, STATE, answer, body_of, flag, scope_of

routes = web.RouteTableDef()


@routes.get("/config")
@routes.get("/config/{subject}")
async def get_config(request: web.Request) -> web.Response:
    state, subject = request.app[STATE], scope_of(request)
    if subject is None or flag(request, "defaultToGlobal"):
        return answer(policy.config_of(state, subject))
    if subject not in state.configs:
        raise policy.config_missing(subject)
    level = policy.config_of(state, subject)["compatibilityLevel"]
    return answer({"compatibilityLevel": level, **state.configs[subject]})


@routes.put("/config")
@routes.put("/config/{subject}")
async def put_config(request: web.Request) -> web.Response:
    state, subject, body = request.app[STATE], scope_of(request), await body_of(request)
    return await _write(request, lambda: policy.set_config(state, subject, body))


@routes.delete("/config")
@routes.delete("/config/{subject}")
async def delete_config(request: web.Request) -> web.Response:
    state, subject = request.app[STATE], scope_of(request)
    return await _write(request, lambda: policy.delete_config(state, subject))


@routes.get("/mode")
@routes.get("/mode/{subject}")
async def get_mode(request: web.Request) -> web.Response:
    state, subject = request.app[STATE], scope_of(request)
    if subject is None or flag(request, "defaultToGlobal"):
        return answer({"mode": policy.mode_of(state, subject)})
    if subject not in state.modes:
        raise policy.mode_missing(subject)
    return answer({"mode": state.modes[subject]})


@routes.put("/mode")
@routes.put("/mode/{subject}")
async def put_mode(request: web.Request) -> web.Response:
    state, subject, body = request.app[STATE], scope_of(request), await body_of(request)
    force = flag(request, "force")
    return await _write(request, lambda: policy.set_mode(state, subject, body, force=force))


@routes.delete("/mode")
@routes.delete("/mode/{subject}")
async def delete_mode(request: web.Request) -> web.Response:
    state, subject = request.app[STATE], scope_of(request)
    return await _write(request, lambda: policy.delete_mode(state, subject))


async def _write(request: web.Request, decide: Callable[[], Decision[JsonObject]]) -> web.Response:
    return answer(await request.app[LOG].write(decide))
