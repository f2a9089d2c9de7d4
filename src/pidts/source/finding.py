"""The findings of a check, and the errors for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pidts.model import PrecheckFailed, ServerDown, Transient
from pidts.model.errors import in_one_line

UNFIT = "precheck-failed"
_IGNORE = "ignore-checking-items"
_NEVER_IGNORED = frozenset({"relay_directory", "source_connection", "target_connection"})
_NAMED = 5
"""An error names at most this number of failed checks: a check of each table may fail for hundreds of tables."""
_HARMLESS = frozenset({"binlog_expiry", "standby", "table_list"})
"""The checks that an operator may ignore: if one of them fails, a run neither fails nor damages rows.

No advice offers to ignore any other check. For example, if an account lacks a privilege, the run would fail, or leave
out tables that it cannot see. If keys of merged tables overlap (`auto_increment_ID`), rows of one table would overwrite
rows of another.
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check: whether a requirement is fulfilled, and if not, how to fulfil it."""

    item: str
    ok: bool
    message: str
    fix: str = ""
    passes: bool = False
    """Whether the failure may end without action. If the task has begun, a run waits until the failure ends."""
    is_down: bool = False
    """Whether the cause is a server that does not answer, or is read-only; this may end without action."""
    is_note: bool = False
    """Whether the finding is only information, and nothing has to be done."""
    is_consequence: bool = False
    """Whether another failed check is the cause: then only that check's finding needs a correction."""
    is_ignored: bool = False
    """Whether the requirement is not met, but counts as met because the task file ignores the check."""
    code: str = UNFIT
    """The code of the error, if this is the only finding that prevents a run."""

    def __post_init__(self) -> None:
        """Escapes control characters: names and texts of other programs may contain line ends."""
        if not self.message.isprintable():
            object.__setattr__(self, "message", in_one_line(self.message))

    @property
    def can_be_ignored(self) -> bool:
        """Whether the task file may make PiDTS ignore this failure."""
        return not self.ok and self.item not in _NEVER_IGNORED

    @property
    def ignored_by(self) -> str:
        """Returns the line for the task file that makes PiDTS ignore this failure; empty if the line might do harm."""
        is_harmless = self.item in _HARMLESS and not self.is_consequence
        return f"{_IGNORE}: [{self.item}]" if is_harmless and not self.ok else ""

    @property
    def needs_hint(self) -> bool:
        """Whether `fix` should also say that the failure may be ignored without harm."""
        return bool(self.ignored_by) and _IGNORE not in self.fix


def is_ignored(item: str, ignored: Sequence[str]) -> bool:
    """Whether a list of ignored checks contains this check, or all checks."""
    return item in ignored or "all" in ignored


def demand(findings: Sequence[Finding], ignored: Sequence[str] = ()) -> None:
    """Raises for unfulfilled findings, except ignored items."""
    failed = [finding for finding in findings if not (finding.ok or is_ignored(finding.item, ignored))]
    if failed:
        several, is_down = len(failed) > 1, all(finding.is_down for finding in failed)
        code = failed[0].code if len({finding.code for finding in failed}) == 1 and not is_down else UNFIT
        # The error's own code is not repeated in its text.
        messages = [finding.message.replace(f"[{code}] ", "", 1) for finding in failed]
        named = [f"{finding.item}: {message}" for finding, message in zip(failed, messages, strict=True)]
        what = "; ".join(named[:_NAMED])
        if len(named) > _NAMED:
            what += f"; and {len(named) - _NAMED} more: `pidts check TASK` lists all"
        what = f"{len(failed)} checks failed. {what}" if several else what
        fixes = [f"{finding.item}: {finding.fix}" if several else finding.fix for finding in failed if finding.fix]
        fixes = list(dict.fromkeys(fixes))[:_NAMED]  # tables with the same cause have the same remedy
        if all(finding.ignored_by for finding in failed) and any(finding.needs_hint for finding in failed):
            items = ", ".join(dict.fromkeys(finding.item for finding in failed))
            fixes.append(f"Or ignore it at your own risk: {_IGNORE}: [{items}]")
        todo = "\n".join(fixes)
        raise (ServerDown if is_down else PrecheckFailed)(code, what, todo=todo)


@contextmanager
def lost_is_down() -> Iterator[None]:
    """Turns a connection that is lost during checks into the error for a server that is down.

    A run waits until such a server answers again.
    """
    try:
        yield
    except Transient as error:
        raise ServerDown(UNFIT, f"[{error.code}] {error.what}", where=error.where, todo=error.todo) from error
