"""Every target must fulfil the same claims: each test with the fixture `target` runs once for each kind of target."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from tests.object_store import object_store
from tests.values_target import ValuesTarget

from pidts import sandbox
from pidts.apply import Target, TargetSession
from pidts.login import Mode, Tls
from pidts.model import TableName
from pidts.target import IcebergTarget, MySqlTarget, PostgresTarget
from pidts.target.mysql import connection as mysql_connection
from pidts.target.postgres import connection as postgres_connection

_OPTIONAL = ("tidb",) if sandbox.installed()["tidb"] else ()
MYSQL_KINDS = ("mariadb", "mysql97", "mysql56", *_OPTIONAL)
"""The servers that speak MySQL's protocol."""
KINDS = ("values", "values-journaled", "postgres", *MYSQL_KINDS, "iceberg")
UNLIKE_TIDB = {
    "test_a_key_is_found_whatever_the_sign_of_its_zero": "TiDB stores -0.0 as 0.0",
    "test_a_row_keeps_the_sign_of_its_zeros": "TiDB stores -0.0 as 0.0",
    "test_a_row_that_is_nearly_the_same_stays[json": "numbers in TiDB's documents are doubles, without a sign of the type",
    "test_a_table_that_a_trigger_misses": "TiDB has no triggers",
    "test_chunks_are_loaded_side_by_side": "TiDB has no shared locks: chunks are loaded one after the other",
    "test_keys_left_for_later_are_made": "TiDB's counter also passes the numbers of refused rows",
    "test_loaded_rows_keep_the_sign_of_their_zeros": "TiDB stores -0.0 as 0.0, and gets no files",
    "test_many_sessions_share_the_lock": "TiDB has no shared locks",
    "test_names_may_be_swapped": "TiDB refuses to swap the names of two columns in one statement",
    "test_numbers_of_documents_keep_all_digits": "numbers in TiDB's documents are doubles",
    "test_odd_dates_labels_and_documents": "numbers in TiDB's documents are doubles",
    "test_primary_keys_change": "TiDB keeps a clustered primary key as it is",
    "test_the_advice_has_the_statement_that_removes": "TiDB's error may have another cause: no key is named for certain",
    "test_the_server_does_not_send_more_near_rows": "TiDB does not count the bytes that it sends",
}
"""The beginnings of the names of tests whose claim TiDB does not fulfil, and the reasons. `docs/internals` has them, too.
"""
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
    if kind.startswith("tidb"):
        for name, reason in UNLIKE_TIDB.items():
            if request.node.name.startswith(name):
                pytest.skip(reason)
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
