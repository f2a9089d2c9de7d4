"""After each statement, PiDTS's structure equals the server's, on every server of the MySQL family."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace

import pymysql
import pytest

from pidts.model import Column, Key, Kind, Table, TableName
from pidts.sandbox import Server
from pidts.schema import Dialect, apply, apply_charset, classify, column_type, differences, render_statement, retargeted

HERE = Path(__file__).parent / "statements"


@pytest.fixture
def session(mysql_like: Server, database: str):
    connection = pymysql.connect(
        host=mysql_like.host,
        port=mysql_like.port,
        user=mysql_like.user,
        password=mysql_like.password,
        database=database,
        charset="utf8mb4",
        autocommit=True,
        ssl_disabled=True,
    )
    with connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
        yield SimpleNamespace(cursor=cursor, database=database, dialect=dialect_of(cursor))


def dialect_of(cursor) -> Dialect:
    cursor.execute("SELECT version(), @@explicit_defaults_for_timestamp")
    version, explicit = cursor.fetchone()
    return replace(Dialect.of(version), explicit_timestamp=bool(explicit))


def read(session, names) -> dict[TableName, Table]:
    """Returns the structures of the tables that exist among these names, as the server shows them."""
    cursor, found = session.cursor, {}
    for name in {table.name for table in names}:
        cursor.execute(
            "SELECT table_collation, table_comment FROM information_schema.tables WHERE table_schema = %s AND table_name = %s",
            [session.database, name],
        )
        row = cursor.fetchone()
        if row is None:
            continue
        collation, comment = row
        cursor.execute(
            "SELECT column_name, column_type, character_set_name, collation_name, is_nullable, extra"
            " FROM information_schema.columns WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
            [session.database, name],
        )
        columns = tuple(
            Column(
                column,
                column_type(text, charset, own, dialect=session.dialect),
                nullable=nullable == "YES",
                auto_increment="auto_increment" in extra,
                generated=any(word in extra for word in ("VIRTUAL", "STORED", "PERSISTENT")),
            )
            for column, text, charset, own, nullable, extra in cursor.fetchall()
        )
        cursor.execute(f"SHOW INDEX FROM `{name}`")
        names = [item[0].lower() for item in cursor.description]
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        keys = []
        for key, group in groupby(rows, key=lambda row: row["key_name"]):
            parts = list(group)
            if any(part["column_name"] is None for part in parts):
                continue
            whole = key == "PRIMARY" or all(part["sub_part"] is None for part in parts)
            unique = whole and not parts[0]["non_unique"]
            keys.append(Key(key, tuple(part["column_name"] for part in parts), unique, key == "PRIMARY"))
        table = TableName(session.database, name)
        found[table] = Table(table, columns, tuple(keys), collation.partition("_")[0], collation, comment)
    return found


def follow(session, sql: str, structures: dict[TableName, Table], charsets: dict[str, tuple[str, str]]):
    statement = classify(sql, session.database, dialect=session.dialect)
    changed = apply(statement, structures, charsets, dialect=session.dialect)
    charsets |= apply_charset(statement, charsets, dialect=session.dialect)
    after = {name: table for name, table in {**structures, **changed}.items() if table is not None}
    return after, {*changed, *statement.tables}


def as_logged(session, sql: str) -> str:
    """Returns the log's form of a CREATE TABLE … SELECT: the created table."""
    if " AS SELECT " not in sql:
        return sql
    session.cursor.execute("SHOW CREATE TABLE ctas")
    return session.cursor.fetchone()[1] + ("" if session.dialect.mariadb else " START TRANSACTION")


def script(dialect: Dialect) -> list[str]:
    """Returns those statements of `statements/` that this server supports."""
    family = ["before_mysql8", "mariadb"] if dialect.mariadb else ["mysql"]
    if not dialect.mariadb:
        family.append("mysql97" if dialect.version >= (9, 0, 0) else "before_mysql8")
    texts = [(HERE / f"{name}.sql").read_text() for name in ("everywhere", *family)]
    return [sql for text in texts for sql in text.split(";\n") if sql.strip()]


def test_structures_follow_the_server(session) -> None:
    dialect = session.dialect
    structures: dict[TableName, Table] = {}
    session.cursor.execute("ALTER DATABASE CHARACTER SET utf8mb4")
    charsets = {session.database: ("utf8mb4", dialect.collation_of("utf8mb4"))}
    wrong = []
    for sql in script(dialect):
        try:
            session.cursor.execute(sql)
        except pymysql.Error as error:
            wrong.append((sql, "refused", str(error)))
            continue
        structures, touched = follow(session, as_logged(session, sql), structures, charsets)
        actual = read(session, touched)
        wrong += [(sql[:100], f"table {name}") for name in touched if (name in structures) != (name in actual)]
        for name, found in actual.items():
            expected = structures.get(name, found)
            wrong += [(sql[:100], name.name, text) for text in differences(found, expected)]
            wrong += [(sql[:100], name.name, "comment")] * (expected.comment != found.comment)
    assert not wrong, "\n".join(map(str, wrong))


def test_rendered_statements_do_the_same(session, run_sql, mysql_like) -> None:
    copy = f"{session.database}_copy"
    charsets = {name: ("utf8mb4", session.dialect.collation_of("utf8mb4")) for name in (session.database, copy)}
    run_sql(mysql_like, f"CREATE DATABASE {copy} CHARACTER SET utf8mb4")
    try:
        session.cursor.execute(f"USE {copy}")
        structures: dict[TableName, Table] = {}
        wrong = []
        for sql in script(session.dialect):
            if " AS SELECT " in sql:
                continue
            statement = classify(sql, session.database, dialect=session.dialect)
            statement = retargeted(statement, lambda name: TableName(copy, name.name))
            changed = apply(statement, structures, charsets, dialect=session.dialect)
            after = {name: table for name, table in {**structures, **changed}.items() if table is not None}
            table = statement.tables[-1] if statement.tables else None
            text = render_statement(statement, structures.get(statement.tables[0]) if table else None, after.get(table))
            structures = after
            try:
                if text and not sql.startswith("ALTER DATABASE"):
                    session.cursor.execute(text)
            except pymysql.Error as error:
                wrong.append((text, str(error)))
                continue
            target = SimpleNamespace(cursor=session.cursor, database=copy, dialect=session.dialect)
            for name, found in read(target, changed).items():
                wrong += [(text, reported) for reported in differences(as_written(structures[name]), found)]
    finally:
        run_sql(mysql_like, f"DROP DATABASE {copy}")
    assert not wrong, "\n".join(map(str, wrong))


def as_written(table: Table) -> Table:
    """Returns the table as PiDTS writes it: generated columns are plain ones, keys over whole texts have a prefix,
    spatial keys are left out.
    """
    kinds = {column.name: column.type.kind for column in table.columns}
    keys = [
        replace(key, unique=key.unique and (key.primary or Kind.TEXT not in {kinds[name] for name in key.columns}))
        for key in table.keys
        if Kind.GEOMETRY not in {kinds[name] for name in key.columns}
    ]
    columns = tuple(replace(column, generated=False) for column in table.columns)
    return replace(table, columns=columns, keys=tuple(keys))


@pytest.mark.parametrize("kind", ["mariadb", "mysql97"])
def test_bare_timestamps_follow_the_servers_setting(kind, request, run_sql) -> None:
    server = request.getfixturevalue(kind)
    connection = pymysql.connect(
        host=server.host, port=server.port, user=server.user, password=server.password, autocommit=True
    )
    with connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = '', explicit_defaults_for_timestamp = OFF")
        dialect = dialect_of(cursor)
        assert not dialect.explicit_timestamp
        cursor.execute("CREATE DATABASE timestamps CHARACTER SET latin1")
        try:
            cursor.execute("USE timestamps")
            charsets = {"timestamps": ("latin1", "latin1_swedish_ci")}
            structures: dict[TableName, Table] = {}
            place = SimpleNamespace(cursor=cursor, database="timestamps", dialect=dialect)
            for sql in (
                "CREATE TABLE t (a int, b timestamp, c timestamp(3), d timestamp null, e timestamp default 0)",
                "CREATE TABLE u (a timestamp null, b timestamp not null, c timestamp default current_timestamp)",
                "ALTER TABLE u ADD d timestamp, ADD e timestamp, MODIFY a timestamp",
                "CREATE TABLE v (a timestamp on update current_timestamp, b timestamp)",
                "CREATE TABLE w (a int, b timestamp default 0)",
                "ALTER TABLE w ADD c timestamp(2) FIRST, ADD d timestamp",
                "ALTER TABLE w ADD e timestamp not null",
            ):
                cursor.execute(sql)
                structures, touched = follow(place, sql, structures, charsets)
                for name, found in read(place, touched).items():
                    assert differences(structures[name], found) == []
            reported = {}
            for name in structures:
                cursor.execute(
                    "SELECT column_name, column_default FROM information_schema.columns"
                    " WHERE table_schema = 'timestamps' AND table_name = %s ORDER BY ordinal_position",
                    [name.name],
                )
                reported[name.name] = {column: plain(default) for column, default in cursor.fetchall()}
        finally:
            run_sql(server, "DROP DATABASE timestamps")
    ours = {
        name.name: {column.name: plain(column.default) for column in table.columns}
        for name, table in structures.items()
    }
    assert ours == reported


def plain(default: str | None) -> str | None:
    """Returns a timestamp's default in one form, since a server and PiDTS write it differently."""
    if default is None or default == "NULL":
        return None
    text = default.lower().replace("()", "").strip("'")
    return "0" if text.startswith("0000-00-00 00:00:00") else text
