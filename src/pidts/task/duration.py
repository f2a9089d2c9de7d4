"""Lengths of time as people write them: `90s`, `30m`, `12h`, `7d`."""

from __future__ import annotations

import re

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_PART = re.compile(r"(\d+)([smhd])", re.ASCII)
_LONGEST = 10 * 366 * 86400


def parse_duration(text: str) -> int:
    """Seconds, of one or more numbers with their units; a bare 0 needs none. ValueError for anything else."""
    if text == "0":
        return 0
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text!r} is no length of time; write 90s, 30m, 12h or 7d")
    seconds = sum(int(number) * _SECONDS[unit] for number, unit in parts)
    if seconds > _LONGEST:
        raise ValueError(f"{text!r} is longer than ten years")
    return seconds
