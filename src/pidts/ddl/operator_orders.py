"""Reads the ddl commands for one schema change. The thread that makes the change uses this."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

import structlog

from pidts.batch.context import JobContext
from pidts.model import DdlOrder, Lsn, Transient

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Orders:
    """Reads the ddl commands from the target, which may be unreachable for a while."""

    context: JobContext
    lsn: Lsn
    pause: Callable[[float], None]
    """Sleeps; raises if the run has ended."""
    seconds: float
    """The seconds between two attempts to read a ddl command."""

    def read(self) -> DdlOrder | None:
        """Returns the ddl command that is in force; retries until it can be read."""
        while True:
            try:
                return self._read()
            except Transient as error:
                _log.warning("ddl commands cannot be read", at=str(self.lsn), error=str(error))
                self.pause(self.seconds)

    def is_newer(self, tried: DdlOrder | None) -> bool:
        """Whether another ddl command was given after `tried`; retries until this can be read."""
        order = self.read()
        if order is None or not _is_newer(order, tried):
            return False
        _log.info("an operator has decided about a schema change", at=str(self.lsn), order=order.kind.value)
        return True

    def is_superseded(self, tried: DdlOrder | None) -> bool:
        """Whether a newer ddl command than `tried` can be read now; False if the target does not answer."""
        try:
            order = self._read()
        except Transient:
            return False
        return order is not None and _is_newer(order, tried)

    def _read(self) -> DdlOrder | None:
        context = self.context
        with closing(context.target.connect()) as session:
            return session.meta.orders.find(context.task, context.source.source_id, self.lsn)


def _is_newer(order: DdlOrder, tried: DdlOrder | None) -> bool:
    return order.number > (tried.number if tried is not None else 0) and not order.taken
