"""Parses durations such as `90s`, `30m`, `12h`, `7d`."""

from __future__ import annotations

import re

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_GO_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_GO_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_PART = re.compile(r"(\d+)([smhd])", re.ASCII)
_LONGEST = 10 * 366 * 86400


def parse_duration(text: str) -> int:
    """Returns the seconds of a text such as `1h30m`; 0 needs no unit. Raises ValueError for any other text."""
    if text == "0":
        return 0
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text!r} is not a length of time; write 90s, 30m, 12h or 7d")
    seconds = sum(int(number) * _SECONDS[unit] for number, unit in parts)
    if seconds > _LONGEST:
        raise ValueError(f"{text!r} is longer than ten years")
    return seconds


def parse_go_duration(text: str) -> float:
    """Returns the seconds of a duration in DM's form: `60s`, `1m30s`, `1.5h`, `100ms`; 0 needs no unit."""
    if text == "0":
        return 0.0
    parts = _GO_PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text!r} is not a length of time; write 60s, 1m30s or 1.5h")
    return sum(float(number) * _GO_SECONDS[unit] for number, unit in parts)
