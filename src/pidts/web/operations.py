"""The operations of the REST interface, with their parameters and answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from pidts.model import ConfigError
from pidts.service.runs import Runs
from pidts.service.supervisor import Supervisor
from pidts.service.task_log import LEVELS, last_lines, schema_changes
from pidts.web.access import COOKIE, Policy
from pidts.web.metrics_page import metrics_text
from pidts.web.operation import Operation, query_flag, query_number, query_text, read_object
from pidts.web.refusals import Refusal, answer
from pidts.web.streams import Streams

_SUMMARY: Final = {"$ref": "#/components/schemas/Summary"}
_DETAIL: Final = {"$ref": "#/components/schemas/Detail"}
_TEXT: Final = {"type": "string"}
_PATH_BODY: Final = {"type": "object", "required": ["path"], "properties": {"path": _TEXT}}
_START_BODY: Final = {"type": "object", "properties": {"resync": {"type": "array", "items": _TEXT}}}
_NO_BODY: Final = {"type": "object", "properties": {}}
_LOGIN_BODY: Final = {"type": "object", "required": ["token"], "properties": {"token": _TEXT}}
_LIMIT: Final = {"type": "integer", "minimum": 1, "maximum": 1000, "default": 200}
_LEVEL: Final = {"type": "string", "enum": ["", *LEVELS[:4]], "default": ""}
_FLAG: Final = {"type": "boolean", "default": False}


class Tasks:
    """The operations on tasks. Each handler reads a request, calls the supervisor in a thread, and answers."""

    def __init__(self, supervisor: Supervisor, streams: Streams, policy: Policy, runs: Runs) -> None:
        self._supervisor, self._streams, self._policy, self._runs = supervisor, streams, policy, runs

    def operations(self) -> list[Operation]:
        """Returns the operations, in the order in which they are described."""
        one = "/api/tasks/{name}"
        return [
            Operation(
                "GET",
                "/api/tasks",
                "listTasks",
                "All tasks with their stage, lag and rate",
                self.list_tasks,
                {200: "The tasks, by name."},
                query={"file": _TEXT},
                answer_schema={
                    "type": "object",
                    "required": ["tasks"],
                    "properties": {"tasks": {"type": "array", "items": _SUMMARY}},
                },
            ),
            Operation(
                "POST",
                "/api/tasks",
                "createTask",
                "Create a task from a task file, and start it",
                self.create,
                {201: "The task."},
                query={"start": {"type": "boolean", "default": True}},
                body=_PATH_BODY,
                takes_yaml=True,
                answer_schema=_SUMMARY,
            ),
            Operation(
                "POST",
                "/api/validate",
                "validateTask",
                "Check a task file and report what is wrong with it, without creating a task",
                self.validate,
                {200: "What was found."},
                body=_PATH_BODY,
                takes_yaml=True,
            ),
            Operation(
                "GET", one, "getTask", "One task with its progress", self.get, {200: "The task."}, answer_schema=_DETAIL
            ),
            Operation(
                "PUT",
                one,
                "replaceTaskFile",
                "Replace the task file; a running task applies the changes that it can",
                self.replace,
                {200: "The task."},
                takes_yaml=True,
                answer_schema=_SUMMARY,
            ),
            Operation(
                "DELETE",
                one,
                "removeTask",
                "Remove a stopped task; its relay and its records on the target stay",
                self.remove,
                {200: "What stays: the relay and the records on the target."},
                query={"force": _FLAG},
            ),
            Operation(
                "POST",
                f"{one}/start",
                "startTask",
                "Start a task from its checkpoint",
                self.start,
                {200: "The task."},
                body=_START_BODY,
                answer_schema=_SUMMARY,
            ),
            *(
                Operation(
                    "POST",
                    f"{one}/{word}",
                    f"{word}Task",
                    says,
                    self._task_command(word),
                    {200: "The task."},
                    body=_NO_BODY,
                    answer_schema=_SUMMARY,
                )
                for word, says in (
                    ("pause", "Pause a task at the end of a transaction"),
                    ("resume", "Let a paused, halted or failed task continue"),
                    ("stop", "Stop a task at the end of a transaction"),
                )
            ),
            Operation(
                "GET",
                f"{one}/events",
                "taskEvents",
                "A task as it changes (task, log, removed), as server-sent events",
                self.task_events,
                {200: "An endless stream."},
                answer_type="text/event-stream",
                answer_schema=_TEXT,
            ),
            Operation(
                "GET",
                "/api/events",
                "events",
                "The overview as it changes (tasks), as server-sent events",
                self.all_events,
                {200: "An endless stream."},
                answer_type="text/event-stream",
                answer_schema=_TEXT,
            ),
            Operation(
                "GET",
                f"{one}/logs",
                "taskLog",
                "The last lines of a task's log",
                self.logs,
                {200: "The lines, the newest last."},
                query={"limit": _LIMIT, "level": _LEVEL, "before": {"type": "string", "default": ""}},
            ),
            Operation(
                "POST",
                "/api/login",
                "login",
                "Exchange the token for a cookie, for browsers",
                self.login,
                {200: "The cookie is set."},
                body=_LOGIN_BODY,
            ),
            Operation(
                "GET",
                "/metrics",
                "metrics",
                "The metrics of all tasks for Prometheus",
                self.metrics,
                {200: "Prometheus's text format."},
                answer_type="text/plain",
                answer_schema=_TEXT,
            ),
            Operation(
                "GET", "/healthz", "health", "Whether the service is alive", self.health, {200: "The service is alive."}
            ),
            Operation(
                "GET",
                "/readyz",
                "ready",
                "Whether the service is supervising its tasks",
                self.ready,
                {200: "The service is supervising its tasks."},
            ),
        ]

    async def list_tasks(self, request: Request) -> Response:
        """Answers with the overview. `file` in the query limits it to the tasks that were created from this path."""
        file = query_text(request, "file", {})
        tasks = await run_in_threadpool(self._supervisor.summaries)
        if file:
            names = await run_in_threadpool(self._supervisor.tasks_of, Path(file))
            tasks = [task for task in tasks if task["name"] in names]
        return answer({"tasks": tasks})

    async def get(self, request: Request) -> Response:
        """Answers with one task and its last schema changes."""
        name = request.path_params["name"]
        found = await run_in_threadpool(self._supervisor.detail, name)
        changes = await run_in_threadpool(schema_changes, self._supervisor.folder(name).log)
        return answer(found | {"changes": changes})

    async def create(self, request: Request) -> Response:
        """Creates a task from a posted task file, or from the task file at a posted path."""
        start = query_flag(request, "start", default=True)
        if _is_yaml(request):
            text = await _yaml(request)
            return answer(await run_in_threadpool(lambda: self._supervisor.create(text, start=start)), 201)
        path = Path((await read_object(request, _PATH_BODY))["path"])
        return answer(await run_in_threadpool(lambda: self._supervisor.create_from(path, start=start)), 201)

    async def validate(self, request: Request) -> Response:
        """Checks a task file. Answers with facts about its task, or with an error for a mistake in the file."""
        if _is_yaml(request):
            text = await _yaml(request)
            return answer(await run_in_threadpool(self._supervisor.verdict, text))
        path = Path((await read_object(request, _PATH_BODY))["path"])
        return answer(await run_in_threadpool(self._supervisor.verdict_of, path))

    async def replace(self, request: Request) -> Response:
        """Replaces a task file."""
        text = await _yaml(request)
        return answer(await run_in_threadpool(self._supervisor.replace, request.path_params["name"], text))

    async def remove(self, request: Request) -> Response:
        """Removes a task."""
        force = query_flag(request, "force", default=False)
        name = request.path_params["name"]

        def removed() -> dict[str, Any]:
            with self._runs.none_of(self._supervisor.folder(name), force=force):
                return self._supervisor.remove(name, force=force)

        return answer(await run_in_threadpool(removed))

    async def start(self, request: Request) -> Response:
        """Starts a task."""
        wanted = (await read_object(request, _START_BODY)).get("resync")
        return answer(await run_in_threadpool(self._supervisor.start, request.path_params["name"], wanted))

    def _task_command(self, word: str) -> Callable[[Request], Any]:
        async def command(request: Request) -> Response:
            await read_object(request, _NO_BODY)
            return answer(await run_in_threadpool(getattr(self._supervisor, word), request.path_params["name"]))

        return command

    async def task_events(self, request: Request) -> Response:
        """Answers with the events of a task."""
        return self._streams.of_task(request.path_params["name"])

    async def all_events(self, _: Request) -> Response:
        """Answers with the events of the overview."""
        return self._streams.of_all()

    async def logs(self, request: Request) -> Response:
        """Answers with the end of a task's log."""
        limit = query_number(request, "limit", _LIMIT)
        level, before = query_text(request, "level", _LEVEL), query_text(request, "before", {})
        log = self._supervisor.folder(request.path_params["name"]).log
        lines = await run_in_threadpool(lambda: last_lines(log, limit=limit, level=level, before=before))
        return answer({"lines": lines})

    async def login(self, request: Request) -> Response:
        """Sets the cookie of the page."""
        given = (await read_object(request, _LOGIN_BODY))["token"]
        if not self._policy.token:
            return answer({"needed": False})
        if not self._policy.is_token(given):
            raise Refusal(
                "token-needed", 401, "this is not the service's token", "Give the token from the file of --token-file"
            )
        reply = answer({"needed": True})
        reply.set_cookie(
            COOKIE,
            self._policy.session(time.time()),
            path="/",
            secure=self._policy.uses_tls,
            httponly=True,
            samesite="strict",
        )
        return reply

    async def metrics(self, _: Request) -> Response:
        """Answers with the metrics."""
        text = await run_in_threadpool(lambda: metrics_text(self._supervisor.metrics()))
        return Response(text, media_type="text/plain; version=0.0.4")

    async def health(self, _: Request) -> Response:
        """Answers that the service runs."""
        return answer({"ok": True})

    async def ready(self, _: Request) -> Response:
        """Answers that the service supervises its tasks, or that it does not."""
        if not self._supervisor.is_watching:
            raise Refusal("not-ready", 503, "the service is not supervising its tasks")
        return answer({"ok": True})


def _is_yaml(request: Request) -> bool:
    """Whether the body of a request is a task file, and not JSON.

    A program may send a task file without a content type. A form on a foreign page could do the same, but `AccessGuard`
    has already refused such a request.
    """
    return "json" not in request.headers.get("content-type", "").partition(";")[0].lower()


async def _yaml(request: Request) -> str:
    data = await request.body()
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigError("bad-yaml", "the task file is not UTF-8", todo="Store it as UTF-8") from None
