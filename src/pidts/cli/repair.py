"""`pidts repair`: compares, and prints SQL that removes the differences or, with `--apply`, removes them."""

from __future__ import annotations

import json
import shlex
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from pidts.cli.command import Debug, JsonAtEnd, TaskFile, opened
from pidts.cli.final_summary import print_summary
from pidts.cli.verify import (
    STOPS_COMPARING,
    Tables,
    demand_tables,
    grants_in_advice,
    progress_line,
    say_if_not_begun,
    with_retries,
)
from pidts.model import PidtsError
from pidts.model.errors import listed, plural

if TYPE_CHECKING:
    from pidts.model import Table, TableName
    from pidts.task.compare.repair import ExtraRows, Repairs
    from pidts.task.config.task_file import TaskConfig
    from pidts.verify import Report, UnequalKeys


_STOPS_WRITING = "stopping after the rows that are being written"
_MOST_STATEMENTS = 200
"""The most statements that the JSON has. A program that needs all of them reads the text output."""


def repair(
    task: TaskFile,
    tables: Tables = "",
    apply: Annotated[
        bool, typer.Option("--apply", help="Write to the target. Without it, the command only prints the SQL.")
    ] = False,
    remove_extra: Annotated[
        bool,
        typer.Option(
            "--remove-extra",
            help="Also delete extra rows of merged tables, and of tables whose filters may have kept these rows.",
        ),
    ] = False,
    as_json: JsonAtEnd = False,
    debug: Debug = False,
) -> int:
    """Compare, then print SQL that makes the target equal to the source; with --apply, write the rows.

    Exit code 4: rows differ. Exit code 5: only rows of waiting tables and locked rows differ, which stay as they are.
    """
    parts = opened(task, debug=debug, quiet=True)
    from pidts.task.checks.channel import demand_tables
    from pidts.task.config.zone import demand_one_writer

    demand_tables(parts[0], "pidts repair", "it has no rows that could be made equal to the source's rows", "")
    demand_one_writer(parts[0], "pidts repair")
    from pidts.cli.signals import run_until_stopped

    statements: list[str] = []

    def keep(text: str) -> None:
        if len(statements) < _MOST_STATEMENTS:
            statements.append(text)

    show: Callable[[str], None] = keep if as_json else print

    def work(stop: threading.Event) -> Repairs:
        return repaired(parts, tables, apply=apply, removes=remove_extra, stop=stop, show=show)

    with grants_in_advice(parts):
        done = run_until_stopped(work, says=_STOPS_WRITING if apply else STOPS_COMPARING)
    if done.report is not None:
        say_if_not_begun(parts, done.report)
    return show_repairs(parts[0], done, statements, as_json=as_json)


def repaired(
    parts: Sequence[TaskConfig],
    tables: str,
    *,
    apply: bool,
    stop: threading.Event,
    show: Callable[[str], None],
    removes: bool = False,
) -> Repairs:
    """Compares the tables. Repairs each group of differences as soon as it is found, or prints SQL for the repair.

    If the user stops the comparison, the result has the report and the repairs so far.
    """
    from pidts.task.compare.repair import Repairs
    from pidts.task.compare.wiring import chosen, opened_comparison
    from pidts.verify import Callbacks, ComparisonInterrupted, ComparisonState

    memory = [ComparisonState()]

    def save(reached: ComparisonState) -> None:
        memory[:] = [reached]

    name = parts[0].name
    with progress_line(name) as line, closing(parts[0].target.server.connect()) as target:
        work = Repairs(name, target, stop, show, apply=apply, removes=removes)
        callbacks = Callbacks(show=line.show_progress, save=save, stop=stop)

        def attempt() -> Report:
            with opened_comparison(
                parts, chosen(tables), work.filtered, writes=apply, stop=stop, say=line.show_wait
            ) as comparison:

                def differ(table: Table, settled: UnequalKeys) -> bool:
                    return work.differ(comparison.known[table.name], settled)

                return comparison.run(memory=memory[0], callbacks=replace(callbacks, differ=differ))

        try:
            report = with_retries(attempt, callbacks)
        except ComparisonInterrupted as stopped:
            work.report = stopped.report
            return work
        work.report = report
    if not work.filtered:
        demand_tables(report, tables)
    for one in sorted(work.filtered):
        print(
            f"-- {one} is not repaired: its filters leave out inserts or updates, so rows may be missing or different "
            f"on purpose. To copy all rows of the source nevertheless, run: {_resync(parts[0], one.name)}",
            file=sys.stderr,
        )
    return work


def show_repairs(config: TaskConfig, work: Repairs, statements: Sequence[str] = (), *, as_json: bool) -> int:
    """Prints a summary, which in JSON also has the first statements.

    Returns the exit code, which shows whether the rows are equal now; 1 if the user has stopped the comparison.
    """
    from pidts.cli.findings import exit_code, shared_waits

    report, name = work.report, config.name
    if report is None:
        return PidtsError.exit_code
    if report.stopped:
        print(f"stopped; {_changed(work)}" if work.apply else "stopped", file=sys.stderr)
    if as_json:
        numbers = {"sql": list(statements), "applied": work.apply, "written": work.written, "removed": work.removed}
        kept = 0 if work.removes else sum(_kept(config, work, report).values())
        more = {
            "left": work.left.count + kept,
            "left_of_filtered": kept,
            "left_of_no_shard": work.left.of_no_shard,
            "removing_of_no_shard": work.removing.of_no_shard,
            "shared": work.shared,
            "filtered": sorted({str(one.name) for one in work.filtered}),
        }
        found = {key: value for key, value in more.items() if value}
        print_summary(json.dumps({**report.to_json(name), **numbers, **found}, ensure_ascii=False))
        return PidtsError.exit_code if report.stopped else exit_code(report)
    if report.stopped:
        return PidtsError.exit_code
    shared = shared_waits(report)
    for wait, names in shared.items():
        print(f"-- {listed(names)}: {wait}", file=sys.stderr)
    for one in report.tables:
        for wait in one.waits:
            if wait not in shared:
                print(f"-- {one.table}: {wait}", file=sys.stderr)
        if one.locked:
            unchanged = plural("locked row", one.locked, "stays unchanged", "stay unchanged")
            print(f"-- {one.table}: {unchanged}; see: pidts locks list {config.shell_path}", file=sys.stderr)
        if one.problem:
            print(f"-- {one.table}: {one.problem}", file=sys.stderr)
    for line in (*_left(work.left), *_left_by_filters(config, work, report), *_removing(work)):
        print(f"-- {line}", file=sys.stderr)
    if work.shared:
        print(
            f"-- {work.shared:,} keys are in several shards of one merged table, and are not repaired", file=sys.stderr
        )
    if work.apply:
        print(f"{name}: {_changed(work)}, {_still_not_equal(config, work, report)}", flush=True)
    else:
        stays = _not_repaired(config, report)
        unequal = f"{plural('row', report.differences, 'is', 'are')} not equal{_if_applied(work, report)}"
        said = (*([] if stays and not report.differences else [unequal]), *stays, _not_compared(work, report))
        print(f"{name}: {'; '.join(filter(None, said))}", file=sys.stderr)
    _show_keyless(config, report)
    return exit_code(report)


def _show_keyless(config: TaskConfig, report: Report) -> None:
    """Prints, as the last line, the command that copies unequal tables without a key again."""
    keyless = [one for one in report.tables if one.differences and not (one.has_key or one.problem)]
    if not keyless:
        return
    also = "This also removes rows that filters have kept. " if any(one.filtered for one in keyless) else ""
    has, what = ("has", "the table") if len(keyless) == 1 else ("have", "the tables")
    tables = listed(one.table for one in keyless)
    print(
        f"-- {tables} {has} no key, so single rows cannot be repaired. {also}Copy {what} again:\n"
        f"pidts run {config.shell_path} --resync {shlex.quote(','.join(str(one.table) for one in keyless))}",
        file=sys.stderr,
    )


def _changed(work: Repairs) -> str:
    return f"{plural('row', work.written)} written, {plural('extra row', work.removed)} deleted"


def _still_not_equal(config: TaskConfig, work: Repairs, report: Report) -> str:
    """Returns the end of the summary after `--apply`: the numbers of unequal rows and of tables that were not compared.

    A table that was not compared counts as a table only, since its rows may be equal or not.
    """
    left, found = _not_compared(work, report), _not_repaired(config, report)
    if report.differences:
        found.insert(0, plural("row", report.differences, "is still not equal", "are still not equal"))
    if not found and any(one.equal for one in report.tables):
        found.append("all rows that were compared are equal now" if left else "all rows are equal now")
    return ", ".join(filter(None, (*found, left)))


def _not_repaired(config: TaskConfig, report: Report) -> list[str]:
    """Returns the numbers of rows that are not equal, but that a repair leaves: they wait, or are locked."""
    waiting, locked = (sum(getattr(one, kind) for one in report.tables) for kind in ("waiting", "locked"))
    found = []
    if waiting:
        said = plural("unequal row", waiting, "waits and is not repaired", "wait and are not repaired")
        found.append(f"{said}; see: pidts ddl list {config.shell_path}")
    if locked:
        said = plural("row", locked, "is locked and is not repaired", "are locked and are not repaired")
        found.append(f"{said}; see: pidts locks list {config.shell_path}")
    return found


def _not_compared(work: Repairs, report: Report) -> str:
    """Returns how many tables were not compared, as text; empty for none. The lines before it name the reasons."""
    unseen = sum(not (one.differences or one.waiting) and bool(one.problem or one.waits) for one in report.tables)
    count = unseen + len(work.filtered)
    if not count:
        return "" if report.tables else "no table was compared"
    return plural("table", count, "was not compared", "were not compared")


def _resync(config: TaskConfig, table: TableName) -> str:
    return f"pidts run {config.shell_path} --resync {shlex.quote(str(table))}"


def _kept(config: TaskConfig, work: Repairs, report: Report) -> dict[str, int]:
    """Returns, for each table, how many extra rows its filters may have kept. Tables without such rows are left out.

    The keys are the tables' names, with the source if the task has several.
    """
    only = config.source.source_id  # the report names no source if the task has only one
    found = {
        f"{one.source}: {one.table}" if one.source else str(one.table): one.extra - one.of_no_shard
        for one in report.tables
        if not one.members and (one.source or only, one.table) in work.kept
    }
    return {table: count for table, count in found.items() if count}


def _left_by_filters(config: TaskConfig, work: Repairs, report: Report) -> Iterator[str]:
    """Yields a line for each table whose filters may have kept extra rows: the rows are left, or would be deleted."""
    for table, count in _kept(config, work, report).items():
        if not work.removes:
            left = plural("extra row", count, "is left", "are left")
            yield f"{table}: {left}, since its filters leave out changes that remove rows: --remove-extra deletes them"
        elif not work.apply:
            yield f"{table}: {plural('extra row', count)} that its filters may have kept would be deleted"


def _left(left: ExtraRows) -> Iterator[str]:
    if left.of_shards:
        yield f"{_are_left('extra row', left.of_shards, 'of merged tables')}: --remove-extra deletes them"
    if left.of_no_shard:
        todo = "rows of dropped tables stay on purpose; --remove-extra also deletes them"
        yield f"{_are_left('row', left.of_no_shard, _of_no_shard(left.of_no_shard))}: {todo}"
    if left.unattributed:
        todo = "rows of dropped or emptied tables stay on purpose; --remove-extra deletes all of these rows"
        yield f"{_are_left('row', left.unattributed, 'that no shard has')}: {todo}"


def _are_left(noun: str, count: int, what: str) -> str:
    return plural(noun, count, f"{what} is left", f"{what} are left")


def _of_no_shard(count: int) -> str:
    return f"that {'belongs' if count == 1 else 'belong'} to no existing shard"


def _removing(work: Repairs) -> Iterator[str]:
    """Yields a line for each kind of extra row that `--remove-extra` deletes or would delete."""
    verb = "had to be deleted" if work.apply else "would be deleted"
    of_no_shard = f"{_of_no_shard(work.removing.of_no_shard)} (of dropped tables, or written by other programs)"
    for count, noun, what in (
        (work.removing.of_shards, "extra row", "of merged tables"),
        (work.removing.of_no_shard, "row", of_no_shard),
        (work.removing.unattributed, "row", "that no shard has"),
    ):
        if count:
            yield f"{plural(noun, count)} {what} {verb}"


def _if_applied(work: Repairs, report: Report) -> str:
    """Returns the end of the summary: what `--apply` would do with the differences."""
    if report.equal or not report.differences:
        return ""
    if not work.repaired:
        return "; --apply would not change them"
    return (
        "; --apply repairs them"
        if work.repaired >= report.differences
        else f"; --apply repairs {work.repaired:,} of them"
    )
