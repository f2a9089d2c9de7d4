"""The states of the directions between zones, each read from its own target."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import Any

from pidts.apply import TargetSession
from pidts.model import Halted, Lsn, PidtsError
from pidts.model.errors import TARGET_LOST
from pidts.plan import RelevanceKind
from pidts.relay import RelayReader
from pidts.task.config.task_file import TaskConfig
from pidts.task.config.zones_file import Direction
from pidts.task.operate.backlog import task_classifier
from pidts.task.operate.status import TaskStatus, load_status, status_on

_SEARCH_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectionStatus:
    """The state of one direction."""

    direction: Direction
    status: TaskStatus | None
    """The task's status; None if the target does not answer."""
    error: str = ""
    """The reason why the target's records cannot be read."""
    lag: float | None = None
    """The age in seconds of the oldest change that the target lacks; None if it is not known (`lag_after`)."""

    @property
    def stage(self) -> str:
        """The state in a few words. `not receiving`: the task runs, but the replicator on this machine is silent."""
        if self.status is None:
            return "unknown"
        if not self.status.has_begun:
            return "not begun"
        if self.status.is_halted:
            return "halted"
        if locked := self.status.locked_rows:
            return f"{locked} {'row' if locked == 1 else 'rows'} locked"
        if self.status.is_silent:
            return "not receiving" if self.status.is_running else "stopped"
        return "copying" if any(source.copying for source in self.status.sources) else "syncing"

    @property
    def exit_code(self) -> int:
        """5 if the direction needs an operator, 1 if its target's records cannot be read, otherwise 0."""
        if self.status is None:
            return PidtsError.exit_code
        return Halted.exit_code if self.status.needs_operator else 0

    def to_json(self) -> dict[str, Any]:
        """Returns plain values for JSON."""
        return {
            "from": self.direction.source,
            "to": self.direction.target,
            "forwards": list(self.direction.forwards),
            "stage": self.stage,
            "lag": None if self.lag is None else round(self.lag, 3),
            **({"error": self.error} if self.error else {}),
        }


def statuses_into_zone(directions: Sequence[tuple[Direction, TaskConfig]]) -> list[DirectionStatus]:
    """Returns the status of directions into one zone, all read on one session of the zone's server.

    If the session is lost, a new one is opened. If this fails, the remaining directions get the error.
    """
    found: list[DirectionStatus] = []
    with ExitStack() as sessions:
        try:
            target = _connected(sessions, directions[0][1])
            for direction, config in directions:
                one, is_lost = _direction_status(target, direction, config)
                if is_lost:
                    target = _connected(sessions, config)
                    one, _ = _direction_status(target, direction, config)
                found.append(one)
        except PidtsError as error:
            found += [
                DirectionStatus(direction=one, status=None, error=str(error)) for one, _ in directions[len(found) :]
            ]
    return [
        replace(one, lag=lag_after(config, one.status.sources[0].applied_lsn)) if one.status is not None else one
        for one, (_, config) in zip(found, directions, strict=True)
    ]


def _connected(sessions: ExitStack, config: TaskConfig) -> TargetSession:
    sessions.close()
    return sessions.enter_context(closing(config.target.server.connect()))


def _direction_status(target: TargetSession, direction: Direction, config: TaskConfig) -> tuple[DirectionStatus, bool]:
    """Returns the direction's status, with the error if it cannot be read, and whether the session is lost."""
    try:
        return DirectionStatus(direction=direction, status=status_on(target, [config])), False
    except PidtsError as error:
        return DirectionStatus(direction=direction, status=None, error=str(error)), error.code == TARGET_LOST


def lag_after(config: TaskConfig, lsn: Lsn | None, *, seconds: float = _SEARCH_SECONDS) -> float | None:
    """Returns the age in seconds of the first change after `lsn` that the task carries; 0 if there is no such change.

    Returns None if the age is not known: the task has not begun, the relay is on another machine or does not have this
    place, or the search takes longer than `seconds`.
    """
    folder = config.relay / config.source.source_id
    if lsn is None or not folder.is_dir():
        return None
    classifier = task_classifier(config)
    try:
        with closing(RelayReader(config.relay, config.source.source_id)) as relay:
            deadline = time.monotonic() + seconds
            for entry in relay.entries(lsn):
                if time.monotonic() > deadline:
                    return None
                if classifier(entry).kind is not RelevanceKind.NOTHING and entry.transaction.timestamp:
                    return max(0.0, time.time() - entry.transaction.timestamp)
    except PidtsError:
        return None
    return 0.0


def has_copied(config: TaskConfig) -> bool:
    """Whether the target has all rows that the direction copies."""
    with closing(config.target.server.connect()) as target:
        found = load_status(target, [config])
    return found.has_begun and not any(source.copying for source in found.sources)


def exit_code(found: Sequence[DirectionStatus]) -> int:
    """Returns the exit code for several directions."""
    return max((one.exit_code for one in found), default=0)
