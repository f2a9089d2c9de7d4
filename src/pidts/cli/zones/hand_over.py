"""`pidts zones hand-over`: lets all zones feed a new zone directly, after it has joined through one of them."""

from __future__ import annotations

import shlex
import threading
from typing import Annotated

import typer

from pidts.cli.command import Debug
from pidts.cli.log_options import set_up_logs
from pidts.cli.signals import run_until_stopped
from pidts.cli.zones.command import Yes, ZonesFile, configs_of, say


def hand_over(
    file: ZonesFile,
    zone: Annotated[str, typer.Argument(metavar="ZONE", help="The zone that has joined.")],
    yes: Yes = False,
    debug: Debug = False,
) -> None:
    """Let all zones feed a new zone directly, after it has joined through one of them; all tasks keep running."""
    set_up_logs(debug=debug)
    from pidts.task.zones.hand_over_servers import hand_over_of

    directions = configs_of(file)

    def work(stop: threading.Event) -> None:
        command = hand_over_of(directions, zone, stop, say)
        if command is None:
            print(f"each change already reaches zone {zone} through the tasks of the file: nothing to hand over")
        elif not yes:
            print(
                f"Task {command.seed_task} now forwards changes to zone {zone}. This command would let the other tasks "
                f"that write to zone {zone} carry these changes instead."
            )
            print("To do it, repeat the command with --yes")
        else:
            zones = ", ".join(command.run())
            print(
                f"zone {zone} gets the changes of {zones} directly from now on. Start their tasks: "
                f"pidts run {shlex.quote(str(file))}"
            )

    run_until_stopped(work, may_leave=False)
