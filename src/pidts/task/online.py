"""What a start should say of tables that are passed by for their names."""

from __future__ import annotations

from dataclasses import replace

from pidts.batch.online import online_of
from pidts.model import TableName
from pidts.schema.online_ddl import Role
from pidts.source import Session, read_structures
from pidts.source.finding import Finding
from pidts.task.config import TaskConfig

_SHOWN = 5


def online_findings(config: TaskConfig, session: Session) -> list[Finding]:
    """An application's own `_report_new` would be missed on the target by somebody who does not know of these rules."""
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
    what = f"not carried, as tables of gh-ost and pt-online-schema-change: {', '.join(names[:_SHOWN])}{more}"
    return [
        Finding("online_ddl", ok=True, message=f"{what} (if they are not: online-ddl: false, or rules of your own)")
    ]
