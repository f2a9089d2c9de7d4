"""Listens for followers: on loopback with or without TLS, at other addresses only with TLS, and always with a token."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
import uvicorn

from pidts.follow.application import RelayApplication
from pidts.follow.loopback import is_loopback
from pidts.follow.served_relay import ServedRelay, ServedSource
from pidts.follow.timed_protocol import TimedProtocol
from pidts.follow.token import read_tokens
from pidts.model import ConfigError, Where

_KEEP_SECONDS = 75
_LOOK_SECONDS = 5.0
_END_SECONDS = 5.0
"""The longest time for which a server that ends waits for its threads."""
_log: structlog.stdlib.BoundLogger = structlog.get_logger("pidts.follow")


@dataclass(frozen=True, slots=True)
class RelayEndpoint:
    """A relay server's address, certificate and token file."""

    address: str
    """HOST:PORT; port 0 means any free port."""
    token_file: Path
    certificate: Path | None = None
    key: Path | None = None

    def demand_safe(self) -> None:
        """Refuses an address or files with which others could read the relay."""
        host, _ = _parsed(self.address)
        read_tokens(self.token_file)
        if self.certificate is None and not is_loopback(host):
            what = f"{host} is not this machine's loopback, and without TLS anybody on the network could read the rows"
            raise ConfigError("serve-address", what, todo="Add --tls-cert and --tls-key, or listen at 127.0.0.1")
        if self.certificate is not None:
            self.context()

    def context(self) -> ssl.SSLContext:
        """Returns the TLS settings with the current certificate."""
        assert self.certificate is not None, "called only if there is a certificate"  # noqa: S101
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.load(context)
        return context

    def load(self, context: ssl.SSLContext) -> None:
        """Loads the certificate. Connections that begin later use it."""
        assert self.certificate is not None, "called only if there is a certificate"  # noqa: S101
        try:
            context.load_cert_chain(self.certificate, self.key, password=_no_password)
        except (OSError, ssl.SSLError, ValueError) as error:
            where = Where(file=str(self.certificate))
            why = error.strerror if isinstance(error, OSError) and error.strerror else error
            what = f"the certificate and its key cannot be loaded: {why}"
            todo = "Give PEM files that this user can read: --tls-cert with the chain, --tls-key without a password"
            raise ConfigError("serve-certificate", what, where=where, todo=todo) from None


@contextmanager
def relay_server(sources: Sequence[ServedSource], listening: RelayEndpoint) -> Iterator[str]:
    """Serves relays until the block ends; yields the address for followers."""
    listening.demand_safe()
    host, port = _parsed(listening.address)
    bound = _bound(host, port, listening.address)
    relays = {one.source.source_id: ServedRelay(one) for one in sources}
    application = RelayApplication(relays, listening.token_file)
    context = listening.context() if listening.certificate is not None else None
    config = uvicorn.Config(
        application.app,
        http=TimedProtocol,
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_KEEP_SECONDS,
        timeout_graceful_shutdown=2,
        ssl_certfile=str(listening.certificate) if context is not None else None,
        ssl_context_factory=(lambda _config, _default: context) if context is not None else None,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([bound],), name="relay server", daemon=True)
    ended = threading.Event()
    renewing = threading.Thread(target=_renew, args=(listening, context, ended), daemon=True) if context else None
    for relay in relays.values():
        relay.start()
    thread.start()
    if renewing is not None:
        renewing.start()
    named = f"[{host}]" if ":" in host else host
    url = f"{'http' if context is None else 'https'}://{named}:{bound.getsockname()[1]}"
    _log.info("the relay is served", address=url, sources=sorted(relays))
    try:
        yield url
    finally:
        ended.set()
        for relay in relays.values():
            relay.stop()
        server.should_exit = True
        deadline = time.monotonic() + _END_SECONDS
        thread.join(_END_SECONDS)
        for relay in relays.values():
            relay.join(deadline - time.monotonic())
        if renewing is not None:
            renewing.join(max(0.0, deadline - time.monotonic()))
        application.close()
        bound.close()


def _renew(listening: RelayEndpoint, context: ssl.SSLContext, ended: threading.Event) -> None:
    """Loads the certificate again when its files have changed."""
    seen = _stamp(listening)
    while not ended.wait(_LOOK_SECONDS):
        if (now := _stamp(listening)) == seen:
            continue
        try:
            listening.load(context)
        except ConfigError as error:
            # The two new files are written one after the other. The next check sees both.
            _log.warning("the new certificate is not used", code=error.code, what=error.what)
            continue
        seen = now
        _log.info("the certificate was loaded again")


def _stamp(listening: RelayEndpoint) -> list[Any]:
    found: list[Any] = []
    for path in (listening.certificate, listening.key):
        try:
            about = path.stat() if path is not None else None
        except OSError:
            about = None
        found.append((about.st_ino, about.st_mtime_ns, about.st_size) if about is not None else None)
    return found


def _parsed(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (host and port.isascii() and port.isdigit() and len(port) < 6 and int(port) < 65536):
        todo = "Write HOST:PORT, such as 127.0.0.1:9310 or 0.0.0.0:9310"
        raise ConfigError("serve-address", f"{address!r} is not HOST:PORT", todo=todo)
    return host, int(port)


def _bound(host: str, port: int, address: str) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # The protocol is passed explicitly, since asyncio sets TCP_NODELAY only then.
        found = socket.socket(*family[:3])
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(family[4])
        found.listen(128)  # connections can be made before the server's loop runs, and wait for it
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise ConfigError(
            "serve-address", f"the relay cannot be served at {address}: {why}", todo="Give another host or port"
        ) from None
    return found


def _no_password() -> str:
    raise ValueError("the key has a password")
