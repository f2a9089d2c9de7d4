"""`pidts zones owners` shows which zone owns which rows, and `pidts zones move` gives rows to another zone."""

from __future__ import annotations

import json
import threading
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pidts.cli.command import Debug, JsonInstead
from pidts.cli.log_options import set_up_logs
from pidts.cli.signals import run_until_stopped
from pidts.cli.zones.command import Yes, ZonesFile, configs_of, say
from pidts.model import ConfigError, Where

if TYPE_CHECKING:
    from pidts.task.config.task_file import TaskConfig
    from pidts.task.config.zones_file import Direction


def show_owners(file: ZonesFile, as_json: JsonInstead = False, debug: Debug = False) -> None:
    """Show which zone owns which rows, as each zone has recorded it; change nothing."""
    set_up_logs(debug=debug)
    from pidts.task.zones.servers import zone_records

    directions = _configs(file)
    owners = next(config for config in directions.values() if config.zones.owners).zones.owners
    said: dict[str, dict[str, str]] = {}
    for zone in zone_records(directions):
        with closing(zone.connect()) as session:
            now = owners.moved(session.meta.range_owners.recorded())
        for one in now.ranges:
            said.setdefault(str(one), {})[zone.name] = one.zone
    if as_json:
        print(json.dumps(said, ensure_ascii=False))
        return
    for name, by_zone in said.items():
        owner = ", ".join(sorted({zone or "no zone (it is being moved)" for zone in by_zone.values()}))
        print(f"{name}: {owner}")


def move(
    file: ZonesFile,
    rows: Annotated[
        str,
        typer.Argument(
            metavar="TABLE|RANGE", help='A table, or a range as `pidts zones owners` shows it: "shop.orders where ...".'
        ),
    ],
    to: Annotated[str, typer.Option("--to", metavar="ZONE", help="The zone that is to own the rows.")] = "",
    undo: Annotated[
        bool, typer.Option("--undo", help="Give up a move that was interrupted: the rows stay with their owner.")
    ] = False,
    yes: Yes = False,
    debug: Debug = False,
) -> None:
    """Give rows to another zone while all tasks run (pidts.conflict: owner)."""
    set_up_logs(debug=debug)
    from pidts.task.zones.owner_move import OwnerMove, demand_zone
    from pidts.task.zones.servers import drainer, holder, wanted_range, zone_records

    directions = _configs(file)
    zones = zone_records(directions)
    if bool(to) is undo:
        raise ConfigError("usage", "give either the new owner of the rows, or --undo", todo="Add --to ZONE, or --undo")
    owners = next(config for config in directions.values() if config.zones.owners).zones.owners
    wanted = wanted_range(owners, rows, to)
    if not undo:
        demand_zone(zones, wanted)
    if not yes:
        if undo:
            print(f"would give up a move of {wanted} that was interrupted")
        else:
            print(f"would give {wanted} to zone {to}. Meanwhile writes to these rows wait, or are set aside")
            print(f"First stop the programs that write these rows. Start them in zone {to} when the move has ended")
        print("To do it, repeat the command with --yes")
        return

    def work(stop: threading.Event) -> None:
        command = OwnerMove(zones, wanted, holder(directions, wanted, say), drainer(directions, wanted, stop, say), say)
        (command.undo if undo else command.run)()

    run_until_stopped(work, may_leave=False)


def _configs(file: Path) -> dict[Direction, TaskConfig]:
    """Returns the directions of a file with owners of rows. Raises for any other file."""
    found = configs_of(file)
    if not any(config.zones.owners for config in found.values()):
        what = "the file has no owners of rows"
        todo = "Name a file with pidts.zones and pidts.owners (docs/operate/zones.md)"
        raise ConfigError("missing-key", what, where=Where(file=str(file)), todo=todo)
    return found
