"""Prints the states of a service's tasks."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table as Grid
from rich.text import Text

from pidts.cli.errors import OutputConsole, for_this_service
from pidts.cli.log_options import write_line
from pidts.cli.service.client import ServiceClient

_COLOURS = {
    "sync": "green",
    "synced": "green",
    "cut-over": "green",
    "copy": "cyan",
    "starting": "cyan",
    "waiting": "yellow",
}
_DETAIL = ("name", "wanted", "stage", "process", "restarts", "mode", "sources", "target", "lag_seconds", "rate")


def show_list(found: dict[str, Any], *, as_json: bool) -> None:
    """Prints the overview."""
    if as_json:
        _print_json(found)
    elif found["tasks"]:
        _console().print(_overview(found["tasks"]))
    else:
        print(for_this_service("the service has no task; give it one: pidts start TASK.yaml"))


def show_task(one: dict[str, Any], *, as_json: bool, whole: bool = False) -> None:
    """Prints a task."""
    if as_json:
        _print_json(one)
    elif whole:
        _console().print(_task(one))
    else:
        said = f": {one['message']}" if one.get("message") else ""
        _console().print(Text(f"{one['name']}: {one['stage']}{said}"))


def watch_list(client: ServiceClient, *, as_json: bool) -> None:
    """Shows the overview until the service ends."""
    if as_json:
        for kind, value in client.events("/api/events"):
            if kind == "tasks":
                _print_json(value)
        return
    with _shown() as show:
        for kind, value in client.events("/api/events"):
            if kind == "tasks":
                show(_overview(value["tasks"]))


def watch_task(client: ServiceClient, name: str, *, as_json: bool) -> None:
    """Shows a task until it is removed or the service ends."""
    events = client.events(client.task(name, "/events"))
    if as_json:
        for kind, value in events:
            if kind in {"task", "removed"}:
                _print_json(value)
            if kind == "removed":
                return
        return
    with _shown() as show:
        for kind, value in events:
            if kind == "removed":
                return
            if kind == "task":
                show(_task(value))


@contextmanager
def _shown() -> Iterator[Callable[[RenderableType], None]]:
    """Yields a function that shows a new state: on a terminal in place of the last state, otherwise below it."""
    console = _console()
    if not console.is_terminal:

        def below(found: RenderableType) -> None:
            with console.capture() as text:
                console.print(found)
            _print_text(text.get().rstrip("\n"))

        yield below
        return
    with Live(console=console, auto_refresh=False) as live:
        yield lambda found: live.update(found, refresh=True)


def _print_json(value: dict[str, Any]) -> None:
    _print_text(json.dumps(value, ensure_ascii=False))


def _print_text(text: str) -> None:
    if not write_line(text, sys.stdout):
        raise SystemExit(0)  # no program reads the output any more


def _console() -> Console:
    return OutputConsole()


def _overview(tasks: Sequence[dict[str, Any]]) -> RenderableType:
    grid = Grid.grid(padding=(0, 2))
    for name in ("task", "stage", "lag", "rows/s", "", ""):
        grid.add_column(name, justify="right" if name in {"lag", "rows/s"} else "left")
    grid.add_row(*(Text(name, "dim") for name in ("task", "stage", "lag", "rows/s", "needs", "message")))
    for one in tasks:
        grid.add_row(
            Text(one["name"], "bold"),
            _stage(one),
            Text(_lag(one["lag_seconds"])),
            Text(f"{one['rate'] or 0:,.0f}"),
            Text("an operator" if one["needs_operator"] else "", "bold red"),
            Text(one["message"], "dim"),
        )
    return grid


def _task(one: dict[str, Any]) -> RenderableType:
    grid = Grid.grid(padding=(0, 2))
    for name in _DETAIL:
        value = one[name]
        text = ", ".join(value) if isinstance(value, list) else _lag(value) if name == "lag_seconds" else value
        grid.add_row(Text(name.replace("_seconds", ""), "dim"), _stage(one) if name == "stage" else Text(str(text)))
    if one.get("held_lag_seconds") is not None:
        age = _lag(one["held_lag_seconds"])
        grid.add_row(Text("waiting", "dim"), Text(f"the oldest change of a waiting table is {age} old"))
    parts: list[RenderableType] = [grid]
    copy = one.get("copy")
    if copy and copy["done"] < copy["tables"]:
        left = "" if copy["eta_seconds"] is None else f", {copy['eta_seconds']:.0f} s to go"
        parts.append(Text(f"copied: {copy['done']} of {copy['tables']} tables, {copy['copied']:,} rows{left}"))
    if one["message"]:
        parts.append(Text(one["message"]))
    if one.get("error"):
        error = one["error"]
        if one["stage"] != "cut-over":  # a task that was cut over has no error, and its stage is already shown
            parts.append(Text(f"error [{error['code']}] {error['what']}", "red"))
        if error["todo"]:
            parts.append(Text(f"do     {for_this_service(error['todo'])}"))
    return Group(*parts)


def _stage(one: dict[str, Any]) -> Text:
    since = max(0.0, time.time() - one["since"])
    return Text.assemble((one["stage"], _COLOURS.get(one["stage"], "red")), (f" for {_duration(since)}", "dim"))


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def _lag(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    return f"{seconds:.3f} s" if seconds < 1 else f"{seconds:,.0f} s"
