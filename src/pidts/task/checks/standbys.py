"""Checks whether the standbys of a source can take over from it."""

from __future__ import annotations

from contextlib import closing

from pidts.model import PidtsError, Transient
from pidts.source import connect
from pidts.source.finding import Finding
from pidts.source.prechecks import check_source
from pidts.task.config.current_server import address_of
from pidts.task.config.task_file import TaskConfig
from pidts.task.operate.standbys import state_of, writes_what_it_replicates


def standby_findings(config: TaskConfig) -> list[Finding]:
    """Returns a finding for each standby; for an unfit one, a finding for each reason.

    A standby that does not answer passes the check: after a failover, the lost primary is such a standby.
    """
    findings = []
    for server in config.source.standbys:
        name = address_of(server)
        try:
            has_gtids = state_of(server).gtid_mode
            with closing(connect(server)) as session:
                found = check_source(session, server, (), None, copies=False)
                logs_all = writes_what_it_replicates(session)
        except Transient as error:
            findings.append(Finding("standby", ok=True, message=f"{name} cannot be reached now: {error.what}"))
            continue
        except PidtsError as error:
            findings.append(Finding("standby", ok=False, message=f"{name}: {error.what}", fix=error.todo))
            continue
        wrong = [
            Finding("standby", ok=False, message=f"{name}: {one.message}", fix=one.fix) for one in found if not one.ok
        ]
        by_gtid = config.source.use_gtid
        if by_gtid and not has_gtids:
            fix = "Switch GTIDs on there (gtid_mode = ON), or remove the server from standbys"
            wrong.append(Finding("standby", ok=False, message=f"{name} writes no GTIDs", fix=fix))
        if not logs_all:
            fix = "Set log_replica_updates = ON there (log_slave_updates on MariaDB and before MySQL 8.0.26)"
            what = f"{name} does not log the changes that it receives by replication"
            wrong.append(Finding("standby", ok=False, message=what, fix=fix))
        way = "by GTID" if by_gtid else "at a place in its log that the running task records"
        findings += wrong or [Finding("standby", ok=True, message=f"{name} can take over {way}")]
    return findings
