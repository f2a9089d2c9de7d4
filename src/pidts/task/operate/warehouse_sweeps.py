"""Removes unneeded files from a warehouse while a task runs."""

from __future__ import annotations

import threading
from contextlib import closing

import structlog

from pidts.model import PidtsError
from pidts.target.iceberg.connection import CatalogConnection
from pidts.task.config.task_file import TaskConfig

_log = structlog.get_logger(__name__)

_FIRST_SECONDS = 60.0
_PAUSE_SECONDS = 6 * 3600.0


class WarehouseSweeps:
    """Removes unneeded files soon after the start and every few hours, in a separate thread, until it is closed."""

    def __init__(self, config: TaskConfig) -> None:
        self._config = config
        self._closed = threading.Event()
        if config.target.warehouse:
            threading.Thread(target=self._run, name="sweep", daemon=True).start()

    def close(self) -> None:
        """Ends the thread without waiting for a sweep. A sweep may be interrupted at any point."""
        self._closed.set()

    def _run(self) -> None:
        from pidts.target.iceberg.sweep import sweep  # loads pyiceberg, which other targets do not need

        pause = _FIRST_SECONDS
        while not self._closed.wait(pause):
            pause = _PAUSE_SECONDS
            try:
                with closing(self._config.target.server.connect()) as session:
                    assert isinstance(session, CatalogConnection)  # noqa: S101 - that is its type
                    if removed := sweep(session):
                        _log.info("files that nobody needs were removed from the warehouse", files=removed)
            except (PidtsError, OSError) as error:
                _log.warning("unneeded files of the warehouse are removed later", cause=str(error))
