"""`pidts relay`: what is in the durable queue, who still needs it, is it sound, and what of it may go."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pidts.cli.logs import set_up_logs
from pidts.model import ConfigError, Halted, Lsn

relay_commands = typer.Typer(name="relay", help="The durable queue between source and target.", add_completion=False)

Named = Annotated[Path, typer.Argument(metavar="TASK|DIR", help="A task file, or a directory with relays.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks and all logs.")]


@relay_commands.command("list")
def list_relays(
    named: Named,
    verify: Annotated[bool, typer.Option("--verify", help="Read every byte back and say what is broken.")] = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> int:
    """Show the segments of a relay, and how far each task is; change nothing."""
    set_up_logs(debug=debug)
    from pidts.cli.relay_place import find_places
    from pidts.cli.relay_view import picture_of, show_pictures

    pictures = [picture_of(place, verify=verify) for place in find_places(named)]
    show_pictures(pictures, as_json=as_json)
    return Halted.exit_code if any(picture["damage"] for picture in pictures) else 0


@relay_commands.command("purge")
def purge_relays(
    named: Named,
    before: Annotated[
        str, typer.Option("--before", metavar="LSN", help="Remove nothing behind this place.", show_default=False)
    ] = "",
    keep: Annotated[
        str, typer.Option("--keep", metavar="DURATION", help="Keep what came less long ago: 90s, 30m, 12h, 7d.")
    ] = "0",
    apply: Annotated[bool, typer.Option("--apply", help="Do it; without, only say what would be removed.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Go by the tasks' marks in the relay where their target does not answer.")
    ] = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Remove segments that no task needs any more."""
    set_up_logs(debug=debug)
    from pidts.cli.relay_place import ask_target, find_places, require_known
    from pidts.cli.relay_view import show_releases
    from pidts.relay.needs import read_needs
    from pidts.relay.retention import PurgeLimits, release
    from pidts.task.duration import parse_duration

    try:
        limit, keep_seconds = Lsn.parse(before) if before else None, parse_duration(keep)
    except ValueError as error:
        raise ConfigError("bad-value", str(error), todo="See: pidts relay purge --help") from None
    releases = []
    for place in find_places(named):
        asked = ask_target(place)
        require_known(place, asked, force=force)
        known = bool(asked.checkpoints or read_needs(place.folder))
        if not known and limit is None and not keep_seconds:
            raise ConfigError("usage", "--force alone does not say how much of a relay that no task has marked may go")
        limits = PurgeLimits(limit, keep_seconds, asked.checkpoints, nobody_needs_it=force)
        releases.append((place, release(place.relay, place.source_id, limits, dry_run=not apply)))
    show_releases(releases, applied=apply, as_json=as_json)


@relay_commands.command("forget")
def forget_task(
    named: Named,
    task: Annotated[str, typer.Option("--task", metavar="NAME", help="In a directory: whose mark.")] = "",
    debug: Debug = False,
) -> None:
    """Take a task's mark away: what only this task needed may then be purged."""
    set_up_logs(debug=debug)
    from pidts.cli.relay_place import find_places
    from pidts.relay.needs import forget_need

    places = find_places(named)
    name = task or next((place.task.name for place in places if place.task is not None), "")
    if not name:
        raise ConfigError("usage", "a directory does not say which task is meant", todo="Add --task NAME")
    forgotten = [place for place in places if forget_need(place.relay, place.source_id, name)]
    if not forgotten:
        raise ConfigError("unknown-name", f"no task {name!r} has left its mark here", todo="See: pidts relay list")
    for place in forgotten:
        print(f"{place.source_id}: the mark of task {name} is gone; if the task runs, it sets it again")
