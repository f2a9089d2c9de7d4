"""The goal of a part in a run that ends by itself, and the proof that this Lsn is in the log of the relay.

The proof prevents the following case. A source is restored to an older state, or its log is reset. The end of its log
is now before the target's checkpoint. So the task seems to have applied everything, until the replicator connects and
finds another log. If the run ended before the replicator connects, it would report the target as synced although it is
not.

The order of events:

1. The attempt reads the target's checkpoint, starts the replicator and waits until the relay reaches the checkpoint.
2. The attempt reads the end of the source's log and compares the source's log with the relay (`end_of_same_log`). The
   end is the goal only if that comparison succeeds. The attempt proves this by itself, however slow the replicator is.
3. Batches are applied. The replicator watches for a reset while it reads.
4. When the target reaches the goal, the attempt compares the log with the relay again: the source may have gone back
   since step 2. The part counts as arrived only after this comparison.
5. A part that waits for other parts compares again whenever its last comparison is too old.

If the source went back, the comparison raises `source-went-back`, as the replicator does. If another server answers,
the part has no goal until the replicator has begun to read that server's log. A goal in the old server's log is
dropped.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing

from pidts.follow.client import RelayClient
from pidts.model import Lsn
from pidts.relay import RelayReader
from pidts.replicate import end_of_same_log
from pidts.task.config.task_file import TaskConfig

_BELIEVED_SECONDS = 2.0


def end_of_log(config: TaskConfig, relay: RelayReader) -> Lsn | None:
    """Returns the end of the source's log; None if the source does not have the relay's log.

    If a relay server receives the log, this function asks it, since only the relay server's account may read the
    source's log.
    """
    if config.relay_from is None:
        return end_of_same_log(config.source.server, relay)
    with closing(RelayClient(config.relay_from.address, config.source.source_id)) as client:
        return client.end()


class ProvenGoal:
    """The goal of one part; it outlives the part's attempts."""

    def __init__(self, end: Callable[[RelayReader], Lsn | None]) -> None:
        """`end` returns the end of the source's log, or None if the relay has another log (`end_of_log`)."""
        self._end = end
        self._proven_at = float("-inf")
        self.lsn: Lsn | None = None
        """The goal; None until it is taken."""

    def take(self, relay: RelayReader) -> bool:
        """Takes the end of the source's log as goal, unless the part already has a goal in this log.

        Returns False if there is no goal yet.
        """
        if self.lsn is None or self.is_outdated(relay):
            self.lsn = self._end(relay)
        return self.lsn is not None

    def is_outdated(self, relay: RelayReader) -> bool:
        """Returns whether the goal is in the log of a server that another server has replaced."""
        origin = relay.origin
        return self.lsn is not None and origin is not None and origin.change_no != self.lsn.change_no

    def is_proven(self, relay: RelayReader) -> bool:
        """Returns whether the source's log is still the log of the goal.

        The method is called when the target has reached the goal.
        """
        if self.lsn is None or self.is_outdated(relay):
            return False
        if time.monotonic() - self._proven_at > _BELIEVED_SECONDS:
            end = self._end(relay)
            if end is None or end < self.lsn:
                return False
            self._proven_at = time.monotonic()
        return True


_SETTLED_SECONDS = 1.0
"""If a part can continue, it shows progress within this time."""


class RunCompletion:
    """Decides when a run that ends by itself is over: when all its parts are at their goals at the same time.

    A part at its goal continues to run until all parts are at their goals. For example, two sources have one schema
    change each, and each change waits for the other. The first part waits at its change and has applied everything
    else. If the first part ended now, the second part would wait for it for ever. So the first part stays until the
    change is made, and then continues: a part at its goal may have to apply more. So each part is checked again after
    the last one has arrived, and after any event for which a part may have waited.
    """

    def __init__(self, parts: int, moves: Callable[[], int] = lambda: 0) -> None:
        """`moves` returns the number of events so far. Each event may let a waiting part continue."""
        self._parts, self._moves = parts, moves
        self._moved = moves()
        self._since: dict[str, float] = {}
        """The time since which each part has been at its goal without interruption."""
        self._seen: dict[str, float] = {}
        """The time at which each part was last found at its goal."""
        self._over = False
        self._lock = threading.Lock()

    @property
    def is_over(self) -> bool:
        """Whether the run is over; it stays over."""
        return self._over

    def found(self, part: str, *, arrived: bool) -> bool:
        """Records whether a part is at its goal now. Returns whether the run is over."""
        now = time.monotonic()
        with self._lock:
            moved = self._moves()
            if moved != self._moved:
                self._moved = moved
                self._since.clear()
            if arrived:
                self._since.setdefault(part, now)
                self._seen[part] = now
            else:
                self._since.pop(part, None)
            if len(self._since) == self._parts:
                settling = _SETTLED_SECONDS if self._parts > 1 else 0.0
                last = max(self._since.values()) + settling
                self._over = self._over or min(self._seen[each] for each in self._since) >= last
            return self._over
