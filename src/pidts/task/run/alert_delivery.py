"""Delivers an alert to a program or to an address."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any
from urllib.error import URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

import structlog

from pidts.task.config.alerts import AlertReceiver

_SECONDS = 30.0
_LAST = 400

_log = structlog.get_logger(__name__)


def deliver(to: AlertReceiver, alert: Mapping[str, Any]) -> str:
    """Delivers an alert. Returns the problem, without the address, which may be secret; empty if it was delivered."""
    body = json.dumps(alert, ensure_ascii=False).encode()
    try:
        problem = _started(to.command, body) if to.command else _posted(to.webhook, body)
    except (OSError, ValueError, HTTPException, subprocess.SubprocessError) as error:
        problem = f"{type(error).__name__}: {_reason(error)}"
    if not problem:
        _log.info("an alert was delivered", to=str(to), alert=alert.get("event"), state=alert.get("state"))
    return problem


def _started(command: tuple[str, ...], body: bytes) -> str:
    done = subprocess.run(
        command, input=body, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=_SECONDS, check=False
    )
    if not done.returncode:
        return ""
    return f"exit code {done.returncode}: {done.stderr.decode(errors='replace').strip()[-_LAST:]}"


class _NoRedirect(HTTPRedirectHandler):
    """Treats a redirect as an error, since the redirected request would not contain the alert."""

    def redirect_request(self, *_: object) -> None:
        """Returns no request."""


def _posted(address: str, body: bytes) -> str:
    request = Request(address, data=body, headers={"Content-Type": "application/json"}, method="POST")  # noqa: S310
    try:
        with build_opener(_NoRedirect).open(request, timeout=_SECONDS) as answer:
            answer.read(_LAST)
    except URLError as error:
        return _reason(error)
    return ""


def _reason(error: Exception) -> str:
    if isinstance(error, URLError):
        return f"status {error.code}" if hasattr(error, "code") else str(error.reason)
    return error.strerror or "" if isinstance(error, OSError) else type(error).__name__
