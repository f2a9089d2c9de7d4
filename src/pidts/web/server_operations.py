"""The operations on schema changes, locked rows, comparisons, the relay and the task file.

Most of them need a task's servers. So they run a `pidts` command, and answer with the JSON that it prints.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from pidts.model import ConfigError
from pidts.service.masked_file import masked
from pidts.service.runs import KINDS, Runs
from pidts.service.supervisor import Supervisor
from pidts.service.task_command import AT_ONCE, run_command
from pidts.task.config.zones_file import split_path
from pidts.web.operation import Operation, Schema, check_text, query_text, read_object
from pidts.web.refusals import Refusal, answer

_TEXT: Final[Schema] = {"type": "string"}
_FLAG: Final[Schema] = {"type": "boolean"}
_TEXTS: Final[Schema] = {"type": "array", "items": _TEXT}
_TABLE: Final[Schema] = {"type": "string", "default": ""}
_DDL_COMMAND: Final[Schema] = {
    "type": "object",
    "properties": {"table": _TEXT, "at": _TEXT, "source": _TEXT, "sql": _TEXTS, "yes": _FLAG},
}
_RESOLVE: Final[Schema] = {
    "type": "object",
    "properties": {
        "ids": _TEXTS,
        "table": _TEXT,
        "all": _FLAG,
        "take": {"type": "string", "enum": ["", "source", "target", "keep"]},
        "set": {"type": "object", "additionalProperties": {"type": "string"}},
        "yes": _FLAG,
    },
}
_RUN: Final[Schema] = {
    "type": "object",
    "required": ["kind"],
    "properties": {
        "kind": {"type": "string", "enum": list(KINDS)},
        "options": {"type": "object", "additionalProperties": {}},
    },
}
_DDL_COMMANDS: Final = {
    "unlock": "Run a schema change without waiting for the shards that have not reached it",
    "skip": "Do not run a schema change",
    "replace": "Run other statements instead of a schema change",
    "inject": "Run statements before a schema change",
    "revert": "Forget an earlier decision about a schema change",
    "retry": "Try a halted schema change, or refused rows, again",
}
_LONGEST_WAIT: Final = 60.0
_WITH_SQL: Final = frozenset({"replace", "inject"})


class ServerOperations:
    """The operations of one service."""

    def __init__(self, supervisor: Supervisor, runs: Runs) -> None:
        self._supervisor, self._runs = supervisor, runs
        # A request waits here until a command may run. Meanwhile it occupies no thread, since other requests need the
        # threads.
        self._places = asyncio.Semaphore(AT_ONCE)

    def operations(self) -> list[Operation]:
        """Returns the operations, in the order in which they are described."""
        one = "/api/tasks/{name}"
        preview = {200: "What was done, or with yes: false what would be done."}
        return [
            Operation(
                "GET", f"{one}/status", "taskStatus", "pidts status --json", self._asked("status"), {200: "The status."}
            ),
            Operation(
                "GET",
                f"{one}/relay",
                "relay",
                "pidts relay list --json",
                self._asked("relay", "list"),
                {200: "The relay."},
            ),
            Operation(
                "GET",
                f"{one}/file",
                "taskFile",
                "The task file, its secrets replaced by ***",
                self.file,
                {200: "The file."},
            ),
            Operation(
                "GET",
                f"{one}/ddl",
                "schemaChanges",
                "pidts ddl list --json: halted tables and schema changes that wait",
                self._asked("ddl", "list", table=True),
                {200: "What is blocked."},
                query={"table": _TABLE},
            ),
            *(
                Operation(
                    "POST",
                    f"{one}/ddl/{word}",
                    f"{word}SchemaChange",
                    says,
                    self._ddl_command(word),
                    preview,
                    body=_DDL_COMMAND,
                )
                for word, says in _DDL_COMMANDS.items()
            ),
            Operation(
                "GET",
                f"{one}/locks",
                "lockedRows",
                "pidts locks list --json: rows that differ from the source",
                self._asked("locks", "list", table=True),
                {200: "The rows."},
                query={"table": _TABLE},
            ),
            Operation(
                "GET",
                f"{one}/locks/{{id}}",
                "lockedRow",
                "One locked row: what the source and the target have, side by side",
                self.lock,
                {200: "The row."},
            ),
            Operation(
                "POST",
                f"{one}/locks/resolve",
                "resolveLockedRows",
                "Resolve locked rows",
                self.resolve,
                preview,
                body=_RESOLVE,
            ),
            Operation(
                "GET",
                f"{one}/runs",
                "runs",
                "Runs of a task: checks, previews, comparisons and repairs",
                self.runs,
                {200: "The runs."},
            ),
            Operation(
                "POST",
                f"{one}/runs",
                "beginRun",
                "Start a check, preview, comparison or repair",
                self.begin,
                {202: "The run has begun."},
                body=_RUN,
            ),
            Operation("GET", f"{one}/runs/{{id}}", "run", "One run, with its report", self.run, {200: "The run."}),
            Operation(
                "DELETE",
                f"{one}/runs/{{id}}",
                "cancelRun",
                "Cancel a run, or remove it if it has ended",
                self.cancel,
                {200: "Done."},
            ),
        ]

    def _asked(self, *words: str, table: bool = False) -> Callable[[Request], Any]:
        async def ask(request: Request) -> Response:
            more = []
            if table and (name := query_text(request, "table", _TABLE)):
                more.append(f"--table={name}")
            return await self._command(request, [*words, *more])

        return ask

    def _ddl_command(self, word: str) -> Callable[[Request], Any]:
        async def command(request: Request) -> Response:
            given = await read_object(request, _DDL_COMMAND)
            sql = given.get("sql", [])
            if bool(sql) != (word in _WITH_SQL):
                what = f"{word} takes statements" if word in _WITH_SQL else f"{word} takes no statements"
                raise Refusal("bad-body", 422, f"{what} in the member 'sql'")
            words = ["ddl", word, *_options(given, "table", "at", "source")]
            return await self._command(request, [*words, *(["--yes"] if given.get("yes") else [])], sql)

        return command

    async def lock(self, request: Request) -> Response:
        """Answers with one locked row."""
        return await self._command(request, ["locks", "show"], [check_text("id", request.path_params["id"])])

    async def resolve(self, request: Request) -> Response:
        """Resolves locked rows, or answers with what resolving would do."""
        given = await read_object(request, _RESOLVE)
        words = ["locks", "resolve", *_options(given, "table", "take")]
        words += ["--all"] if given.get("all") else []
        words.append("--yes" if given.get("yes") else "--dry-run")
        values = {name: None if value == "NULL" else value for name, value in given.get("set", {}).items()}
        if values:
            words.append("--values=-")
        return await self._command(request, words, given.get("ids", []), json.dumps(values) if values else "")

    async def file(self, request: Request) -> Response:
        """Answers with the task file without its secrets."""
        folder = self._supervisor.folder(request.path_params["name"])
        try:
            file = split_path(folder.task_file)[0]  # the path may name one direction of the file
            text = await run_in_threadpool(file.read_text, "utf-8")
        except (OSError, UnicodeDecodeError):
            raise ConfigError(
                "unreadable-file",
                "the task file cannot be read",
                todo=f"Check that the service may read {file}, and that its text is UTF-8",
            ) from None
        return answer({"text": masked(text), "path": str(folder.task_file), "elsewhere": folder.is_elsewhere})

    async def runs(self, request: Request) -> Response:
        """Answers with the runs of a task."""
        folder = self._supervisor.folder(request.path_params["name"])
        return answer({"runs": await run_in_threadpool(self._runs.all, folder)})

    async def begin(self, request: Request) -> Response:
        """Starts a run."""
        folder = self._supervisor.folder(request.path_params["name"])
        given = await read_object(request, _RUN)
        options = {name: _option(name, value) for name, value in given.get("options", {}).items() if value is not None}
        return answer(await run_in_threadpool(self._runs.begin, folder, given["kind"], options), 202)

    async def run(self, request: Request) -> Response:
        """Answers with one run."""
        folder = self._supervisor.folder(request.path_params["name"])
        return answer(await run_in_threadpool(self._runs.one, folder, request.path_params["id"]))

    async def cancel(self, request: Request) -> Response:
        """Cancels a run."""
        folder = self._supervisor.folder(request.path_params["name"])
        return answer(await run_in_threadpool(self._runs.cancel, folder, request.path_params["id"]))

    async def _command(
        self, request: Request, words: list[str], more: list[str] | None = None, given: str = ""
    ) -> Response:
        folder = self._supervisor.folder(request.path_params["name"])
        try:
            await asyncio.wait_for(self._places.acquire(), _LONGEST_WAIT)
        except TimeoutError:
            raise Refusal("command-late", 503, "commands for other tasks have not ended in time", "Try again") from None
        try:
            return answer(await run_in_threadpool(run_command, words, str(folder.task_file), more or [], given))
        finally:
            self._places.release()


def _options(given: Mapping[str, Any], *names: str) -> list[str]:
    return [f"--{name}={given[name]}" for name in names if given.get(name)]


def _option(name: str, value: Any) -> str | bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, int | str):
        return check_text(name, str(value))
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return check_text(name, ",".join(value))
    raise Refusal("bad-body", 422, f"the option {name!r} is neither a text, nor a number, nor true or false")
