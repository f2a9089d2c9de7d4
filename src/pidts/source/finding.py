"""The findings of a check, and the errors for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pidts.model import PrecheckFailed, ServerDown

UNFIT = "precheck-failed"
_NEVER_IGNORED = frozenset({"relay_directory", "source_connection", "target_connection"})


@dataclass(frozen=True, slots=True)
class Finding:
    """One requirement: whether it is fulfilled, and otherwise how to fulfil it."""

    item: str
    ok: bool
    message: str
    fix: str = ""
    passes: bool = False
    """Whether the requirement may become fulfilled without action.

    If the task has begun, a run waits until it is fulfilled.
    """
    is_down: bool = False
    """Whether the requirement fails because a server does not answer; the server may answer later by itself."""
    is_note: bool = False
    """Whether the finding is only information, and nothing has to be done."""
    code: str = UNFIT
    """The code of the error, if this is the only finding that prevents a run."""

    @property
    def ignored_by(self) -> str:
        """Returns the line for the task file that makes PiDTS ignore this failure; empty if it cannot be ignored."""
        return "" if self.ok or self.item in _NEVER_IGNORED else f"ignore-checking-items: [{self.item}]"


def demand(findings: Sequence[Finding], ignored: Sequence[str] = ()) -> None:
    """Raises for unfulfilled findings, except ignored items."""
    failed = [finding for finding in findings if not (finding.ok or finding.item in ignored or "all" in ignored)]
    if failed:
        several = len(failed) > 1
        what = "; ".join(f"{finding.item}: {finding.message}" for finding in failed)
        what = f"{len(failed)} checks failed. {what}" if several else what
        fixes = [f"{finding.item}: {finding.fix}" if several else finding.fix for finding in failed if finding.fix]
        if all(finding.ignored_by for finding in failed):
            items = ", ".join(dict.fromkeys(finding.item for finding in failed))
            fixes.append(f"Or ignore it at your own risk: ignore-checking-items: [{items}]")
        todo = "\n".join(fixes)
        if all(finding.is_down for finding in failed):
            raise ServerDown(UNFIT, what, todo=todo)
        code = failed[0].code
        if any(finding.code != code for finding in failed):
            raise PrecheckFailed(UNFIT, what, todo=todo)
        raise PrecheckFailed(code, what, todo=todo)
