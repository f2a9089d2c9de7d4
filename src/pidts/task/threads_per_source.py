"""Runs one function for each source of a task, in separate threads. If one fails, all others are told to end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace

import structlog
from structlog.contextvars import bound_contextvars

from pidts.model import PidtsError

_log = structlog.get_logger(__name__)

_LOOK_SECONDS = 0.1


def side_by_side(works: Mapping[str, Callable[[threading.Event], None]], stop: threading.Event) -> None:
    """Runs all functions until they have ended; raises the first error, with the source of its function.

    Each function gets an event that asks it to end. The event is set when `stop` is set, or when a function fails.
    """
    if len(works) == 1:
        for source, work in works.items():
            with bound_contextvars(source=source):
                work(stop)
        return
    ended = threading.Event()
    failures: list[tuple[str, BaseException]] = []

    def body(source: str, work: Callable[[threading.Event], None]) -> None:
        try:
            with bound_contextvars(source=source):
                work(ended)
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
            failures.append((source, error))
            ended.set()

    threads = [
        threading.Thread(target=body, args=(source, work), name=f"source {source}", daemon=True)
        for source, work in works.items()
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads) and not ended.is_set():
        if stop.wait(_LOOK_SECONDS):
            ended.set()
    for thread in threads:
        thread.join()
    for source, error in failures[1:]:
        _log.error("another source has failed, too", source=source, error=str(error))
    if failures:
        source, error = failures[0]
        if isinstance(error, PidtsError) and not error.where.source:
            error.where = replace(error.where, source=source)
        raise error
