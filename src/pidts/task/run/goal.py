"""The goal of a part: the Lsn at which the part is done, in a run that ends by itself.

The source's log must contain the goal, and the relay must have the same log. The proof of both prevents a wrong report.
Suppose that a source is restored to an older state, or that its log is reset. The end of its log is now before the
target's checkpoint. So the task seems to have applied everything, until the replicator connects and finds another log.
If the run ended before that, it would report the target as synced although it is not.

The order of events:

1. The attempt reads the target's checkpoint, starts the replicator and waits until the relay reaches the checkpoint.
2. The attempt reads the end of the source's log and compares the source's log with the relay (`end_of_same_log`). The
   end is the goal only if that comparison succeeds. The attempt compares by itself, and does not wait for the
   replicator to do so.
3. Batches are applied. The replicator watches for a reset while it reads.
4. When the target reaches the goal, the attempt compares the log with the relay again: the source may have gone back
   since step 2. The part counts as arrived only after this comparison.
5. A part that waits for other parts compares again whenever its last comparison is too old.

If the source went back, the comparison raises `source-went-back`, as the replicator does. If another server answers, a
goal in the old server's log is dropped. The part gets a new goal when the replicator has begun to read the new server's
log.
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

    If a relay server receives the log, this function asks that server: only its account may read the source's log.
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
        """Takes the end of the source's log as goal, unless the part has a goal in this log. False: no goal yet."""
        if self.lsn is None or self.is_outdated(relay):
            self.lsn = self._end(relay)
        return self.lsn is not None

    def is_outdated(self, relay: RelayReader) -> bool:
        """Returns whether the goal is in the log of a server that another server has replaced."""
        origin = relay.origin
        return self.lsn is not None and origin is not None and origin.change_no != self.lsn.change_no

    def is_proven(self, relay: RelayReader) -> bool:
        """Returns whether the source's log is still the log of the goal. Call it when the target has reached the goal.

        A positive answer is used again for `_BELIEVED_SECONDS`.
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
"""A part that can continue shows progress within this time."""


class RunCompletion:
    """Decides when a run that ends by itself is over: when all its parts are at their goals at the same time.

    A part at its goal continues to run until all parts are at their goals. For example, two sources have one schema
    change each, and each change waits for the other:

    1. The first part waits at its change, and has applied everything else: it is at its goal.
    2. The second part arrives at its change. If the first part had ended, the second would wait for it for ever.
    3. The change is run, and the first part has more to apply: it is no longer at its goal.

    So each part is checked again after the last part has arrived, and after any event for which a part may have waited.
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
