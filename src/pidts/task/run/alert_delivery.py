"""Gives an alert to a program or to an address, beside the run: a slow receiver delays nothing."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any
from urllib.error import URLError
from urllib.request import Request, build_opener

import structlog

from pidts.task.config.alerts import AlertReceiver

_SECONDS = 30.0
_CLOSE_SECONDS = 5.0
"""The time that the end of a run has for an alert."""
_LAST = 400

_log = structlog.get_logger(__name__)


class Delivery:
    """Alerts under way, one after the other; one that fails is logged and not tried again."""

    def __init__(self) -> None:
        self._alerts: queue.SimpleQueue[tuple[AlertReceiver, Mapping[str, Any]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def send(self, to: AlertReceiver, alert: Mapping[str, Any]) -> None:
        """Takes an alert, and returns at once."""
        self._alerts.put((to, alert))
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="alerts", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Waits a moment for alerts that are under way."""
        if self._thread is not None:
            self._alerts.put(None)
            self._thread.join(_CLOSE_SECONDS)
            self._thread = None

    def _work(self) -> None:
        while (found := self._alerts.get()) is not None:
            _deliver(*found)


def _deliver(to: AlertReceiver, alert: Mapping[str, Any]) -> None:
    body = json.dumps(alert, ensure_ascii=False).encode()
    try:
        problem = _started(to.command, body) if to.command else _posted(to.webhook, body)
    except (OSError, ValueError, HTTPException, subprocess.SubprocessError) as error:
        problem = f"{type(error).__name__}: {_reason(error)}"
    if problem:
        _log.warning("an alert was not delivered", to=str(to), problem=problem, alert=body.decode())
    else:
        _log.info("an alert was delivered", to=str(to), rows=alert.get("rows"))


def _started(command: tuple[str, ...], body: bytes) -> str:
    """Runs the program with the alert as its input; returns what went wrong."""
    done = subprocess.run(
        command, input=body, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=_SECONDS, check=False
    )
    if not done.returncode:
        return ""
    return f"exit code {done.returncode}: {done.stderr.decode(errors='replace').strip()[-_LAST:]}"


def _posted(address: str, body: bytes) -> str:
    """Posts the alert; returns what went wrong. An address may hold a secret, so no message has it."""
    request = Request(address, data=body, headers={"Content-Type": "application/json"}, method="POST")  # noqa: S310
    try:
        with build_opener().open(request, timeout=_SECONDS) as answer:
            answer.read(_LAST)
    except URLError as error:
        return _reason(error)
    return ""


def _reason(error: Exception) -> str:
    if isinstance(error, URLError):
        return f"status {error.code}" if hasattr(error, "code") else str(error.reason)
    return error.strerror or "" if isinstance(error, OSError) else type(error).__name__
