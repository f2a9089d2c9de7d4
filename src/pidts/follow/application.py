"""The HTTP interface of a relay server: it checks the token and answers requests.

Every path but `/healthz` needs the token. Without it, an answer shows nothing, not even the sources' names.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import structlog
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pidts.follow.served_relay import ServedRelay
from pidts.follow.token import is_accepted, read_tokens
from pidts.follow.wire import API, decode_prefix, encode_error
from pidts.model import ConfigError, Halted, Lsn, PidtsError, Position, Transient, Where
from pidts.replicate import AppliedPlace

_MOST_BODY = 1 << 20
_MOST_WAIT = 10.0
_THREADS = 64
"""The number of requests that may wait for log or read files at the same time; a follower sends one at a time."""
_log: structlog.stdlib.BoundLogger = structlog.get_logger("pidts.follow")
Result = TypeVar("Result")
Endpoint = Callable[["RelayApplication", Request, ServedRelay], Awaitable[Response]]


class RelayApplication:
    """Answers requests about the relays of some sources."""

    def __init__(self, relays: Mapping[str, ServedRelay], token_file: Path) -> None:
        self._relays, self._token_file = relays, token_file
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="relay server")
        paths: dict[str, tuple[str, Endpoint]] = {
            "more": ("GET", _more),
            "begin": ("POST", _begin),
            "index": ("GET", _index),
            "structures": ("GET", _structures),
            "needs": ("POST", _needs),
            "end": ("GET", _end),
            "doubt": ("POST", _doubt),
        }
        routes = [
            Route(f"{API}/{{source}}/{name}", partial(self._asked, endpoint), methods=[method])
            for name, (method, endpoint) in paths.items()
        ]
        self.app = Starlette(routes=[*routes, Route("/healthz", _healthy)])

    async def in_thread(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Runs work that reads files or waits, in a thread: other requests are answered meanwhile."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    def close(self) -> None:
        """Ends the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _asked(self, endpoint: Endpoint, request: Request) -> Response:
        if not self._may(request):
            return JSONResponse({"error": encode_error(_refused())}, 401, {"WWW-Authenticate": "Bearer"})
        source = request.path_params["source"]
        try:
            if source not in self._relays:
                todo = "Compare source-id in the task files of both machines."
                raise Halted(
                    "relay-not-served",
                    f"the relay server has no source {source!r}",
                    where=Where(source=source),
                    todo=todo,
                )
            return await endpoint(self, request, self._relays[source])
        except PidtsError as error:
            status = 503 if isinstance(error, Transient) else 409
            return JSONResponse({"error": encode_error(error)}, status)
        except (ValueError, KeyError, TypeError, RecursionError):
            refusal = Halted("relay-request", "the relay server does not understand the request", todo=_UPGRADE)
            return JSONResponse({"error": encode_error(refusal)}, 400)

    def _may(self, request: Request) -> bool:
        kind, _, shown = request.headers.get("authorization", "").partition(" ")
        try:
            tokens = read_tokens(self._token_file)
        except ConfigError as error:
            _log.error(
                "no follower is let in", code=error.code, what=error.what, file=error.where.file, todo=error.todo
            )
            return False
        return kind.lower() == "bearer" and is_accepted(shown.strip(), tokens)


_UPGRADE = "Use the same version of PiDTS on both machines."


async def _more(application: RelayApplication, request: Request, relay: ServedRelay) -> Response:
    has = decode_prefix(request.query_params)
    wait = min(_MOST_WAIT, max(0.0, float(request.query_params.get("wait", "0"))))
    answer = await application.in_thread(relay.more, has, wait)
    return Response(answer.encode(), media_type="application/octet-stream")


async def _begin(application: RelayApplication, request: Request, relay: ServedRelay) -> Response:
    about = await _body(request)
    wanted: AppliedPlace | Position | None = None
    if about.get("lsn"):
        wanted = AppliedPlace(Lsn.parse(str(about["lsn"])), str(about["position"]), str(about["gtids"]))
    elif about.get("position"):
        wanted = Position.parse(str(about["position"]))
    answer = await application.in_thread(relay.begin, wanted)
    return Response(answer.encode(), media_type="application/octet-stream")


async def _index(application: RelayApplication, request: Request, relay: ServedRelay) -> Response:
    data = await application.in_thread(relay.index, int(request.query_params["segment"]))
    return Response(data, media_type="application/octet-stream")


async def _structures(application: RelayApplication, request: Request, relay: ServedRelay) -> Response:
    text = await application.in_thread(relay.structures, Lsn.parse(request.query_params["lsn"]))
    return Response(text, media_type="application/json")


async def _needs(application: RelayApplication, request: Request, relay: ServedRelay) -> Response:
    needs = {str(name): Lsn.parse(str(lsn)) if lsn else None for name, lsn in (await _body(request)).items()}
    await application.in_thread(relay.report, needs)
    return JSONResponse({})


async def _end(application: RelayApplication, request: Request, relay: ServedRelay) -> Response:  # noqa: ARG001
    lsn = await application.in_thread(relay.end)
    return JSONResponse({"lsn": str(lsn) if lsn is not None else None})


async def _doubt(application: RelayApplication, request: Request, relay: ServedRelay) -> Response:
    after = Lsn.parse(str((await _body(request))["after"]))
    return JSONResponse({"damaged": await application.in_thread(relay.doubt, after)})


async def _healthy(request: Request) -> Response:  # noqa: ARG001
    return JSONResponse({"status": "ok"})


async def _body(request: Request) -> dict[str, Any]:
    data = b""
    async for part in request.stream():
        data += part
        if len(data) > _MOST_BODY:
            raise ValueError("the request is too long")
    about = json.loads(data)
    if not isinstance(about, dict):
        raise TypeError("not an object")
    return about


def _refused() -> Transient:
    todo = "Give server and follower the same token. A running follower tries again, so a token may be replaced anytime"
    return Transient("relay-server-refused", "the relay server does not accept this token", todo=todo)
