"""Prints the findings of a check or a comparison, as text or as JSON, and returns the exit code for them."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rich.text import Text

from pidts.cli.errors import OutputConsole, for_this_task
from pidts.cli.view import row_counts
from pidts.model import Halted, PrecheckFailed
from pidts.model.errors import listed, plural
from pidts.source.finding import Finding
from pidts.task.operate.progress import Progress
from pidts.verify import Report, TableReport

DIFFERENT = 4
"""The exit code of a comparison that found different rows."""
_MEMBERS = 8


def exit_code(report: Report) -> int:
    """Returns 0 for equal sides, 5 if only locked rows and rows of halted or waiting tables differ, and 4 otherwise.

    Without a table to compare, the code is 4, since nothing is known to be equal.
    """
    if not report.tables:
        return DIFFERENT
    if report.equal:
        return 0
    return Halted.exit_code if report.waits else DIFFERENT


def show_findings(task: str, findings: Sequence[Finding], *, as_json: bool) -> int:
    """Prints the findings. Returns the exit code, which shows whether the task can run."""
    ready = all(finding.ok for finding in findings)
    ignored = list(dict.fromkeys(finding.item for finding in findings if finding.is_ignored))
    if as_json:
        items = [
            {
                "item": one.item,
                "ok": one.ok,
                "level": _level(one),
                "message": for_this_task(one.message),
                "fix": for_this_task(one.fix),
            }
            | ({} if one.ok else {"code": one.code, "ignored_by": one.ignored_by})
            for one in findings
        ]
        print(json.dumps({"task": task, "ok": ready, "findings": items, "ignored": ignored}, ensure_ascii=False))
        return 0 if ready else PrecheckFailed.exit_code
    console = OutputConsole()
    width = max((len(finding.item) for finding in findings), default=0)
    for finding in findings:
        level = _level(finding)
        state = Text(level.ljust(6), {"failed": "bold red", "ok": "green"}.get(level, "yellow"))
        console.print(
            Text.assemble(state, "  ", (finding.item.ljust(width), "bold"), "  ", for_this_task(finding.message))
        )
        if finding.fix:
            console.print(Text.assemble(" " * (width + 10), ("fix: ", "dim"), for_this_task(finding.fix)))
        if finding.needs_hint:
            said = Text.assemble(("or, at your own risk: ", "dim"), finding.ignored_by)
            console.print(Text.assemble(" " * (width + 10), said))
    if ignored:
        verb = "has failed and is ignored" if len(ignored) == 1 else "have failed and are ignored"
        console.print(Text(f"{', '.join(ignored)} {verb} (ignore-checking-items in the task file)"))
    failed = sum(not finding.ok for finding in findings)
    hints = [finding.item for finding in findings if _level(finding) == "hint"]
    with_hints = f", with {plural('hint', len(hints))} ({', '.join(dict.fromkeys(hints))})" if hints else ""
    summary = f"{failed} of {len(findings)} checks failed" if failed else f"ready to run{with_hints}"
    console.print(Text(f"{task}: {summary}"))
    return 0 if ready else PrecheckFailed.exit_code


def _level(finding: Finding) -> str:
    """Returns the level of a finding: failed, note (for information), hint (advice that need not be followed) or ok."""
    if not finding.ok:
        return "failed"
    if finding.is_note or finding.is_ignored:
        return "note"
    return "hint" if finding.fix else "ok"


def show_report(task: str, report: Report, *, as_json: bool) -> int:
    """Prints a line for each table, and examples of rows that are not equal. Returns the exit code."""
    if as_json:
        print(json.dumps(report.to_json(task), ensure_ascii=False), flush=True)
        return exit_code(report)
    console = OutputConsole()
    width = max((len(_named(one)) for one in report.tables), default=0)
    shared = shared_waits(report)
    for one in report.tables:
        kinds = ("missing", "extra", "different", "unsettled", "waiting", "locked")
        found = [f"{count:,} {name}{_aside(one, name)}" for name in kinds if (count := getattr(one, name))]
        hint = _hint(one) if found and one.filtered else ""
        none = bool(one.not_compared) and not one.rows
        waits = [wait for wait in one.waits if wait not in shared]
        if one.waits and not (found or waits or one.problem):
            waits = ["not compared yet (see below)"]
        said = "; ".join(filter(None, (one.problem, ", ".join(found), hint, *waits))) or ("" if none else "equal")
        left = f"{plural('row', one.not_compared)} not compared" if one.not_compared else ""
        said = "; ".join(filter(None, (said, left)))
        numbers = f"  {one.rows:>13,} rows  "
        console.print(Text.assemble((_named(one).ljust(width), "bold"), numbers, (said, _colour(one))))
        for line in filter(None, (_merged(one), one.note)):
            console.print(Text(f"  {line}", "dim"))
    for example in report.examples:
        console.print(Text(f"  {example}"))
    more = report.differences + sum(one.waiting + one.locked for one in report.tables) - len(report.examples)
    if more > 0 and report.examples:
        console.print(Text(f"  and {more:,} more", "dim"))
    for wait, names in shared.items():
        console.print(Text(f"  {listed(names, _MEMBERS)}: {wait}"))
    if not report.tables:
        said = "nothing to compare: the task has no table yet"
    else:
        tables = sum(bool(one.rows) or not one.problem for one in report.tables)
        compared = f"{plural('row', report.rows)} of {plural('table', tables)} compared"
        said = f"{_in_short(report)}, {compared}"
    console.print(Text(f"{task}: {said}"))
    return exit_code(report)


def shared_waits(report: Report) -> dict[str, list[str]]:
    """Returns the causes for which several tables wait, with the names of these tables."""
    found: dict[str, list[str]] = {}
    for one in report.tables:
        for wait in one.waits:
            found.setdefault(wait, []).append(_named(one))
    return {wait: tables for wait, tables in found.items() if len(tables) > 1}


def _in_short(report: Report) -> str:
    if report.equal:
        return "equal"
    if not report.waits:
        problems = sum(bool(one.problem) for one in report.tables)
        differences = plural("difference", report.differences) if report.differences or not problems else ""
        said = f"{plural('table', problems)} {'has' if problems == 1 else 'have'} a problem (see above)"
        locked = sum(one.locked for one in report.tables)
        aside = f"{plural('row', locked, 'is', 'are')} locked" if locked else ""
        return ", ".join(filter(None, (differences, said if problems else "", aside)))
    waiting, locked = (sum(getattr(one, name) for one in report.tables) for name in ("waiting", "locked"))
    unseen = sum(bool(one.waits) and not one.waiting for one in report.tables)
    table_has = "its table has" if waiting == 1 else "their tables have"
    found = [
        f"{plural('row', waiting, 'is', 'are')} not equal now; {table_has} changes that are not applied yet, which may "
        f"or may not make the {'row' if waiting == 1 else 'rows'} equal"
        if waiting
        else "",
        f"{plural('row', locked)} {'is' if locked == 1 else 'are'} locked" if locked else "",
        f"{plural('table', unseen)} cannot be compared yet" if unseen else "",
    ]
    return f"no row is known to differ, but {'; '.join(filter(None, found))}"


def _hint(one: TableReport) -> str:
    """Returns a note that filters may be the reason for a table's differences; empty if they cannot be."""
    if not one.only_extra:
        return "its filters leave out some of its changes, so this may be intended"
    return "its filters leave out changes that remove rows, so extra rows may be intended" if one.extra else ""


def _named(one: TableReport) -> str:
    return f"{one.source}: {one.table}" if one.source else str(one.table)


def _aside(one: TableReport, kind: str) -> str:
    """Returns a remark on a count: the command that shows locked rows, or the number of extra rows without a shard."""
    if kind == "locked":
        return f" (see {for_this_task('pidts locks list TASK')})"
    if kind != "extra" or not one.of_no_shard:
        return ""
    return f" ({one.of_no_shard:,} {'belongs' if one.of_no_shard == 1 else 'belong'} to no existing shard)"


def _merged(one: TableReport) -> str:
    """Returns a text with the source tables of a merged table, but only the first ones of many."""
    return f"merged from {listed(one.members, _MEMBERS)}" if one.members else ""


def _colour(one: TableReport) -> str:
    waits = (one.waits or one.locked) and not one.differences
    return "green" if one.equal else "bold yellow" if waits else "bold red"


def show_comparison(report: Report, summary: Progress, *, as_json: bool) -> int:
    """Prints the counters of the demo's run, the first differences and their number. Returns the exit code."""
    if as_json:
        result = {
            "rows_compared": report.rows,
            "differences": report.differences,
            "examples": list(map(str, report.examples)),
        }
        print(json.dumps({**summary.to_json(), **result}, ensure_ascii=False))
    else:
        print(f"{summary.task}: {row_counts(summary.rows)} in {summary.batches:,} batches and {summary.seconds:.1f} s")
        for example in report.examples:
            print(f"  {example}")
        rows = f"{plural('row', report.rows)} of {plural('table', len(report.tables))}"
        print(f"{plural('difference', report.differences)} in {rows}")
    return exit_code(report)
