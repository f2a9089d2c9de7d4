"""The findings of a check, and the errors for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pidts.model import PrecheckFailed

UNFIT = "precheck-failed"


@dataclass(frozen=True, slots=True)
class Finding:
    """One requirement: whether it is fulfilled, and otherwise what to do."""

    item: str
    ok: bool
    message: str
    fix: str = ""
    passes: bool = False
    """Whether it may be fulfilled by itself: a run that has begun once waits for it."""
    code: str = UNFIT
    """The error's code where nothing else speaks against a run."""


def demand(findings: Sequence[Finding], ignored: Sequence[str] = ()) -> None:
    """Raises for findings that are not fulfilled, except ignored items."""
    failed = [finding for finding in findings if not (finding.ok or finding.item in ignored or "all" in ignored)]
    if failed:
        what = "; ".join(f"{finding.item}: {finding.message}" for finding in failed)
        todo = "\n".join(finding.fix for finding in failed)
        code = failed[0].code
        if any(finding.code != code for finding in failed):
            raise PrecheckFailed(UNFIT, what, todo=todo)
        raise PrecheckFailed(code, what, todo=todo)
