"""`pidts zones return`: fills a zone again after it has lost its log or was restored from a backup."""

from __future__ import annotations

import os
import shlex
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer

from pidts.cli.command import Debug
from pidts.cli.log_options import set_up_logs
from pidts.cli.signals import run_until_stopped
from pidts.cli.zones.child import start_run
from pidts.cli.zones.command import Yes, ZonesFile, configs_of, say
from pidts.model import PrecheckFailed, Where
from pidts.model.zone import RETURNING

_PIDTS = (sys.executable, "-m", "pidts", "run", "--until-synced")


def let_zone_return(
    file: ZonesFile,
    zone: Annotated[str, typer.Argument(metavar="ZONE", help="The zone that returns.")],
    discard: Annotated[
        bool, typer.Option("--discard-unsent", help="Discard the zone's changes that other zones do not have.")
    ] = False,
    yes: Yes = False,
    debug: Debug = False,
) -> None:
    """Fill a zone again from the zone that it joins, while all other zones continue."""
    set_up_logs(debug=debug)
    from pidts.task.config.zones_file import path_of
    from pidts.task.zones.zone_return import Steps, counted, let_return
    from pidts.task.zones.zone_return_servers import ReturningZone

    directions = configs_of(file)

    def work(stop: threading.Event) -> None:
        returning = ReturningZone(zone, directions, stop, say)
        tasks = returning.recorded()
        if not yes:
            unsent = returning.unsent(tasks)
            lost = "not known, since its log is gone" if unsent is None else counted(unsent) or "nothing"
            print(
                f"would fill zone {zone} from zone {returning.seed.source}: its tables get the rows of zone "
                f"{returning.seed.source}"
            )
            print(f"would forget {', '.join(one.task for one in tasks) or 'no task'}")
            print(f"changes of zone {zone} that other zones do not have: {lost}")
            if running := returning.running(tasks):
                print(f"tasks that run now: {', '.join(running)}")
            print("Stop the programs that write there, and the tasks of the zone. Then repeat the command with --yes")
            return
        path = path_of(file, returning.seed)
        steps = Steps(
            running=lambda: returning.running(tasks),
            unsent=lambda: returning.unsent(tasks),
            forget=returning.forget,
            forget_relays=lambda: returning.forget_relays(tasks),
            allow=returning.allow,
            copy=lambda: _copy(path, returning.token, stop),
            written=returning.written,
            note_place=returning.note_place,
            begin_out=returning.begin_out,
        )
        let_return(zone, tasks, steps, discard=discard, say=say)
        print(
            f"zone {zone} has returned. Start its tasks: pidts run {shlex.quote(str(file))}. "
            "Then programs may write there"
        )

    run_until_stopped(work, may_leave=False)


def _copy(path: Path, token: str, stop: threading.Event) -> None:
    known = {**os.environ, RETURNING: token}
    with start_run([*_PIDTS, str(path)], output=sys.stderr, environment=known) as process:
        while process.poll() is None:
            if stop.wait(0.2):
                process.terminate()
                break
        code = process.wait()
    if code:
        raise PrecheckFailed(
            "zone-not-returned",
            f"the task that fills the zone has ended with code {code}",
            where=Where(file=str(path)),
            todo="Look at its error above, then repeat the command",
        )
