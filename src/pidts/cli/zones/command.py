"""`pidts zones`, and the output of `status` and `check` for a file with several zones."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pidts.cli.command import Debug, JsonInstead
from pidts.cli.log_options import log_options, set_up_logs
from pidts.cli.slow_step import GIVES_UP_AFTER, asked, said_steps
from pidts.model import ConfigError, Transient, Where
from pidts.model.errors import listed

if TYPE_CHECKING:
    from pidts.task.config.task_file import TaskConfig
    from pidts.task.config.zones_file import Direction
    from pidts.task.operate.zones import DirectionStatus

zones_commands = typer.Typer(
    name="zones",
    help="Zones: servers that programs write to, and that get each other's changes.",
    short_help="Servers that programs write to, and that get each other's changes.",
    add_completion=False,
)

ZonesFile = Annotated[Path, typer.Argument(metavar="FILE", help="A task file with pidts.zones.")]
Yes = Annotated[
    bool, typer.Option("--yes", help="Carry the command out. Without it, the command only shows what it would do.")
]


@zones_commands.callback()
def zones() -> None:
    """Zones: servers that programs write to, and that get each other's changes."""


@zones_commands.command("list", short_help="Show the directions of a file.")
def list_zones(file: ZonesFile, as_json: JsonInstead = False, debug: Debug = False) -> None:
    """Show a file's directions, the changes that each carries, and which of them copy first; connect to no server."""
    from pidts.task.config.zones_file import path_of

    set_up_logs(debug=debug)
    directions = directions_of(file)
    _demand_zones(file, directions)
    if as_json:
        shown = [
            {
                "task": str(path_of(file, one)),
                "from": one.source,
                "to": one.target,
                "forwards": list(one.forwards),
                "copies": one.copies,
            }
            for one in directions
        ]
        print(json.dumps(shown, ensure_ascii=False))
        return
    for one in directions:
        onwards = f" and those of zone{'s' if len(one.forwards) > 1 else ''} {', '.join(one.forwards)}"
        copies = "copies first, then " if one.copies else ""
        print(f"{path_of(file, one)}: {copies}carries changes of zone {one.source}{onwards if one.forwards else ''}")
    if not any(one.forwards for one in directions):
        print("no task forwards changes of other zones: each change is carried by one task")


def say(text: str) -> None:
    """Prints the progress of a command to stderr. Stdout is for its result."""
    print(text, file=sys.stderr, flush=True)


def configs_of(file: Path) -> dict[Direction, TaskConfig]:
    """Returns the task of each direction of a file. Raises for a file without zones."""
    from pidts.task.config.task_file import load_task
    from pidts.task.config.zones_file import path_of

    directions = directions_of(file)
    _demand_zones(file, directions)
    return {one: load_task(path_of(file, one)) for one in directions}


def _demand_zones(file: Path, directions: Sequence[Direction]) -> None:
    if not directions:
        what = "the file has no pidts.zones"
        todo = "Name a file of several zones (docs/operate/zones.md)"
        raise ConfigError("missing-key", what, where=Where(file=str(file)), todo=todo)


def directions_of(task: Path) -> tuple[Direction, ...]:
    """Returns the directions of a file with several zones; none for any other file."""
    from pidts.task.config.task_file import load_directions

    return load_directions(task)


def show_zones_status(
    file: Path, directions: Sequence[Direction], *, as_json: bool, patience: float = GIVES_UP_AFTER
) -> int:
    """Prints the state of each direction, as a table of zones; returns the exit code.

    All zones are asked at the same time, each on one session. A zone without an answer after `patience` seconds is
    shown as a zone that does not answer.
    """
    from pidts.task.config.task_file import load_task
    from pidts.task.config.zones_file import path_of
    from pidts.task.operate.zones import DirectionStatus, exit_code, statuses_into_zone

    into: dict[str, list[tuple[Direction, TaskConfig]]] = {}
    for direction in directions:
        into.setdefault(direction.target, []).append((direction, load_task(path_of(file, direction))))
    answers = []
    for each in into.values():
        target = f"the target {each[0][1].target.place} of {listed(one for one, _ in each)}"
        answers.append((each, target, asked(partial(statuses_into_zone, each), target, limit=patience)))
    states: dict[Direction, DirectionStatus] = {}
    with said_steps("asking the targets", quiet=log_options().has_json_on_stderr) as step:
        for each, target, answer in answers:
            step(f"waiting for {target}")
            try:
                states |= {one.direction: one for one in answer()}
            except Transient as error:
                states |= {one: DirectionStatus(direction=one, status=None, error=str(error)) for one, _ in each}
    found = [states[direction] for direction in directions]
    if as_json:
        print(json.dumps({"directions": [one.to_json() for one in found]}, ensure_ascii=False))
    else:
        print(_matrix(found))
        for one in found:
            if one.exit_code:
                said = one.error or "needs an operator"
                quoted = shlex.quote(str(path_of(file, one.direction)))
                print(f"{one.direction}: {said}. See: pidts status {quoted}", file=sys.stderr)
    return exit_code(found)


def check_zones(
    file: Path, directions: Sequence[Direction], step: Callable[[str], None] = lambda _: None, *, as_json: bool
) -> int:
    """Checks each direction; returns the worst exit code. `step` receives a text about the present check."""
    from pidts.cli.findings import show_findings
    from pidts.task.checks.all_sources import check_all_sources, lost_log_findings, with_tables_from
    from pidts.task.config.task_file import load_parts
    from pidts.task.config.zones_file import path_of

    def step_of(direction: Direction, text: str) -> None:
        step(f"{direction}: {text}")

    codes = []
    for one in directions:
        parts = load_parts(path_of(file, one))
        findings = check_all_sources(parts, step=partial(step_of, one))
        findings += lost_log_findings(parts)
        bringing = [other for other in directions if other.copies and other.target == one.source]
        if bringing and one.source != directions[0].source:
            # Another direction first copies the tables to this direction's source. `pidts run` starts `one` after that.
            findings = [with_tables_from(finding, bringing[0].source) for finding in findings]
        codes.append(show_findings(parts[0].name, findings, as_json=as_json))
    return max(codes)


def _matrix(found: Sequence[DirectionStatus]) -> str:
    zones = list(dict.fromkeys(zone for one in found for zone in (one.direction.source, one.direction.target)))
    cells = {(one.direction.source, one.direction.target): _cell(one) for one in found}
    rows = [["from \\ to", *zones]]
    rows += [[zone, *(cells.get((zone, other), "-") for other in zones)] for zone in zones]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _cell(one: DirectionStatus) -> str:
    return one.stage if one.lag is None else f"{one.stage}, {one.lag:.0f} s"
