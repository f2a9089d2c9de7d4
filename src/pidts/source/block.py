"""What a dump brings at a time: many events, or a piece of a very long one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


class Shape(Enum):
    """What a block holds."""

    EVENTS = auto()
    """Whole events back to back; none where only heartbeats came."""
    ODD = auto()
    """One packet that is not an event as it should be, without its head."""
    PIECE = auto()
    """The next piece of a long event; the first one holds its header."""
    LAST_PIECE = auto()


@dataclass(frozen=True, slots=True)
class Block:
    """What came; `data` is valid until the next reading."""

    shape: Shape
    data: memoryview
    events: int = 0
