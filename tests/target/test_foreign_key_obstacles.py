"""Before a cutover, a foreign key that cannot be created is listed with the reason, and with what to do."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from pidts.model import ForeignKey, TableName
from pidts.sandbox import Server
from pidts.target import MySqlTarget
from pidts.target.postgres import PostgresTarget
from pidts.task.cutover.target_side import statements_or_problem

RunSql = Callable[..., list[tuple[Any, ...]]]


def foreign_key(database: str, parent: str = "p") -> ForeignKey:
    return ForeignKey(
        name="of_p",
        table=TableName(database, "c"),
        columns=("p",),
        parent=TableName(database, parent),
        parent_columns=("id",),
        on_delete="NO ACTION",
        on_update="NO ACTION",
    )


def test_postgresql_names_the_missing_table_privilege_or_owner(
    postgres: Server, database: str, run_sql: RunSql
) -> None:
    role = f"narrow_{database}"[:60]

    def run(*statements: str) -> None:
        for sql in statements:
            run_sql(postgres, sql, database=database)

    def problem(parent: str = "p") -> str:
        target = PostgresTarget(postgres.host, postgres.port, role, postgres.password, database)
        with closing(target.connect()) as session:
            return statements_or_problem(session, foreign_key(database, parent))[1].partition(": ")[2]

    run(
        f"CREATE ROLE {role} LOGIN PASSWORD '{postgres.password}'",
        f"CREATE SCHEMA {database}",
        f"CREATE TABLE {database}.p (id INT PRIMARY KEY)",
        f"CREATE TABLE {database}.c (id INT PRIMARY KEY, p INT)",
        f"GRANT USAGE ON SCHEMA {database} TO {role}",
    )
    try:
        assert problem("gone") == f"the target has no table {database}.gone"
        grant = f'GRANT REFERENCES ON "{database}"."p" TO "{role}"'
        assert problem().endswith(f"as an administrator of the target, run {grant}")
        owner = f'ALTER TABLE "{database}"."c" OWNER TO "{role}"'
        for granted in (f"GRANT REFERENCES (id) ON {database}.p TO {role}", grant):
            run(granted)
            assert problem().endswith(f"as an administrator of the target, run {owner}")
        run(owner)
        assert problem() == ""
    finally:
        run(f"DROP SCHEMA {database} CASCADE", f"DROP OWNED BY {role}", f"DROP ROLE {role}")


@pytest.mark.parametrize("kind", ["mariadb", "mysql97"])
def test_mysql_names_the_missing_table_or_privilege(
    mariadb: Server, mysql97: Server, database: str, run_sql: RunSql, kind: str
) -> None:
    server = {"mariadb": mariadb, "mysql97": mysql97}[kind]

    def run(*statements: str) -> None:
        for sql in statements:
            run_sql(server, sql, database=database)

    def made(parent: str = "p") -> str:
        with closing(MySqlTarget(server.host, server.port, "fk_narrow", "x").connect()) as session:
            needed, problem = statements_or_problem(session, foreign_key(database, parent))
            for sql in needed:
                session.execute(sql)
            return problem.partition(": ")[2]

    run(
        "CREATE TABLE p (id INT PRIMARY KEY)",
        "CREATE TABLE c (id INT PRIMARY KEY, p INT)",
        "CREATE USER fk_narrow@'%' IDENTIFIED BY 'x'",
        f"GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, DROP ON `{database}`.* TO fk_narrow@'%'",
    )
    try:
        assert made("gone") == f"the target has no table {database}.gone", "the server itself would create the key"
        if kind == "mysql97":
            problem = made()
            assert problem.startswith(f"the account lacks REFERENCES on {database}.p: as an administrator")
            run(problem.partition(" run ")[2])
        assert made() == "", "other servers need no privilege"
        assert made() == ""
    finally:
        run("DROP USER fk_narrow@'%'")
