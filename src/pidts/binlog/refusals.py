"""Makes the errors for events that prevent reading further in the log."""

from __future__ import annotations

from dataclasses import replace

from pidts.binlog.events import Event, type_name
from pidts.model.advice import RESYNC, START_ANEW
from pidts.model.errors import DecodeError, Halted, PidtsError, Where
from pidts.model.table import TableName


def incident(event: Event) -> Halted:
    """Returns the error for an INCIDENT event, by which the source itself reports that its log lacks events."""
    number = int.from_bytes(event.body[:2], "little")
    message = bytes(event.body[3:]).decode("utf-8", "replace")
    return Halted(
        "incident",
        f"the source reports that its log has lost events (incident {number}: {message})",
        todo=f"The log does not show which changes it lacks: {START_ANEW}",
    )


def unknown_event(event: Event) -> DecodeError:
    """Returns the error for an unknown type of event, which may change data."""
    return DecodeError(
        "unknown-event",
        f"the log contains an event of {type_name(event.type)}, which this version does not understand",
        todo=f"Use a newer version of PiDTS. Or switch off the server feature that writes this event, and {START_ANEW}",
    )


def event_group_too_large(name: TableName) -> Halted:
    """Returns the error for a prepared XA transaction that has more rows than can be numbered."""
    return Halted(
        "rows-too-large",
        "an XA transaction has more than 4 GiB of changes",
        where=Where(table=str(name)),
        todo=f"Make XA transactions on the source smaller, and copy the table again: {RESYNC}",
    )


def located(error: PidtsError, position: str) -> PidtsError:
    """Returns the error with this position in the log; the same error if it already has a position."""
    if error.where.position:
        return error
    return type(error)(error.code, error.what, where=replace(error.where, position=position), todo=error.todo)
