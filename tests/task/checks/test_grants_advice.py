"""The advice of `pidts grants` after a refused login: another account, unless the database is missing."""

from __future__ import annotations

import psycopg
import pymysql
import pytest

from pidts.model import PidtsError, PrecheckFailed, Where
from pidts.source.failures import explain
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


SEEN = [
    (1045, "Access denied for user 'u'@'10.1.2.3' (using password: YES)", "10.1.2.3"),
    (1045, "Access denied for user 'u'@'db-client.example' (using password: YES)", "db-client.example"),
    (1130, "Host '10.1.2.3' is not allowed to connect to this MariaDB server", "10.1.2.3"),
]


@pytest.mark.parametrize(("number", "text", "host"), SEEN)
def test_after_a_refused_login_the_advice_names_the_host_that_the_server_sees(
    number: int, text: str, host: str
) -> None:
    error = pymysql.err.OperationalError(number, text)
    todo = mysql.translate_connect(error, "h:3306").todo
    assert f"`pidts grants TASK --only target --host {host} --target 'mysql://ADMIN" in todo
    assert f"The source sees this machine as {host}: " in explain(error, Where(), login=True).todo
    if number == 1045:
        assert f"If an account for the host {host}, for its address or for % exists: correct user" in todo


def test_a_database_that_may_be_misspelt_is_not_only_called_a_missing_grant() -> None:
    error = pymysql.err.OperationalError(1044, "Access denied for user 'u'@'%' to database 'shpo'")
    todo = mysql.translate_connect(error, "h:3306").todo
    assert "the server gives the same answer if there is no such database" in todo
    assert "pidts grants TASK --only target" in todo


def test_a_login_that_is_refused_without_a_host_is_advised_without_one() -> None:
    error = pymysql.err.OperationalError(1045, "no")
    assert "--host" not in mysql.translate_connect(error, "h:3306").todo
    assert "sees this machine" not in explain(error, Where(), login=True).todo
    refused = pymysql.err.OperationalError(1130, "no")
    assert "--host ADDRESS" in mysql.translate_connect(refused, "h:3306").todo


@pytest.mark.parametrize(
    ("error", "lacks"),
    [
        (mysql.translate(pymysql.err.OperationalError(1142, "INSERT command denied"), "shop.orders"), True),
        (mysql.translate(pymysql.err.DataError(1366, "Incorrect integer value"), "shop.orders"), False),
        (postgres.translate(psycopg.errors.InsufficientPrivilege("permission denied"), "shop.orders"), True),
        (postgres.translate(psycopg.errors.CheckViolation("violates check constraint"), "shop.orders"), False),
        (PrecheckFailed("missing-privilege", "no SELECT"), True),
    ],
)
def test_a_missing_privilege_is_told_apart_from_a_refused_row(error: PidtsError, *, lacks: bool) -> None:
    assert error.lacks_privilege is lacks
