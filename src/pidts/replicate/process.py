"""Runs a replicator as its own process, until a signal ends it."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from threading import Event as StopEvent
from threading import Thread
from types import FrameType

from pidts.model import PidtsError
from pidts.replicate.replicator import Replicator, ReplicatorConfig


def run_process(config: ReplicatorConfig) -> int:
    """Follows the source until SIGTERM or SIGINT, and returns the exit code. An error is printed as JSON.

    Call it in the main thread of a new process:
    `multiprocessing.get_context("spawn").Process(target=..., args=(config,))`.
    """
    return run_receiver(Replicator(config).run)


def run_receiver(receive: Callable[[StopEvent], None]) -> int:
    """Calls `receive`, and stops it at SIGTERM or SIGINT; returns the exit code, as `run_process` does."""
    stop = StopEvent()
    errors: list[BaseException] = []

    def follow() -> None:
        try:
            receive(stop)
        except BaseException as error:  # noqa: BLE001 - raised again in the main thread
            errors.append(error)

    def end(_signal: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    # The signal handler runs in the main thread and calls `stop.set`. If it interrupted a `stop.wait` of the main
    # thread, it could wait for ever for the lock of `stop`. So `receive`, which calls `stop.wait`, has another thread.
    thread = Thread(target=follow, name="replicator", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.2)
    if not errors:
        return 0
    error = errors[0]
    if isinstance(error, PidtsError):
        print(json.dumps(error.to_json()), flush=True)  # noqa: T201 - for the parent, who reads our stdout
        return error.exit_code
    raise error
