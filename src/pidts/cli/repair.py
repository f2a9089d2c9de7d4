"""`pidts repair`: what a comparison finds, as SQL; with `--apply` written to the target, while the task runs."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from pidts.cli.verify import AsJson, Debug, Tables, TaskFile, demand_tables, opened, persistently, progress_line
from pidts.model import PidtsError, TableName

if TYPE_CHECKING:
    from pidts.model import Table
    from pidts.task.config import TaskConfig
    from pidts.task.repairs import Extras, Repairs
    from pidts.verify import Report, Settled


def repair(
    task: TaskFile,
    tables: Tables = "",
    apply: Annotated[bool, typer.Option("--apply", help="Do it; without, only print what would be done.")] = False,
    remove_extra: Annotated[
        bool,
        typer.Option("--remove-extra", help="Of merged tables, also remove rows that none of them has (any more)."),
    ] = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> int:
    """Compare, and print or write what makes the target's rows those of the source."""
    parts = opened(task, debug=debug)
    from pidts.cli.signals import run_until_stopped
    from pidts.verify import Stopped

    show: Callable[[str], None] = (lambda _: None) if as_json else print

    def work(stop: threading.Event) -> Repairs | None:
        try:
            return repaired(parts, tables, apply=apply, removes=remove_extra, stop=stop, show=show)
        except Stopped:
            return None

    done = run_until_stopped(work)
    if done is None:
        print("stopped", file=sys.stderr)
        return PidtsError.exit_code
    return show_repairs(parts[0], done, as_json=as_json)


def repaired(
    parts: Sequence[TaskConfig],
    tables: str,
    *,
    apply: bool,
    stop: threading.Event,
    show: Callable[[str], None],
    removes: bool = False,
) -> Repairs:
    """Compare the tables; with each group of differences, repair them or say how."""
    from pidts.task.comparison import chosen, opened_comparison
    from pidts.task.compose import target_of
    from pidts.task.repairs import Repairs
    from pidts.verify import Memory, Outside

    memory, filtered = [Memory()], set[TableName]()

    def save(reached: Memory) -> None:
        memory[:] = [reached]

    name = parts[0].name
    with progress_line(name) as line, closing(target_of(parts[0]).connect()) as target:
        work = Repairs(name, target, stop, show, apply=apply, removes=removes)
        outside = Outside(tell=line.tell, save=save, stop=stop)

        def attempt() -> Report:
            with opened_comparison(parts, chosen(tables), filtered, stop=stop, say=line.say) as comparison:

                def differ(table: Table, settled: Settled) -> bool:
                    return work.differ(comparison.known[table.name], settled)

                return comparison.run(memory=memory[0], outside=replace(outside, differ=differ))

        report = persistently(attempt, outside)
        work.report = report
    if not filtered:
        demand_tables(report, tables)
    for one in sorted(filtered):
        print(
            f"-- {one} is left alone: filters leave out some of its changes, so rows may differ on purpose",
            file=sys.stderr,
        )
    return work


def show_repairs(config: TaskConfig, work: Repairs, *, as_json: bool) -> int:
    """In short; the exit code says whether the rows are equal now."""
    from pidts.cli.findings import exit_code

    report, name = work.report, config.name
    if report is None:
        return PidtsError.exit_code
    if as_json:
        numbers = {"applied": work.apply, "written": work.written, "removed": work.removed}
        more = {
            "left": work.left.count,
            "left_of_no_shard": work.left.of_no_shard,
            "removing_of_no_shard": work.removing.of_no_shard,
            "shared": work.shared,
        }
        seldom = {key: count for key, count in more.items() if count}
        print(json.dumps({**report.to_json(name), **numbers, **seldom}, ensure_ascii=False), flush=True)
        return exit_code(report)
    for one in report.tables:
        for wait in one.waits:
            print(f"-- {one.table}: {wait}", file=sys.stderr)
        if one.problem:
            print(f"-- {one.table}: {one.problem}", file=sys.stderr)
        elif one.differences and not one.has_key:
            todo = f"pidts run {config.path} --resync {one.table}"
            print(f"-- {one.table} has no key, its rows are not repaired one by one: {todo}", file=sys.stderr)
    for line in (*_left(work.left), *_removing(work)):
        print(f"-- {line}", file=sys.stderr)
    if work.shared:
        print(f"-- {work.shared:,} keys are in several of the merged tables, and are left alone", file=sys.stderr)
    if work.apply:
        left = "all equal now" if report.equal else f"{report.differences:,} rows are still not equal"
        print(f"{name}: {work.written:,} rows written, {work.removed:,} removed, {left}")
    else:
        print(f"{name}: {report.differences:,} rows are not equal{_outlook(work, report)}", file=sys.stderr)
    return exit_code(report)


def _left(left: Extras) -> Iterator[str]:
    if left.of_shards:
        yield f"{left.of_shards:,} extra rows of merged tables are left: --remove-extra removes them"
    if left.of_no_shard:
        todo = "those of tables that were dropped are there on purpose; --remove-extra removes them, too"
        yield f"{left.of_no_shard:,} rows of no shard that there is are left: {todo}"
    if left.untold:
        todo = "those of tables that were dropped or emptied are there on purpose; --remove-extra removes all"
        yield f"{left.untold:,} rows that none of the merged tables has are left: {todo}"


def _removing(work: Repairs) -> Iterator[str]:
    """What goes for `--remove-extra`, before somebody says `--apply`, and after."""
    verb = "were to be removed" if work.apply else "would be removed"
    for count, what in (
        (work.removing.of_shards, "extra rows of merged tables"),
        (work.removing.of_no_shard, "rows of no shard that there is (dropped, or by others)"),
        (work.removing.untold, "rows that none of the merged tables has"),
    ):
        if count:
            yield f"{count:,} {what} {verb}"


def _outlook(work: Repairs, report: Report) -> str:
    """What `--apply` would make of it."""
    if report.equal or not report.differences:
        return ""
    if not work.mended:
        return "; --apply would leave them"
    return (
        "; with --apply it is done" if work.mended >= report.differences else f"; --apply mends {work.mended:,} of them"
    )
