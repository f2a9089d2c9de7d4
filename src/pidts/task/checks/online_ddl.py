"""Reports tables that the task leaves out because of their names."""

from __future__ import annotations

from dataclasses import replace

from pidts.batch.online_ddl import online_of
from pidts.model import TableName
from pidts.schema.online.names import Role
from pidts.source import Session, read_structures
from pidts.source.finding import Finding
from pidts.task.config.task_file import TaskConfig

_SHOWN = 5


def online_findings(config: TaskConfig, session: Session) -> list[Finding]:
    """Returns a finding that names the tables taken for those of online schema change tools.

    The counterexample: an application's own table `_report_new` would be missing on the target, without a word.
    """
    online = online_of(config.allow)
    if not online.is_on:
        return []
    takes = replace(config.allow, shadow=(), trash=())

    def is_passed_by(name: TableName) -> bool:
        return online.role(name) is not Role.REAL and any(map(takes, (name, *(online.reals(name) or ()))))

    names = sorted(map(str, read_structures(session, is_passed_by)))
    if not names:
        return []
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    what = (
        f"not replicated, because their names are those of gh-ost and pt-online-schema-change: "
        f"{', '.join(names[:_SHOWN])}{more} (if they are tables of your own: online-ddl: false, or your own rules)"
    )
    return [Finding("online_ddl", ok=True, message=what)]
