"""Makes the files in `vectors/` anew from servers that it starts.

The command is `python -m tests.binlog.logs.make_vectors [kind ...]`.

`KIND@PORT:FOLDER` takes a server that runs already and keeps its log in FOLDER (`mariadb118@3306:/var/log/mysql`). In
this way, the vectors of versions that the tests do not start are made. The server's log files must be called
`bin.000001` and so on.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pymysql
from tests.binlog.logs.scenarios import VECTORS, keep, play, scenarios

from pidts import sandbox

STARTS = {"mariadb": sandbox.start_mariadb, "mysql97": sandbox.start_mysql97, "mysql56": sandbox.start_mysql56}


def main(kinds: list[str]) -> None:
    VECTORS.mkdir(exist_ok=True)
    for kind in kinds or list(STARTS):
        name, _, running = kind.partition("@")
        if running:
            port, _, folder = running.partition(":")
            record(name, int(port), Path(folder))
        else:
            with STARTS[name]() as server:
                record(name, server.port, server.directory / "binlog")


def record(kind: str, port: int, logs: Path) -> None:
    for scenario in scenarios(kind):
        connection = pymysql.connect(host="127.0.0.1", port=port, user="root", charset="utf8mb4", autocommit=True)
        with connection, connection.cursor() as cursor:
            keep(play(cursor, kind, scenario, logs), f"{kind}-{scenario.name}")


if __name__ == "__main__":
    main(sys.argv[1:])
