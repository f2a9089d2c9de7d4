"""`pidts start`, `pause`, `resume`, `stop` and `list`, and `pidts status` for the tasks of a service."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode

import typer

from pidts.cli.command import Debug, JsonInstead
from pidts.cli.log_options import set_up_logs
from pidts.cli.serve import State, TokenFile
from pidts.cli.service.client import ServiceClient, service_client
from pidts.cli.service.view import show_list, show_task, watch_list, watch_task
from pidts.model import ConfigError, Halted, PidtsError

Named = Annotated[str, typer.Argument(metavar="TASK", help="The name of a task of the service, or its task file.")]
Url = Annotated[
    str,
    typer.Option(
        "--service",
        metavar="URL",
        help="Where the service listens. Without it: the service of --state.",
        show_default=False,
    ),
]
Watch = Annotated[bool, typer.Option("--watch", help="Show each change until Ctrl-C.")]
_LONGEST_STOP = 60.0
_LONGEST_START = 60.0
_LOOK_SECONDS = 0.2


def start(
    task: Named,
    resync: Annotated[
        list[str] | None,
        typer.Option("--resync", metavar="[TABLE,...]", help="Copy these tables again; without names: all tables."),
    ] = None,
    state: State = None,
    service: Url = "",
    token_file: TokenFile = None,
    as_json: JsonInstead = False,
    debug: Debug = False,
) -> None:
    """Give a task file to the service, or start a task of the service."""
    from pidts.cli.app import resynced

    set_up_logs(debug=debug)
    tables = resynced(resync)
    client = service_client(state, service, token_file)
    name = task_name(client, task)
    known = {one["name"]: one["stage"] for one in client.call("GET", "/api/tasks")["tasks"]}
    if name not in known and is_file(task):
        if tables is not None:
            client.call("POST", "/api/tasks?start=false", {"path": str(Path(task).absolute())})
        else:
            show_task(client.call("POST", "/api/tasks", {"path": str(Path(task).absolute())}), as_json=as_json)
            return
    body = {} if tables is None else {"resync": list(tables)}
    found = client.call("POST", client.task(name, "/start"), body)
    over = time.monotonic() + _LONGEST_START
    # The new process reads on the target whether the cutover was undone. If it was not, the task ends again at once.
    while known.get(name) == "cut-over" and found["stage"] == "starting" and time.monotonic() < over:
        time.sleep(_LOOK_SECONDS)
        found = client.call("GET", client.task(name))
    show_task(found, as_json=as_json)


def pause(
    task: Named,
    state: State = None,
    service: Url = "",
    token_file: TokenFile = None,
    as_json: JsonInstead = False,
    debug: Debug = False,
) -> None:
    """Pause a task of the service at the end of a transaction."""
    _stopped("pause", task, service_client(state, service, token_file), as_json=as_json, debug=debug)


def stop(
    task: Named,
    state: State = None,
    service: Url = "",
    token_file: TokenFile = None,
    as_json: JsonInstead = False,
    debug: Debug = False,
) -> None:
    """Stop a task of the service at the end of a transaction."""
    _stopped("stop", task, service_client(state, service, token_file), as_json=as_json, debug=debug)


def resume(
    task: Named,
    state: State = None,
    service: Url = "",
    token_file: TokenFile = None,
    as_json: JsonInstead = False,
    debug: Debug = False,
) -> None:
    """Let a paused, halted or failed task of the service continue."""
    set_up_logs(debug=debug)
    client = service_client(state, service, token_file)
    show_task(client.call("POST", client.task(task_name(client, task), "/resume"), {}), as_json=as_json)


def list_tasks(
    watch: Watch = False,
    state: State = None,
    service: Url = "",
    token_file: TokenFile = None,
    as_json: JsonInstead = False,
    debug: Debug = False,
) -> None:
    """Show the tasks of the service."""
    set_up_logs(debug=debug)
    client = service_client(state, service, token_file)
    if watch:
        watch_list(client, as_json=as_json)
    else:
        show_list(client.call("GET", "/api/tasks"), as_json=as_json)


def status_of_service(client: ServiceClient, task: str, *, watch: bool, as_json: bool) -> int:
    """Shows a task of the service, or all tasks. Returns 5 if something needs an operator."""
    if not task:
        if watch:
            watch_list(client, as_json=as_json)
            return 0
        found = client.call("GET", "/api/tasks")
        show_list(found, as_json=as_json)
        return Halted.exit_code if any(one["needs_operator"] for one in found["tasks"]) else 0
    if watch:
        watch_task(client, task, as_json=as_json)
        return 0
    one = client.call("GET", client.task(task))
    show_task(one, as_json=as_json, whole=True)
    return Halted.exit_code if one["needs_operator"] else 0


def is_file(task: str) -> bool:
    """Whether an argument is the path of a task file and not the name of a task of the service."""
    file = task.split("@", maxsplit=1)[0]  # `shop.yaml@a-b` is one direction of a file with several zones
    return file.endswith((".yaml", ".yml")) or "/" in task or Path(task).is_file()


def task_name(client: ServiceClient, task: str) -> str:
    """Returns the name of the task that an argument means: the argument is the name, or a task file."""
    if not is_file(task):
        return task
    from pidts.task.config.zones_file import split_path

    if not split_path(Path(task))[0].is_file():
        raise ConfigError("unreadable-file", f"there is no task file {task}", todo="Check the path, or name the task")
    return str(client.call("POST", "/api/validate", {"path": str(Path(task).absolute())})["name"])


def _known_name(client: ServiceClient, task: str) -> str:
    """Does the same as `task_name`, but does not read the file if the service has exactly one task of this file.

    So a task can be stopped even if its file now has mistakes or is gone.
    """
    if is_file(task):
        query = urlencode({"file": str(Path(task).absolute())})
        found = client.call("GET", f"/api/tasks?{query}")["tasks"]
        if len(found) == 1:
            return str(found[0]["name"])
    return task_name(client, task)


def _stopped(word: str, task: str, client: ServiceClient, *, as_json: bool, debug: bool) -> None:
    set_up_logs(debug=debug)
    path = client.task(_known_name(client, task))
    found: dict[str, Any] = client.call("POST", f"{path}/{word}", {})
    over = time.monotonic() + _LONGEST_STOP
    while found["process"] is not None and time.monotonic() < over:
        time.sleep(_LOOK_SECONDS)
        found = client.call("GET", path)
    show_task(found, as_json=as_json)
    if found["process"] is not None:
        raise PidtsError(
            "still-stopping",
            f"process {found['process']} of the task {found['name']} has not ended within {_LONGEST_STOP:.0f} seconds",
            todo="The process ends at the end of a transaction. Look again later: pidts list",
        )
