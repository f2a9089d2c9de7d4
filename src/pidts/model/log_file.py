"""A file of a source's log, and what distinguishes it from another file of the same name."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from datetime import UTC, datetime

_CREATED = struct.Struct("<IxI")
"""The time and the server id at the beginning of an event."""


@dataclass(frozen=True, slots=True)
class LogFile:
    """A log file, as its first event describes it.

    If a server was reset (RESET MASTER) or restored, it makes files of the same names anew, at another time.
    """

    name: str
    created: int
    """The second in which the server created the file, since 1970 UTC."""
    server_id: int
    server: str
    """The identity of the server from which the file was read."""

    @classmethod
    def of_head(cls, name: str, head: bytes, server: str) -> LogFile:
        """Returns the file that begins with this FORMAT_DESCRIPTION event."""
        return cls(name, *creation(head), server)

    def is_another(self, there: LogFile) -> bool:
        """Whether `there` is another file of the same name."""
        return self.name == there.name and (self.created, self.server_id) != (there.created, there.server_id)

    def is_made_anew(self, there: LogFile) -> bool:
        """Whether the same server has made this file anew, so that it was reset or restored."""
        return self.server == there.server and self.is_another(there)

    def dumps(self) -> str:
        """Returns the file as JSON."""
        return json.dumps([self.name, self.created, self.server_id, self.server])

    @classmethod
    def load(cls, values: object) -> LogFile:
        """The inverse of `dumps`, after the JSON was parsed."""
        match values:
            case [str() as name, int() as created, int() as server_id, str() as server]:
                return cls(name, created, server_id, server)
        raise ValueError(f"not a log file: {values}")

    def __str__(self) -> str:
        """Returns the name and the time of creation."""
        return f"{self.name} (created {datetime.fromtimestamp(self.created, UTC):%Y-%m-%d %H:%M:%S} UTC)"


@dataclass(frozen=True, slots=True)
class LogPlace:
    """A place in a source's log, as the server describes it."""

    position: str = ""
    """The log file and a byte in it: `bin.000001:42`; empty if it is not known."""
    log_file: LogFile | None = None
    """The log file that contains the last byte before the position; None if it is not known."""


def creation(head: bytes) -> tuple[int, int]:
    """Returns the second in which a log file was created, and the server's id then, from the file's first event."""
    created, server_id = _CREATED.unpack_from(head)
    return created, server_id
