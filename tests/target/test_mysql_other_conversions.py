"""MySQL and MariaDB make different values of some rows when a column gets another type: then the table halts."""

from __future__ import annotations

from contextlib import closing

import pytest
from tests.target.test_mysql_fractions import SOURCES, followed

from pidts.model import Halted
from pidts.sandbox import Server
from pidts.schema import Dialect
from pidts.target.mysql import MySqlTarget

BOTH = ("mariadb", "mysql97")
LABELS = "'a', 'b', '1'"
CASES = [
    ("INT", "1", f"ENUM({LABELS})", BOTH),
    ("INT", "NULL", f"ENUM({LABELS})", ()),
    ("DOUBLE", "1", f"SET({LABELS})", BOTH),
    ("CHAR(1)", "'1'", f"ENUM({LABELS})", ()),
    ("DOUBLE", "1.5", "YEAR", BOTH),
    ("FLOAT", "1.5", "YEAR", BOTH),
    ("DOUBLE", "70", "YEAR", ()),
    ("DECIMAL(20,6)", "1.5", "YEAR", ()),
    ("FLOAT", "3.4e38", "BIT(64)", BOTH),
    ("DOUBLE", "7", "BIT(64)", ()),
    ("TEXT", '\'{"b":1,"a":2.0}\'', "JSON", ("mariadb",)),
    ("VARCHAR(60)", "'[1.10,1e2]'", "JSON", ("mariadb",)),
    ("DECIMAL(20,6)", "1.5", "JSON", ("mariadb",)),
    ("INT", "7", "JSON", ()),
    ("TEXT", "NULL", "JSON", ()),
    ("JSON", '\'{"b":1,"a":2.0}\'', "TEXT", ("mysql97",)),
    ("JSON", "'1e3'", "VARBINARY(20)", ("mysql97",)),
    ("JSON", "NULL", "TEXT", ()),
    ("JSON", "'[1, 2]'", "JSON, ADD w INT", ()),
]


@pytest.mark.parametrize(("old", "value", "new", "halting"), CASES)
def test_a_table_halts_if_its_server_makes_another_value_of_a_row(
    mariadb: Server, mysql97: Server, database: str, old: str, value: str, new: str, halting: tuple[str, ...]
) -> None:
    """The servers themselves show which values differ; `halting` are the targets that halt."""
    found = set()
    for server in (mariadb, mysql97):
        with closing(MySqlTarget(server.host, server.port, server.user, server.password).connect()) as session:
            session.execute(f"CREATE TABLE `{database}`.u (v {old} NULL)")
            session.execute(f"INSERT INTO `{database}`.u VALUES ({value})")
            session.execute(f"ALTER TABLE `{database}`.u MODIFY v {new} NULL")
            found.add(str(session.rows(f"SELECT v, CAST(v AS CHAR) FROM `{database}`.u")))
            source = next(one for one in SOURCES if one != server.kind)
            dialect = Dialect.of(SOURCES[source][0]).under(0)
            if server.kind in halting:
                with pytest.raises(Halted, match="only the source knows which values"):
                    followed(session, database, dialect, old, value, new)
            else:
                assert followed(session, database, dialect, old, value, new).statements
    assert len(found) == 1 + bool(halting)


@pytest.mark.parametrize(("old", "value", "new", "halting"), CASES)
def test_the_source_s_own_kind_of_server_makes_the_same_values(
    mariadb: Server, mysql97: Server, database: str, old: str, value: str, new: str, halting: tuple[str, ...]
) -> None:
    del halting
    for server in (mariadb, mysql97):
        with closing(MySqlTarget(server.host, server.port, server.user, server.password).connect()) as session:
            dialect = Dialect.of(SOURCES[server.kind][0]).under(0)
            assert followed(session, database, dialect, old, value, new).statements


@pytest.mark.parametrize("value", ["'1.5'", "'1e3'", "'2 '", "'7.0'", "'-7'"])
def test_a_session_without_strict_mode_cuts_or_rounds_a_text(mysql97: Server, database: str, value: str) -> None:
    """MariaDB makes 1 of `1.5` and `1e3`, and MySQL makes 2 and 1000 of them, also in strict mode."""
    dialect = Dialect.of(SOURCES["mariadb"][0]).under(0)
    with closing(MySqlTarget(mysql97.host, mysql97.port, mysql97.user, mysql97.password).connect()) as session:
        if value in {"'1.5'", "'1e3'"}:
            with pytest.raises(Halted, match="only the source knows which values"):
                followed(session, database, dialect, "VARCHAR(60)", value, "INT")
        else:
            assert followed(session, database, dialect, "VARCHAR(60)", value, "INT").statements
