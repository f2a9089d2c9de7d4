"""`pidts relay`: shows, verifies and purges a relay, and forgets a task that needed it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from pidts.cli.command import Debug, JsonInstead, plain_path
from pidts.cli.log_options import set_up_logs
from pidts.model import ConfigError, Halted, Lsn

relay_commands = typer.Typer(
    name="relay",
    help="The relay: files with the log between source and target.",
    short_help="Show and purge the relay.",
    add_completion=False,
)

Named = Annotated[
    Path,
    typer.Argument(metavar="TASK|DIR", help="A task file, or a directory that contains relays.", callback=plain_path),
]


@relay_commands.command("list", short_help="Show the segments, and the position of each task.")
def list_relays(
    named: Named,
    verify: Annotated[bool, typer.Option("--verify", help="Read every byte and report damage.")] = False,
    as_json: JsonInstead = False,
    debug: Debug = False,
) -> int:
    """Show the segments of a relay and the position of each task; change nothing."""
    set_up_logs(debug=debug)
    from pidts.cli.relay.place import find_relays
    from pidts.cli.relay.view import relay_report, show_reports

    reports = [relay_report(place, verify=verify) for place in find_relays(named)]
    show_reports(reports, as_json=as_json)
    return Halted.exit_code if any(report["damage"] for report in reports) else 0


@relay_commands.command("purge")
def purge_relays(
    named: Named,
    before: Annotated[
        str, typer.Option("--before", metavar="LSN", help="Remove nothing after this Lsn.", show_default=False)
    ] = "",
    keep: Annotated[
        str,
        typer.Option(
            "--keep", metavar="DURATION", help="Keep the log received in the last DURATION: 90s, 30m, 12h, 7d."
        ),
    ] = "0",
    apply: Annotated[
        bool,
        typer.Option("--apply", help="Carry the command out. Without it, the command only shows what it would remove."),
    ] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="If a target does not answer, use the position that its task has recorded."),
    ] = False,
    as_json: JsonInstead = False,
    debug: Debug = False,
) -> None:
    """Remove the segments that no task needs any more."""
    set_up_logs(debug=debug)
    from pidts.cli.relay.place import demand_known_needs, find_relays, read_checkpoints
    from pidts.cli.relay.view import show_releases
    from pidts.relay.retention import PurgeLimits, release
    from pidts.relay.task_needs import read_needs
    from pidts.task.config.duration import parse_duration

    try:
        limit, keep_seconds = Lsn.parse(before) if before else None, parse_duration(keep)
    except ValueError as error:
        raise ConfigError("bad-value", str(error), todo="See: pidts relay purge --help") from None
    releases = []
    for place in find_relays(named):
        target = read_checkpoints(place)
        demand_known_needs(place, target, force=force)
        known = bool(target.checkpoints or read_needs(place.folder))
        if not known and limit is None and not keep_seconds:
            raise ConfigError(
                "usage",
                "no task has recorded which log it needs, and --force does not say how much to remove",
                todo="Add --before LSN or --keep DURATION",
            )
        limits = PurgeLimits(limit, keep_seconds, target.checkpoints, nobody_needs_it=force)
        releases.append((place, release(place.relay, place.source_id, limits, dry_run=not apply)))
    show_releases(releases, applied=apply, as_json=as_json)


@relay_commands.command("forget")
def forget_task(
    named: Named,
    task: Annotated[
        str, typer.Option("--task", metavar="NAME", help="The task, if a directory is given instead of a task file.")
    ] = "",
    debug: Debug = False,
) -> None:
    """Remove a task's position from the relay. Log that only this task needed can then be purged."""
    set_up_logs(debug=debug)
    from pidts.cli.relay.place import find_relays
    from pidts.relay.task_needs import forget_need

    places = find_relays(named)
    name = task or next((place.task.name for place in places if place.task is not None), "")
    if not name:
        raise ConfigError("usage", "a directory does not say which task is meant", todo="Add --task NAME")
    forgotten = [place for place in places if forget_need(place.relay, place.source_id, name)]
    if not forgotten:
        raise ConfigError(
            "unknown-name",
            f"this relay has no record of a task {name!r}",
            todo=f"See: pidts relay list {shlex.quote(str(named))}",
        )
    for place in forgotten:
        print(f"{place.source_id}: task {name} is forgotten; if it still runs, it records again which log it needs")
