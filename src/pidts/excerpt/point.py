"""A place in the log as a user names it: an Lsn, a position, a GTID or a set of them, a time."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from pidts.model import GtidSet, Lsn, MySqlGtid, Position, parse_gtid_set

Point = Lsn | Position | GtidSet | MySqlGtid | datetime

POINT_FORMS = (
    "an Lsn, a position such as bin.000042:1337, a GTID or a GTID set, a time such as 2024-05-01T08:00:00Z, "
    "or how long ago: -1h30m"
)
"""The forms of a point that users may write, for messages."""
_LSN = re.compile(r"\d{4}\.\d+\.\d+\.\d+", re.ASCII)
_POSITION = re.compile(r"[^,]+\.\d+:\d+", re.ASCII)
_TIME = re.compile(r"\d{4}-\d\d-\d\d(?:[T ].*)?", re.ASCII)
_AGO = re.compile(r"-(?=.)(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", re.ASCII)
_ONE_GTID = re.compile(r"\s*[0-9a-fA-F-]{36}:(?:\w+:)?\d+\s*", re.ASCII)


def parse_point(text: str) -> Point:
    """Parses a point in any of its forms, else ValueError.

    A time without a zone is UTC, and a date alone is its first second.
    """
    if _LSN.fullmatch(text):
        return Lsn.parse(text)
    if _TIME.fullmatch(text):
        time = datetime.fromisoformat(text)
        return time if time.tzinfo else time.replace(tzinfo=UTC)
    if _POSITION.fullmatch(text):
        return Position.parse(text)
    if ago := _AGO.fullmatch(text):
        names = ("weeks", "days", "hours", "minutes", "seconds")
        past = {name: int(number or 0) for name, number in zip(names, ago.groups(), strict=True)}
        try:
            return datetime.now(UTC) - timedelta(**past)
        except OverflowError as error:
            raise ValueError(str(error)) from None
    if _ONE_GTID.fullmatch(text):
        return MySqlGtid.parse(text)
    return parse_gtid_set(text)
