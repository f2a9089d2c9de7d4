"""Every kind of difference that is made on a real target is found and named, and nothing else is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from pidts.cli.repair import repaired
from pidts.sandbox import Server
from pidts.task.compare.wiring import compare_task
from pidts.verify import Report

from .conftest import Pair

MakePair = Callable[[Server, Server], Pair]
Found = set[tuple[str, str, Any, tuple[str, ...]]]

ZOO = """
CREATE TABLE {0}.zoo (
  id BIGINT UNSIGNED NOT NULL PRIMARY KEY, i INT, ub BIGINT UNSIGNED, dec1 DECIMAL(20,4), y YEAR, bits BIT(12), flag BIT(1),
  v VARCHAR(100), c CHAR(10), t TEXT, l VARCHAR(50) CHARACTER SET latin1, b BLOB, vb VARBINARY(20),
  dt DATE, tm TIME(3), dtm6 DATETIME(6), ts TIMESTAMP(3) NULL, e ENUM('small','it''s'), s SET('a','b','c'){1}
) DEFAULT CHARSET=utf8mb4
"""
ROW = (
    "({0}, {0}, 18446744073709551615, -0.5, 2024, 5, 1, 'Grüße {0}', 'x', NULL, 'café', x'0001ff{0:04x}', x'00',"
    " '2024-02-29', '-838:59:58.5', '2024-02-29 12:34:56.789012', '2038-01-19 03:14:07.999', 'it''s', 'a,c'{1})"
)
ROWS = 60


def zoo(pair: Pair, *, floats: bool) -> None:
    columns, values = (", f FLOAT, d DOUBLE, j JSON", ", 0.1, -1.7e308, '{\"a\": 1}'") if floats else ("", "")
    pair.on_source(
        ZOO.format(pair.config.name, columns),
        f"INSERT INTO {pair.config.name}.zoo VALUES " + ", ".join(ROW.format(n, values) for n in range(1, ROWS + 1)),
        f"INSERT INTO {pair.config.name}.zoo (id) VALUES (18446744073709551615)",
    )


def found(report: Report, key: str = "id") -> Found:
    return {(one.table.name, one.kind.value, one.key.get(key), one.columns) for one in report.examples}


PLANTED = {
    "DELETE FROM {0}.zoo WHERE id = 1": ("missing", 1, ()),
    "DELETE FROM {0}.zoo WHERE id = 18446744073709551615": ("missing", 2**64 - 1, ()),
    "INSERT INTO {0}.zoo (id) VALUES (0)": ("extra", 0, ()),
    "INSERT INTO {0}.zoo (id) VALUES (18446744073709551614)": ("extra", 2**64 - 2, ()),
    "UPDATE {0}.zoo SET i = NULL WHERE id = 2": ("different", 2, ("i",)),
    "UPDATE {0}.zoo SET ub = 18446744073709551614 WHERE id = 3": ("different", 3, ("ub",)),
    "UPDATE {0}.zoo SET dec1 = -0.5001 WHERE id = 4": ("different", 4, ("dec1",)),
    "UPDATE {0}.zoo SET v = 'Grüße 5 ' WHERE id = 5": ("different", 5, ("v",)),
    "UPDATE {0}.zoo SET v = 'grüße 6' WHERE id = 6": ("different", 6, ("v",)),
    "UPDATE {0}.zoo SET t = '' WHERE id = 7": ("different", 7, ("t",)),
    "UPDATE {0}.zoo SET l = 'cafe' WHERE id = 8": ("different", 8, ("l",)),
    "UPDATE {0}.zoo SET b = {blob} WHERE id = 9": ("different", 9, ("b",)),
    "UPDATE {0}.zoo SET dtm6 = '2024-02-29 12:34:56.789011' WHERE id = 10": ("different", 10, ("dtm6",)),
    "UPDATE {0}.zoo SET ts = '2038-01-19 03:14:07.998+00:00' WHERE id = 11": ("different", 11, ("ts",)),
    "UPDATE {0}.zoo SET tm = {time} WHERE id = 12": ("different", 12, ("tm",)),
    "UPDATE {0}.zoo SET e = 'small', s = {set} WHERE id = 13": ("different", 13, ("e", "s")),
    "UPDATE {0}.zoo SET bits = {bits}, dt = NULL, y = 2023 WHERE id = 14": ("different", 14, ("bits", "dt", "y")),
    "UPDATE {0}.zoo SET c = 'X' WHERE id = 15": ("different", 15, ("c",)),
}
MYSQL = {"blob": "x'0001fe0009'", "time": "'-838:59:58.499'", "set": "'a'", "bits": "b'000000000100'"}
POSTGRES = {"blob": r"'\x0001fe0009'", "time": "'-838:59:58.499'::interval", "set": "'{a}'", "bits": "B'000000000100'"}


def plant(pair: Pair, words: dict[str, str]) -> Found:
    for planted in PLANTED:
        statement = planted if pair.target.kind == "postgres" else planted.replace("+00:00'", "'")
        pair.on_target(statement.format(pair.config.name, **words).replace("%", "%%"))
    return {("zoo", kind, key, tuple(sorted(columns))) for kind, key, columns in PLANTED.values()}


def in_order(things: Found) -> Found:
    return {(table, kind, key, tuple(sorted(columns))) for table, kind, key, columns in things}


def run_by_hand(pair: Pair) -> None:
    """Runs the output of `pidts repair`, as a person would."""
    printed: list[str] = []
    repaired([pair.config], "", apply=False, stop=threading.Event(), show=printed.append)
    script = "\n".join(printed)
    if pair.target.kind == "postgres":
        pair.on_target(script)
    else:
        statements = [one for one in script.split(";\n") if one]
        pair.in_one_session(pair.target, pair.config.name, *statements)


@pytest.mark.parametrize("floats", [False, True], ids=["by-sums", "by-rows"])
def test_mysql_to_postgres(pair_of: MakePair, mysql97: Server, postgres: Server, *, floats: bool) -> None:
    pair = pair_of(mysql97, postgres)
    zoo(pair, floats=floats)
    pair.copy()
    report = compare_task(pair.config)
    assert (report.equal, report.rows, found(report)) == (True, ROWS + 1, set())
    planted = plant(pair, POSTGRES)
    if floats:
        pair.on_target(
            f"UPDATE {pair.config.name}.zoo SET f = '0.100000009'::real WHERE id = 20",
            f"UPDATE {pair.config.name}.zoo SET d = -1.7000000000000002e308 WHERE id = 21",
            f"UPDATE {pair.config.name}.zoo SET j = '{{\"a\":   1.0}}' WHERE id = 22",
            f"UPDATE {pair.config.name}.zoo SET j = '{{\"a\": 2}}' WHERE id = 23",
        )
        planted |= {
            ("zoo", "different", 20, ("f",)),
            ("zoo", "different", 21, ("d",)),
            ("zoo", "different", 23, ("j",)),
        }
    assert in_order(found(compare_task(pair.config))) == planted
    run_by_hand(pair)
    assert compare_task(pair.config).equal


def test_mariadb_to_mariadb(pair_of: MakePair, mariadb: Server, other_mariadb: Server) -> None:
    pair = pair_of(mariadb, other_mariadb)
    zoo(pair, floats=True)
    pair.copy()
    report = compare_task(pair.config)
    assert (report.equal, report.rows, found(report)) == (True, ROWS + 1, set())
    planted = plant(pair, MYSQL)
    pair.on_target(
        f"UPDATE {pair.config.name}.zoo SET f = 0.100000009 WHERE id = 20",
        f"UPDATE {pair.config.name}.zoo SET d = -1.7000000000000002e308 WHERE id = 21",
        f"UPDATE {pair.config.name}.zoo SET j = '{{\"a\":   1}}' WHERE id = 22",
        f"UPDATE {pair.config.name}.zoo SET dt = '0000-00-00' WHERE id = 23",
    )
    planted |= {
        ("zoo", "different", 20, ("f",)),
        ("zoo", "different", 21, ("d",)),
        ("zoo", "different", 22, ("j",)),
        ("zoo", "different", 23, ("dt",)),
    }
    assert in_order(found(compare_task(pair.config))) == planted
    run_by_hand(pair)
    assert compare_task(pair.config).equal
