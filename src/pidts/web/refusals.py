"""The answers for errors of requests: an HTTP status for each kind of error, and the error as JSON."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse

from pidts.model import ConfigError, PidtsError
from pidts.service.runs import NoSuchRun, TooManyRuns
from pidts.service.supervisor import NoSuchTask, WrongTaskState
from pidts.service.task_command import CommandFailed, TimedOut


class Refusal(PidtsError):
    """The error of a request that is refused, with its HTTP status."""

    def __init__(self, code: str, status: int, what: str, todo: str = "") -> None:
        super().__init__(code, what, todo=todo)
        self.status = status


def status_of(error: PidtsError) -> int:
    """Returns the HTTP status for an error."""
    match error:
        case Refusal():
            return error.status
        case NoSuchTask() | NoSuchRun():
            return 404
        case WrongTaskState() | TooManyRuns():
            return 409
        case TimedOut():
            return 503
        case CommandFailed() if error.code != "unexpected":
            return 400 if error.code_of_exit == ConfigError.exit_code else 409
        case ConfigError():
            return 400
    return 500 if error.code == "unexpected" else 409


def answer_error(error: PidtsError, headers: dict[str, str] | None = None) -> JSONResponse:
    """Returns the answer for an error."""
    return answer({"error": error.to_json()}, status_of(error), headers)


def answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> JSONResponse:
    """Returns an answer with JSON. Caches must not keep it."""
    return JSONResponse(value, status, {"Cache-Control": "no-store", **(headers or {})})
