"""Reads the block `pidts.alerts`: the receiver of alerts, and the lag that causes one."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from pidts.task.config.duration import parse_duration
from pidts.task.config.section import Section


@dataclass(frozen=True, slots=True)
class AlertReceiver:
    """A program to start, or an address to which alerts are posted; one of the two is empty."""

    command: tuple[str, ...] = field(default=(), repr=False)
    """The program and its arguments, which may contain secrets."""
    webhook: str = field(default="", repr=False)
    """The address for alerts, which may contain a secret."""
    lag: float | None = None
    """The lag in seconds that causes an alert; None: no alert for lag."""

    def __str__(self) -> str:
        return self.command[0] if self.command else urlsplit(self.webhook).hostname or "webhook"


def read_alerts(section: Section) -> AlertReceiver | None:
    """Reads the block; None if it names no receiver."""
    command, webhook = section.text("command", ""), section.text("webhook", "")
    lag = _lag(section)
    section.finish()
    if command and webhook:
        raise section.error("webhook", "not-supported", "only one of command and webhook can be given", "Remove one.")
    if command:
        try:
            words = tuple(shlex.split(command))
        except ValueError as error:
            raise section.error("command", "bad-value", f"not a command: {error}") from None
        return AlertReceiver(command=words, lag=lag) if words else None
    if not webhook:
        return None
    try:
        address = urlsplit(webhook)
        usable = address.scheme in ("http", "https") and bool(address.hostname)
    except ValueError:
        usable = False
    if not usable:
        raise section.error("webhook", "bad-value", "not an address that begins with http:// or https://")
    return AlertReceiver(webhook=webhook, lag=lag)


def _lag(section: Section) -> float | None:
    text = section.text("lag", "")
    if not text:
        return None
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise section.error("lag", "bad-value", str(error)) from None
    if not seconds:
        raise section.error("lag", "bad-value", "expected a time longer than 0")
    return float(seconds)
