"""Server-sent events about changes of the overview, and about changes of one task and its log."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from pidts.service.supervisor import Supervisor
from pidts.service.task_log import CHANGES, LogTail, schema_change, schema_changes
from pidts.web.refusals import Refusal

MOST_STREAMS: Final = 50
_TASK_SECONDS, _OVERVIEW_SECONDS, _ALIVE_SECONDS = 0.5, 1.0, 15.0


class Streams:
    """The open streams. Their number is limited, and all of them end when the service ends."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._open = 0
        self.over = asyncio.Event()

    def of_task(self, name: str) -> StreamingResponse:
        """Returns the events of one task."""
        self._supervisor.folder(name)  # raises if there is no such task
        return self._stream(self._task_events(name))

    def of_all(self) -> StreamingResponse:
        """Returns the events of the overview."""
        return self._stream(self._overview_events())

    def _stream(self, events: AsyncIterator[str]) -> StreamingResponse:
        if self.over.is_set():
            raise Refusal("service-ends", 503, "the service is ending")
        if self._open >= MOST_STREAMS:
            raise Refusal("too-many-streams", 429, f"{MOST_STREAMS} streams of events are open", "Close some of them")

        async def counted() -> AsyncIterator[str]:
            with self._counted():
                async for event in events:
                    yield event

        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(counted(), media_type="text/event-stream", headers=headers)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1

    async def _overview_events(self) -> AsyncIterator[str]:
        seen, said = -1, 0.0
        while not self.over.is_set():
            changes, now = self._supervisor.changes, time.monotonic()
            if changes != seen:
                seen, said = changes, now
                yield _event("tasks", {"tasks": await run_in_threadpool(self._supervisor.summaries)})
            elif now - said >= _ALIVE_SECONDS:
                said = now
                yield ": keep-alive\n\n"
            await self._wait(_OVERVIEW_SECONDS)

    async def _task_events(self, name: str) -> AsyncIterator[str]:
        seen, said = -1, time.monotonic()
        log = self._supervisor.folder(name).log
        tail, changes = LogTail(log), await run_in_threadpool(schema_changes, log)
        while not self.over.is_set():
            found = await run_in_threadpool(self._supervisor.seen, name)
            if found is None:
                yield _event("removed", {"name": name})
                return
            now = time.monotonic()
            version, task = found
            if version != seen:
                seen, said = version, now
                yield _event("task", task | {"changes": changes})
            for line in await run_in_threadpool(tail.new_lines):
                said = now
                yield _event("log", line)
                if change := schema_change(line):
                    changes, seen = [change, *changes][:CHANGES], -1
            if now - said >= _ALIVE_SECONDS:
                said = now
                yield ": keep-alive\n\n"
            await self._wait(_TASK_SECONDS)

    async def _wait(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self.over.wait(), seconds)
        except TimeoutError:
            return


def _event(kind: str, value: dict[str, Any]) -> str:
    # This JSON has no line ends, so one `data` line is enough.
    return f"event: {kind}\ndata: {json.dumps(value, ensure_ascii=False)}\n\n"
