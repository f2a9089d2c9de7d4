"""Records, after a failover without GTIDs, how far a part of the relay may repeat changes of an earlier part.

The replicator adds a line to a file before it writes the first event of the new part. So every reader of this part
knows that its events may be repetitions. After a crash, the line may be written a second time: both lines are valid.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from pidts.model import Lsn
from pidts.relay.permissions import private_opener

_FILE = "repeats"
_LAST_INDEX, _LAST_BYTE = 2**32 - 1, 10**12 - 1


def after_whole_log(change_no: int) -> Lsn:
    """Returns a place after the whole log of one server: the source after it was replaced `change_no` times."""
    return Lsn(change_no, _LAST_INDEX, _LAST_BYTE)


def add_repeats(folder: Path, until: Lsn) -> None:
    """Records that the new part of the relay may repeat earlier changes up to `until`."""
    with open(folder / _FILE, "a", encoding="utf-8", opener=private_opener) as file:
        file.write(f"{until}\n")


def repeated_until(folder: Path) -> Lsn | None:
    """Returns the last of the recorded places; None if no change in the relay can be a repetition."""
    found = []
    with suppress(OSError):
        for line in (folder / _FILE).read_text("utf-8").splitlines():
            with suppress(ValueError):  # a crash may have cut off a line
                found.append(Lsn.parse(line))
    return max(found, default=None)
