"""Finds in the source code the keys of the documents that commands print with `--json` and that the replicator writes."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "pidts"

_BACKLOG = (
    "task/operate/backlog.py:Backlog.to_json",
    "task/operate/backlog.py:HeldTablesOfSource.to_json",
    "task/operate/backlog.py:NextSchemaChange.to_json",
)
_LOCK = ("task/operate/shard_locks.py:OpenLock.to_json",)
_HALTED = "cli/ddl/view.py:halted_json", "model/halt.py:Halt"
_ERROR = "model/errors.py:PidtsError.to_json", "model/errors.py:Where"
_PROGRESS = (
    "task/operate/progress.py:Progress.to_json",
    "task/operate/progress.py:SourceProgress.to_json",
    "task/operate/progress.py:TableProgress.to_json",
    "task/operate/progress.py:TableChanges.to_json",
    "task/operate/progress.py:applied_json",
    "task/operate/stage_report.py:StageReport.to_json",
    "task/operate/stage_report.py:ReportedStage.to_json",
    "task/operate/stage_report.py:SlowStage.to_json",
)
_REPORT = (
    "verify/report.py:Report.to_json",
    "verify/report.py:TableReport.to_json",
    "verify/report.py:TableReport",
    "verify/report.py:RowDifference.to_json",
)
DOCUMENTS = {
    "an error": _ERROR,
    "check": ("cli/findings.py:show_findings",),
    "cutover": (
        "task/cutover/steps.py:Checklist.to_json",
        "task/cutover/steps.py:CutoverStep.to_json",
        "cli/cutover/command.py:_undo",
        "cli/cutover/command.py:_reverse",
    ),
    "ddl list": (
        "cli/ddl/view.py:show_ddl_list",
        "cli/ddl/view.py:_list_json",
        "cli/ddl/view.py:_command_json",
        *_HALTED,
        *_BACKLOG,
        *_LOCK,
    ),
    "ddl retry": ("cli/ddl/view.py:show_retry",),
    "ddl skip, replace, inject, revert, unlock": ("cli/ddl/view.py:show_command", *_BACKLOG, *_LOCK),
    "events": ("cli/events/command.py:event_line",),
    "failover": ("cli/failover.py:failover",),
    "grants": ("cli/grants.py:grants", "task/checks/grants.py:Grants.to_json"),
    "locks list": ("cli/locks/view.py:TaskLockedRows.print_json", "task/operate/row_locks.py:LockedRow.to_json"),
    "locks show": ("cli/locks/view.py:_sides", "task/operate/row_locks.py:LockedRow.to_json"),
    "plan": ("cli/plan_view.py:show_plan", "task/checks/preview.py:TablePreview.to_json"),
    "relay list": ("cli/relay/view.py:show_reports", "cli/relay/view.py:relay_report", "cli/relay/view.py:_task"),
    "relay purge": ("cli/relay/view.py:show_releases", "cli/relay/view.py:_release"),
    "repair": ("cli/repair.py:show_repairs", *_REPORT),
    "run": (*_PROGRESS, "model/halt.py:Halt"),
    "status": (
        "cli/status_view.py:status_json",
        "cli/status_view.py:_run_json",
        "cli/status_view.py:_source_json",
        "cli/status_view.py:_log_json",
        "cli/status_view.py:_published_json",
        "task/operate/cutover_state.py:CutoverState.to_json",
        "task/operate/run_end.py:RunEnd.to_json",
        "task/operate/pause.py:Pause.to_json",
        *_ERROR,
        "task/operate/status.py:PartialColumn.to_json",
        "task/operate/ddl_commands.py:DueCopy.to_json",
        *_HALTED,
        *_BACKLOG,
        *_LOCK,
    ),
    "status.json of a relay": ("replicate/status.py:ReplicatorState.to_json", "replicate/status.py:ReplicatorState"),
    "verify": _REPORT,
    "zones list": ("cli/zones/command.py:list_zones",),
    "zones status": ("cli/zones/command.py:show_zones_status", "task/operate/zones.py:DirectionStatus.to_json"),
}
"""The code that makes each document: functions with their literal keys, and classes whose fields become keys."""


def json_keys() -> dict[str, list[str]]:
    """Returns all keys of each document, nested keys included."""
    return {name: sorted({key for place in places for key in keys_of(place)}) for name, places in DOCUMENTS.items()}


def keys_of(place: str) -> list[str]:
    """Returns the keys that a function writes literally, or the fields of a class."""
    path, _, name = place.partition(":")
    node: ast.AST = _tree(path)
    for part in name.split("."):
        node = next(one for one in ast.iter_child_nodes(node) if getattr(one, "name", "") == part)
    if isinstance(node, ast.ClassDef):
        return [
            one.target.id for one in node.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
        ]
    keys = [key for one in ast.walk(node) if isinstance(one, ast.Dict) for key in one.keys]
    return [key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]


@cache
def _tree(path: str) -> ast.Module:
    return ast.parse((SOURCE / path).read_text("utf-8"))
