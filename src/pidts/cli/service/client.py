"""Speaks to a running service: finds it by its state folder or its address, and raises its errors as they are."""

from __future__ import annotations

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

from pidts.cli.serve import read_token
from pidts.model import ConfigError, PidtsError
from pidts.service.durable_file import read_json
from pidts.service.state_folder import StateFolder, usual_state_folder

_SECONDS: Final = 60.0
_SILENT_SECONDS: Final = 45.0
"""A stream says at least every fifteen seconds that it is there."""


class ServiceError(PidtsError):
    """An error of the service, as it has told it."""

    def __init__(self, code: str, error: dict[str, Any]) -> None:
        super().__init__(code, str(error.get("what", "")), todo=str(error.get("todo", "")))
        self.error = error

    def to_json(self) -> dict[str, Any]:
        """The same for machines."""
        return self.error


class WrongOrder(ServiceError, ConfigError):
    """The service says that the order or the task file is wrong."""


@dataclass(frozen=True, slots=True)
class ServiceClient:
    """A service's address and what it asks for."""

    url: str
    token: str = ""
    certificate: str = ""
    """The certificate that the service has on this machine: it need not be known to the system."""

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Returns the answer, or raises the error in it."""
        with closing(self._connection(_SECONDS)) as connection:
            answer = self._sent(connection, method, path, body)
            return self._read(answer)

    def events(self, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yields the events of a stream, until the service ends."""
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
                return

    def task(self, name: str, rest: str = "") -> str:
        """Returns the path of a task."""
        return f"/api/tasks/{quote(name, safe='')}{rest}"

    def _connection(self, seconds: float) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        host, port = parts.hostname or "", parts.port
        if parts.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=seconds)
        context = ssl.create_default_context()
        if self.certificate:
            context.load_verify_locations(self.certificate)
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
        except (OSError, http.client.HTTPException) as error:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise PidtsError(
                "service-absent",
                f"no service answers at {self.url}: {why}",
                todo="Start it: pidts serve. Another one is named with --state DIR or --service URL",
            ) from None

    def _read(self, answer: http.client.HTTPResponse) -> dict[str, Any]:
        try:
            value = json.loads(answer.read())
        except (ValueError, OSError, http.client.HTTPException):
            value = None
        if not isinstance(value, dict):
            raise PidtsError(
                "service-absent", f"what answers at {self.url} is no service of PiDTS", todo="Look at --service"
            )
        if answer.status < http.client.BAD_REQUEST:
            return value
        error: dict[str, Any] = {"code": "service-absent"} | dict(value.get("error", {}))
        if answer.status == http.client.BAD_REQUEST:
            raise WrongOrder(error["code"], error)
        raise ServiceError(error["code"], error)


def service_client(state: Path | None, url: str, token_file: Path | None) -> ServiceClient:
    """Returns the client of the service that is named, or of the one that uses a state folder."""
    token = read_token(token_file) if token_file is not None else ""
    if url:
        if urlsplit(url).scheme not in {"http", "https"} or not urlsplit(url).hostname:
            raise ConfigError("usage", f"{url!r} is not an address", todo="Write --service http://127.0.0.1:8390")
        return ServiceClient(url.rstrip("/"), token)
    folder = StateFolder((state or usual_state_folder()).absolute())
    found = read_json(folder.service)
    if found is None:
        raise PidtsError(
            "service-absent",
            f"no service uses the state folder {folder.path}",
            todo="Start one: pidts serve. Another one is named with --state DIR or --service URL",
        )
    if not token and found.get("token_file") and os.access(str(found["token_file"]), os.R_OK):
        token = read_token(Path(str(found["token_file"])))
    return ServiceClient(str(found.get("url", "")), token, str(found.get("certificate", "")))
