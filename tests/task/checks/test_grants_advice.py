"""The advice of `pidts grants` after a refused login: another account, unless the database is missing."""

from __future__ import annotations

import psycopg
import pymysql
import pytest

from pidts.model import PidtsError, PrecheckFailed
from pidts.target.mysql import errors as mysql
from pidts.target.postgres import errors as postgres
from pidts.task.checks.grants import _hinted


@pytest.mark.parametrize(
    ("error", "is_given", "says"),
    [
        (
            postgres.translate_connect(psycopg.OperationalError('database "shop" does not exist'), "h:5432/shop"),
            True,
            "CREATE DATABASE",
        ),
        (
            mysql.translate_connect(pymysql.err.OperationalError(1049, "Unknown database 'shop'"), "h:3306"),
            True,
            "CREATE DATABASE",
        ),
        (
            postgres.translate_connect(psycopg.OperationalError('role "u" does not exist'), "h:5432/shop"),
            False,
            "connect with another one: --target URL",
        ),
        (
            postgres.translate_connect(
                psycopg.OperationalError('connection to server at "database", port 5432: role "u" does not exist'),
                "database:5432/shop",
            ),
            False,
            "connect with another one: --target URL",
        ),
        (
            postgres.translate_connect(psycopg.OperationalError("password authentication failed"), "h:5432/shop"),
            True,
            "Without a password in the URL, MYSQL_PWD (MySQL, MariaDB) or PGPASSWORD (PostgreSQL) is used",
        ),
    ],
    ids=["postgres", "mysql", "account", "account on a host called database", "another account"],
)
def test_the_advice(error: PidtsError, says: str, *, is_given: bool) -> None:
    with pytest.raises(PrecheckFailed) as caught, _hinted("--target", is_given=is_given):
        raise error
    assert caught.value.code == "target-denied"
    assert says in caught.value.todo
