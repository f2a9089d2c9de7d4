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
    ("error", "says"),
    [
        (
            postgres.translate_connect(psycopg.OperationalError('database "shop" does not exist'), "h:5432/shop"),
            "CREATE DATABASE",
        ),
        (
            mysql.translate_connect(pymysql.err.OperationalError(1049, "Unknown database 'shop'"), "h:3306"),
            "CREATE DATABASE",
        ),
        (
            postgres.translate_connect(psycopg.OperationalError('role "u" does not exist'), "h:5432/shop"),
            "connect with another one: --target URL",
        ),
        (
            postgres.translate_connect(
                psycopg.OperationalError('connection to server at "database", port 5432: role "u" does not exist'),
                "database:5432/shop",
            ),
            "connect with another one: --target URL",
        ),
    ],
    ids=["postgres", "mysql", "account", "account on a host called database"],
)
def test_the_advice(error: PidtsError, says: str) -> None:
    with pytest.raises(PrecheckFailed) as caught, _hinted("--target"):
        raise error
    assert caught.value.code == "target-denied"
    assert says in caught.value.todo
