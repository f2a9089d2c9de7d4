"""Makes the files in `vectors/` anew, out of servers started for it: `python -m tests.binlog.make_vectors [kind ...]`."""

from __future__ import annotations

import sys

import pymysql

from pidts import sandbox

from .scenarios import VECTORS, keep, play, scenarios

STARTS = {"mariadb": sandbox.start_mariadb, "mysql97": sandbox.start_mysql97, "mysql56": sandbox.start_mysql56}


def main(kinds: list[str]) -> None:
    VECTORS.mkdir(exist_ok=True)
    for kind in kinds or list(STARTS):
        with STARTS[kind]() as server:
            for scenario in scenarios(kind):
                connection = pymysql.connect(
                    host=server.host, port=server.port, user=server.user, charset="utf8mb4", autocommit=True
                )
                with connection, connection.cursor() as cursor:
                    keep(play(cursor, kind, scenario, server.directory / "binlog"), f"{kind}-{scenario.name}")


if __name__ == "__main__":
    main(sys.argv[1:])
