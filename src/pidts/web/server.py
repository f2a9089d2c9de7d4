"""Serves the web application with uvicorn."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import uvicorn

from pidts.follow.timed_protocol import TimedProtocol
from pidts.model import ConfigError
from pidts.service.supervisor import Supervisor
from pidts.web.access import Policy
from pidts.web.app import application, operations
from pidts.web.streams import Streams

_GRACE_SECONDS: Final = 3
_MOST_CONNECTIONS: Final = 500


@dataclass(frozen=True, slots=True)
class ServiceEndpoint:
    """The address and certificate of a service."""

    host: str
    port: int
    certificate: str = ""
    key: str = ""


def serve(
    supervisor: Supervisor,
    listener: socket.socket,
    place: ServiceEndpoint,
    policy: Policy,
    stop: threading.Event,
    ready: Callable[[str], None],
) -> None:
    """Serves until `stop` is set. Calls `ready` once with the address, as soon as the server accepts requests."""
    streams = Streams(supervisor)
    app = application(operations(supervisor, streams, policy), policy)
    config = uvicorn.Config(
        app,
        loop="asyncio",
        http=TimedProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,  # a header must not be able to change the address of the caller
        server_header=False,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_graceful_shutdown=_GRACE_SECONDS,
        timeout_keep_alive=30,
        ssl_certfile=place.certificate or None,
        ssl_keyfile=place.key or None,
    )
    server = _Server(config, stop, streams.over, lambda: ready(address(listener, place)))
    asyncio.run(server.serve(sockets=[listener]))


class _Server(uvicorn.Server):
    """A server that ends when another thread sets `stop`."""

    def __init__(
        self, config: uvicorn.Config, stop: threading.Event, over: asyncio.Event, ready: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._stop, self._over, self._ready = stop, over, ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    async def on_tick(self, counter: int) -> bool:
        """Whether the server has to end. Uvicorn calls this method ten times a second."""
        return await super().on_tick(counter) or self._stop.is_set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Ends the streams first: they would never end by themselves."""
        self._over.set()
        await super().shutdown(sockets)


def address(listener: socket.socket, place: ServiceEndpoint) -> str:
    """Returns the URL of a service."""
    host, port = listener.getsockname()[:2]
    if place.host == "localhost":
        host = place.host
    scheme = "https" if place.certificate else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def listening_socket(place: ServiceEndpoint) -> socket.socket:
    """Returns a socket bound to the service's address. Raises if the address cannot be used."""
    try:
        found: Any = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)[0]
        family, _, _, _, at = found
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(at)
        except OSError:
            listener.close()
            raise
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise ConfigError(
            "listen-address",
            f"the service cannot listen at {place.host}:{place.port}: {why}",
            todo="Give another address with --listen HOST:PORT; port 0 means any free port",
        ) from None
    return listener


def parsed_address(text: str) -> tuple[str, int]:
    """Returns the host and the port of `--listen`. Without a host, it is 127.0.0.1: only this machine can connect."""
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and len(port) < 6 and int(port) < 65536):
        todo = "Write PORT or HOST:PORT, such as 8390 or 0.0.0.0:8390"
        raise ConfigError("listen-address", f"the service cannot listen at {text!r}, which is not HOST:PORT", todo=todo)
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    try:
        return str(ipaddress.ip_address(host)), int(port)
    except ValueError:
        return host, int(port)
