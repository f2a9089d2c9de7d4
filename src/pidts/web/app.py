"""The web application: the operations, the files of the page, and one form for all errors."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path

import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from pidts.model import PidtsError
from pidts.service.runs import Runs
from pidts.service.supervisor import Supervisor
from pidts.web.access import AccessGuard, Policy
from pidts.web.openapi import openapi
from pidts.web.operation import Operation
from pidts.web.operations import Tasks
from pidts.web.refusals import Refusal, answer, answer_error
from pidts.web.server_operations import ServerOperations
from pidts.web.streams import Streams

_log = structlog.get_logger(__name__)

_NOT_WRITTEN = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})
PAGE = Path(__file__).parent / "page"


def operations(supervisor: Supervisor, streams: Streams, policy: Policy) -> list[Operation]:
    """Returns all operations."""
    runs = Runs()
    found = Tasks(supervisor, streams, policy, runs).operations()
    return [*found, *ServerOperations(supervisor, runs).operations()]


def application(found: Sequence[Operation], policy: Policy) -> Starlette:
    """Returns the application that serves these operations."""
    described = openapi(found)

    async def description(_: Request) -> Response:
        return answer(described)

    routes = [
        *(Route(one.path, one.handler, methods=[one.method], name=one.name) for one in found),
        Route("/openapi.json", description),
        Mount("/", StaticFiles(directory=PAGE, html=True)),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(AccessGuard, policy=policy)],
        exception_handlers={PidtsError: _known, OSError: _disk, HTTPException: _http, Exception: _unknown},
    )


async def _known(_: Request, error: Exception) -> Response:
    assert isinstance(error, PidtsError)  # noqa: S101 - the handler of this class
    return answer_error(error)


async def _disk(request: Request, error: Exception) -> Response:
    if not (isinstance(error, OSError) and error.errno in _NOT_WRITTEN):
        return await _unknown(request, error)
    what = f"the state folder cannot be written: {error.strerror}"
    todo = (
        "Make room on the folder's disk. A stop or pause takes effect now, but a service that starts later does not "
        "know of it"
    )
    return answer_error(Refusal("state-folder", 507, what, todo))


async def _http(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - the handler of this class
    words = {404: "there is nothing at this path", 405: "this path does not take this method"}
    refusal = Refusal(
        "no-such-path", error.status_code, words.get(error.status_code, str(error.detail)), "See /openapi.json"
    )
    return answer_error(refusal, dict(error.headers or {}))


async def _unknown(request: Request, error: Exception) -> Response:
    _log.error("a request has failed", path=request.url.path, exc_info=error)
    what = f"{type(error).__name__} in the service; its log contains the traceback"
    return answer_error(Refusal("unexpected", 500, what, "This is a bug in pidts"))
