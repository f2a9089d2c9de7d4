"""A block of a dump: many events, or a piece of a very long one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


class Shape(Enum):
    """The content of a block."""

    EVENTS = auto()
    """Complete events one after the other; none if only heartbeats arrived."""
    ODD = auto()
    """One packet, without its header, that is not a valid event."""
    PIECE = auto()
    """The next piece of a long event; the first one contains its header."""
    LAST_PIECE = auto()


@dataclass(frozen=True, slots=True)
class Block:
    """A block as it arrived; `data` is valid until the next read."""

    shape: Shape
    data: memoryview
    events: int = 0
