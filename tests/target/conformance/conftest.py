"""Every target must fulfil the same claims: each test with the fixture `target` runs once for each kind of target."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from tests.object_store import object_store
from tests.values_target import ValuesTarget

from pidts.apply import Target, TargetSession
from pidts.login import Mode, Tls
from pidts.model import TableName
from pidts.target import IcebergTarget, MySqlTarget, PostgresTarget
from pidts.target.mysql import connection as mysql_connection
from pidts.target.postgres import connection as postgres_connection

KINDS = ("values", "values-journaled", "postgres", "mariadb", "mysql97", "mysql56", "iceberg")
IN_STORE = "iceberg in an object store"

__all__ = ["object_store"]

_numbers = itertools.count(int(time.time()) % 1_000_000 * 1000)


@pytest.fixture(params=[*KINDS, pytest.param(IN_STORE, marks=pytest.mark.long)])
def kind(request: pytest.FixtureRequest) -> str:
    """Returns the kind of target of this run."""
    return "iceberg" if request.param == IN_STORE else str(request.param)


@pytest.fixture(scope="session")
def prepared() -> dict[str, Target]:
    """Returns the last target of each kind whose meta tables exist: one server has them for all tests."""
    return {}


@pytest.fixture
def target(kind: str, request: pytest.FixtureRequest) -> Iterator[Target]:
    """Returns a target that has the meta tables."""
    made: Target
    if kind.startswith("values"):
        made = ValuesTarget(f"conformance-{next(_numbers)}", transactional_ddl=kind == "values")
    elif kind == "iceberg":
        pytest.importorskip("pyiceberg")
        is_in_store = request.node.callspec.params.get("kind") == IN_STORE
        files = request.getfixturevalue("object_store").bucket() if is_in_store else ""
        made = IcebergTarget(str(request.getfixturevalue("tmp_path")), files=files)
    else:
        server = request.getfixturevalue(kind)
        settings = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
        # Encryption is tested in tests/login; the driver reads the system's certificates for every connection.
        made = PostgresTarget(**settings) if kind == "postgres" else MySqlTarget(**settings, tls=Tls(Mode.DISABLED))
    if (prepared := request.getfixturevalue("prepared")).get(kind) != made:
        session = made.connect()
        session.meta.prepare()
        session.close()
        prepared[kind] = made
    yield made
    if isinstance(made, ValuesTarget):
        made.forget()


@pytest.fixture
def session(target: Target) -> Iterator[TargetSession]:
    """Returns a session with the target."""
    with closing(target.connect()) as made:
        yield made


@pytest.fixture
def name(request: pytest.FixtureRequest) -> TableName:
    """Returns the name of a table that no other test has."""
    return TableName("conformance", f"{request.node.originalname[:40]}_{next(_numbers)}")


@pytest.fixture
def task(request: pytest.FixtureRequest) -> str:
    """Returns the name of a task that no other test has."""
    return f"{request.node.name}-{next(_numbers)}"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions that are opened from now on wait at most a second for a lock."""
    monkeypatch.setattr(
        "pidts.target.postgres.connection._SETTINGS",
        tuple(sql.replace("lock_timeout = '30s'", "lock_timeout = '1s'") for sql in postgres_connection._SETTINGS),
    )
    monkeypatch.setattr(
        "pidts.target.mysql.connection._SETTINGS",
        tuple(sql.replace("lock_wait_timeout = 30", "lock_wait_timeout = 1") for sql in mysql_connection._SETTINGS),
    )
    monkeypatch.setattr("pidts.target.mysql.meta.LOCK_WAIT", 1)
    monkeypatch.setattr("pidts.target.iceberg.connection.LOCK_SECONDS", 1.0)
