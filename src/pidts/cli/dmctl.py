"""Refuses dmctl's commands that PiDTS does not have, and advises what to do instead. Translates two other commands.

dmctl gives commands to a cluster that runs tasks. In PiDTS, a task is the process `pidts run`, or a task of a service.
The task file names the sources, so nothing has to be registered.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pidts.model import ConfigError

_IN_TASK_FILE = "Sources are in the task file (`mysql-instances`), or in source files beside it. See: pidts check TASK"
_NO_CLUSTER = "There is no cluster: each task is a process of its own. See: pidts status TASK"
_RELAY = "The relay is always used. See: pidts relay list TASK"
_WORDS = {
    "update-task": "Edit the task file; a running task adopts the changes that it can, and reports the others",
    "handle-error": "Use: pidts ddl skip|replace|inject|revert TASK",
    "sql-skip": "Use: pidts ddl skip TASK",
    "sql-replace": "Use: pidts ddl replace TASK SQL",
    "sql-inject": "Use: pidts ddl inject TASK SQL",
    "break-ddl-lock": "Use: pidts ddl skip TASK",
    "binlog-schema": "PiDTS reads the tables' structures from the log itself. Use: pidts ddl list TASK",
    "operate-schema": "PiDTS reads the tables' structures from the log itself. Use: pidts ddl list TASK",
    "validation": "Use: pidts verify TASK",
    "purge-relay": "Use: pidts relay purge TASK",
    "start-relay": _RELAY,
    "stop-relay": _RELAY,
    "pause-relay": _RELAY,
    "resume-relay": _RELAY,
    "query-error": "Use: pidts status TASK",
    "operate-source": _IN_TASK_FILE,
    "transfer-source": _IN_TASK_FILE,
    "show-source": _IN_TASK_FILE,
    "list-member": _NO_CLUSTER,
    "offline-member": _NO_CLUSTER,
    "operate-leader": _NO_CLUSTER,
    "refresh-worker-tasks": _NO_CLUSTER,
    "config": "The task file is all of the configuration. Use: pidts check TASK",
    "get-config": "The task file is all of the configuration. Use: pidts check TASK",
    "encrypt": "Put the password into a file (`password-file`) or the environment: ${NAME}",
    "decrypt": "Put the password into a file (`password-file`) or the environment: ${NAME}",
}


_FILES = (".yaml", ".yml")
_OF_SERVICE = {"start-task": "start", "resume-task": "resume"}


def of_service(arguments: Sequence[str]) -> list[str]:
    """Returns the arguments, with `start` or `resume` in place of `start-task` or `resume-task` of a service's task.

    With a task file, both commands stay: they run the task in the foreground, like `pidts run`.
    """
    place = next((at for at, word in enumerate(arguments) if not word.startswith("-")), None)
    if place is None or arguments[place] not in _OF_SERVICE:
        return list(arguments)
    task = next((word for word in arguments[place + 1 :] if not word.startswith("-")), "")
    if not task or task.endswith(_FILES) or "/" in task or Path(task).exists():
        return list(arguments)
    return [*arguments[:place], _OF_SERVICE[arguments[place]], *arguments[place + 1 :]]


def refuse(arguments: Sequence[str]) -> None:
    """Raises if the command exists only in dmctl. The error names the command to use instead."""
    word = next((one for one in arguments if not one.startswith("-")), "")
    if word in _WORDS:
        raise ConfigError("usage", f"{word} is a command of dmctl that pidts does not have", todo=_WORDS[word])
