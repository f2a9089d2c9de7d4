"""A server's connection that ends if its first request does not come in time."""

from __future__ import annotations

import asyncio
from typing import Final

from uvicorn.protocols.http.h11_impl import H11Protocol

_FIRST_REQUEST_SECONDS: Final = 15.0


class TimedProtocol(H11Protocol):
    """Closes a connection that has sent no request after some seconds: otherwise it would keep a file descriptor."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begins to wait for a request."""
        super().connection_made(transport)
        self._soon = self.loop.call_later(_FIRST_REQUEST_SECONDS, self._abort_idle)

    def data_received(self, data: bytes) -> None:
        """Handles the received bytes; the complete header of a request ends the waiting."""
        super().data_received(data)
        if self._has_asked:
            self._soon.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the waiting, since the connection has ended."""
        self._soon.cancel()
        super().connection_lost(exc)

    def _abort_idle(self) -> None:
        if not self._has_asked:
            self.transport.abort()

    @property
    def _has_asked(self) -> bool:
        cycle: object = self.cycle
        return cycle is not None
