"""A literal default is converted to the form in which the servers store it, or not at all."""

from __future__ import annotations

import pytest

from pidts.model import ColumnType, Kind, PidtsError
from pidts.schema import Dialect, apply, classify
from pidts.schema.stored_default import in_utc, stored_default
from pidts.source import connect, query
from pidts.source.connection import SourceConfig

CHARSETS = {"d": ("utf8mb4", "utf8mb4_general_ci")}
LITERALS = {
    "int": "1.5;2.5;2.5e0;1e3;007;+5;-0;'7';'7.5';'2.5e0';'1e1';'007';x'41';0x41;b'101';true;'-0';1.0;1.5e1",
    "bigint unsigned": "18446744073709551615;1.8e19;0xFFFFFFFFFFFFFFFF;'18446744073709551615'",
    "decimal(7,2)": "1.005;1.015;1e3;1.5e-1;007;'1.005';0x41;b'101';-1.005;-0.004;1.25e0;1.005e0",
    "decimal(65,30)": "1.5;12345678901234567890123456789012345.123456789012345678901234567895;0;1e3",
    "decimal(38,30)": "0.5;'-1.5'",
    "double": "1e3;1.5;007;'1.5';0x41;1e20;b'11';-0.0",
    "float": "1.1;1e3;'1.1'",
    "float(5,2)": "1.005;1.25;1.255;7;'1.255';1e1",
    "double(7,3)": "1.0005;1.2345;2.5",
    "year": "70;69;0;1;99;'70';'0';'00';'0000';'1';2001;'2001';70.4;0x41;1.999e3;0000;2155",
    "bit(10)": "5;b'101';x'05';'a';'5';1.5;true",
    "bit(1)": "1;b'1';true;0",
    "varchar(20)": "7;007;+5;-5;1.50;1e3;1.5e3;1e20;1e-5;.5;5.;-0;-0.0;true;b'1100001';x'61';0x6162;'a ';b'';x'';"
    "1.25e1;0.1e0;00.10;x'C3A9';_latin1'a';_ucs2'ab';'null'",
    "varchar(5)": "'abcde';'abcde  ';'abc  '",
    "char(5)": "7;'a ';x'6120';1e3",
    "varchar(20) character set latin1": "x'E9';x'C3A9';b'11101001';'é';x'81'",
    "varchar(20) character set ucs2": "x'0061';x'61';'ab';x'610062'",
    "varchar(20) character set utf32": "x'61';'ab';x'010000'",
    "varchar(20) character set utf16le": "x'6100';x'61'",
    "varchar(20) character set koi8r": "x'61';x'C1'",
    "enum('a','B','1','2')": "1;2;'b';'A';'a ';'1';x'61';b'1100001';'2'",
    "enum('a','é') collate utf8mb4_bin": "'a';'é'",
    "set('a','b','C')": "'b,a';'c';'a,a';'';x'61';'A,b';'a,b '",
    "binary(4)": "'a';7;x'6162';b'1100001';1e3;'';'é';x'FF00'",
    "varbinary(9)": "'a';7;x'6162';b'1100001';1e3;'';'a ';1.50;007;'é';x'00'",
    "date": "'2020-01-02';20200102;'20200102';'2020-1-2';200102;'200102';'2020/01/02';'2020-01-02 00:00:00';"
    "'2020-01-02 10:00:00';20200102101112;'20-01-02';0;'0000-00-00';'2020-01-02T00:00:00';'2020.1.2';20200102.0;"
    "2.0200102e7;'99-1-2';101;200102030000;20200102000000.4",
    "datetime": "'2020-01-02';20200102;'20200102';'2020-1-2 3:4:5';20200102030405;'20200102030405';"
    "'2020-01-02 03:04';'2020-01-02 03:04:05.4';'2020-01-02 03:04:05.6';'2020-01-02T03:04:05';0;'0000-00-00';"
    "'2020-01-02 03';'2020-01-02 03:04:05.000';200102030405;200102030000;'2020-01-02 03:04:05 ';"
    "'2020-01-02  03:04:05';'2020-01-02 03:04:05+02:00';'200102';'2020010203'",
    "datetime(3)": "'2020-01-02 03:04:05.4';'2020-01-02 03:04:05.4567';20200102030405.4;'2020-01-02 03:04:05.'",
    "timestamp null": "'2020-01-02 03:04:05';20200102030405;0;'2020-01-02'",
    "timestamp(2) null": "'2020-01-02 03:04:05';'2020-01-02 03:04:05.12'",
    "time": "'10:11:12';101112;'101112';'10:11';'10';'1 10:11:12';'-10:11:12';-101112;'10:11:12.4';'10:11:12.6';"
    "'838:59:59';1112;0;12;'12';'1:2:3';'0:0:0';7;101112.0;1e1;'';8385959",
    "time(2)": "'10:11:12.4';'10:11:12.456';101112.4;'10:11:12'",
}
UNREAD = {
    "float(5,2)": {"1.005", "1.255", "'1.255'"},
    "double(7,3)": {"1.0005", "1.2345"},
    "varchar(20)": {"1e20", "_ucs2'ab'"},
    "varchar(20) character set koi8r": {"x'C1'"},
    "enum('a','B','1','2')": {"1", "2"},
    "binary(4)": {"'é'"},
    "varbinary(9)": {"'é'"},
    "date": {"200102", "'200102'", "'20-01-02'", "'99-1-2'", "101", "200102030000"},
    "datetime": {"'2020-01-02 03:04:05.6'", "'2020-01-02 03'", "200102030405", "200102030000", "'200102'"}
    | {"'2020-01-02 03:04:05+02:00'", "'2020010203'"},
    "datetime(3)": {"'2020-01-02 03:04:05.4567'"},
    "time": {"'1 10:11:12'", "'10:11:12.6'", "''"},
    "time(2)": {"'10:11:12.456'"},
}
"""Defaults that are not converted: servers differ, or the form is rare."""


def column(definition: str, default: str):
    """Returns the column as it is in a structure after a CREATE TABLE."""
    statement = classify(f"CREATE TABLE d.t (id int primary key, c {definition} default {default})", "d")
    (table,) = apply(statement, {}, CHARSETS, dialect=Dialect()).values()
    return table.column("c")


@pytest.mark.parametrize("definition", LITERALS)
def test_a_literal_is_what_the_servers_store(mysql_like, database, definition):
    host, port, user = mysql_like.host, mysql_like.port, mysql_like.user
    session = connect(SourceConfig(host, port, user, mysql_like.password or ""))
    read, taken = set(), 0
    query(session, f"USE {database}")
    query(session, "SET sql_mode = ''")
    for default in LITERALS[definition].split(";"):
        names = f"u_{taken}", f"s_{taken}"
        try:
            query(session, f"CREATE TABLE {names[0]} (id int primary key, c {definition} default {default})")
        except PidtsError:  # This server refuses the literal.
            continue
        taken += 1
        ours = column(definition, default)
        if (stored := stored_default(ours.default, ours.type)) is None:
            continue
        read.add(default)
        query(session, f"CREATE TABLE {names[1]} (id int primary key, c {definition} default {stored})")
        for name in names:
            query(session, f"INSERT INTO {name} (id) VALUES (1)")
        values = [query(session, f"SELECT HEX(c), HEX(CAST(c AS BINARY)) FROM {name}") for name in names]
        assert values[0] == values[1], f"DEFAULT {default} is {values[0]}, and {stored} is {values[1]}"
        assert stored == ours.default, "the structure holds the stored form"
        assert stored_default(stored, ours.type) == stored
    assert taken > 0
    assert read.isdisjoint(UNREAD.get(definition, set()))


@pytest.mark.parametrize("definition", LITERALS)
def test_few_literals_are_not_read(definition):
    unread = set()
    for default in LITERALS[definition].split(";"):
        ours = column(definition, default)
        if stored_default(ours.default, ours.type) is None:
            unread.add(default)
    assert unread == UNREAD.get(definition, set())


MOMENT = ColumnType(Kind.TIMESTAMP, fsp=2)


@pytest.mark.parametrize(
    ("default", "zone", "expected"),
    [
        ("'2020-01-02 03:04:05'", "+00:00", "'2020-01-02 03:04:05'"),
        ("20200102030405.5", "+05:30", "'2020-01-01 21:34:05.50'"),
        ("'2020-01-02 23:04:05'", "-02:00", "'2020-01-03 01:04:05.00'"),
        ("'0000-00-00 00:00:00'", "+02:00", "'0000-00-00 00:00:00'"),
        ("0", "Europe/Berlin", "0"),
        ("'2020-01-02'", "Europe/Berlin", "(convert_tz('2020-01-02', 'Europe/Berlin', '+00:00'))"),
        ("'20-01-02'", "+02:00", "(convert_tz('20-01-02', '+02:00', '+00:00'))"),
        ("'2020-02-31'", "+02:00", "(convert_tz('2020-02-31', '+02:00', '+00:00'))"),
        ("current_timestamp", "+02:00", "current_timestamp"),
        (None, "SYSTEM", None),
    ],
)
def test_a_moment_is_reported_in_utc(default, zone, expected):
    assert in_utc(default, MOMENT, zone) == expected


def test_a_structure_holds_moments_in_utc():
    dialect = Dialect(time_zone="SYSTEM").under(0, "+02:00")
    made = "CREATE TABLE d.t (id int, c timestamp default '2020-01-02 03:00:00', d datetime default '2020-01-02')"
    (table,) = apply(classify(made, "d", dialect=dialect), {}, CHARSETS, dialect=dialect).values()
    assert table.column("c").default == "'2020-01-02 01:00:00'"
    assert table.column("d").default == "'2020-01-02 00:00:00'"
    later = "ALTER TABLE d.t ALTER c SET DEFAULT '2020-01-02 03:00:00', ADD e timestamp default '2021-01-02 01:00:00'"
    (table,) = apply(classify(later, "d", dialect=dialect), {table.name: table}, CHARSETS, dialect=dialect).values()
    assert table.column("c").default == "'2020-01-02 01:00:00'"
    assert table.column("e").default == "'2021-01-01 23:00:00'"


def test_bytes_of_a_session_in_utf8_are_known():
    """In another session, the same text has other bytes."""
    added = "CREATE TABLE d.t (id int, c varbinary(9) default 'é', d blob default 'a', e text default 'é')"
    shown = []
    for dialect in (Dialect(mariadb=True), Dialect(mariadb=True).under(0, utf8_literals=True)):
        (table,) = apply(classify(added, "d", dialect=dialect), {}, CHARSETS, dialect=dialect).values()
        shown.append([stored_default(column.default, column.type) for column in table.columns])
    assert shown == [[None, None, "x'61'", "'é'"], [None, "x'C3A9'", "x'61'", "'é'"]]


def test_the_servers_zone_holds_where_the_session_has_none_of_its_own():
    assert Dialect(time_zone="SYSTEM").under(0, "SYSTEM").time_zone == "SYSTEM"
    assert not Dialect(time_zone="SYSTEM").under(None).is_in_utc
    assert Dialect().under(0, "SYSTEM").is_in_utc
