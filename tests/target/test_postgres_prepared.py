"""Statements of a PostgreSQL session are prepared when they come often, and again after an error."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from pidts.model import PidtsError
from pidts.sandbox import Server
from pidts.target.postgres.statement_pipeline import PreparedStatements, StatementPipeline

_OFTEN = 6


def test_a_statement_that_comes_often_gets_a_name() -> None:
    prepared, key = PreparedStatements(), (b"SELECT $1", (20,))
    assert [prepared.new(key) for _ in range(_OFTEN)] == [None] * (_OFTEN - 1) + [b"pidts_1"]
    assert prepared.known(key) == b"pidts_1"
    assert prepared.known((b"SELECT $1", (21,))) is None  # other types are another statement


def test_the_least_recently_used_statement_is_given_up() -> None:
    prepared, keys = PreparedStatements(most=2), [(sql, ()) for sql in (b"A", b"B", b"C")]
    for key in keys[:2]:
        assert [prepared.new(key) for _ in range(_OFTEN)][-1] is not None
    assert prepared.surplus() is None
    assert prepared.known(keys[0]) == b"pidts_1"
    assert [prepared.new(keys[2]) for _ in range(_OFTEN)][-1] == b"pidts_3"
    assert prepared.surplus() == b"pidts_2"
    assert [prepared.known(key) for key in keys] == [b"pidts_1", None, b"pidts_3"]


def test_a_long_statement_without_parameters_gets_no_name() -> None:
    prepared, key = PreparedStatements(), (b"SELECT 1" * 1000, ())
    assert [prepared.new(key) for _ in range(_OFTEN)] == [None] * _OFTEN


def test_forgotten_statements_are_prepared_again_under_other_names() -> None:
    prepared, key = PreparedStatements(), (b"A", ())
    assert not prepared.forget()
    assert [prepared.new(key) for _ in range(_OFTEN)][-1] == b"pidts_1"
    assert prepared.forget()
    assert prepared.known(key) is None
    assert prepared.new(key) == b"pidts_2"


@pytest.fixture
def connection(postgres: Server) -> Iterator[psycopg.Connection]:
    with psycopg.connect(
        host=postgres.host, port=postgres.port, user=postgres.user, dbname="postgres", autocommit=True
    ) as made:
        made.execute("CREATE TEMPORARY TABLE prepared (id bigint PRIMARY KEY, text text)")
        yield made


def _names(connection: psycopg.Connection) -> list[str]:
    return [name for (name,) in connection.execute("SELECT name FROM pg_prepared_statements ORDER BY name")]


def _put(pipeline: StatementPipeline, key: int, text: str = "100 %") -> int:
    pipeline.later("BEGIN")
    sql = "INSERT INTO prepared SELECT %s, %s WHERE 'a' NOT LIKE 'b%%'"
    pipeline.later(sql, (key, text), table="prepared")
    ((found,),) = pipeline.now("SELECT id FROM prepared WHERE id = $1", (key,), numbered=True).rows
    assert pipeline.now("COMMIT").status == "COMMIT"
    return int(found)


def test_a_session_goes_on_after_an_error_and_prepares_its_statements_again(connection: psycopg.Connection) -> None:
    pipeline = StatementPipeline(connection)
    keys = range(2 * _OFTEN)
    assert [_put(pipeline, key) for key in keys] == list(keys)
    before = _names(connection)
    assert len(before) == 3
    with pytest.raises(PidtsError) as refused:
        _put(pipeline, 3)
    assert refused.value.where.table == "prepared"
    pipeline.drop()
    connection.execute("ROLLBACK")
    assert [_put(pipeline, key) for key in range(100, 103)] == [100, 101, 102]
    assert len(_names(connection)) == 3
    assert not set(_names(connection)) & set(before)
    assert {text for (text,) in connection.execute("SELECT text FROM prepared")} == {"100 %"}


def test_a_value_that_cannot_be_sent_leaves_the_connection_usable(connection: psycopg.Connection) -> None:
    pipeline = StatementPipeline(connection)
    with pytest.raises(PidtsError) as refused:
        _put(pipeline, 1, "a\0b")
    assert refused.value.where.table == "prepared"
    assert _put(pipeline, 1) == 1


def test_the_server_gives_up_surplus_statements(connection: psycopg.Connection) -> None:
    pipeline = StatementPipeline(connection, PreparedStatements(most=4))
    for number in range(6):
        for key in range(_OFTEN):
            sql = f"SELECT %s::bigint + {number}"
            pipeline.later("SELECT 1")
            assert pipeline.now(sql, (key,)).rows == [(key + number,)]
    assert len(_names(connection)) == 4


def test_the_answer_of_a_lost_connection_is_an_error(connection: psycopg.Connection, postgres: Server) -> None:
    pipeline = StatementPipeline(connection)
    with psycopg.connect(
        host=postgres.host, port=postgres.port, user=postgres.user, dbname="postgres", autocommit=True
    ) as other:
        other.execute("SELECT pg_terminate_backend(%s)", (connection.info.backend_pid,))
    pipeline.later("BEGIN")
    with pytest.raises(PidtsError, match=r"the connection to PostgreSQL is lost|57P01"):
        pipeline.now("COMMIT")
    assert connection.closed
