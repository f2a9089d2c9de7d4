"""The commands of `pidts` and their options."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib.abc import MetaPathFinder
from importlib.metadata import version as version_of
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated

import typer

from pidts.cli.ddl import binlog_commands, ddl_commands, list_ddl, shard_ddl_lock, unlock_ddl_lock
from pidts.cli.errors import as_unexpected, show_error
from pidts.cli.grants import grants
from pidts.cli.init import init
from pidts.cli.logs import set_up_logs
from pidts.cli.relay import relay_commands
from pidts.cli.repair import repair
from pidts.cli.run_tables import RESYNC, resynced, with_tables
from pidts.cli.schema import schema
from pidts.cli.signals import run_until_stopped
from pidts.cli.status import status
from pidts.cli.verify import verify
from pidts.model import ConfigError, Halted, PidtsError

if TYPE_CHECKING:
    from pidts.task.config.task_file import TaskConfig

app = typer.Typer(
    name="pidts",
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

app.add_typer(relay_commands)
app.add_typer(ddl_commands)
app.add_typer(binlog_commands)
app.command("shard-ddl-lock", hidden=True)(shard_ddl_lock)
app.command("show-ddl-locks", hidden=True)(list_ddl)
app.command("unlock-ddl-lock", hidden=True)(unlock_ddl_lock)
app.command("status")(status)
app.command("query-status", hidden=True)(status)
app.command("init")(init)
app.command("grants")(grants)
app.command("schema")(schema)
app.command("verify")(verify)
app.command("repair")(repair)

_INTERRUPTED = 130
_WITHOUT_PANDAS = frozenset(
    {"events", "status", "query-status", "ddl", "binlog", "shard-ddl-lock", "show-ddl-locks", "unlock-ddl-lock"}
)

TaskFile = Annotated[Path, typer.Argument(metavar="TASK", help="The task file (YAML).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout at the end.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks and all log lines.")]


def main() -> None:
    """Runs the program `pidts` with the arguments of this process."""
    if _WITHOUT_PANDAS & set(sys.argv[1:2]):
        sys.meta_path.insert(0, _NoPandas())
    sys.exit(run_command(sys.argv[1:]))


class _NoPandas(MetaPathFinder):
    """Hides pandas from pyarrow, which would import it with the first array that it makes.

    Importing pandas takes longer than all the rest, and the commands in `_WITHOUT_PANDAS` do not need it.
    """

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:  # noqa: ARG002 - the protocol's
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname, name=fullname)


def run_command(arguments: Sequence[str]) -> int:
    """Runs one command line and returns its exit code. All errors end here, so that they look the same."""
    as_json, debug = "--json" in arguments, "--debug" in arguments
    try:
        result = app(args=with_tables(arguments), prog_name="pidts", standalone_mode=False)
    except PidtsError as error:
        show_error(error, as_json=as_json)
        return error.exit_code
    except typer.TyperException as error:
        show_error(ConfigError("usage", error.format_message(), todo=_help_for(arguments)), as_json=as_json)
        return ConfigError.exit_code
    except (typer.Abort, KeyboardInterrupt):
        return PidtsError.exit_code
    except Exception as error:  # noqa: BLE001 - the last place that can report it in one line
        show_error(as_unexpected(error, debug=debug), as_json=as_json)
        return PidtsError.exit_code
    code = result if isinstance(result, int) else 0
    return PidtsError.exit_code if code == _INTERRUPTED else code


def _help_for(arguments: Sequence[str]) -> str:
    known = {command.name for command in app.registered_commands} | {
        group.info.name for group in (relay_commands, ddl_commands, binlog_commands)
    }
    named = [word for word in arguments[:1] if word in known]
    return f"See: {' '.join(['pidts', *named, '--help'])}"


@app.callback()
def no_command(context: typer.Context) -> None:
    """Copies a MySQL or MariaDB server to another database and applies every later change exactly once."""
    if context.invoked_subcommand is None:
        print(context.get_help(), file=sys.stderr)
        raise typer.Exit(ConfigError.exit_code)


@app.command("version")
def show_version() -> None:
    """Print the version."""
    print(f"pidts {version_of('pidts')}")


@app.command("run")
def run(
    task: TaskFile,
    until_synced: Annotated[
        bool,
        typer.Option(
            "--until-synced",
            help="End as soon as the target has everything that the source had when this command started.",
        ),
    ] = False,
    resync: Annotated[
        list[str] | None,
        typer.Option(
            RESYNC,
            metavar="[TABLE,...]",
            help="Copy these tables again while the task runs: the source's rows overwrite those of the target, and "
            "rows that the source does not have are deleted there. Without names: all tables.",
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="[HOST:]PORT",
            help="Serve metrics for Prometheus at http://HOST:PORT/metrics. Without a host, only this machine can "
            "read them.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> int:
    """Run a task in the foreground and show its progress."""
    parts = _opened(task, debug=debug, live=True)
    tables = resynced(resync)
    from pidts.cli.ddl_view import show_halts
    from pidts.cli.view import every_view, progress_view, row_counts
    from pidts.task.operate.progress import Progress, Summary
    from pidts.task.run.task_run import run_task

    with ExitStack() as resources:
        views: list[Callable[[Progress], None]] = []
        if metrics is not None:
            from pidts.cli.metrics_page import metrics_page

            views.append(resources.enter_context(metrics_page(metrics)))

        def work(stop: threading.Event) -> Summary:
            with progress_view() as view:
                show = every_view([*views, view])
                return run_task(parts, until_synced=until_synced, stop=stop, on_progress=show, resync=tables)

        summary = run_until_stopped(work)
    show_halts([(one.source if len(parts) > 1 else "", halt) for one in summary.sources for halt in one.halted], task)
    if as_json:
        print(json.dumps(summary.to_json(), ensure_ascii=False), flush=True)
    else:
        rows = row_counts(summary.rows)
        several = len(parts) > 1
        places = [
            f"{one.source} {one.position or '-'}" if several else f"{one.position or '-'}" for one in summary.sources
        ]
        print(
            f"{summary.task}: {summary.stage} after {summary.seconds:.1f} s, {rows}, applied up to {', '.join(places)}"
        )
    if summary.stage == "halted":
        return Halted.exit_code
    ends = until_synced or parts[0].mode == "full"
    return PidtsError.exit_code if ends and summary.stage != "synced" else 0


@app.command("check")
def check(task: TaskFile, as_json: AsJson = False, debug: Debug = False) -> int:
    """Check whether the servers are ready for a task; change nothing."""
    parts = _opened(task, debug=debug)
    from pidts.cli.findings import show_findings
    from pidts.task.checks.all_sources import check_all_sources

    return show_findings(parts[0].name, check_all_sources(parts), as_json=as_json)


@app.command("plan")
def plan(task: TaskFile, as_json: AsJson = False, debug: Debug = False) -> int:
    """Show what the task would do with each table: target types, statements, size; change nothing."""
    parts = _opened(task, debug=debug)
    from pidts.cli.plan_view import show_plan
    from pidts.task.checks.preview import preview_task
    from pidts.task.checks.sequences import sequence_notes
    from pidts.task.checks.unused_rules import unused_rules

    found = preview_task(parts)
    names = {source: [table.source for table in of_source] for source, of_source in found.items()}
    notes = [*unused_rules(parts, names), *sequence_notes(parts)]
    return show_plan(parts[0], found, notes, as_json=as_json)


@app.command("replicate")
def replicate(task: TaskFile, debug: Debug = False) -> None:
    """Only receive: write the logs of a task's sources into the relay, and apply nothing."""
    parts = _opened(task, debug=debug)
    from pidts.task.run.replicator_process import replicate as replicate_task

    run_until_stopped(lambda stop: replicate_task(parts, stop))


@app.command("events")
def events(
    source: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="mysql://user@host:port/, or binary log files (also gzip or zstd), or - for stdin.",
        ),
    ],
    start: Annotated[
        str,
        typer.Option(
            "--from", metavar="POINT", help="Begin after this Lsn, file:position, GTID or GTID set, or at this time."
        ),
    ] = "",
    end: Annotated[
        str, typer.Option("--to", metavar="POINT", help="End there, that place included; -1h is one hour ago.")
    ] = "",
    tables: Annotated[str, typer.Option(help="Only these tables: shop.orders,crm.*")] = "",
    follow: Annotated[
        bool, typer.Option("--follow", help="Wait for new events at the end of the log. Without --from, begin now.")
    ] = False,
    schema_from: Annotated[
        str,
        typer.Option(
            "--schema-from",
            metavar="URL|FILE.sql",
            help="Where the table structures come from: the server that wrote the files, or a file of CREATE TABLE "
            "statements as they were at the beginning.",
        ),
    ] = "",
    form: Annotated[
        str,
        typer.Option("--format", metavar="json|text", help="JSON lines, or readable text (the default on a terminal)."),
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    limit: Annotated[int | None, typer.Option(min=0, help="End after this many events.", show_default=False)] = None,
    zone: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="The zone number written into each event.")] = 1,
    debug: Debug = False,
) -> None:
    """Print the change events of a log."""
    from pidts.cli.events.command import print_events

    set_up_logs(debug=debug)
    print_events(
        source,
        start=start,
        end=end,
        tables=tables,
        follow=follow,
        schema_from=schema_from,
        zone=zone,
        form="json" if as_json else form,
        limit=limit,
    )


@app.command("demo")
def demo(
    seconds: Annotated[
        float | None,
        typer.Option(
            min=1, help="End after this many seconds of live sync. Without it: Ctrl-C ends.", show_default=False
        ),
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> int:
    """Show a full copy and a live sync under writes, between two servers that the demo starts and removes."""
    from pidts.cli.demo import DemoResult, run_demo
    from pidts.cli.findings import show_comparison
    from pidts.cli.view import progress_view

    set_up_logs(debug=debug, quiet=sys.stderr.isatty())

    def say(text: str) -> None:
        print(f"demo: {text}", file=sys.stderr, flush=True)

    def work(stop: threading.Event) -> DemoResult | None:
        with progress_view() as view:
            return run_demo(seconds, stop, say, view)

    result = run_until_stopped(work, may_leave=False)
    if result is None:
        say("stopped before the copy was complete; there is nothing to compare")
        return 0
    return show_comparison(result.report, result.summary, as_json=as_json)


def _opened(task: Path, *, debug: bool, live: bool = False) -> tuple[TaskConfig, ...]:
    """Reads the task file before anything that takes long to load, so that a mistake in it is reported at once."""
    from pidts.task.config.task_file import load_parts

    parts = load_parts(task)
    set_up_logs(debug=debug, quiet=live and sys.stderr.isatty())
    for note in parts[0].notes:
        print(f"note: {note}", file=sys.stderr)
    return parts
