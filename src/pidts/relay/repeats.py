"""Says up to where a stretch of the relay may repeat what an earlier stretch has, behind a failover without GTIDs.

The replicator adds a line before it writes the first event of the stretch, so no reader applies such an event before it
can know this. The line of a stretch may be written again after a crash: each of them holds.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from pidts.model import Lsn
from pidts.relay.permissions import private_opener

_FILE = "repeats"
_LAST_INDEX, _LAST_BYTE = 2**32 - 1, 10**12 - 1


def whole_stretch(change_no: int) -> Lsn:
    """Returns a place that is after all log of one server, up to its next replacement."""
    return Lsn(change_no, _LAST_INDEX, _LAST_BYTE)


def add_repeats(folder: Path, until: Lsn) -> None:
    """Records that the stretch of this place may repeat earlier changes up to there."""
    with open(folder / _FILE, "a", encoding="utf-8", opener=private_opener) as file:
        file.write(f"{until}\n")


def repeated_until(folder: Path) -> Lsn | None:
    """Returns the last place up to which changes may be repeated; None if none can."""
    found = []
    with suppress(OSError):
        for line in (folder / _FILE).read_text("utf-8").splitlines():
            with suppress(ValueError):  # of a line that a crash has cut
                found.append(Lsn.parse(line))
    return max(found, default=None)
