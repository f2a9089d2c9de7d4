"""Decides where a new relay begins."""

from __future__ import annotations

import threading
from contextlib import closing, suppress

from pidts.model import Position
from pidts.plan.continuity import Discontinuity
from pidts.relay import RelayReader
from pidts.source import Session
from pidts.source.prepared_xa import begin_with_prepared
from pidts.task.config.task_file import TaskConfig
from pidts.task.run.read_structures import StartStopped


def begin_of_relay(config: TaskConfig, source: Session, place: Position, stop: threading.Event) -> Position:
    """Returns where a new relay begins that has all rows of a task which begins at `place` or later.

    A relay server chooses the beginning of its relay, so for its followers it is always `place`.
    """
    if config.relay_from is not None:
        return place
    begin = begin_with_prepared(config.source.server, source, place, stop)
    if stop.is_set():
        raise StartStopped
    return begin


def is_relay_empty(config: TaskConfig) -> bool:
    """Whether a relay has to begin. A damaged relay has begun: its replicator reports the damage."""
    with suppress(Discontinuity), closing(RelayReader(config.relay, config.source.source_id)) as relay:
        return relay.first is None
    return False
