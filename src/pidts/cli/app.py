"""The commands of `pidts` and their options."""

from __future__ import annotations

import errno
import json
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from functools import cache
from importlib.metadata import version as version_of
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

from pidts.cli import dmctl
from pidts.cli.command import Debug, JsonAtEnd, JsonInstead, TaskFile, opened, plain_path
from pidts.cli.cutover.command import cutover
from pidts.cli.ddl.command import binlog_commands, ddl_commands, list_ddl, shard_ddl_lock, unlock_ddl_lock
from pidts.cli.errors import as_unexpected, has_lost_output, remember_service, remember_task, show_error
from pidts.cli.failover import failover
from pidts.cli.grants import grants
from pidts.cli.init import init
from pidts.cli.locks.command import locks_commands
from pidts.cli.log_options import LEVELS, choose, log_options, options_first, set_up_logs, write_line
from pidts.cli.program import end_at_once_on_signals, note_signals, say_stopped
from pidts.cli.relay.command import relay_commands
from pidts.cli.repair import repair
from pidts.cli.serve import State, TokenFile, serve
from pidts.cli.service.client import service_client
from pidts.cli.service.commands import Url, Watch, is_file, list_tasks, pause, resume, start, status_of_service, stop
from pidts.cli.signals import RUN_ENDS_WITHIN, run_until_stopped
from pidts.cli.slow_step import end_steps, said_steps, with_answer
from pidts.cli.spark_conf import spark_conf
from pidts.cli.verify import verify
from pidts.cli.zones.command import check_zones, directions_of, show_zones_status, zones_commands
from pidts.cli.zones.hand_over import hand_over
from pidts.cli.zones.move import move, show_owners
from pidts.cli.zones.zone_return import let_zone_return
from pidts.hidden_modules import hide_modules
from pidts.model import ConfigError, Halted, PidtsError
from pidts.process_end import end_process

if TYPE_CHECKING:
    from pidts.task.config.task_file import TaskConfig
    from pidts.task.config.zones_file import Direction

_OF_LOST_OUTPUT = frozenset({errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
_COMPILES_ALWAYS = (
    "compiled code cannot be kept ({reason}), so each run compiles it anew, for a minute or more. Let this user write "
    "to the folder, or set NUMBA_CACHE_DIR to a folder to which this user may write"
)
_COMPILES = "compiling code for this machine: only the first runs do this; it takes minutes on a busy machine"
_JOURNEY = (
    *("init", "grants", "check", "plan", "run", "status", "ddl", "locks"),
    *("verify", "repair", "cutover", "failover", "zones"),
    *("serve", "start", "pause", "resume", "stop", "list"),
    *("replicate", "apply", "relay", "events", "spark-conf", "schema", "demo", "version"),
)
"""The commands in the order in which `--help` lists them: the order in which a new user needs them."""


class JourneyGroup(typer.core.TyperGroup):
    """The commands of `pidts`, which `--help` lists in the order of `_JOURNEY`."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Returns the names of the commands in the order of `_JOURNEY`. Other commands come last."""
        names = super().list_commands(ctx)
        return sorted(names, key=lambda name: _JOURNEY.index(name) if name in _JOURNEY else len(_JOURNEY))


app = typer.Typer(
    name="pidts",
    cls=JourneyGroup,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

app.add_typer(relay_commands)
app.add_typer(ddl_commands)
app.add_typer(locks_commands)
zones_commands.command("owners", short_help="Show which zone owns which rows.")(show_owners)
zones_commands.command("move", short_help="Give rows to another zone.")(move)
zones_commands.command("hand-over", short_help="Let all zones feed a new zone directly.")(hand_over)
zones_commands.command("return", short_help="Fill a zone again from another zone.")(let_zone_return)
app.add_typer(zones_commands)
app.add_typer(binlog_commands)
app.command("shard-ddl-lock", hidden=True)(shard_ddl_lock)
app.command("show-ddl-locks", hidden=True)(list_ddl)
app.command("unlock-ddl-lock", hidden=True)(unlock_ddl_lock)
app.command("init", short_help="Look at both servers and write a task file.")(init)
app.command("grants", short_help="Print the SQL that grants what the task needs.")(grants)
app.command("verify", short_help="Compare source and target; change nothing.")(verify)
app.command("cutover", short_help="Prepare the switch of applications to the target.")(cutover)
app.command("failover", short_help="Continue with a standby of the source.")(failover)
app.command("serve", short_help="Run tasks as a service, with a page and a REST interface.")(serve)
app.command("start", short_help="Let the service run a task.")(start)
app.command("pause", short_help="Pause a task of the service.")(pause)
app.command("resume", short_help="Let a task of the service continue.")(resume)
app.command("stop", short_help="Stop a task of the service.")(stop)
app.command("list", short_help="Show the tasks of the service.")(list_tasks)
app.command("pause-task", hidden=True)(pause)
app.command("stop-task", hidden=True)(stop)
app.command("repair", short_help="Make the target equal to the source.")(repair)
app.command("spark-conf", short_help="Print Spark settings that read a warehouse.")(spark_conf)

_INTERRUPTED = 130
RESYNC, REWIND = "--resync", "--rewind-to"
UntilSynced = Annotated[
    bool,
    typer.Option(
        "--until-synced",
        help="End as soon as the target has everything that the source had when this command started.",
    ),
]
Resync = Annotated[
    list[str] | None,
    typer.Option(
        RESYNC,
        metavar="[TABLE,...]",
        help="Copy these tables again while the task runs. The source's rows overwrite the target's rows, and "
        "rows that only the target has are deleted. Without names: all tables.",
    ),
]
RewindTo = Annotated[
    str | None,
    typer.Option(
        REWIND,
        metavar="LSN|TIME",
        help="Send the changes after this place or time again, up to the task's checkpoint, if rows of the target were "
        "damaged or lost since then. A time without a zone is UTC. With several sources: SOURCE-ID:LSN.",
        show_default=False,
    ),
]
Metrics = Annotated[
    str | None,
    typer.Option(
        metavar="[HOST:]PORT",
        help="Serve metrics for Prometheus at http://HOST:PORT/metrics. "
        "Without a host, only this machine can read them.",
        show_default=False,
    ),
]


def main() -> None:
    """Runs the program `pidts` with the arguments of this process."""
    hide_modules()
    end_process(run_command(sys.argv[1:]))


def run_command(arguments: Sequence[str], commands: typer.Typer = app) -> int:
    """Runs a command line; returns the exit code. Prints the errors of all commands, so that they look the same."""
    code = _exit_code(arguments, commands)
    return code or PidtsError.exit_code if has_lost_output() else code


@cache
def parser(commands: typer.Typer) -> Callable[..., Any]:
    """Returns the function that parses a command line and calls its command. Typer would build it for each call."""
    return typer.main.get_command(commands)


def _exit_code(arguments: Sequence[str], commands: typer.Typer) -> int:
    as_json, debug = "--json" in arguments, "--debug" in arguments
    try:
        choose("", "text", None)
        remember_task(None)
        remember_service()
        arguments = options_first(arguments)
        arguments = dmctl.of_service(arguments)
        dmctl.refuse(arguments)
        result = parser(commands)(args=with_tables(arguments), prog_name="pidts", standalone_mode=False)
    except PidtsError as error:
        show_error(error, as_json=as_json)
        return error.exit_code
    except typer.TyperException as error:
        show_error(ConfigError("usage", error.format_message(), todo=_help_for(arguments)), as_json=as_json)
        return ConfigError.exit_code
    except typer.Abort as error:  # Typer raises it in place of an EOFError, and prints nothing
        return _show_unexpected(error.__cause__ or error, as_json=as_json, debug=debug)
    except SystemExit as error:
        # Typer raises it in place of a BrokenPipeError, and prints nothing. The pipe need not be stdout.
        if not isinstance(error.__context__, BrokenPipeError):
            raise
        return _show_unexpected(error.__context__, as_json=as_json, debug=debug)
    except KeyboardInterrupt:
        result = _INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last place that can report it in one line
        return _show_unexpected(error, as_json=as_json, debug=debug)
    if result == _INTERRUPTED:
        say_stopped()
        return PidtsError.exit_code
    return result if isinstance(result, int) else 0


def _show_unexpected(error: BaseException, *, as_json: bool, debug: bool) -> int:
    may_be_of_stdout = isinstance(error, OSError) and error.errno in _OF_LOST_OUTPUT
    if not (may_be_of_stdout and has_lost_output("\n")):
        show_error(as_unexpected(error, debug=debug), as_json=as_json)
    return PidtsError.exit_code


def _help_for(arguments: Sequence[str]) -> str:
    known = {command.name for command in app.registered_commands} | {
        group.info.name for group in (relay_commands, ddl_commands, binlog_commands, locks_commands, zones_commands)
    }
    named = [word for word in arguments[:1] if word in known]
    return f"See: {' '.join(['pidts', *named, '--help'])}"


def _print_version(*, wanted: bool) -> None:
    if wanted:
        show_version()
        raise typer.Exit


@app.callback()
def no_command(
    context: typer.Context,
    log_level: Annotated[
        str,
        typer.Option(metavar="|".join(LEVELS), help="The lowest level of log lines to show.", show_default=False),
    ] = "",
    log_format: Annotated[str, typer.Option(metavar="text|json", help="The form of each log line.")] = "text",
    log_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Append log lines to this file instead of stderr.", show_default=False),
    ] = None,
    version: Annotated[  # noqa: ARG001 - its callback prints the version
        bool,
        typer.Option(
            "--version", callback=lambda value: _print_version(wanted=value), is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Copies a MySQL or MariaDB server to another database and applies every later change exactly once.

    The options for logs may also be given after the command.
    """
    choose(log_level, log_format, log_file)
    set_up_logs()
    if context.invoked_subcommand is None:
        print(context.get_help(), file=sys.stderr)
        raise typer.Exit(ConfigError.exit_code)


@app.command("version")
def show_version() -> None:
    """Print the version."""
    print(f"pidts {version_of('pidts')}")


@app.command("start-task", hidden=True)
@app.command("resume-task", hidden=True)
@app.command("run")
def run(
    task: TaskFile,
    until_synced: UntilSynced = False,
    resync: Resync = None,
    rewind_to: RewindTo = None,
    metrics: Metrics = None,
    as_json: JsonAtEnd = False,
    debug: Debug = False,
) -> int:
    """Run a task in the foreground and show its progress. If its file has pidts.zones, run all directions."""
    if directions := directions_of(task):
        return _run_zones(
            task,
            directions,
            until_synced=until_synced,
            as_json=as_json,
            debug=debug,
            refused=resync or rewind_to is not None or metrics,
        )
    note_signals()
    parts = opened(task, debug=debug, quiet=True, notes=True)
    return _run(parts, task, resynced(resync), rewind_to, metrics, until_synced=until_synced, as_json=as_json)


@app.command("apply", short_help="Only apply what another machine receives.")
def apply(
    task: TaskFile,
    until_synced: UntilSynced = False,
    resync: Resync = None,
    rewind_to: RewindTo = None,
    metrics: Metrics = None,
    as_json: JsonAtEnd = False,
    debug: Debug = False,
) -> int:
    """Run a task without its replicators: the log comes from a relay server, or another machine writes a shared relay.

    With `pidts.relay-from`, this machine keeps a copy of the relay server's relay. Without it, `pidts.relay` is a
    directory that `pidts replicate` on another machine writes.
    """
    note_signals()
    parts = opened(task, debug=debug, quiet=True, notes=True)
    return _run(
        parts, task, resynced(resync), rewind_to, metrics, until_synced=until_synced, as_json=as_json, receives=False
    )


def _run(
    parts: Sequence[TaskConfig],
    task: Path,
    tables: tuple[str, ...] | None,
    rewind: str | None,
    metrics: str | None,
    *,
    until_synced: bool,
    as_json: bool,
    receives: bool = True,
) -> int:
    if rewind is not None and not rewind.strip():
        raise ConfigError("usage", f"{REWIND} has no value", todo=f"Give an Lsn or a time, or leave {REWIND} out")
    if rewind and tables is not None:
        todo = f"Give {RESYNC} to copy whole tables, or {REWIND} to send the changes of a part of the log"
        raise ConfigError("usage", f"{RESYNC} and {REWIND} cannot be given together", todo=todo)
    ends = until_synced or parts[0].mode == "full"
    end_at_once_on_signals(PidtsError.exit_code if ends else 0, parts[0].name)
    with ExitStack() as resources:
        compile_before_run()
        from pidts.cli.ddl.view import show_halts
        from pidts.cli.final_summary import print_summary
        from pidts.cli.view import LiveView, every_view, in_a_line, progress_view
        from pidts.task.operate.progress import Progress
        from pidts.task.run.replicator_process import fork_replicators
        from pidts.task.run.task_run import run_task

        replicators = None
        if receives or any(part.relay_from is not None for part in parts):
            # The forker starts when all modules of a run are loaded, so that replicators share their memory. It starts
            # before any thread, since a fork copies only one thread.
            replicators = resources.enter_context(closing(fork_replicators()))
        latest: list[Progress] = []
        shown: list[LiveView] = []

        def keep(progress: Progress) -> None:
            latest[:] = [progress]

        views: list[Callable[[Progress], None]] = [keep]
        if metrics is not None:
            from pidts.cli.metrics_page import metrics_page

            views.append(resources.enter_context(metrics_page(metrics)))

        def work(stop: threading.Event) -> Progress:
            with progress_view() as view:
                shown.append(view)
                show = every_view([*views, view])
                return run_task(
                    parts,
                    until_synced=until_synced,
                    stop=stop,
                    on_progress=show,
                    resync=tables,
                    rewind=rewind or "",
                    receives=receives,
                    replicators=replicators,
                )

        try:
            summary = run_until_stopped(work, ends_within=RUN_ENDS_WITHIN)
        except PidtsError:
            # With --json, only the error is printed to stdout, as its last line.
            if not as_json and latest and any(one.position for one in latest[0].sources):
                print_summary(in_a_line(latest[0], "ended by an error"))
            raise
    halts = [(one.source, halt) for one in summary.sources for halt in one.halted]
    several = len(parts) > 1
    show_halts([(one if several else "", halt) for one, halt in halts if not shown[0].has_shown(one, halt)], task)
    if as_json:
        print_summary(json.dumps(summary.to_json(), ensure_ascii=False))
    else:
        print_summary(in_a_line(summary, summary.stage))
    if summary.stage == "halted":
        return Halted.exit_code
    return PidtsError.exit_code if ends and summary.stage != "synced" else 0


def compile_before_run() -> None:
    """Compiles the code of the run and its replicators, and prints that it does so, unless the code is compiled."""
    from pidts.binlog.machine_code import compiled, is_complete, why_not_kept

    if compiled() and not is_complete():
        if reason := why_not_kept():
            write_line(_COMPILES_ALWAYS.format(reason=reason), sys.stderr)
            return
        from pidts.batch.compile_ahead import compile_once

        write_line(_COMPILES, sys.stderr)
        compile_once(lambda text: write_line(text, sys.stderr))


def _run_zones(
    file: Path,
    directions: Sequence[Direction],
    *,
    until_synced: bool,
    as_json: bool,
    debug: bool,
    refused: object,
) -> int:
    end_at_once_on_signals(PidtsError.exit_code if until_synced else 0, file.name)
    set_up_logs(debug=debug)
    if refused:
        todo = f"Name one direction: {', '.join(f'{file}@{one}' for one in directions)}"
        raise ConfigError("usage", f"{RESYNC}, {REWIND} and --metrics can only be given for one direction", todo=todo)
    from pidts.cli.final_summary import print_summary
    from pidts.cli.zones.run import ZONES_END_WITHIN, exit_code_of, run_zones, summary_of
    from pidts.task.checks.joining.joined_zones import demand_joined
    from pidts.task.config.task_file import load_task
    from pidts.task.config.zones_file import path_of

    demand_joined({one: load_task(path_of(file, one)) for one in directions})
    runs = run_until_stopped(
        lambda stop: run_zones(file, directions, stop, until_synced=until_synced), ends_within=ZONES_END_WITHIN
    )
    if as_json:
        print_summary(json.dumps(summary_of(file.name, runs), ensure_ascii=False))
    return exit_code_of(runs)


@app.command("check-task", hidden=True)
@app.command("check", short_help="Check whether the servers are ready.")
def check(task: TaskFile, as_json: JsonAtEnd = False, debug: Debug = False) -> int:
    """Check whether the servers are ready for a task; change nothing."""
    with said_steps("reading the task file", quiet=log_options().has_json_on_stderr) as step:
        if directions := directions_of(task):
            set_up_logs(debug=debug)
            return check_zones(task, directions, step, as_json=as_json)
        parts = opened(task, debug=debug, notes=True)
        step("loading the checks")
        from pidts.cli.findings import show_findings
        from pidts.task.checks.all_sources import check_all_sources, lost_log_findings

        findings = check_all_sources(parts, step=step)
        step("comparing the task's checkpoint with the sources' logs")
        findings += lost_log_findings(parts)
    return show_findings(parts[0].name, findings, as_json=as_json)


@app.command("plan", short_help="Show what the task would do; change nothing.")
def plan(
    task: TaskFile,
    brief: Annotated[bool, typer.Option("--brief", help="Show one line for each table, without its columns.")] = False,
    with_sql: Annotated[bool, typer.Option("--sql", help="Also show the SQL that creates each table.")] = False,
    as_json: JsonAtEnd = False,
    debug: Debug = False,
) -> int:
    """Show what the task would do with each table: target types, statements, size; change nothing."""
    parts = opened(task, debug=debug, notes=True)
    from pidts.cli.plan_view import show_plan
    from pidts.task.checks.divergence_note import divergence_note
    from pidts.task.checks.not_replicated import sequence_notes
    from pidts.task.checks.preview import preview_task
    from pidts.task.checks.unused_rules import unused_rule_findings

    found = preview_task(parts)
    names = {source: [table.source for table in of_source] for source, of_source in found.items()}
    notes = [
        *filter(None, [divergence_note(parts, found)]),
        *(f"{one.message}. {one.fix}" for one in unused_rule_findings(parts, names)),
        *sequence_notes(parts),
    ]
    return show_plan(parts[0], found, notes, as_json=as_json, brief=brief, with_sql=with_sql)


@app.command("replicate", short_help="Only receive the log into the relay.")
def replicate(
    task: TaskFile,
    serve: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            help="Serve the relay to `pidts apply` on other machines. An address other than loopback needs --tls-cert.",
            show_default=False,
        ),
    ] = "",
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A file with the tokens of the followers, one on each line; --serve needs it.",
            show_default=False,
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The certificate of --serve, with its chain (PEM).", show_default=False),
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The key of --tls-cert (PEM).", show_default=False)
    ] = None,
    debug: Debug = False,
) -> None:
    """Run only a task's replicators: write the logs of its sources into the relay, and apply nothing."""
    parts = opened(task, debug=debug, notes=True)
    from pidts.follow.server import RelayEndpoint
    from pidts.task.run.replicator_process import replicate as replicate_task

    listening = None
    if serve:
        if token_file is None:
            todo = "Add --token-file FILE; make one: (umask 077; openssl rand -hex 32 > FILE)"
            raise ConfigError("usage", "--serve needs a token file", todo=todo)
        listening = RelayEndpoint(serve, token_file, tls_cert, tls_key)
        listening.demand_safe()
    elif token_file or tls_cert or tls_key:
        raise ConfigError(
            "usage",
            "--token-file, --tls-cert and --tls-key need --serve",
            todo="See: pidts replicate --help",
        )
    run_until_stopped(lambda stop: replicate_task(parts, stop, listening), ends_within=RUN_ENDS_WITHIN)


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
        str, typer.Option("--to", metavar="POINT", help="End after this place, or at this time; -1h is one hour ago.")
    ] = "",
    tables: Annotated[str, typer.Option(help="Only these tables: shop.orders,crm.*")] = "",
    follow: Annotated[
        bool, typer.Option("--follow", help="Wait for new events at the end of the log. Without --from, begin there.")
    ] = False,
    schema_from: Annotated[
        str,
        typer.Option(
            "--schema-from",
            metavar="URL|FILE.sql",
            help="Where the table structures come from: the server that wrote the files, or a file with the CREATE "
            "TABLE statements that were valid at the beginning of the log.",
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


@app.command("demo", short_help="Start two servers, and show a copy and a live sync between them.")
def demo(
    seconds: Annotated[
        float | None,
        typer.Option(
            min=1,
            help="End after this many seconds of live sync. Without it, Ctrl-C ends the demo.",
            show_default=False,
        ),
    ] = None,
    target: Annotated[
        str, typer.Option(metavar="TYPE", help="The target: a server (postgresql), or a warehouse (iceberg).")
    ] = "postgresql",
    servers: Annotated[
        bool,
        typer.Option("--servers", help="Start the servers, fill the tables and write a task file, but run no task."),
    ] = False,
    web: Annotated[
        bool, typer.Option("--web", help="Let a service run the task, and show it on the service's page.")
    ] = False,
    as_json: JsonAtEnd = False,
    debug: Debug = False,
) -> int:
    """Show a full copy and a live sync under writes, between servers that the demo starts and removes."""
    from pidts.cli.demo.question import show_answers
    from pidts.cli.demo.run import DemoResult, kind_of, run_demo, run_servers
    from pidts.cli.findings import DIFFERENT, show_comparison
    from pidts.cli.view import progress_view
    from pidts.task.run.replicator_process import fork_replicators

    set_up_logs(debug=debug, quiet=sys.stderr.isatty())
    kind = kind_of(target)

    def say(text: str) -> None:
        print(f"demo: {text}", file=sys.stderr, flush=True)

    if servers:
        run_until_stopped(lambda stop: run_servers(stop, say, kind), may_leave=False)
        return 0
    replicators = fork_replicators()

    def work(stop: threading.Event) -> DemoResult | None:
        with progress_view() as view, closing(replicators):
            return run_demo(seconds, stop, say, view, kind=kind, with_page=web, replicators=replicators)

    result = run_until_stopped(work, may_leave=False)
    if result is None:
        say("stopped before the copy was complete; there is nothing to compare")
        return 0
    code = show_comparison(result.report, result.summary, as_json=as_json)
    if result.answers is None:
        return code
    show_answers(result.answers, sys.stderr if as_json else sys.stdout)
    return code or (0 if result.answers.are_equal else DIFFERENT)


@app.command("query-status", hidden=True)
@app.command("status", short_help="Show how far a task is, and what is halted.")
def status(
    task: Annotated[
        str,
        typer.Argument(
            metavar="[TASK]",
            help="The task file; or the name of a task of the service. Without it: all tasks of the service.",
            show_default=False,
        ),
    ] = "",
    watch: Watch = False,
    state: State = None,
    service: Url = "",
    token_file: TokenFile = None,
    as_json: JsonInstead = False,
    debug: Debug = False,
) -> int:
    """Show how far a task is and which tables are halted or waiting; the task need not run.

    Exit code 5: something needs an operator.
    """
    if not task or not is_file(task):
        end_steps()
        set_up_logs(debug=debug)
        client = service_client(state, service, token_file)
        return status_of_service(client, task, watch=watch, as_json=as_json)
    if watch or service or state or token_file:
        what = f"{task} is a task file, but --watch and the options of the service need a task of the service"
        raise ConfigError("usage", what, todo="Name the task of the service instead of the file")
    with said_steps("reading the task file", quiet=log_options().has_json_on_stderr) as step:
        file = plain_path(Path(task))
        if directions := directions_of(file):
            set_up_logs(debug=debug)
            return show_zones_status(file, directions, as_json=as_json)
        parts = opened(file, debug=debug)
        step("loading the status")
        from pidts.cli.status_view import show_status, show_without_target
        from pidts.task.operate.status import TaskStatus, local_status, task_status

        answer: TaskStatus | PidtsError
        try:
            answer = task_status(parts, step, with_answer)
        except PidtsError as error:
            answer = error
    if isinstance(answer, PidtsError):
        return show_without_target(local_status(parts), answer, file, as_json=as_json)
    return show_status(answer, file, as_json=as_json)


@app.command("schema", short_help="Print the JSON Schema of a task file.")
def schema(
    source: Annotated[bool, typer.Option("--source", help="Print the schema of a DM source file instead.")] = False,
) -> None:
    """Print the JSON Schema of a task file. Editors use it to complete and check task files."""
    from pidts.task.config.json_schema import source_schema, task_schema

    print(json.dumps(source_schema() if source else task_schema(), indent=1))


_ALL = "*"


def with_tables(arguments: Sequence[str]) -> list[str]:
    """Returns the command line with `*` after a `--resync` that an option, a task file or nothing follows."""
    words: list[str] = []
    for at, word in enumerate(arguments):
        words.append(word)
        following = arguments[at + 1] if at + 1 < len(arguments) else "-"
        is_file = following.split("@")[0].endswith((".yaml", ".yml"))
        if word == RESYNC and (following.startswith("-") or is_file):
            words.append(_ALL)
    return words


def resynced(values: Sequence[str] | None) -> tuple[str, ...] | None:
    """Returns the table patterns of `--resync`; empty for all tables, None if the option is not given."""
    if not values:
        return None
    names = [name.strip() for value in values for name in value.split(",")]
    if not all(names):
        raise ConfigError("usage", f"{RESYNC}: a table's name is empty", todo="See: pidts run --help")
    return () if _ALL in names else tuple(names)
