"""What a check and a comparison have found, for people and for machines, and the exit code that says it in short."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from pidts.model import PrecheckFailed
from pidts.source.finding import Finding
from pidts.task.progress import Summary
from pidts.verify import Report, TableReport

DIFFERENT = 4
"""The exit code where two sides are not equal."""


def show_findings(task: str, findings: Sequence[Finding], *, as_json: bool) -> int:
    """Print them; the exit code says whether the task can run."""
    ready = all(finding.ok for finding in findings)
    if as_json:
        items = [{"item": one.item, "ok": one.ok, "message": one.message, "fix": one.fix} for one in findings]
        print(json.dumps({"task": task, "ok": ready, "findings": items}, ensure_ascii=False))
        return 0 if ready else PrecheckFailed.exit_code
    console = Console(soft_wrap=True, highlight=False)
    width = max((len(finding.item) for finding in findings), default=0)
    for finding in findings:
        state = Text("ok    ", "green") if finding.ok else Text("failed", "bold red")
        console.print(Text.assemble(state, "  ", (finding.item.ljust(width), "bold"), "  ", finding.message))
        if finding.fix and not finding.ok:
            console.print(Text.assemble(" " * (width + 10), ("fix: ", "dim"), finding.fix))
    failed = sum(not finding.ok for finding in findings)
    console.print(Text(f"{task}: {failed} of {len(findings)} checks failed" if failed else f"{task}: ready to run"))
    return 0 if ready else PrecheckFailed.exit_code


def show_report(task: str, report: Report, *, as_json: bool) -> int:
    """A line for each table, then the rows that are not equal, as far as they are named."""
    if as_json:
        print(json.dumps(report.to_json(task), ensure_ascii=False), flush=True)
        return 0 if report.equal else DIFFERENT
    console = Console(soft_wrap=True, highlight=False)
    width = max((len(str(one.table)) for one in report.tables), default=0)
    for one in report.tables:
        counts = ((one.missing, "missing"), (one.extra, "extra"), (one.different, "different"))
        found = [f"{count:,} {name}" for count, name in (*counts, (one.unsettled, "unsettled")) if count]
        meant = "filters leave out some of its changes, so that may be meant" if found and one.filtered else ""
        said = "; ".join(filter(None, (one.problem, ", ".join(found), meant))) or "equal"
        numbers = f"  {one.rows:>13,} rows  "
        console.print(Text.assemble((str(one.table).ljust(width), "bold"), numbers, (said, _colour(one))))
    for example in report.examples:
        console.print(Text(f"  {example}"))
    more = report.differences - len(report.examples)
    if more > 0 and report.examples:
        console.print(Text(f"  and {more:,} more", "dim"))
    said = "equal" if report.equal else f"{report.differences:,} differences"
    console.print(Text(f"{task}: {said}, {report.rows:,} rows of {len(report.tables)} tables compared"))
    return 0 if report.equal else DIFFERENT


def _colour(one: TableReport) -> str:
    return "green" if one.equal else "bold red"


def show_comparison(report: Report, summary: Summary, *, as_json: bool) -> int:
    """The number of differences, and the first of them, after a run."""
    if as_json:
        result = {
            "rows_compared": report.rows,
            "differences": report.differences,
            "examples": list(map(str, report.examples)),
        }
        print(json.dumps({**summary.to_json(), **result}, ensure_ascii=False))
    else:
        rows = ", ".join(f"{count:,} {name}" for name, count in summary.rows.items())
        print(f"{summary.task}: {rows} in {summary.batches:,} batches and {summary.seconds:.1f} s")
        for example in report.examples:
            print(f"  {example}")
        print(f"{report.differences} differences in {report.rows:,} rows of {len(report.tables)} tables")
    return 0 if report.equal else DIFFERENT
