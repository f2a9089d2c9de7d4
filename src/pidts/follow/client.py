"""The connection of a follower to a relay server: HTTPS, or HTTP on loopback only, and the token in each request."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from pidts.follow.loopback import is_loopback
from pidts.follow.token import read_tokens
from pidts.follow.wire import API, MOST_BYTES, LogResponse, decode_error, encode_prefix
from pidts.model import ConfigError, Lsn, Position, Transient, Where
from pidts.relay.copy_writer import IndexPrefix
from pidts.replicate import AppliedPlace

_SECONDS = 30.0
"""The longest time, in seconds, in which a running server sends nothing."""
_PORT = 9310


@dataclass(frozen=True, slots=True)
class RelayServerAddress:
    """A relay server's address, with the certificate authority and the token for it."""

    url: str
    token_file: Path
    ca: Path | None = None
    """The authority that has signed the server's certificate; None for the system's authorities."""

    def demand_safe(self) -> None:
        """Refuses an address at which others could read the token or the rows. Refuses files that cannot be used."""
        self.demand_encrypted()
        if self.ca is not None:
            self.context()
        read_tokens(self.token_file)

    def demand_encrypted(self) -> None:
        """Refuses a connection without TLS to an address that is not loopback."""
        scheme, host, _ = self.place
        if scheme == "http" and not is_loopback(host):
            what = f"{host} is not this machine's loopback, and without TLS anybody on the network could read the rows"
            raise ConfigError("relay-address", what, todo="Write https://, and serve the relay with --tls-cert")

    @property
    def place(self) -> tuple[str, str, int]:
        """Returns scheme, host and port."""
        try:
            parts = urlsplit(self.url)
            port = parts.port or _PORT
        except ValueError:
            parts, port = urlsplit(""), 0
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username or parts.query:
            what = "this is not an address of a relay server"
            raise ConfigError("relay-address", what, todo=f"Write https://HOST:PORT (the port is {_PORT} by default)")
        return parts.scheme, parts.hostname, port

    def context(self) -> ssl.SSLContext:
        """Returns the TLS settings: a known authority must have signed the certificate, and it must name the host."""
        try:
            return ssl.create_default_context(cafile=str(self.ca) if self.ca is not None else None)
        except OSError as error:  # includes ssl.SSLError
            where = Where(file=str(self.ca))
            what = f"the authority's certificate cannot be loaded: {error.strerror or error}"
            raise ConfigError(
                "relay-address", what, where=where, todo="Give a PEM file that this user can read"
            ) from None


class RelayClient:
    """Sends requests about one source to one relay server. One thread may use it; it connects at the first request."""

    def __init__(self, address: RelayServerAddress, source_id: str, seconds: float = _SECONDS) -> None:
        self._address, self._source_id, self._seconds = address, source_id, seconds
        self._base = f"{API}/{quote(source_id, safe='')}"
        self._connection: HTTPConnection | None = None

    def more(self, has: IndexPrefix, wait: float) -> LogResponse:
        """Returns the piece of the relay after the copy's end. The server waits up to `wait` seconds for log."""
        query = urlencode({**encode_prefix(has), "wait": wait})
        return self._answer(self._ask("GET", f"more?{query}"))

    def begin(self, wanted: AppliedPlace | Position | None) -> LogResponse:
        """Returns the first piece for an empty copy, which begins at `wanted` (None: at the relay's end)."""
        about: dict[str, str] = {}
        if isinstance(wanted, AppliedPlace):
            about = {"lsn": str(wanted.lsn), "position": wanted.position, "gtids": wanted.gtid_set}
        elif wanted is not None:
            about = {"position": str(wanted)}
        return self._answer(self._ask("POST", "begin", about))

    def index(self, segment: int) -> bytes:
        """Returns the whole index of a segment; empty if the server has none."""
        return self._ask("GET", f"index?segment={segment}")

    def structures(self, lsn: Lsn) -> str:
        """Returns the text of the structures that the server has stored for a place; empty if there are none."""
        return self._ask("GET", f"structures?{urlencode({'lsn': str(lsn)})}").decode()

    def report(self, needs: Mapping[str, Lsn | None]) -> None:
        """Reports the places from which the tasks of this copy still need the log."""
        self._ask("POST", "needs", {name: str(lsn) if lsn is not None else None for name, lsn in needs.items()})

    def end(self) -> Lsn | None:
        """Returns the end of the source's log; None if the source does not have the relay's log."""
        found = self._json(self._ask("GET", "end")).get("lsn")
        return Lsn.parse(found) if found else None

    def doubt(self, after: Lsn) -> bool:
        """Makes the server look for damage after a place, and repair it. Returns whether there is damage."""
        return bool(self._json(self._ask("POST", "doubt", {"after": str(after)})).get("damaged"))

    def close(self) -> None:
        """Ends the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, method: str, path: str, about: Mapping[str, Any] | None = None) -> bytes:
        try:
            status, body = self._exchange(method, path, about)
        except ssl.SSLCertVerificationError as error:
            self.close()
            what = f"the relay server's certificate is not trusted: {error.verify_message}"
            todo = (
                "Check relay-from.ca and the host's name in the certificate. A running follower tries again by itself"
            )
            raise Transient("relay-server-untrusted", what, where=self._where, todo=todo) from error
        except (OSError, HTTPException) as error:
            self.close()
            raise self._lost(str(error) or type(error).__name__) from error
        except BaseException:
            self.close()
            raise
        if status == 200:
            return body
        try:
            raise decode_error(json.loads(body)["error"])
        except (ValueError, KeyError, TypeError):
            raise self._lost(
                f"the program at this address is not a relay server of this version (HTTP status {status})"
            ) from None

    def _exchange(self, method: str, path: str, about: Mapping[str, Any] | None) -> tuple[int, bytes]:
        if self._connection is None:
            self._connection = self._connected()
        try:
            headers = {"Authorization": f"Bearer {read_tokens(self._address.token_file)[0]}"}
        except ConfigError as error:
            # Somebody may be replacing the token: a file that is empty for a moment must not end a long run.
            raise Transient("relay-server-refused", error.what, where=error.where, todo=error.todo) from error
        body = json.dumps(about).encode() if about is not None else None
        self._connection.request(method, f"{self._base}/{path}", body, headers)
        with self._connection.getresponse() as response:
            data = response.read(MOST_BYTES + 1)
            if len(data) > MOST_BYTES:
                raise HTTPException("the answer is too long")
            if response.length:
                raise HTTPException("the connection ended in the middle of an answer")
            if response.will_close:
                self.close()
            return response.status, data

    def _connected(self) -> HTTPConnection:
        scheme, host, port = self._address.place
        if scheme == "https":
            try:
                context = self._address.context()
            except ConfigError as error:  # somebody may be replacing the certificate's file
                raise Transient("relay-server-untrusted", error.what, where=error.where, todo=error.todo) from error
            return HTTPSConnection(host, port, timeout=self._seconds, context=context)
        self._address.demand_encrypted()
        return HTTPConnection(host, port, timeout=self._seconds)

    def _answer(self, body: bytes) -> LogResponse:
        try:
            return LogResponse.decode(body)
        except ValueError as error:
            self.close()
            raise self._lost(str(error)) from error

    def _json(self, body: bytes) -> dict[str, Any]:
        try:
            return dict(json.loads(body))
        except (ValueError, TypeError) as error:
            raise self._lost("this is not the answer of a relay server") from error

    def _lost(self, why: str) -> Transient:
        scheme, host, port = self._address.place
        what = f"the relay server at {scheme}://{host}:{port} cannot be used: {why}"
        todo = (
            "Check that `pidts replicate --serve` runs there, and that this machine can reach it. A running follower "
            "tries again"
        )
        return Transient("relay-server-lost", what, where=self._where, todo=todo)

    @property
    def _where(self) -> Where:
        return Where(source=self._source_id)
