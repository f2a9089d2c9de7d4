"""Checks whether the relay server that a task file names accepts this machine."""

from __future__ import annotations

from contextlib import closing

from pidts.follow.client import RelayClient
from pidts.model import PidtsError, Transient
from pidts.source.finding import Finding
from pidts.task.config.task_file import TaskConfig

_SECONDS = 10.0


def relay_server_findings(config: TaskConfig) -> list[Finding]:
    """Returns the finding about the relay server; none if this machine receives the log itself.

    A relay server that is down passes the check, since the task waits for it.
    """
    origin = config.relay_from
    if origin is None:
        return []
    try:
        with closing(RelayClient(origin.address, config.source.source_id, _SECONDS)) as client:
            client.report({})
    except Transient as error:
        is_down = error.code == "relay-server-lost"
        message = f"[{error.code}] {error.what}"
        return [Finding("relay_server", ok=is_down, message=message, fix="" if is_down else error.todo)]
    except PidtsError as error:
        return [
            Finding("relay_server", ok=False, message=f"[{error.code}] {error.what}", fix=error.todo, code=error.code)
        ]
    return [
        Finding(
            "relay_server", ok=True, message=f"{origin.address.url}; there this machine has the name {origin.name!r}"
        )
    ]
