"""The time at which the source ran a statement. In a new column with the current time, existing rows get this time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pidts.model import Column, Kind
from pidts.schema.literals import CurrentTime, parse_default

_SECOND = 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class StatementTime:
    """The source's clock when a statement began, as far as the log shows it. All rows get the same time."""

    seconds: int = 0
    """Seconds since 1970; 0: the time is not known."""
    micros: int | None = None
    """The microseconds of the second; None: the log does not show them."""
    is_in_utc: bool = True
    """Whether the session's time zone was UTC. A DATETIME column stores the time in the session's time zone."""

    def filling(self, column: Column) -> int | None:
        """Returns the time that existing rows get in the new column `column`, in microseconds since 1970.

        None if the column's default is not the current time, if the column stores it in another form, or if the log
        does not show the time with all digits that the column stores.
        """
        default, kind = parse_default(column.default), column.type
        is_moment = kind.kind is Kind.TIMESTAMP or (kind.kind is Kind.DATETIME and self.is_in_utc)
        if not isinstance(default, CurrentTime) or not is_moment or not self.seconds:
            return None
        unit = 10 ** (6 - min(default.fsp, kind.fsp))
        if unit == _SECOND:
            return self.seconds * _SECOND
        return None if self.micros is None else self.seconds * _SECOND + self.micros // unit * unit


UNKNOWN_TIME = StatementTime()


def moment_text(micros: int) -> str:
    """Returns a time in UTC, given in microseconds since 1970, as servers read it."""
    return (_EPOCH + timedelta(microseconds=micros)).replace(tzinfo=None).isoformat(" ")
