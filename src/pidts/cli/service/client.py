"""The client of a running service, which it finds by the state folder or the address of the service."""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import ssl
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

from pidts.cli.errors import remember_service
from pidts.cli.serve import read_token
from pidts.model import ConfigError, PidtsError, Where
from pidts.service.durable_file import read_json
from pidts.service.state_folder import StateFolder, usual_state_folder

_SECONDS: Final = 60.0
_WITHOUT_SERVICE: Final = (
    "A task that `pidts run` runs needs no service: `pidts status FILE.yaml` shows it, and Ctrl-C or SIGTERM stops it"
)
_SILENT_SECONDS: Final = 45.0
"""A service that is silent for so many seconds has ended: a stream sends something every 15 seconds."""


class ServiceError(PidtsError):
    """An error in an answer of the service."""

    def __init__(self, code: str, error: dict[str, Any]) -> None:
        super().__init__(code, str(error.get("what", "")), todo=str(error.get("todo", "")))
        self.error = error

    def to_json(self) -> dict[str, Any]:
        """Returns the error that the service has sent, with advice that names this service."""
        return {**self.error, "todo": self.todo} if self.todo else self.error


class WrongOrder(ServiceError, ConfigError):
    """The service has answered that the request or the task file is wrong."""


@dataclass(frozen=True, slots=True)
class ServiceClient:
    """A service's address, token and certificate."""

    url: str
    token: str = ""
    certificate: str = ""
    """The file with the certificate of a service on this machine, which no authority need have signed."""

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Returns the answer, or raises the error that the answer contains."""
        with closing(self._connection(_SECONDS)) as connection:
            answer = self._sent(connection, method, path, body)
            return self._read(answer)

    def events(self, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yields the events of a stream; raises when the service ends."""
        with closing(self._connection(_SILENT_SECONDS)) as connection:
            answer = self._sent(connection, "GET", path, None)
            if answer.status != http.client.OK:
                self._read(answer)
            kind = ""
            try:
                while line := answer.readline():
                    name, _, value = line.decode("utf-8").rstrip("\n").partition(": ")
                    if name == "event":
                        kind = value
                    elif name == "data":
                        yield kind, json.loads(value)
            except (OSError, http.client.HTTPException):
                pass
            raise PidtsError(
                "service-absent",
                f"the service at {self.url} has ended, or does not answer any more",
                todo="The service's tasks go on. Start the service again: pidts serve",
            )

    def task(self, name: str, rest: str = "") -> str:
        """Returns the path of a task."""
        return f"/api/tasks/{quote(name, safe='')}{rest}"

    def _connection(self, seconds: float) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        host, port = parts.hostname or "", parts.port
        if parts.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=seconds)
        context = _only(Path(self.certificate)) if self.certificate else ssl.create_default_context()
        return http.client.HTTPSConnection(host, port, timeout=seconds, context=context)

    def _sent(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: dict[str, Any] | None
    ) -> http.client.HTTPResponse:
        headers = {"X-Pidts": "1"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            return connection.getresponse()
        except ssl.SSLError as error:
            raise PidtsError(
                "service-certificate",
                f"the certificate of the service at {self.url} is not accepted: "
                f"{getattr(error, 'verify_message', '') or error.reason or error}",
                todo="Without --service, only the certificate of pidts serve --tls-cert is accepted. With --service, "
                "an authority that this machine trusts must have signed the certificate (SSL_CERT_FILE names "
                "further authorities)",
            ) from None
        except (OSError, http.client.HTTPException) as error:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise PidtsError(
                "service-absent",
                f"no service answers at {self.url}: {why}",
                todo="Start the service: pidts serve. Or name another service: --state DIR or --service URL. "
                f"{_WITHOUT_SERVICE}",
            ) from None

    def _read(self, answer: http.client.HTTPResponse) -> dict[str, Any]:
        try:
            value = json.loads(answer.read())
        except (ValueError, OSError, http.client.HTTPException):
            value = None
        if not isinstance(value, dict):
            raise PidtsError(
                "service-absent",
                f"the program at {self.url} is not a service of PiDTS",
                todo="Name the service: --service URL, or --state DIR",
            )
        if answer.status < http.client.BAD_REQUEST:
            return value
        error: dict[str, Any] = {"code": "service-absent"} | dict(value.get("error", {}))
        if answer.status == http.client.BAD_REQUEST:
            raise WrongOrder(error["code"], error)
        raise ServiceError(error["code"], error)


def _only(certificate: Path) -> ssl.SSLContext:
    """Returns TLS settings that accept only the certificate in the file, whichever host it names."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        # Only the file's first certificate is accepted. Later certificates belong to authorities, which may also have
        # signed other certificates.
        end = "-----END CERTIFICATE-----"
        first, found, _ = certificate.read_text("ascii", "replace").partition(end)
        context.load_verify_locations(cadata=first[first.index("-----BEGIN CERTIFICATE") :] + found + "\n")
    except (OSError, ValueError) as error:  # includes ssl.SSLError
        raise ConfigError(
            "service-certificate",
            f"the certificate of the service cannot be read: {getattr(error, 'strerror', None) or error}",
            where=Where(file=str(certificate)),
            todo="Name the service with --service https://HOST:PORT",
        ) from None
    return context


def _lives(folder: StateFolder) -> bool:
    """Whether a running service has the lock of the folder.

    The recorded port is no proof: if the service was killed, another program may use this port now.
    """
    try:
        with (folder.path / "service.lock").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def service_client(state: Path | None, url: str, token_file: Path | None) -> ServiceClient:
    """Returns the client of the service at the URL, or of the service that uses the state folder."""
    remember_service(state, url, token_file)
    token = read_token(token_file) if token_file is not None else ""
    if url:
        if urlsplit(url).scheme not in {"http", "https"} or not urlsplit(url).hostname:
            raise ConfigError("usage", f"{url!r} is not an address", todo="Write --service http://127.0.0.1:8390")
        if token and urlsplit(url).scheme == "http":
            from pidts.follow.loopback import is_loopback

            if not is_loopback(urlsplit(url).hostname or ""):
                what = (
                    f"{url} is not this machine's loopback, and without TLS anybody on the network could read the token"
                )
                raise ConfigError("unsafe-address", what, todo="Write --service https://HOST:PORT")
        return ServiceClient(url.rstrip("/"), token)
    folder = StateFolder((state or usual_state_folder()).absolute())
    found = read_json(folder.service)
    if found is None or not _lives(folder):
        raise PidtsError(
            "service-absent",
            f"no service uses the state folder {folder.path}",
            todo=f"Start one: pidts serve. Or name another service: --state DIR or --service URL. {_WITHOUT_SERVICE}",
        )
    if not token and found.get("token_file") and os.access(str(found["token_file"]), os.R_OK):
        token = read_token(Path(str(found["token_file"])))
    return ServiceClient(str(found.get("url", "")), token, str(found.get("certificate", "")))
