"""A check says that a MySQL target is read-only for the task's account, and what lets the account write.

After a cutover, the old server is read-only. The way back writes to it.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from pidts import sandbox
from pidts.model import ServerDown
from pidts.source.finding import Finding, demand
from pidts.task.checks.privileges import target_findings
from pidts.task.config.task_file import load_task

START = {"mariadb": sandbox.start_mariadb, "mysql97": sandbox.start_mysql97, "mysql56": sandbox.start_mysql56}
FORBID = {"mysql97": "SET GLOBAL super_read_only = ON"}
TASK = """\
name: t
task-mode: all
target-database: {{type: mysql, host: {host}, port: {port}, user: app, password: x}}
mysql-instances: [{{source-id: a, from: {{host: {host}, port: 1, user: u}}}}]
"""


@pytest.mark.parametrize(
    ("kind", "able"),
    [
        ("mariadb", "READ_ONLY ADMIN"),
        ("mysql97", "CONNECTION_ADMIN"),
        pytest.param("mysql56", "SUPER", marks=pytest.mark.repeats),
    ],
)
def test_a_read_only_target_is_found_before_anything_is_written(kind: str, able: str, run_sql, tmp_path: Path) -> None:
    with START[kind]() as server:
        account = "'app'@'localhost'" if kind == "mysql56" else "'app'@'%'"  # MySQL 5.6 has an anonymous account
        run_sql(server, f"CREATE USER {account} IDENTIFIED BY 'x'")
        run_sql(server, f"GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, DROP ON *.* TO {account}")
        path = tmp_path / "t.yaml"
        path.write_text(TASK.format(host=server.host, port=server.port))
        assert found_in(path)[0].ok
        run_sql(server, FORBID.get(kind, "SET GLOBAL read_only = ON"))
        (found,) = found_in(path)
        with pytest.raises(ServerDown):  # a run waits: the server may become a primary again
            demand([found])
        if kind == "mysql97":
            assert found.message == "the target is read-only for every account (super_read_only = ON)"
            run_sql(server, "SET GLOBAL super_read_only = OFF")
            (found,) = found_in(path)
        assert found.message == f"the target is read-only (read_only = ON), and the account lacks {able}"
        grant = found.fix.split(": ")[1].split("; ")[0]
        assert grant == f"GRANT {able} ON *.* TO {account}"
        run_sql(server, "SET GLOBAL read_only = OFF")
        run_sql(server, grant)
        run_sql(server, "SET GLOBAL read_only = ON")
        assert found_in(path)[0].ok
        with closing(load_task(path).target.server.connect()) as session:
            session.execute("CREATE DATABASE written")


def found_in(path: Path) -> list[Finding]:
    config = load_task(path)
    with closing(config.target.server.connect()) as session:
        return target_findings(config, session, [])
