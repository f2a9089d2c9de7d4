"""Makes the logs that are decoded. A real MariaDB writes them, and they have only row changes of one table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pymysql

from pidts import sandbox

OPTIONS = ("--binlog-row-metadata=FULL", "--max-binlog-size=1G", "--innodb-buffer-pool-size=512M")
SB = "id int NOT NULL PRIMARY KEY AUTO_INCREMENT, k int NOT NULL, c char(120) NOT NULL, pad char(60) NOT NULL"
ZOO = (
    "id int NOT NULL PRIMARY KEY AUTO_INCREMENT, ti tinyint, su smallint unsigned, mi mediumint, "
    "iu int unsigned, bi bigint, bu bigint unsigned, de decimal(10,2), "
    "db decimal(30,10), fl float, do double, bt bit(10), ye year, da date, tm time(3), "
    "dt datetime(6), ts timestamp(6) NULL, ch char(20), vc varchar(100), vl varchar(50) CHARACTER SET latin1, "
    "tx text, bn binary(8), vb varbinary(20), bl blob, en enum('red','green','blue'), st set('a','b','c','d'), "
    "js json"
)
ZOO_VALUES = (
    "seq, seq % 100, seq % 60000, seq % 8000000, seq * 7, -seq * 1000003, seq * 1000003, seq / 7, seq * 1234567.891, "
    "seq / 3, seq / 9, seq % 1024, 1950 + seq % 150, '2000-01-01' + INTERVAL seq % 9000 DAY, "
    "sec_to_time(seq % 80000 + 0.5), '2001-02-03 04:05:06.789' + INTERVAL seq MINUTE, "
    "'2001-02-03 04:05:06.789' + INTERVAL seq MINUTE, left(md5(seq), 20), concat('größe ', seq, ' €'), "
    "concat('é', seq), repeat('some text ', seq % 20), unhex(left(md5(seq), 16)), unhex(md5(seq)), "
    'unhex(repeat(md5(seq), 3)), 1 + seq % 3, seq % 16, concat(\'{"n": \', seq, \', "s": "abc"}\')'
)
SB_VALUES = "seq, seq % 10007, rpad(md5(seq), 119, '0123456789-'), rpad(md5(-seq), 59, '9876543210-')"


@dataclass(frozen=True)
class Log:
    """One log file, its table, and the numbers of changes and row images in it."""

    name: str
    path: Path
    schema: str
    changes: int
    images: int


def write(folder: Path, rows: int) -> list[Log]:
    """Writes three log files, and returns them.

    In two of them, all rows are inserted, then every second row is updated, then a tenth of the rows is deleted. The
    third has transactions that insert one row each.
    """
    with sandbox.start_mariadb(folder / "server", OPTIONS) as server:
        connection = pymysql.connect(host=server.host, port=server.port, user=server.user, autocommit=True)
        with connection, connection.cursor() as cursor:
            cursor.execute("CREATE DATABASE bench CHARACTER SET utf8mb4")
            cursor.execute("USE bench")
            cursor.execute("SET time_zone = '+00:00', sql_mode = ''")
            found = [
                _bulk(cursor, "sb", SB, SB_VALUES, "k = k + 1", rows),
                _bulk(cursor, "zoo", ZOO, ZOO_VALUES, "ti = ti + 1", rows // 5),
                _tiny(cursor, rows // 5),
            ]
        return [_kept(server.directory, folder, *log) for log in found]


def _bulk(cursor, name, columns, values, change, rows):  # noqa: ANN001, ANN202
    cursor.execute(f"CREATE TABLE bench.{name} ({columns})")
    file = _new_file(cursor)
    for first in range(0, rows, 2000):
        cursor.execute(f"INSERT INTO bench.{name} SELECT {values} FROM seq_{first + 1}_to_{min(first + 2000, rows)}")
    cursor.execute(f"UPDATE bench.{name} SET {change} WHERE id % 2 = 0")
    updated = cursor.rowcount
    cursor.execute(f"DELETE FROM bench.{name} WHERE id % 10 = 0")
    deleted = cursor.rowcount
    _new_file(cursor)
    return name, file, name, rows + updated + deleted, rows + 2 * updated + deleted


def _tiny(cursor, rows):  # noqa: ANN001, ANN202
    cursor.execute(f"CREATE TABLE bench.tiny ({SB})")
    cursor.execute(
        "CREATE PROCEDURE bench.fill(n int) BEGIN DECLARE seq int DEFAULT 0; WHILE seq < n DO SET seq = seq + 1; "
        f"INSERT INTO bench.tiny VALUES ({SB_VALUES}); END WHILE; END"
    )
    file = _new_file(cursor)
    cursor.execute("SET max_error_count = 0")
    cursor.execute(f"CALL bench.fill({rows})")
    _new_file(cursor)
    return "tiny", file, "tiny", rows, rows


def _new_file(cursor) -> str:  # noqa: ANN001
    cursor.execute("FLUSH BINARY LOGS")
    cursor.execute("SHOW MASTER STATUS")
    return str(cursor.fetchone()[0])


def _kept(server: Path, folder: Path, name: str, file: str, table: str, changes: int, images: int) -> Log:
    source = next(server.rglob(file))
    path = folder / file
    path.write_bytes(source.read_bytes())
    return Log(name, path, f"bench.{table}", changes, images)
